"""An upstream on bare TCP that keeps every request as it came and answers with bytes that a test gives; and a client
that sends bytes and reads an answer as it came."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

Header = tuple[bytes, bytes]
_HOP_BY_HOP = (
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding"
    b" upgrade"
).split()


@dataclass(slots=True)
class Message:
    """A request or an answer as it came. `start` is its first line in three parts; `whole` whether it had an end."""

    start: tuple[bytes, bytes, bytes]
    headers: list[Header]
    body: bytes = b""
    whole: bool = False
    chunked: bool = False

    def values(self, name: bytes) -> list[bytes]:
        """The values of a header, by its name in lower case."""
        return [value for key, value in self.headers if key.lower() == name]

    def end_to_end(self, less: Sequence[bytes] = ()) -> list[Header]:
        """Its headers but for those of the connection, those that Connection names, and `less`; in order."""
        named = [token.strip().lower() for value in self.values(b"connection") for token in value.split(b",")]
        gone = {*_HOP_BY_HOP, *named, *less}
        return [(name, value) for name, value in self.headers if name.lower() not in gone]


async def read_head(reader: asyncio.StreamReader) -> Message:
    """The first line and the headers of a message."""
    head = (await reader.readuntil(b"\r\n\r\n"))[:-4]
    first, *lines = head.split(b"\r\n")
    parts = [*first.split(b" ", 2), b""][:3]
    headers = []
    for line in lines:
        name, _, value = line.partition(b":")
        headers.append((name, value.strip(b" \t")))
    message = Message((parts[0], parts[1], parts[2]), headers)
    message.chunked = b"chunked" in b"".join(message.values(b"transfer-encoding")).lower()
    return message


async def read_body(reader: asyncio.StreamReader, message: Message, *, until_close: bool = False) -> None:
    """The rest of the message; `until_close` if an end of the connection is one of the body."""
    lengths = message.values(b"content-length")
    if message.chunked:
        while size := int((await reader.readuntil(b"\n")).split(b";")[0], 16):
            message.body += (await reader.readexactly(size + 2))[:-2]
        while await reader.readline() not in (b"\r\n", b""):
            pass  # trailers
    elif lengths:
        message.body += await reader.readexactly(int(lengths[0]))
    elif until_close:
        message.body += await reader.read()
    message.whole = True


@dataclass(slots=True)
class Exchange:
    """One request at the upstream, from its head on, and the connection to answer on."""

    request: Message
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    async def read(self) -> None:
        """The rest of the request."""
        await read_body(self.reader, self.request)


Answer = Callable[[Exchange], Awaitable[None]]


def answering(answer: bytes) -> Answer:
    """Reads the request whole, then writes `answer`."""

    async def run(exchange: Exchange) -> None:
        await exchange.read()
        exchange.writer.write(answer)

    return run


@dataclass(slots=True)
class RecordingUpstream:
    """A running one; `answer` is called for each request, once its head is there."""

    answer: Answer = field(default_factory=lambda: answering(b"HTTP/1.1 204 No Content\r\n\r\n"))
    url: str = ""
    exchanges: list[Exchange] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    _writers: list[asyncio.StreamWriter] = field(default_factory=list)

    @property
    def requests(self) -> list[Message]:
        """What came."""
        return [exchange.request for exchange in self.exchanges]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, request by request, until the answer closes it or Loopline does."""
        self._writers.append(writer)
        exchange = None
        try:
            while not writer.is_closing():
                exchange = Exchange(await read_head(reader), reader, writer)
                self.exchanges.append(exchange)
                self.arrived.set()
                await self.answer(exchange)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            if exchange is not None:
                exchange.closed.set()
            writer.close()

    async def aclose(self) -> None:
        """Break what is still connected."""
        for writer in self._writers:
            writer.transport.abort()


@asynccontextmanager
async def recording_upstream(answer: Answer | None = None) -> AsyncIterator[RecordingUpstream]:
    """Start one on a free port."""
    upstream = RecordingUpstream() if answer is None else RecordingUpstream(answer)
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0, limit=1 << 18)
    upstream.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield upstream
    finally:
        server.close()
        await upstream.aclose()
        await server.wait_closed()


@dataclass(slots=True)
class RawClient:
    """A connection to a server, on which bytes are sent as they are."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        """Send, and wait until most of it has left."""
        self.writer.write(data)
        await self.writer.drain()

    async def head(self) -> Message:
        """The head of the answer, after those that only announce it."""
        while True:
            message = await read_head(self.reader)
            if not message.start[1].startswith(b"1") or message.start[1] == b"101":
                return message

    async def answer(self, method: bytes = b"GET") -> Message:
        """The whole answer. Raises IncompleteReadError or ConnectionError where it has no end."""
        message = await self.head()
        if method == b"HEAD" or message.start[1] in (b"204", b"304"):
            message.whole = True
        else:
            await read_body(self.reader, message, until_close=True)
        return message


@asynccontextmanager
async def raw_client(port: int) -> AsyncIterator[RawClient]:
    """Connect to a port of loopback."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 18)
    try:
        yield RawClient(reader, writer)
    finally:
        writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
