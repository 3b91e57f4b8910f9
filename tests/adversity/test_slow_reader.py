"""A client that does not read: the chain of backpressure reaches the upstream, memory stays bounded, others go on."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from proxy.server.client_socket import ClientSocket
from tests.house import House, house_before
from tests.raw_socket import close
from tests.raw_upstream import DONE, HEAD, LAST, WHOLE, Connection, event, raw_upstream
from tests.wire_client import WireClient, user

CHUNK = event("x" * 100_000)
CHUNKS = 200  # 20 MB, more than the kernel's buffers on the way take


class Flood:
    """Answers the first request with 20 MB and every other one at once."""

    def __init__(self) -> None:
        self.sent = 0
        self.begun = asyncio.Event()
        self.lost = asyncio.Event()
        self._first = True

    async def __call__(self, connection: Connection) -> None:
        writer = connection.writer
        if not self._first:
            writer.write(WHOLE)
            return
        self._first = False
        self.begun.set()
        writer.write(HEAD)
        try:
            while self.sent < CHUNKS:
                writer.write(CHUNK)
                self.sent += 1
                await writer.drain()
            writer.write(event(None, "stop") + DONE + LAST)
        except ConnectionError:
            self.lost.set()
            raise


def _small_socket(port: int) -> socket.socket:
    narrow = socket.socket()
    narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    narrow.connect(("127.0.0.1", port))
    narrow.setblocking(False)
    return narrow


@asynccontextmanager
async def flooded(extra: dict[str, object] | None = None) -> AsyncIterator[tuple[House, Flood]]:
    flood = Flood()
    async with raw_upstream(flood) as upstream, house_before(upstream.url, "chat", extra) as house:
        yield house, flood


@asynccontextmanager
async def lazy(house: House) -> AsyncIterator[WireClient]:
    """A client whose library stops reading once one message waits."""
    async with house.connect(max_queue=1, sock=_small_socket(house.server.port)) as client:
        try:
            yield client
        finally:
            client.vanish(reset=True)


async def stuck(house: House, flood: Flood) -> None:
    """Wait until the upstream gets nothing more out, while another client's turns go on."""
    async with house.connect() as other:
        await asyncio.wait_for(flood.begun.wait(), 5)
        seen = 0
        while flood.sent != seen:
            seen = flood.sent
            for _ in range(20):
                assert (await other.turn("quick")).text == "Hello."
    assert 0 < flood.sent < CHUNKS, "the whole answer was taken from the upstream"


def held_bytes(house: House) -> int:
    """What waits in the server for its clients, at most."""
    sockets: list[Any] = [session._socket for session in house.server.sockets.sessions]
    sizes: list[int] = [each._transport.get_write_buffer_size() for each in sockets]
    return max(sizes)


@pytest.mark.slow
async def test_it_stops_its_upstream_and_no_other_client_and_later_gets_everything() -> None:
    async with flooded() as (house, flood), lazy(house) as slow:
        await slow.create([user("flood")])
        await stuck(house, flood)
        assert held_bytes(house) < 2**20
        recorded = await slow.collect()
        assert recorded.kind == "response.completed"
        assert len(recorded.text) == CHUNKS * 100_000


async def test_it_is_dropped_after_the_stall_limit_and_its_upstream_call_ends() -> None:
    async with flooded({"server.client_stall_s": 0.2}) as (house, flood), lazy(house) as slow:
        await slow.create([user("flood")])
        await asyncio.wait_for(flood.lost.wait(), 5)
        await house.empty()
        assert house.watcher.sessions[-1].reason == "client_stalled"
        assert house.watcher.turns[-1].outcome == "cancelled"


async def test_it_can_leave_while_everything_waits_for_it() -> None:
    async with flooded() as (house, flood), lazy(house) as slow:
        await slow.create([user("flood")])
        await stuck(house, flood)
        slow.vanish(reset=True)
        await asyncio.wait_for(flood.lost.wait(), 5)
        await house.empty()


async def test_it_cannot_say_goodbye_and_leave_everything_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.server.client_socket._CLOSE_TIMEOUT_S", 0.2)
    gone, lost = asyncio.Event(), ClientSocket.connection_lost

    def connection_lost(self: ClientSocket, exc: Exception | None) -> None:
        lost(self, exc)
        if self is ours:
            gone.set()

    monkeypatch.setattr(ClientSocket, "connection_lost", connection_lost)
    async with flooded() as (house, flood), lazy(house) as slow:
        [ours] = [session._socket for session in house.server.sockets.sessions]
        await slow.create([user("flood")])
        await stuck(house, flood)
        slow.connection.transport.write(close(1000))
        await asyncio.wait_for(flood.lost.wait(), 5)
        assert not gone.is_set()  # what it was sent before its goodbye is on its way
        await asyncio.wait_for(gone.wait(), 5)
        await house.empty()
        assert house.watcher.sessions[-1].close_code == 1000


@pytest.mark.slow
async def test_it_does_not_hold_up_a_server_that_stops_nor_keep_its_door_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.server.client_socket._CLOSE_TIMEOUT_S", 0.5)
    async with flooded() as (house, flood), lazy(house) as slow, house.connect() as other:
        await slow.create([user("flood")])
        await stuck(house, flood)
        async with asyncio.timeout(4), asyncio.TaskGroup() as group:
            stopping = group.create_task(house.server.__aexit__())
            assert await other.closed() == 1012
            assert not stopping.done()
            with pytest.raises(ConnectionRefusedError):  # who comes again now would have to leave again
                await asyncio.open_connection("127.0.0.1", house.server.port)
        assert house.left() == (0, 0, 0)


async def test_one_who_stops_waiting_for_room_takes_it_from_nobody_else() -> None:
    async with flooded() as (house, flood), lazy(house) as slow:
        await slow.create([user("flood")])
        await stuck(house, flood)
        [session] = house.server.sockets.sessions
        async with asyncio.TaskGroup() as group:
            first, second = (group.create_task(session._socket.drained()) for _ in range(2))
            await asyncio.wait([first, second], timeout=0)
            first.cancel()
            await asyncio.wait([first])
            assert not second.done()
            slow.vanish(reset=True)
        assert not second.cancelled()


@asynccontextmanager
async def lazy_post(house: House, *, stream: bool) -> AsyncIterator[socket.socket]:
    """A POST on a bare socket that nobody reads from."""
    body = json.dumps({"model": "simulated", "input": "flood", "stream": stream}).encode()
    head = b"POST /v1/responses HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    head += b"Content-Length: %d\r\n\r\n"
    with _small_socket(house.server.port) as narrow:
        await asyncio.get_running_loop().sock_sendall(narrow, head % len(body) + body)
        yield narrow


async def test_over_http_it_is_dropped_after_the_stall_limit_and_its_upstream_call_ends() -> None:
    async with flooded({"server.client_stall_s": 0.2}) as (house, flood), lazy_post(house, stream=True):
        await asyncio.wait_for(flood.lost.wait(), 5)
        await house.empty()


async def test_over_http_it_can_leave_while_everything_waits_for_it() -> None:
    async with flooded() as (house, flood):
        async with lazy_post(house, stream=True):
            await stuck(house, flood)
        await asyncio.wait_for(flood.lost.wait(), 5)
        await house.empty()


async def test_one_that_reads_again_is_still_told_that_the_server_stops() -> None:
    async with flooded() as (house, flood), lazy(house) as slow:
        await slow.create([user("flood")])
        await stuck(house, flood)
        async with asyncio.TaskGroup() as group:
            group.create_task(house.server.__aexit__())
            recorded = await slow.collect()
            assert recorded.kind == "response.failed"
            assert await slow.closed() == 1012
