"""A client that stops reading: what waits for it is bounded, its upstream stops, and nobody else pays for it."""

from __future__ import annotations

import asyncio
import os
import socket
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from proxy.server.client_socket import ClientSocket
from tests.house import House, house_before
from tests.program import Program, served
from tests.raw_upstream import DONE, HEAD, LAST, Connection, event, raw_upstream
from tests.wire_client import WireClient, open_socket

OUTBOX = 64 * 1024
TEXT = "x" * 20_000
CHUNK = event(TEXT)
MOST = 3_000  # 60 MB: the kernel's buffers on the way take less
WHOLE = HEAD + event("Hello ") * 60 + event(None, "stop") + DONE + LAST
NO_PINGS = {"server.ping_interval_s": 600}  # a client that does not read answers none: another limit than this one


class Upstream:
    """Floods the first `floods` requests until it is `enough`, answers every other one at once."""

    def __init__(self, floods: int) -> None:
        self.floods = floods
        self.enough = asyncio.Event()
        self.open = self.sent = self.lost = 0
        self._begun = asyncio.Semaphore(0)

    async def __call__(self, connection: Connection) -> None:
        if not self.floods:
            connection.writer.write(WHOLE)
            return
        self.floods -= 1
        self.open += 1
        self._begun.release()
        try:
            connection.writer.write(HEAD)
            while not self.enough.is_set():
                connection.writer.write(CHUNK)
                self.sent += 1
                await connection.writer.drain()
            connection.writer.write(event(None, "stop") + DONE + LAST)
        except ConnectionError:
            self.lost += 1
            raise
        finally:
            self.open -= 1

    async def flooding(self, floods: int) -> None:
        """Wait until so many more floods have begun."""
        async with asyncio.timeout(5):
            for _ in range(floods):
                await self._begun.acquire()


def narrow(url: str) -> socket.socket:
    """A connection whose receive buffer is small."""
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    raw.connect(("127.0.0.1", urlsplit(url).port))
    raw.setblocking(False)
    return raw


@asynccontextmanager
async def lazy(url: str) -> AsyncIterator[WireClient]:
    """A client whose library stops reading once one message waits."""
    async with open_socket(url, max_queue=1, sock=narrow(url)) as client:
        try:
            yield client
        finally:
            client.vanish(reset=True)


async def quick(client: WireClient) -> None:
    """A turn that must complete; unchecked, since its time is taken."""
    await client.create("quick", store=False)
    while (kind := (await client.event())["type"]) != "response.completed":
        assert kind not in ("response.failed", "error")


async def blocked(upstream: Upstream, others: WireClient, floods: int) -> None:
    """Wait until the upstream gets nothing more out, while another client's turns go on."""
    seen = -1
    while upstream.open != floods or upstream.sent != seen:
        seen = upstream.sent
        assert seen < MOST * floods, "everything is taken from the upstream"
        for _ in range(10):
            await quick(others)


class Meter:
    """The most that waited unsent on any socket, and the largest single write."""

    def __init__(self) -> None:
        self.held = self.largest = 0


@pytest.fixture
def meter(monkeypatch: pytest.MonkeyPatch) -> Meter:
    """Watches every write to a client."""
    meter, write = Meter(), ClientSocket.write

    def metered(self: ClientSocket, data: bytes) -> None:
        write(self, data)
        meter.held = max(meter.held, self._transport.get_write_buffer_size())
        meter.largest = max(meter.largest, len(data))

    monkeypatch.setattr(ClientSocket, "write", metered)
    return meter


@asynccontextmanager
async def flooded(
    lanes: int, extra: dict[str, object] | None = None
) -> AsyncIterator[tuple[House, Upstream, WireClient, WireClient]]:
    """A house, a client that asked for a flood on some lanes and does not read it, and one that behaves."""
    settings = {"limits.outbox_bytes": OUTBOX, **NO_PINGS, **(extra or {})}
    upstream = Upstream(lanes)
    async with raw_upstream(upstream) as raw, house_before(raw.url, "chat", settings) as house:
        async with house.connect() as other, lazy(house.url) as slow:
            for number in range(lanes):
                await slow.create("flood", stream_id=f"lane-{number}" if number else None)
            await upstream.flooding(lanes)
            yield house, upstream, slow, other


async def texts(client: WireClient, lanes: int) -> int:
    """Read everything: the length of all lanes' deltas."""
    ends = length = 0
    while ends < lanes:
        got = await client.event()
        assert got["type"] not in ("response.failed", "error")
        ends += got["type"] == "response.completed"
        if got["type"] == "response.output_text.delta":
            length += len(got["delta"])
    return length


async def test_its_upstream_stops_until_it_reads_again(meter: Meter) -> None:
    async with flooded(1) as (_, upstream, slow, other):
        await blocked(upstream, other, 1)
        assert OUTBOX < meter.held <= OUTBOX + meter.largest
        assert meter.largest < 2**20, "more than one read of the upstream at once"
        upstream.enough.set()
        assert await texts(slow, 1) == upstream.sent * len(TEXT)


async def test_what_waits_for_several_lanes_is_bounded_by_one_read_each(meter: Meter) -> None:
    lanes = 4
    async with flooded(lanes) as (_, upstream, slow, other):
        while meter.held <= OUTBOX:
            await quick(other)
        # Read in the deltas only: what ends an answer repeats it.
        most = meter.largest
        assert meter.held <= OUTBOX + lanes * most
        assert most < 2**20
        upstream.enough.set()
        assert await texts(slow, lanes) == upstream.sent * len(TEXT)


async def test_past_the_limit_it_is_dropped_and_its_upstream_calls_with_it() -> None:
    async with flooded(2, extra={"server.client_stall_s": 0.3}) as (house, upstream, _, other):
        await house.watcher.wait_for(lambda: len(house.watcher.sessions) == 1)
        [session] = house.watcher.sessions
        assert (session.reason, session.close_code) == ("client_stalled", 1006)
        mine = [turn.outcome for turn in house.watcher.turns if turn.session == session.id]
        assert mine == ["cancelled"] * 2
        while upstream.lost < 2:
            await quick(other)
        assert upstream.open == 0


async def test_one_that_reads_in_time_is_not_dropped() -> None:
    async with flooded(1, extra={"server.client_stall_s": 5}) as (house, upstream, slow, other):
        await blocked(upstream, other, 1)
        upstream.enough.set()
        assert await texts(slow, 1) == upstream.sent * len(TEXT)
        assert not house.watcher.sessions


# --- What it costs others --------------------------------------------------------------------------------------------

SOCKETS, STALLED, TURNS, ROUNDS = 20, 5, 6, 3


def cpu_s(pid: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def load(server: Program, clients: list[WireClient]) -> tuple[float, float]:
    """Turns on every socket at once: CPU seconds of the server and the median seconds of a turn."""
    took: list[float] = []

    async def work(client: WireClient) -> None:
        for _ in range(TURNS):
            begun_s = time.perf_counter()
            await quick(client)
            took.append(time.perf_counter() - begun_s)

    before_s = cpu_s(server.pid)
    async with asyncio.TaskGroup() as group:
        for client in clients:
            group.create_task(work(client))
    return cpu_s(server.pid) - before_s, statistics.median(took)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads CPU time from /proc")
@pytest.mark.slow
async def test_five_of_them_cost_twenty_others_next_to_nothing(tmp_path: Path) -> None:
    upstream = Upstream(0)
    async with AsyncExitStack() as stack:
        raw = await stack.enter_async_context(raw_upstream(upstream))
        settings = {"ping_interval_s": 600, "client_stall_s": 600}
        server = await stack.enter_async_context(served(raw.url, tmp_path, settings))
        clients = [await stack.enter_async_context(open_socket(server.url)) for _ in range(SOCKETS)]
        await load(server, clients)  # warm
        alone, beside = [], []
        for _ in range(ROUNDS):
            alone.append(await load(server, clients))
            async with AsyncExitStack() as crowd:
                upstream.floods = STALLED
                for _ in range(STALLED):
                    slow = await crowd.enter_async_context(lazy(server.url))
                    await slow.create("flood", store=False)
                await upstream.flooding(STALLED)
                await blocked(upstream, clients[0], STALLED)
                beside.append(await load(server, clients))
                assert upstream.open == STALLED
            while upstream.open:
                await quick(clients[0])
    cpu, latency = ([statistics.median(run[i] for run in runs) for runs in (alone, beside)] for i in (0, 1))
    print(f"CPU {cpu[0]:.3f} → {cpu[1]:.3f} s, turn {latency[0] * 1000:.1f} → {latency[1] * 1000:.1f} ms")
    assert cpu[1] < 1.3 * cpu[0] + 0.05
    assert latency[1] < 2 * latency[0] + 0.05
