"""What floods are made of: sockets opened and left, senders that never finish, compression bombs.

Each attack is a coroutine that counts what it did. `tests/adversity/test_floods.py` runs each a counted number of
times, `tests/adversity/flood.py` for as long as it is told, against a process.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import struct
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import cache

from tests.raw_socket import TEXT, RawSocket, close, connection, frame, upgrade

MIB = 1024 * 1024
RSV1 = 4
TURN = json.dumps({"type": "response.create", "model": "simulated", "input": "[[say 5]]", "store": True}).encode()
# Attacks run out of ports of one address before a server is tired.
_SOURCES = itertools.cycle([f"127.0.0.{number}" for number in range(2, 250)])
LOST = (OSError, TimeoutError, asyncio.IncompleteReadError, AssertionError)


def _reset(raw: RawSocket) -> None:
    sock: socket.socket | None = raw.writer.get_extra_info("socket")
    if sock is not None and not raw.writer.transport.is_closing():
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def _upgraded(raw: RawSocket, url: str, extensions: str | None = None) -> bool:
    await raw.send(upgrade(url, {"Sec-WebSocket-Extensions": extensions}))
    return (await raw.head())[0] == 101


async def open_and_close(url: str, done: Counter[str]) -> None:
    """A socket, closed as it should be."""
    async with connection(url, next(_SOURCES)) as raw:
        if await _upgraded(raw, url):
            done["opened"] += 1
            await raw.send(close(1000))
            await raw.outcomes()
            done["closed"] += 1


async def open_and_abandon(url: str, done: Counter[str]) -> None:
    """A socket, reset at once."""
    async with connection(url, next(_SOURCES)) as raw:
        if await _upgraded(raw, url):
            done["opened"] += 1
            done["abandoned"] += 1
        _reset(raw)


async def turn_and_abandon(url: str, done: Counter[str]) -> None:
    """A socket, reset in the middle of its turn."""
    async with connection(url, next(_SOURCES)) as raw:
        if await _upgraded(raw, url):
            done["opened"] += 1
            await raw.send(frame(TEXT, TURN))
            await raw.outcome()
            done["turns abandoned"] += 1
        _reset(raw)


async def turn_and_close(url: str, done: Counter[str]) -> None:
    """A socket, one turn, a close."""
    async with connection(url, next(_SOURCES)) as raw:
        if await _upgraded(raw, url):
            done["opened"] += 1
            await raw.send(frame(TEXT, TURN))
            while await raw.outcome() not in ("response.completed", "response.failed", "end"):
                pass
            await raw.send(close(1000))
            await raw.outcomes()
            done["turns"] += 1


_SLOW_BODY = b"POST /v1/responses HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
_SLOW = (
    ("heads", b"GET /v1/responses HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "),
    ("bodies", _SLOW_BODY + b"Content-Length: 1000000\r\n\r\n{"),
    ("frames", b"\x81\xff" + (MIB).to_bytes(8) + b"abcd"),
)
_TURNS = itertools.count()


async def trickle(url: str, done: Counter[str], every_s: float = 1.0, bytes_each: int = 1_000_000) -> None:
    """A head, a body or a frame that comes byte by byte, until the server or the flood ends it."""
    what, begun = _SLOW[next(_TURNS) % len(_SLOW)]
    async with connection(url, next(_SOURCES)) as raw:
        if what == "frames" and not await _upgraded(raw, url):
            return
        await raw.send(begun)
        done[f"slow {what}"] += 1
        try:
            for _ in range(bytes_each):
                await asyncio.sleep(every_s)
                await raw.send(b"x")
        except LOST:
            done[f"slow {what} ended by the server"] += 1
        finally:
            _reset(raw)


@cache
def bomb(size: int) -> bytes:
    """`size` zeros as a compressed message, about a thousandth as long."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    data = b"".join(deflate.compress(bytes(MIB)) for _ in range(size // MIB)) + deflate.flush(zlib.Z_SYNC_FLUSH)
    return frame(TEXT, data, rsv=RSV1)


async def explode(url: str, done: Counter[str], size: int = 256 * MIB) -> None:
    """A compression bomb; it must be told of and answered with 1009."""
    async with connection(url, next(_SOURCES)) as raw:
        if await _upgraded(raw, url, "permessage-deflate"):
            await raw.send(bomb(size))
            done["bombs"] += 1
            done[f"bombs: {await raw.outcome()}, {await raw.outcome()}"] += 1
        _reset(raw)


Attack = Callable[[str, Counter[str]], Awaitable[None]]
SOCKETS: tuple[Attack, ...] = (open_and_close, open_and_abandon, turn_and_close, open_and_abandon, turn_and_abandon)


async def repeat(attacks: Iterator[Attack], url: str, done: Counter[str]) -> None:
    """One after another, whatever becomes of each."""
    for attack in attacks:
        try:
            await attack(url, done)
        except LOST as error:
            done[f"lost: {type(error).__name__}"] += 1
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
