"""A chat upstream on bare TCP, for what the simulated one is too well-behaved to do."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

MODELS = b'{"object":"list","data":[{"id":"simulated","object":"model","created":0,"owned_by":"vllm"}]}'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"


def event(text: str | None, finish: str | None = None) -> bytes:
    """One chunk of a streamed answer, in HTTP's chunked coding."""
    delta = {} if text is None else {"content": text}
    chunk = {"id": "chatcmpl-1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    return coded(b"data: " + json.dumps(chunk).encode() + b"\n\n")


def coded(data: bytes) -> bytes:
    """A chunk of HTTP's chunked coding."""
    return b"%x\r\n%b\r\n" % (len(data), data)


DONE = coded(b"data: [DONE]\n\n")
WHOLE = HEAD + event("Hello.") + event(None, "stop") + DONE + LAST


@dataclass(slots=True)
class Connection:
    """One connection; `posts` counts the requests for answers that came on it, this one included."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    number: int
    posts: int = 0


Answer = Callable[[Connection], Awaitable[None]]


@dataclass(slots=True)
class RawUpstream:
    """A running one. `answer` writes what it likes to each POST; the list of models is served."""

    answer: Answer
    url: str = ""
    connections: list[Connection] = field(default_factory=list)
    posts: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, request by request."""
        connection = Connection(reader, writer, len(self.connections))
        self.connections.append(connection)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                if length:
                    await reader.readexactly(int(length[0].split(b":")[1]))
                if head.startswith(b"GET"):
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(MODELS), MODELS))
                    continue
                connection.posts += 1
                self.posts += 1
                await self.answer(connection)
                if writer.is_closing():
                    return


@asynccontextmanager
async def raw_upstream(answer: Answer) -> AsyncIterator[RawUpstream]:
    """Start one on a free port."""
    upstream = RawUpstream(answer)
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0)
    upstream.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield upstream
    finally:
        server.close()
        for connection in upstream.connections:
            connection.writer.transport.abort()
        await server.wait_closed()
