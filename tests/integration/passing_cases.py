"""Requests and answers that a transparent proxy must pass on as they are: raw bytes, by name."""

from __future__ import annotations

import gzip
from typing import NamedTuple

H = b"Host: 127.0.0.1\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
JSON = b"Content-Type: application/json\r\n"
BINARY = bytes(range(256)) * 4
FORM = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n' + BINARY + b"\r\n--x--\r\n"


def chunked(*chunks: bytes, trailers: bytes = b"") -> bytes:
    """A body in HTTP's chunked coding."""
    return b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n" + trailers + b"\r\n"


def post(body: bytes, head: bytes = b"", path: bytes = b"/v1/embeddings") -> bytes:
    """A POST with a length."""
    return b"POST %b HTTP/1.1\r\n%b%bContent-Length: %d\r\n\r\n%b" % (path, H, head, len(body), body)


def get(target: bytes = b"/v1/files", head: bytes = b"") -> bytes:
    """A GET."""
    return b"GET %b HTTP/1.1\r\n%b%b\r\n" % (target, H, head)


class Case(NamedTuple):
    """A request, and the upstream's answer to it."""

    request: bytes
    answer: bytes = OK


TE = b"Transfer-Encoding: chunked\r\n"
CASES: dict[str, Case] = {
    # --- Targets
    "a plain path": Case(get()),
    "a query": Case(get(b"/v1/files?after=f_1&limit=2&order=desc")),
    "an empty query": Case(get(b"/v1/files?")),
    "a second question mark": Case(get(b"/v1/files??a=?b")),
    "escapes in both cases": Case(get(b"/v1/files/%e4%BD%a0%7Euser?q=%c3%A9+%2B")),
    "an escape that is none": Case(get(b"/v1/files?q=100%&r=%zz")),
    "an encoded slash": Case(get(b"/v1/files/org%2Fname")),
    "parameters and marks": Case(get(b"/v1/files;v=1/a,b/c:d@e!$&'()*+=?x=[1]|^`{}")),
    "dots in a query": Case(get(b"/v1/files?path=..%2F..//%5c&u=http://a/b")),
    "dots in names": Case(get(b"/v1/files/model.v1.5.gguf")),
    "a trailing slash": Case(get(b"/v1/files/")),
    "a long target": Case(get(b"/v1/files?q=" + b"a" * 30_000)),
    # --- Methods
    "HEAD": Case(b"HEAD /v1/files/f HTTP/1.1\r\n" + H + b"\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n"),
    "HEAD without a length": Case(b"HEAD /v1/files HTTP/1.1\r\n" + H + b"\r\n", b"HTTP/1.1 200 OK\r\nX-A: 1\r\n\r\n"),
    "OPTIONS": Case(b"OPTIONS /v1/files HTTP/1.1\r\n" + H + b"\r\n", b"HTTP/1.1 204 No Content\r\nAllow: GET\r\n\r\n"),
    "DELETE": Case(b"DELETE /v1/files/f HTTP/1.1\r\n" + H + b"Content-Length: 0\r\n\r\n"),
    "DELETE with a body": Case(b"DELETE /v1/files/f HTTP/1.1\r\n" + H + b"Content-Length: 2\r\n\r\n{}"),
    "PUT": Case(b"PUT /v1/uploads/u HTTP/1.1\r\n" + H + b"Content-Length: 3\r\n\r\nabc"),
    "PATCH": Case(b"PATCH /v1/uploads/u HTTP/1.1\r\n" + H + TE + b"\r\n" + chunked(b"abc")),
    "GET with a body": Case(b"GET /v1/files HTTP/1.1\r\n" + H + b"Content-Length: 3\r\n\r\nabc"),
    "PROPFIND": Case(b"PROPFIND /v1/files HTTP/1.1\r\n" + H + b"Content-Length: 0\r\n\r\n"),
    "HTTP/1.0": Case(b"GET /v1/files HTTP/1.0\r\n" + H + b"\r\n"),
    # --- Request bodies
    "JSON": Case(post(b'{"model":"m", "input" : ["a" ] }', JSON)),
    "no bytes": Case(post(b"")),
    "binary": Case(post(BINARY, b"Content-Type: application/x-odd\r\n")),
    "a body without a type": Case(post(b"abc")),
    "a form": Case(post(FORM, b"Content-Type: multipart/form-data; boundary=x\r\n", b"/v1/audio/transcriptions")),
    "an encoded body": Case(post(gzip.compress(b"{}"), b"Content-Encoding: gzip\r\n" + JSON)),
    "a body that lies about its encoding": Case(post(b"not gzip", b"Content-Encoding: gzip\r\n")),
    "chunks": Case(b"POST /v1/files HTTP/1.1\r\n" + H + TE + b"\r\n" + chunked(b"a", b"bc", b"d" * 5000)),
    "chunks and no bytes": Case(b"POST /v1/files HTTP/1.1\r\n" + H + TE + b"\r\n" + chunked()),
    "chunks with extensions": Case(b"POST /v1/files HTTP/1.1\r\n" + H + TE + b"\r\n3;a=b\r\nabc\r\n0\r\n\r\n"),
    "chunks with trailers": Case(
        b"POST /v1/files HTTP/1.1\r\n" + H + TE + b"Trailer: X-Sum\r\n\r\n" + chunked(b"abc", trailers=b"X-Sum: 1\r\n")
    ),
    "five megabytes": Case(post(b"0123456789abcdef" * 327_680)),
    # --- Request headers
    "headers of odd case": Case(get(head=b"x-lower: 1\r\nX-UPPER: 2\r\nx-MiXed: 3\r\n")),
    "repeated headers": Case(get(head=b"X-A: 1\r\nX-B: 2\r\nX-A: 3\r\nAccept: a/b\r\nAccept: c/d\r\n")),
    "empty headers": Case(get(head=b"X-Empty:\r\nX-Spaced:   a  b\t \r\n")),
    "a huge header": Case(get(head=b"X-Huge: " + b"h" * 60_000 + b"\r\n")),
    "a hundred headers": Case(get(head=b"".join(b"X-%d: %d\r\n" % (n, n) for n in range(100)))),
    "a header beyond ASCII": Case(get(head="X-Name: é你\r\n".encode())),
    "cookies": Case(get(head=b"Cookie: a=1; b=\"2\"; c\r\n")),
    "credentials": Case(get(head=b"Authorization: Bearer sk-1\r\nOpenAI-Organization: o\r\nx-api-key: k\r\n")),
    "an agent of its own": Case(get(head=b"User-Agent: odd/1\r\nAccept-Encoding: br;q=0, zstd\r\nAccept: */*\r\n")),
    "headers of the connection": Case(
        get(
            head=b"Connection: keep-alive, X-Mine, close\r\nX-Mine: 1\r\nKeep-Alive: timeout=5\r\nTE: trailers\r\n"
            b"Proxy-Connection: keep-alive\r\nProxy-Authorization: Basic a\r\nX-Kept: 1\r\n"
        )
    ),
    "an upgrade that is declined": Case(
        get(head=b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n")
    ),
    "a range": Case(
        get(head=b"Range: bytes=0-1\r\nIf-Range: \"e\"\r\n"),
        b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-1/9\r\nContent-Length: 2\r\n\r\nab",
    ),
    "a request id": Case(get(head=b"x-request-id: mine\r\ntraceparent: 00-1-2-01\r\n")),
    # --- Statuses
    "204": Case(get(), b"HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n"),
    "304": Case(get(head=b'If-None-Match: "e"\r\n'), b'HTTP/1.1 304 Not Modified\r\nETag: "e"\r\n\r\n'),
    "304 with a length": Case(get(), b"HTTP/1.1 304 Not Modified\r\nContent-Length: 77\r\n\r\n"),
    "an odd reason": Case(get(), b"HTTP/1.1 200 All Right, then\r\nContent-Length: 0\r\n\r\n"),
    "no reason": Case(get(), b"HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n"),
    "an odd status": Case(get(), b"HTTP/1.1 299 Odd\r\nContent-Length: 1\r\n\r\nx"),
    "a redirect": Case(
        get(), b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:1/else\r\nContent-Length: 0\r\n\r\n"
    ),
    "401": Case(get(), b'HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\nContent-Length: 2\r\n\r\n{}'),
    "429": Case(get(), b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\nContent-Length: 2\r\n\r\n{}"),
    "500 in HTML": Case(
        get(), b"HTTP/1.1 500 Oops\r\nContent-Type: text/html\r\nContent-Length: 9\r\n\r\n<p>no</p>"
    ),
    "501 and its close": Case(get(), b"HTTP/1.1 501 No\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx"),
    "early hints": Case(get(), b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + OK),
    # --- Answers' bodies
    "an answer in chunks": Case(get(), b"HTTP/1.1 200 OK\r\n" + TE + b"\r\n" + chunked(b"a", b"bcd", b"e" * 9000)),
    "an answer in chunks of no bytes": Case(get(), b"HTTP/1.1 200 OK\r\n" + TE + b"\r\n" + chunked()),
    "an answer with trailers": Case(
        get(), b"HTTP/1.1 200 OK\r\n" + TE + b"Trailer: X-T\r\n\r\n" + chunked(b"abc", trailers=b"X-T: 1\r\n")
    ),
    "an answer until the close": Case(get(), b"HTTP/1.1 200 OK\r\nConnection: close\r\nX-A: 1\r\n\r\nall of it"),
    "an answer of HTTP/1.0": Case(get(), b"HTTP/1.0 200 OK\r\n\r\nall of it"),
    "an encoded answer": Case(
        get(), b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\n\x1f\x8b\x00"
    ),
    "events": Case(
        post(b"{}", b"Accept: text/event-stream\r\n", b"/v1/chat/completions"),
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n" + TE + b"\r\n"
        + chunked(b"data: {}\n\n", b"data: [DO", b"NE]\n\n"),
    ),
    "a large answer": Case(
        get(), b"HTTP/1.1 200 OK\r\nContent-Length: 5242880\r\n\r\n" + b"0123456789abcdef" * 327_680
    ),
    # --- Answers' headers
    "cookies set": Case(
        get(),
        b"HTTP/1.1 200 OK\r\nSet-Cookie: a=1; Path=/\r\nset-cookie: b=2\r\nSet-Cookie: a=3\r\nContent-Length: 0\r\n"
        b"\r\n",
    ),
    "an answer's odd headers": Case(
        get(), b"HTTP/1.1 200 OK\r\nx-lower: 1\r\nX-UPPER: 2\r\nX-Empty:\r\nContent-Length: 0\r\nx-lower: 3\r\n\r\n"
    ),
    "an answer's bytes that are no UTF-8": Case(
        get(), b"HTTP/1.1 200 OK\r\nContent-Disposition: attachment; filename=\"\xe9\xff\"\r\nContent-Length: 0\r\n\r\n"
    ),
    "an answer's huge header": Case(
        get(), b"HTTP/1.1 200 OK\r\nX-Huge: " + b"h" * 60_000 + b"\r\nContent-Length: 0\r\n\r\n"
    ),
    "an answer's two hundred headers": Case(
        get(),
        b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: 1\r\n" % n for n in range(200)) + b"Content-Length: 0\r\n\r\n",
    ),
    "an answer's headers of the connection": Case(
        get(),
        b"HTTP/1.1 200 OK\r\nConnection: X-Mine\r\nX-Mine: 1\r\nKeep-Alive: timeout=5\r\nProxy-Authenticate: a\r\n"
        b"X-Kept: 1\r\nContent-Length: 0\r\n\r\n",
    ),
    "an answer's date, server and id": Case(
        get(),
        b"HTTP/1.1 200 OK\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\nServer: odd\r\nx-request-id: theirs\r\n"
        b"Content-Length: 0\r\n\r\n",
    ),
}  # fmt: skip
