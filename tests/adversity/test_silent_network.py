"""Clients that are gone without a word, and clients that provoke answers and never read them."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
from collections.abc import AsyncIterator

import pytest

from proxy.app import Loopline
from proxy.settings import load
from proxy.tools.simulate import Simulated, start

WAIT_S = 10


@pytest.fixture
async def upstream() -> AsyncIterator[Simulated]:
    async with await start() as simulated:
        yield simulated


@pytest.fixture
async def server(upstream: Simulated) -> AsyncIterator[Loopline]:
    flags = {
        "server.port": 0,
        "server.ping_interval_s": 0.2,
        "server.client_stall_s": 0.3,
        "endpoints[0].url": upstream.url,
        "endpoints[0].dialect": "chat",
        "models.default": "simulated",
    }
    async with Loopline(load(None, flags, {})) as loopline:
        yield loopline


async def connect(server: Loopline) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A WebSocket whose frames the test writes and reads itself: it answers no ping."""
    raw = socket.create_connection(("127.0.0.1", server.port))
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    reader, writer = await asyncio.open_connection(sock=raw)
    key = base64.b64encode(os.urandom(16)).decode()
    writer.write(
        f"GET /v1/responses HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
    )
    assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
    return reader, writer


def text_frame(payload: bytes) -> bytes:
    """A masked text frame below 64 KiB, with the mask 0."""
    return b"\x81\xfe" + len(payload).to_bytes(2, "big") + b"\0\0\0\0" + payload


async def until(condition: object) -> None:
    """Wait for something that only polling can see, yielding to the loop in between."""
    assert callable(condition)
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_client_that_answers_no_ping_is_gone_and_its_upstream_call_with_it(
    server: Loopline, upstream: Simulated
) -> None:
    _, writer = await connect(server)
    create = b'{"type":"response.create","model":"m","input":"[[stall 1]]"}'.ljust(200)
    writer.write(text_frame(create))
    await upstream.wait_for(lambda u: u.open_requests == 1)
    await upstream.wait_for(lambda u: u.requests[-1].aborted, timeout=WAIT_S)
    await until(lambda: not server.sockets.sessions)
    assert len(server.registry) == 0
    assert server.services.endpoints[0].in_flight == 0
    writer.close()


async def test_answers_that_are_not_read_do_not_pile_up(server: Loopline) -> None:
    _, writer = await connect(server)
    (session,) = server.sockets.sessions
    flood = text_frame(b"{" * 200) * 1000
    try:
        for _ in range(200):
            writer.write(flood)
            async with asyncio.timeout(WAIT_S):
                await writer.drain()
    except ConnectionError:
        pass
    await until(lambda: not server.sockets.sessions)
    # Two hundred thousand errors were provoked; what was written is what the buffers on the way hold, and no more.
    assert session.record.bytes_out < 16 * 1024 * 1024
    writer.close()
