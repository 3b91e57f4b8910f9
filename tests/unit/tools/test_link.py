"""The simulated link: when bytes arrive, that they arrive unchanged, and what stops them."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from proxy.tools import link
from proxy.tools.link import HOST, Direction, Link

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
TIMEOUT_S = 20


def test_a_direction_takes_its_time_for_each_byte_and_half_a_round_trip_for_all() -> None:
    way = Direction(bytes_per_s=1000, delay_s=0.02)
    assert way.enter(100, now=1.0) == pytest.approx((1.1, 1.12))
    assert way.enter(100, now=1.0) == pytest.approx((1.2, 1.22))  # behind the first
    assert way.enter(100, now=1.19) == pytest.approx((1.3, 1.32))  # a late wake-up costs nothing
    assert way.enter(100, now=2.0) == pytest.approx((2.1, 2.12))  # an idle link saves nothing up
    assert (way.bytes, way.held_bytes) == (400, 400)


def test_a_direction_without_limit_only_delays() -> None:
    assert Direction(0, 0.02).enter(10**9, now=5.0) == pytest.approx((5.0, 5.02))


@asynccontextmanager
async def linked(
    handler: Handler, rtt_s: float = 0.0, up: float = 0, down: float = 0, **clock: Any
) -> AsyncIterator[Link]:
    """A link to a server that treats each connection by `handler`; nothing may crash in it."""
    crashes: list[object] = []
    server = await asyncio.start_server(handler, HOST, 0)
    port = server.sockets[0].getsockname()[1]
    ways = Direction(up, rtt_s / 2), Direction(down, rtt_s / 2)
    try:
        async with Link(port, *ways, rtt_s, crashed=lambda *crash: crashes.append(crash), **clock) as opened:
            async with asyncio.timeout(TIMEOUT_S):
                yield opened
    finally:
        server.close()
        await server.wait_closed()
    assert not crashes


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(7_000):
        writer.write(data)
        await writer.drain()
    writer.close()


async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


async def test_the_link_changes_no_byte_and_passes_the_end_on() -> None:
    sent = random.Random(1).randbytes(3_000_000)
    async with linked(echo) as opened:
        reader, writer = await asyncio.open_connection(HOST, opened.port)
        async with asyncio.TaskGroup() as group:
            received = group.create_task(reader.read())
            for start in range(0, len(sent), 50_001):
                writer.write(sent[start : start + 50_001])
                await writer.drain()
            writer.write_eof()
        writer.close()
        assert received.result() == sent
        assert (opened.up.bytes, opened.down.bytes) == (len(sent), len(sent))
        assert (opened.up.held_bytes, opened.down.held_bytes) == (0, 0)


async def test_the_link_waits_for_the_handshake_and_then_for_rate_and_delay() -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    # The clock stands still, so that what is waited for is the deadline itself, however the bytes were cut.
    async with linked(swallow, rtt_s=0.5, up=100_000, clock=lambda: 0.0, sleep=sleep) as opened:
        reader, writer = await asyncio.open_connection(HOST, opened.port)
        writer.write(bytes(200_000))
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
    assert waits[0] == 0.5  # the handshake's round trip
    assert max(waits) == pytest.approx(200_000 / 100_000 + 0.25)


async def test_a_receiver_that_does_not_read_stops_the_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "HELD_PIECES", 4)
    may_read, whole, total = asyncio.Event(), asyncio.Event(), 40_000_000
    counts = [0]

    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await may_read.wait()
        while data := await reader.read(1 << 20):
            counts[0] += len(data)
        whole.set()
        writer.close()

    async with linked(late) as opened:
        _, writer = await asyncio.open_connection(HOST, opened.port)
        writer.write(bytes(total))
        writer.write_eof()
        await _still(lambda: opened.up.bytes)
        assert opened.up.bytes < total
        # Four in the queue, one on its way in, one on its way out.
        assert 0 < opened.up.held_bytes <= 6 * link.PIECE_BYTES
        may_read.set()
        await whole.wait()
        writer.close()
    assert counts[0] == total


async def _still(value: Callable[[], int]) -> None:
    """Until a value that has moved stands still."""
    last, quiet = 0, 0
    while not last or quiet < 5:
        await asyncio.sleep(0.02)
        last, quiet = value(), quiet + 1 if value() == last else 0


async def test_a_reset_on_one_side_is_one_on_the_other() -> None:
    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.transport.abort()

    async with linked(reset) as opened:
        reader, writer = await asyncio.open_connection(HOST, opened.port)
        writer.write(b"x")
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()


async def test_a_link_to_nowhere_closes_the_connection() -> None:
    async with linked(swallow) as opened:
        opened._target_port = 1
        reader, writer = await asyncio.open_connection(HOST, opened.port)
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
