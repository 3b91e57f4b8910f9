"""Trace Context: what is valid, what is not, and how it is written again."""

from __future__ import annotations

import pytest

from proxy.wire.trace_context import read_traceparent, read_tracestate, trace_of

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        (f"00-{TRACE}-{SPAN}-01", "01"),
        (f"00-{TRACE}-{SPAN}-00", "00"),
        (f" 00-{TRACE}-{SPAN}-01\t", "01"),
        (f"00-{TRACE}-{SPAN}-ff", "01"),  # flags that we do not know are not passed on
        (f"00-{TRACE}-{SPAN}-02", "00"),
        (f"cc-{TRACE}-{SPAN}-01", "01"),  # a later version is read as far as it is known
        (f"cc-{TRACE}-{SPAN}-01-what.comes.next", "01"),
    ],
)
def test_valid_traceparents(text: str, flags: str) -> None:
    read = read_traceparent(text)
    assert read == f"00-{TRACE}-{SPAN}-{flags}"
    assert trace_of(read) == TRACE


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-01-",
        f"cc-{TRACE}-{SPAN}-01.more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE[:-1]}-{SPAN}-01",
        f"00-{TRACE}x-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\n",
        f"00-{TRACE}-{SPAN}-01, 00-{TRACE}-{SPAN}-01",
        f"cc-{TRACE}-{SPAN}-01-{'x' * 1000}",
        "00-٠af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    ],
)
def test_invalid_traceparents(text: str) -> None:
    assert read_traceparent(text) == ""


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("", ""),
        ("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"),
        (" a=1 ,\t, b=2 ", "a=1,b=2"),
        ("tenant@system=v;w:x/y", "tenant@system=v;w:x/y"),
        ("a=1,a=2", ""),
        ("A=1", ""),
        ("a", ""),
        ("a=b=c", ""),
        ("a=ü", ""),
        (f"a={'x' * 256}", f"a={'x' * 256}"),
        (f"a={'x' * 257}", ""),
        (",".join(f"k{n}=v" for n in range(32)), ",".join(f"k{n}=v" for n in range(32))),
        (",".join(f"k{n}=v" for n in range(33)), ""),
        (",".join(f"k{n}={'v' * 100}" for n in range(6)), ""),
        ("a=1\r\nx: y", ""),
    ],
)
def test_tracestates(text: str, read: str) -> None:
    assert read_tracestate(text) == read
