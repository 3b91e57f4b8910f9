"""A client of bare bytes: frames as they are told, right or wrong, over a TCP connection of its own."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple
from urllib.parse import urlsplit

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
MASK = b"\x37\xfa\x21\x3d"
TIMEOUT_S = 20.0

# Loopline says this back whole (`response.inject.failed`), which makes it an echo server for what a suite sends.
_ECHO_HEAD, _ECHO_TAIL = b'{"type":"response.inject","input":"', b'"}'
ECHO_LEAST = len(_ECHO_HEAD) + len(_ECHO_TAIL)
PROBE = b'{"type":"probe"}'


def echo(text: bytes) -> bytes:
    """A message that is answered with `text`, which stands in JSON as it is."""
    return _ECHO_HEAD + text + _ECHO_TAIL


def echo_of(size: int) -> bytes:
    """The same, `size` bytes as a whole."""
    return echo(b"x" * (size - ECHO_LEAST))


def masked(payload: bytes, mask: bytes = MASK) -> bytes:
    """The payload as it crosses the wire."""
    size = len(payload)
    key = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(payload) ^ int.from_bytes(key)).to_bytes(size)


def frame(opcode: int, payload: bytes = b"", *, fin: bool = True, rsv: int = 0, mask: bytes | None = MASK) -> bytes:
    """One frame. `rsv` is the three reserved bits as a number, `mask` None leaves the frame unmasked."""
    size, flag = len(payload), 0x80 if mask is not None else 0
    head = bytes([(0x80 if fin else 0) | rsv << 4 | opcode])
    if size < 126:
        head += bytes([flag | size])
    elif size < 65536:
        head += struct.pack("!BH", flag | 126, size)
    else:
        head += struct.pack("!BQ", flag | 127, size)
    return head + payload if mask is None else head + mask + masked(payload, mask)


def pieces(payload: bytes, size: int, opcode: int = TEXT) -> list[bytes]:
    """A message in fragments of `size` bytes."""
    cuts = [payload[at : at + size] for at in range(0, len(payload), size)] or [b""]
    last = len(cuts) - 1
    return [frame(CONTINUATION if n else opcode, cut, fin=n == last) for n, cut in enumerate(cuts)]


def close(code: int | None = None, reason: bytes = b"") -> bytes:
    """A close frame."""
    return frame(CLOSE, reason if code is None else struct.pack("!H", code) + reason)


class Frame(NamedTuple):
    """One frame of the server."""

    fin: bool
    rsv: int
    opcode: int
    payload: bytes


class RawSocket:
    """One connection. Whatever is asked for is awaited for at most `TIMEOUT_S`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes, *, chop: int = 0) -> None:
        """Write; `chop` bytes at a time, where it is given, each in a turn of the loop. Raises ConnectionError."""
        step = chop or len(data) or 1
        for at in range(0, len(data), step):
            if self.writer.transport.is_closing():
                raise ConnectionResetError("closed by the server")
            self.writer.write(data[at : at + step])
            if chop:
                await asyncio.sleep(0)
        async with asyncio.timeout(TIMEOUT_S):
            await self.writer.drain()

    async def head(self) -> tuple[int, dict[str, str]]:
        """The next response's status and headers, these with lower-case names."""
        async with asyncio.timeout(TIMEOUT_S):
            lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines[1:] if line)
        return int(lines[0].split()[1]), {name.lower(): value.strip() for name, _, value in pairs}

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """The next response, whole; its body has a length."""
        status, headers = await self.head()
        async with asyncio.timeout(TIMEOUT_S):
            return status, headers, await self.reader.readexactly(int(headers.get("content-length", "0")))

    async def ended(self) -> bytes:
        """What comes until the server closes the connection; a reset is an end too."""
        async with asyncio.timeout(TIMEOUT_S):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""

    async def frame(self) -> Frame | None:
        """The next frame, None at the end."""
        async with asyncio.timeout(TIMEOUT_S):
            try:
                first, second = await self.reader.readexactly(2)
                assert not second & 0x80, "a server masks nothing"
                size = second & 0x7F
                if size >= 126:
                    size = int.from_bytes(await self.reader.readexactly(2 if size == 126 else 8))
                payload = await self.reader.readexactly(size)
            except (asyncio.IncompleteReadError, ConnectionError):
                return None
        return Frame(bool(first & 0x80), first >> 4 & 7, first & 15, payload)

    async def outcome(self) -> str:
        """The next thing that came, in a word: see `said`; `pong …`, `close …`, `end`."""
        message = b""
        while (got := await self.frame()) is not None:
            assert got.rsv == 0, "frames to clients are not compressed"
            if got.opcode == PONG:
                return f"pong {got.payload.hex()}".rstrip()
            if got.opcode == CLOSE:
                return f"close {struct.unpack('!H', got.payload[:2])[0]}" if got.payload else "close"
            assert got.opcode in (TEXT, CONTINUATION)
            message += got.payload
            if got.fin:
                return said(message)
        return "end"

    async def outcomes(self) -> list[str]:
        """Everything until the answer to `PROBE` (`lives`), or until the connection ends."""
        heard: list[str] = []
        while not heard or heard[-1] not in ("lives", "end"):
            heard.append(await self.outcome())
        return heard

    async def lives(self) -> None:
        """The socket answers."""
        await self.send(frame(TEXT, PROBE))
        assert await self.outcomes() == ["lives"]


def said(message: bytes) -> str:
    """An event in a word: the code of an error, `echo` and what was said back, `lives` for `PROBE`'s answer."""
    event = json.loads(message)
    if event["type"] == "response.inject.failed":
        return f"echo {event['input']}"
    if event["type"] == "error":
        probed = "'probe'" in event["error"]["message"]
        return "lives" if probed else str(event["error"]["code"])
    return str(event["type"])


@asynccontextmanager
async def connection(url: str, source: str | None = None) -> AsyncIterator[RawSocket]:
    """A TCP connection to the server at this URL, from the address `source`."""
    parts = urlsplit(url)
    # No limit on what is read ahead: a suite looks at what came, not at back-pressure.
    address = None if source is None else (source, 0)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=2**26, local_addr=address)
    try:
        yield RawSocket(reader, writer)
    finally:
        writer.transport.abort()


def upgrade(url: str, headers: Mapping[str, str | None] | None = None, extra: Sequence[str] = ()) -> bytes:
    """The request that opens a socket; `headers` replaces some (None: leaves out), `extra` are further lines."""
    said_headers = {
        "Host": urlsplit(url).netloc,
        "Authorization": "Bearer test",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": KEY,
        **(headers or {}),
    }
    lines = [f"{name}: {value}" for name, value in said_headers.items() if value is not None]
    return "\r\n".join(("GET /v1/responses HTTP/1.1", *lines, *extra, "", "")).encode("latin-1")


@asynccontextmanager
async def raw_socket(url: str, headers: Mapping[str, str | None] | None = None) -> AsyncIterator[RawSocket]:
    """An open WebSocket."""
    async with connection(url) as raw:
        await raw.send(upgrade(url, headers))
        status, _ = await raw.head()
        assert status == 101
        yield raw
