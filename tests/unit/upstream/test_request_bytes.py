"""What is sent: the head, which nobody can end early, and the body in pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy import __version__
from proxy.http_client import HttpRequest
from proxy.upstream.pool import Origin
from proxy.upstream.request_bytes import PIECE_BYTES, length_line, opening, pieces


def sent(url: str = "http://host/v1/x", method: str = "POST", **options: object) -> list[bytes]:
    """The lines of a head."""
    request = HttpRequest(method, url, **options)  # type: ignore[arg-type]
    return (opening(request).head + length_line(method, 2)).split(b"\r\n")


def test_a_whole_head() -> None:
    headers = [("authorization", "Bearer key"), ("accept", "text/event-stream")]
    assert sent("https://host.test/v1/chat", headers=headers, query={"api-version": "1 2"}) == [
        b"POST /v1/chat?api-version=1+2 HTTP/1.1",
        b"host: host.test",
        b"accept-encoding: identity",
        b"user-agent: loopline/" + __version__.encode(),
        b"authorization: Bearer key",
        b"accept: text/event-stream",
        b"content-length: 2",
        b"",
        b"",
    ]


@pytest.mark.parametrize(
    ("url", "host", "origin"),
    [
        ("http://Host.Test/x", b"host.test", Origin("host.test", 80, False)),
        ("http://host:80/x", b"host", Origin("host", 80, False)),
        ("https://host:443/x", b"host", Origin("host", 443, True)),
        ("https://host:80/x", b"host:80", Origin("host", 80, True)),
        ("http://host:8000/x", b"host:8000", Origin("host", 8000, False)),
        ("http://127.0.0.1:8000/x", b"127.0.0.1:8000", Origin("127.0.0.1", 8000, False)),
        ("http://[::1]:8000/x", b"[::1]:8000", Origin("::1", 8000, False)),
        ("https://[2001:db8::1]/x", b"[2001:db8::1]", Origin("2001:db8::1", 443, True)),
        ("http://münchen.test/x", b"xn--mnchen-3ya.test", Origin("xn--mnchen-3ya.test", 80, False)),
    ],
)
def test_host_and_origin(url: str, host: bytes, origin: Origin) -> None:
    assert b"host: " + host in sent(url)
    assert opening(HttpRequest("GET", url)).origin == origin


def test_a_ca_bundle_makes_another_origin() -> None:
    assert opening(HttpRequest("GET", "https://a/", ca_bundle="own.pem")).origin.ca_bundle == "own.pem"


@pytest.mark.parametrize("name", ["Host", "User-Agent", "Accept", "accept-encoding"])
def test_what_the_settings_say_is_not_said_twice(name: str) -> None:
    named = [line for line in sent(headers=[(name, "own")]) if line.lower().startswith(name.lower().encode() + b":")]
    assert named == [name.encode() + b": own"]


@pytest.mark.parametrize(
    ("method", "body_bytes", "line"),
    [("POST", 0, b"content-length: 0\r\n\r\n"), ("GET", 0, b"\r\n"), ("GET", 1, b"content-length: 1\r\n\r\n")],
)
def test_the_length_is_said_where_there_may_be_a_body(method: str, body_bytes: int, line: bytes) -> None:
    assert length_line(method, body_bytes) == line


@pytest.mark.parametrize("end", ["\r\n", "\r", "\n", "\0", "\r\nx-evil: 1", "\n\nGET / HTTP/1.1"])
@pytest.mark.parametrize("place", ["name", "value", "method", "url", "query", "end of a value"])
def test_nothing_ends_the_head_early(place: str, end: str) -> None:
    options: dict[str, object] = {
        "name": {"headers": [("x" + end, "y")]},
        "value": {"headers": [("x", "a" + end + "b")]},
        "end of a value": {"headers": [("x", "a" + end)]},
        "method": {"method": "GET" + end},
        "url": {"url": "http://host/v1" + end},
        "query": {"query": {"a": "b" + end}},
    }
    try:
        lines = sent(**options[place])  # type: ignore[arg-type]
    except ValueError:
        return
    assert place in ("url", "query")  # there it is written as %0A
    assert len(lines) == 8
    assert not any({0, 10, 13} & set(line) for line in lines)


@given(st.text(), st.text())
def test_no_header_makes_two(name: str, value: str) -> None:
    try:
        lines = sent(headers=[(name, value)])
    except ValueError:
        return
    assert lines[-4].startswith(name.encode() + b": ")
    assert len(lines) in (8, 9)  # one of ours gives way to its namesake
    assert lines[-2:] == [b"", b""]


@pytest.mark.parametrize("name", ["Content-Length", "transfer-encoding", "Expect", "upgrade"])
def test_where_a_request_ends_is_not_for_a_header_to_say(name: str) -> None:
    with pytest.raises(ValueError, match="sets itself"):
        sent(headers=[(name, "1")])


@pytest.mark.parametrize("name", ["", "a b", "a:", "é", "a\t"])
def test_a_name_that_is_none(name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        sent(headers=[(name, "x")])


@pytest.mark.parametrize("url", ["", "host", "ftp://host/", "http:///x", "/v1", "http://host:99999/"])
def test_an_url_that_is_none(url: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        sent(url)


def test_bytes_that_no_encoding_explained_leave_as_they_came() -> None:
    assert b"x: \xe9" in sent(headers=[("x", b"\xe9".decode("utf-8", "surrogateescape"))])


@given(
    st.lists(st.sampled_from([0, 1, 100, 32 * 1024, 32 * 1024 + 1, PIECE_BYTES - 1, PIECE_BYTES, 2 * PIECE_BYTES + 7]))
)
def test_pieces_are_the_parts(sizes: list[int]) -> None:
    parts = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    made = list(pieces(parts))
    assert b"".join(made) == b"".join(parts)
    assert all(0 < len(piece) <= PIECE_BYTES for piece in made)


def test_many_small_parts_are_few_pieces_and_large_ones_are_not_copied() -> None:
    assert len(list(pieces([b"x" * 100] * 1000))) == 1
    large = bytes(3 * PIECE_BYTES)
    views = [piece for piece in pieces([b"head", large]) if isinstance(piece, memoryview)]
    assert [view.obj is large for view in views] == [True] * 3
