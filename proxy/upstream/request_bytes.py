"""A request as it is sent: where it goes, its head, its body in pieces. No I/O.

A header cannot end the head early, whatever a client put into it: line ends and NUL are refused here, once more.
Source: RFC 9112, sections 3 and 6.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from yarl import URL

from proxy import __version__
from proxy.http_client import HttpRequest
from proxy.upstream.pool import Origin

# One call's worth of socket buffer; a body is handed over in pieces of this size so that the loop breathes between.
PIECE_BYTES = 256 * 1024
# Parts below this are joined: a write for each would cost more than the copy.
_JOINED_BYTES = 32 * 1024

_ENDS = re.compile(r"[\r\n\0]")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# They say where a request ends, which is not for a setting or a client to say.
_FRAMING = frozenset({"content-length", "transfer-encoding", "expect", "upgrade", "te", "trailer"})
# Asked for undecoded: an answer in many small pieces costs more to inflate than it saves.
_DEFAULTS = {"accept": "*/*", "accept-encoding": "identity", "user-agent": f"loopline/{__version__}"}
_BODILESS = frozenset({"GET", "HEAD", "DELETE", "OPTIONS"})


class Opening(NamedTuple):
    """Where a request goes, and its head but for the length of the body."""

    origin: Origin
    head: bytes


def opening(request: HttpRequest) -> Opening:
    """Raises ValueError for what is no http URL or no method, for a header that is none or that would end elsewhere.

    Turns of one socket differ in their body alone, so the last ones are kept.
    """
    return _opening(
        request.method, request.url, tuple(request.query.items()), tuple(request.headers), request.ca_bundle
    )


def length_line(method: str, body_bytes: int) -> bytes:
    """What ends the head."""
    if body_bytes or method not in _BODILESS:
        return b"content-length: %d\r\n\r\n" % body_bytes
    return b"\r\n"


def header_lines(headers: Iterable[tuple[str, str]]) -> bytes:
    """More headers for the head, which are known to be such."""
    return b"".join(f"{name}: {value}\r\n".encode() for name, value in headers)


@lru_cache(maxsize=64)
def _opening(
    method: str, url: str, query: tuple[tuple[str, str], ...], headers: tuple[tuple[str, str], ...], ca_bundle: str
) -> Opening:
    target = _target(url, query)
    if not _TOKEN.fullmatch(method):
        raise ValueError("no method")
    names = {name.lower() for name, _ in headers}
    if not all(_TOKEN.fullmatch(name) for name, _ in headers):
        raise ValueError("not a header's name")
    if not names.isdisjoint(_FRAMING):
        raise ValueError("a header that Loopline sets itself")
    defaults = {"host": target.host_port_subcomponent, **_DEFAULTS}
    lines = [f"{name}: {value}" for name, value in defaults.items() if name not in names]
    lines += [f"{name}: {value}" for name, value in headers]
    if any(_ENDS.search(line) for line in lines):
        raise ValueError("a line end or NUL in a header")
    whole = "\r\n".join((f"{method} {target.raw_path_qs} HTTP/1.1", *lines, ""))
    origin = Origin(target.raw_host or "", target.port or 0, target.scheme == "https", ca_bundle)
    # Bytes that no encoding explained came in as surrogates, and leave as the bytes that they were.
    return Opening(origin, whole.encode("utf-8", "surrogateescape"))


@lru_cache(maxsize=64)
def _target(url: str, query: tuple[tuple[str, str], ...]) -> URL:
    target = URL(url).extend_query(query) if query else URL(url)
    if target.scheme not in ("http", "https") or not target.raw_host or not target.port:
        raise ValueError("no http URL")
    return target


def pieces(parts: Sequence[bytes]) -> Iterator[bytes | memoryview]:
    """`parts` one after another, in pieces of at most `PIECE_BYTES`: small parts joined, large ones cut uncopied."""
    joined: list[bytes] = []
    size = 0
    for part in parts:
        if size + len(part) > PIECE_BYTES or len(part) > _JOINED_BYTES:
            if size:
                yield b"".join(joined)
            joined, size = [], 0
        if len(part) > _JOINED_BYTES:
            view = memoryview(part)
            for start in range(0, len(part), PIECE_BYTES):
                yield view[start : start + PIECE_BYTES]
        else:
            joined.append(part)
            size += len(part)
    if size:
        yield b"".join(joined)
