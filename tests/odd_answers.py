"""Answers of HTTP servers, odd and plain, and what a client is to make of each."""

from __future__ import annotations

import gzip
import zlib
from typing import NamedTuple

from proxy.errors import Kind


class Made(NamedTuple):
    """What reading an answer to its end gives. `kind` is how it failed, None if it did not."""

    status: int
    body: bytes
    kind: Kind | None = None


_HEAD = b"HTTP/1.1 200 OK\r\n"
_TWO = b"Content-Length: 2\r\n\r\nok"
_CHUNKED = _HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
_TEXT = b"ok" * 100
_OK = Made(200, b"ok")
_GARBLED = Made(0, b"", Kind.UPSTREAM_GARBLED)
_CLOSED = Made(0, b"", Kind.UPSTREAM_CLOSED)
_CUT = Made(200, b"ok", Kind.UPSTREAM_CLOSED)
_SPOILT = Made(200, b"ok", Kind.UPSTREAM_GARBLED)


def _packed(coding: bytes, body: bytes) -> bytes:
    return _HEAD + b"Content-Encoding: %b\r\nContent-Length: %d\r\n\r\n%b" % (coding, len(body), body)


ODD: dict[str, tuple[bytes, Made]] = {
    "length": (_HEAD + _TWO, _OK),
    "chunks": (_CHUNKED + b"2\r\nok\r\n3;a=b\r\nabc\r\n0\r\n\r\n", Made(200, b"okabc")),
    "a space after a chunk's size": (_CHUNKED + b"2 \r\nok\r\n0\r\n\r\n", _OK),
    "trailers": (_CHUNKED + b"2\r\nok\r\n0\r\nX-Sum: 1\r\nX-Other: 2\r\n\r\n", _OK),
    "until the end": (_HEAD + b"\r\nok", _OK),
    "1.0 until the end": (b"HTTP/1.0 200 OK\r\n\r\nok", _OK),
    "1.0 with a length": (b"HTTP/1.0 200 OK\r\n" + _TWO, _OK),
    "closing": (_HEAD + b"Connection: close\r\n" + _TWO, _OK),
    "204": (b"HTTP/1.1 204 No\r\n\r\n", Made(204, b"")),
    "204 with a length": (b"HTTP/1.1 204 No\r\nContent-Length: 4\r\n\r\n", Made(204, b"")),
    "304 with a length": (b"HTTP/1.1 304 Not\r\nContent-Length: 4\r\n\r\n", Made(304, b"")),
    "100": (b"HTTP/1.1 100 Continue\r\n\r\n" + _HEAD + _TWO, _OK),
    "103": (b"HTTP/1.1 103 Hints\r\nLink: x\r\n\r\n" + _HEAD + _TWO, _OK),
    "102 five times": (b"HTTP/1.1 102 Processing\r\n\r\n" * 5 + _HEAD + _TWO, _OK),
    "101 unasked": (b"HTTP/1.1 101 S\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nabc", _GARBLED),
    "another answer behind it": (_HEAD + _TWO + _HEAD + b"Content-Length: 3\r\n\r\nbad", _OK),
    "garbage behind it": (_HEAD + _TWO + b"GARBAGE", _OK),
    "cut in the body": (_HEAD + b"Content-Length: 5\r\n\r\nok", _CUT),
    "cut in a chunk": (_CHUNKED + b"5\r\nok", _CUT),
    "cut before the last chunk": (_CHUNKED + b"2\r\nok\r\n", _CUT),
    "cut in the head": (_HEAD + b"Content-Le", _CLOSED),
    "nothing": (b"", _CLOSED),
    "another protocol": (b"SSH-2.0-OpenSSH\r\n\r\n", _GARBLED),
    "a bad chunk": (_CHUNKED + b"2\r\nok\r\nzz\r\n", _SPOILT),
    "a bad first chunk": (_CHUNKED + b"zz\r\n", Made(200, b"", Kind.UPSTREAM_GARBLED)),
    "chunks and a length": (
        _HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        _GARBLED,
    ),
    "two lengths": (_HEAD + b"Content-Length: 3\r\n" + _TWO, _GARBLED),
    "a list of lengths": (_HEAD + b"Content-Length: 2, 2\r\n\r\nok", _GARBLED),
    "a negative length": (_HEAD + b"Content-Length: -2\r\n\r\nok", _GARBLED),
    "a length beyond all": (_HEAD + b"Content-Length: 99999999999999999999999\r\n\r\nok", _GARBLED),
    "a transfer coding alone": (_HEAD + b"Transfer-Encoding: gzip\r\n\r\nok", _OK),
    "a transfer coding in chunks": (_HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", _OK),
    "bare line feeds": (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", _OK),
    "no reason": (b"HTTP/1.1 200\r\n" + _TWO, _OK),
    "a folded header": (_HEAD + b"X: a\r\n b\r\n" + _TWO, _OK),
    "a space in a name": (_HEAD + b"X : a\r\n" + _TWO, _GARBLED),
    "no colon": (_HEAD + b"nonsense\r\n" + _TWO, _GARBLED),
    "a control character": (_HEAD + b"X: a\x01b\r\n" + _TWO, _OK),
    "NUL": (_HEAD + b"X: a\0b\r\n" + _TWO, _GARBLED),
    "no ASCII": (_HEAD + b"X: \xc3\xa9\xe9\r\n" + _TWO, _OK),
    "an empty header": (_HEAD + b"X:\r\n" + _TWO, _OK),
    "status 99": (b"HTTP/1.1 099 OK\r\n" + _TWO, _GARBLED),
    "status 999": (b"HTTP/1.1 999 OK\r\n" + _TWO, Made(999, b"ok")),
    "status 20": (b"HTTP/1.1 20 OK\r\n" + _TWO, _GARBLED),
    "lines before it": (b"\r\n\r\n" + _HEAD + _TWO, _OK),
    "a long header": (_HEAD + b"X: " + b"a" * 7000 + b"\r\n" + _TWO, _OK),
    "a longer header": (_HEAD + b"X: " + b"a" * 20_000 + b"\r\n" + _TWO, _OK),
    "too long a header": (_HEAD + b"X: " + b"a" * 70_000 + b"\r\n" + _TWO, _GARBLED),
    "an endless header": (_HEAD + b"X: " + b"a" * 200_000, _GARBLED),
    "an endless reason": (b"HTTP/1.1 200 " + b"a" * 200_000, _GARBLED),
    "many headers": (_HEAD + b"X: a\r\n" * 100 + _TWO, _OK),
    "too many headers": (_HEAD + b"X: a\r\n" * 2000 + _TWO, _GARBLED),
    "endless interim answers": (b"HTTP/1.1 102 P\r\n\r\n" * 10_000, _GARBLED),
    "endless trailers": (_CHUNKED + b"2\r\nok\r\n0\r\n" + b"X: a\r\n" * 100_000, _SPOILT),
    "gzip": (_packed(b"gzip", gzip.compress(_TEXT)), Made(200, _TEXT)),
    "deflate": (_packed(b"deflate", zlib.compress(_TEXT)), Made(200, _TEXT)),
    "identity": (_packed(b"identity", b"ok"), _OK),
    "gzip of nothing": (_packed(b"gzip", b""), Made(200, b"")),
    "no gzip": (_packed(b"gzip", b"hello"), Made(200, b"", Kind.UPSTREAM_GARBLED)),
    "gzip cut off": (_packed(b"gzip", gzip.compress(b"ok")[:14]), _SPOILT),
    "a coding that nobody knows": (_packed(b"utf-8", b"ok"), _OK),
    "a failure": (b"HTTP/1.1 500 X\r\nContent-Length: 2\r\n\r\nno", Made(500, b"no")),
    "a redirect": (b"HTTP/1.1 302 X\r\nLocation: http://127.0.0.1:1/\r\n" + _TWO, Made(302, b"ok")),
}
