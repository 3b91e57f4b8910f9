"""The bench's own upstream: Chat Completions and Responses over HTTP, as cheap as this language allows.

`python -m proxy.tools.bench.upstream` listens on a free port of loopback, prints its base URL, and serves until its
standard input ends, so that it cannot outlive whoever started it. Answers are `answers.py`'s: bytes made beforehand.
It takes traces and forgets them. It checks nothing; `loopline simulate` is the upstream that behaves like a server.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import sys
import time
from collections.abc import Callable
from typing import cast

import uvloop

from . import answers
from .answers import MODEL, STAMP, Wanted, wanted

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
_CONTINUE = re.compile(rb"\r\nexpect: *100", re.IGNORECASE)
# `stream` stands before or after a long history, never inside of it.
_LOOKED_AT = 32_768
_STREAMED = re.compile(rb'"stream": ?true')
_TICK_S = 0.001
# The system adds some 60 µs to each sleep.
_FINE_TICK_S = 0.00006
_STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
_END = b"0\r\n\r\n"
_MODELS = (
    b'{"object":"list","data":[{"id":"' + MODEL.encode() + b'","object":"model","created":1,"owned_by":"bench",'
    b'"max_model_len":100000000}]}'
)
_ids = itertools.count(1)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n" % len(data) + data + b"\r\n"


def _json(body: bytes, status: bytes = b"200 OK") -> bytes:
    head = b"HTTP/1.1 " + status + b"\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    return head + body


class Paced:
    """An answer on its way.

    Bursts are due at fixed times after its start, however late the one before was; without a gap between them each is
    due as soon as the one before has been written. `hurries` tells that the next one is. `is_fine` tells that the gap
    is shorter than the loop's timers can tell; `clock` must then be finer than the loop's.
    """

    def __init__(
        self, transport: asyncio.Transport, asked: Wanted, answer: answers.Answer, clock: Callable[[], float]
    ) -> None:
        self._transport = transport
        self._clock = clock
        self.is_fine = asked.is_fine
        self._answer = answer
        self._stamp = bool(asked.stamp)
        self._burst = asked.burst or len(answer.deltas)
        self._gap_s = asked.gap_us / 1e6
        self._start_s = clock() + asked.ttft_ms / 1000
        self._done = 0
        self._begun = self.hurries = False
        self._stamps: list[bytes] = []

    def write(self) -> bool:
        """Write what is due, each burst by itself. Returns whether the answer has ended."""
        if self._transport.is_closing():
            return True
        now = self._clock()
        if now < self._start_s:
            return False
        if not self._begun:
            self._begun = True
            self.hurries = not self._gap_s
            self._transport.write(_chunk(self._answer.head))
        deltas = self._answer.deltas
        while self._done < len(deltas) and now >= self._start_s + self._gap_s * (self._done // self._burst):
            data = b"".join(deltas[self._done : self._done + self._burst])
            self._transport.write(_chunk(self._stamped(data) if self._stamp else data))
            self._done += self._burst
            if self.hurries:
                break
        if self._done < len(deltas):
            return False
        # What ends an answer tells its text once more, stamps and all.
        text = b"".join(self._stamps)
        tail = self._answer.tail.replace(STAMP * len(self._stamps), text) if text else self._answer.tail
        self._transport.write(_chunk(tail) + _END)
        return True

    def _stamped(self, data: bytes) -> bytes:
        stamp = b"%019d" % time.monotonic_ns()
        self._stamps += [stamp] * data.count(STAMP)
        return data.replace(STAMP, stamp)


class Pacer:
    """Writes what is due of every paced answer, once a millisecond: an engine, too, steps all its streams at once.

    For a finer one it sleeps in between, and serves nobody meanwhile.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._streams: dict[Paced, Callable[[], None]] = {}
        self._ticking = False

    def add(self, stream: Paced, ended: Callable[[], None]) -> None:
        """Write a stream from now on; `ended` is called after its last byte."""
        self._streams[stream] = ended
        if not self._ticking:
            self._ticking = True
            self._tick()

    def _tick(self) -> None:
        now = self._loop.time()
        for stream in [stream for stream in self._streams if stream.write()]:
            self._streams.pop(stream)()
        self._ticking = bool(self._streams)
        if any(stream.hurries for stream in self._streams):
            self._loop.call_soon(self._tick)
        elif any(stream.is_fine for stream in self._streams):
            self._loop.call_soon(self._doze)  # after what was written has left
        elif self._ticking:
            self._loop.call_at(now + _TICK_S, self._tick)

    def _doze(self) -> None:
        time.sleep(_FINE_TICK_S)
        self._tick()


class Connection(asyncio.Protocol):
    """One keep-alive connection. Requests on it are answered one after the other."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pacer: Pacer) -> None:
        self._loop = loop
        self._pacer = pacer
        self._buffer = bytearray()
        self._head = b""
        self._length: int | None = None
        self._busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one, but for its class

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._serve()

    def _serve(self) -> None:
        while not self._busy:
            if not self._head and not self._read_head():
                return
            end = self._end()
            if end < 0:
                return
            head, body = self._head, bytes(self._buffer[:end])
            del self._buffer[:end]
            self._head = b""
            self._answer(head, body)

    def _read_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        self._head = bytes(self._buffer[:end])
        del self._buffer[: end + 4]
        found = _LENGTH.search(self._head)
        self._length = int(found[1]) if found else None if _CHUNKED.search(self._head) else 0
        if _CONTINUE.search(self._head):
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return True

    def _end(self) -> int:
        """Where the body ends; -1 while it is not whole. Nobody sends ahead of an answer, so chunks end the buffer."""
        if self._length is None:
            return len(self._buffer) if self._buffer.endswith(_END) else -1
        return self._length if len(self._buffer) >= self._length else -1

    def _answer(self, head: bytes, body: bytes) -> None:
        method, path = head.split(b" ", 2)[:2]
        dialect = {b"/responses": "responses", b"/chat/completions": "chat"}.get(path.removeprefix(b"/v1"), "")
        if method == b"POST" and dialect:
            self._generate(dialect, body)
        elif path.startswith(b"/v1/models"):
            self._transport.write(_json(_MODELS))
        elif path.startswith((b"/health", b"/version", b"/v1/traces")):
            self._transport.write(_json(b"{}"))
        else:
            self._transport.write(_json(b"{}", b"404 Not Found"))

    def _generate(self, dialect: str, body: bytes) -> None:
        asked = wanted(body)
        if not (_STREAMED.search(body[:_LOOKED_AT]) or _STREAMED.search(body[-_LOOKED_AT:])):
            self._transport.write(_json(answers.renamed(answers.whole(dialect, asked.deltas), next(_ids))))
        elif asked.at_once:
            stream = answers.renamed(answers.whole_stream(dialect, asked.deltas, asked.call), next(_ids))
            self._transport.write(_STREAM + _chunk(stream) + _END)
        else:
            self._transport.write(_STREAM)
            answer = answers.answer(dialect, asked.deltas, asked.stamp, asked.call).named(next(_ids))
            self._busy = True
            clock = time.monotonic if asked.is_fine else self._loop.time
            self._pacer.add(Paced(self._transport, asked, answer, clock), self._ended)

    def _ended(self) -> None:
        self._busy = False
        self._serve()


async def serve() -> None:
    """Listen on a free port of loopback, print the base URL, and serve until standard input ends."""
    loop = asyncio.get_running_loop()
    pacer = Pacer(loop)
    server = await loop.create_server(lambda: Connection(loop, pacer), "127.0.0.1", 0, backlog=1024)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await asyncio.to_thread(sys.stdin.buffer.read)


if __name__ == "__main__":
    uvloop.run(serve())
