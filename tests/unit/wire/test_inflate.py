"""Compressed bodies: whole, in pieces, cut, followed by more, and bombs."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable

import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import Kind, LooplineError
from proxy.wire.inflate import PIECE_BYTES, Inflater, TooLarge, coding_of

MIB = 1024 * 1024


def raw_deflate(data: bytes) -> bytes:
    """Deflate without zlib's header."""
    machine = zlib.compressobj(wbits=-15)
    return machine.compress(data) + machine.flush()


FORMS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "x-gzip": ("x-gzip", gzip.compress),
    "zlib": ("deflate", zlib.compress),
    "raw deflate": ("deflate", raw_deflate),
    "zstd": ("zstd", zstd.compress),
}
form = pytest.mark.parametrize("form", FORMS)


def inflate(form: str, data: bytes, step: int = 1 << 30, max_bytes: int = 64 * MIB, ratio: int = 0) -> bytes:
    """The whole of a body that arrives in pieces of `step` bytes."""
    inflater = Inflater(FORMS[form][0], max_bytes, ratio)
    parts = []
    for start in range(0, len(data), step):
        for piece in inflater.feed(data[start : start + step]):
            assert len(piece) <= PIECE_BYTES
            parts.append(piece)
    inflater.finish()
    return b"".join(parts)


@form
@pytest.mark.parametrize("body", [b"", b"x", b'{"input":"hello"}' * 100_000, bytes(PIECE_BYTES), bytes(3 * MIB)])
@pytest.mark.parametrize("step", [1, 7, 1 << 30])
def test_a_body_is_what_it_was(form: str, body: bytes, step: int) -> None:
    assert inflate(form, FORMS[form][1](body), step) == body


@given(st.sampled_from(sorted(FORMS)), st.binary(max_size=2000), st.integers(1, 50))
def test_any_body_in_any_pieces(form: str, body: bytes, step: int) -> None:
    assert inflate(form, FORMS[form][1](body), step) == body


@form
def test_a_cut_body_is_refused(form: str) -> None:
    data = FORMS[form][1](b"something to say " * 10)
    for end in (0, 1, len(data) // 2, len(data) - 1):
        with pytest.raises(LooplineError, match="not valid") as caught:
            inflate(form, data[:end])
        assert caught.value.kind is Kind.INVALID_REQUEST


@form
@pytest.mark.parametrize("step", [1, 1 << 30])
def test_what_follows_the_end_is_refused(form: str, step: int) -> None:
    data = FORMS[form][1](b"first")
    for more in (b"x", data, bytes(10)):
        with pytest.raises(LooplineError, match="something follows its end"):
            inflate(form, data + more, step)


@form
def test_other_bytes_are_refused(form: str) -> None:
    with pytest.raises(LooplineError, match=f"not valid {FORMS[form][0]}"):
        inflate(form, b'{"input": "not compressed"}')


@form
@pytest.mark.parametrize(("max_bytes", "ratio"), [(MIB, 0), (1 << 40, 100)])
def test_a_bomb_is_given_up_soon(form: str, max_bytes: int, ratio: int) -> None:
    data = FORMS[form][1](bytes(20 * MIB))
    inflater = Inflater(FORMS[form][0], max_bytes, ratio)
    pieces = (piece for start in range(0, len(data), 4096) for piece in inflater.feed(data[start : start + 4096]))
    sizes: list[int] = []
    with pytest.raises(TooLarge, match="limits"):
        sizes.extend(map(len, pieces))
    assert sum(sizes) <= MIB + 100 * 4096 * 2


def test_the_window_of_zstd_is_what_http_allows() -> None:
    wide: dict[int, int] = {
        zstd.CompressionParameter.window_log: 27,
        zstd.CompressionParameter.enable_long_distance_matching: 1,
    }
    data = zstd.compress(bytes(9 * MIB), options=wide)
    machine = zstd.ZstdCompressor(options=wide)
    streamed = machine.compress(b"x" * 100) + machine.flush()
    for each in (data, streamed):
        with pytest.raises(LooplineError, match="not valid zstd"):
            inflate("zstd", each)


@pytest.mark.parametrize(
    ("headers", "coding"),
    [([], None), ([""], None), (["identity"], None), ([" GZIP "], "gzip"), (["identity, zstd"], "zstd")],
)
def test_the_coding_is_read(headers: list[str], coding: str | None) -> None:
    assert coding_of(headers) == coding


@pytest.mark.parametrize("headers", [["gzip, gzip"], ["gzip", "zstd"], ["br"], ["gzip;q=1"]])
def test_several_codings_or_an_unknown_one_are_refused(headers: list[str]) -> None:
    with pytest.raises(LooplineError) as caught:
        coding_of(headers)
    assert caught.value.kind is Kind.UNSUPPORTED_MEDIA
