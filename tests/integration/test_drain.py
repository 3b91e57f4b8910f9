"""SIGTERM before a real process: what runs ends, nobody is lost, everybody is sent elsewhere, and then it is gone."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from proxy.tools.simulate import Options, start
from tests.conformance.schema import TERMINAL, check_turn
from tests.program import Program, is_listening, served
from tests.wire_client import WireClient, open_socket, user

SOCKETS = 50
LANES = (None, "a", "b")
IDLE = 8


@dataclass(slots=True)
class Heard:
    """What one socket heard until it was closed, by lane. `ended_s` is when the last event came, then the close."""

    lanes: dict[str | None, list[dict[str, Any]]] = field(default_factory=dict)
    code: int | None = None
    ended_s: float = 0.0
    closed_s: float = 0.0

    @property
    def ends(self) -> list[str]:
        """The terminal events."""
        return [event["type"] for events in self.lanes.values() for event in events if event["type"] in TERMINAL]


async def hear(client: WireClient, heard: Heard, until: Callable[[Heard], bool] = lambda _: False) -> Heard:
    """Read until the socket is closed, or `until` holds."""
    with contextlib.suppress(ConnectionClosed):
        while not until(heard):
            event = await client.event()
            heard.lanes.setdefault(event.get("stream_id"), []).append(event)
            heard.ended_s = time.monotonic()
        return heard
    heard.code, heard.closed_s = client.connection.close_code, time.monotonic()
    return heard


def all_speak(heard: Heard) -> bool:
    """Has every lane had output?"""
    return sum(any(e["type"].endswith(".delta") for e in events) for events in heard.lanes.values()) == len(LANES)


def check_lane(events: Sequence[dict[str, Any]], lane: str | None, turns: int) -> None:
    """So many whole turns, one after another."""
    ends = [number for number, event in enumerate(events, 1) if event["type"] in TERMINAL]
    assert len(ends) == turns
    for first, end in zip([0, *ends], ends, strict=False):
        check_turn(events[first:end], stream_id=lane)


async def ended_well(server: Program) -> None:
    """It ends by itself, with 0 and without a word of trouble, and nobody listens any more."""
    assert await server.ended() == 0
    assert "Traceback" not in server.err, server.err
    assert "crashed" not in server.err, server.err
    assert not is_listening(server.url)


# --- What runs ends --------------------------------------------------------------------------------------------------


async def busy(client: WireClient) -> Heard:
    """Work on three lanes and more that waits on the first; returns once all three speak."""
    for lane in LANES:
        await client.create([user("[[say 40]]")], stream_id=lane, store=False)
    await client.create([user("[[say 2]]")], store=False)
    return await hear(client, Heard(), until=all_speak)


async def stream(http: aiohttp.ClientSession, url: str, script: str, begun: asyncio.Event) -> str:
    """A turn by HTTP, whole; `begun` is set with its first bytes."""
    body = {"model": "simulated", "input": script, "stream": True, "store": False}
    async with http.post(f"{url}/responses", json=body) as response:
        assert response.status == 200
        first = await response.content.readany()
        begun.set()
        return (first + await response.read()).decode()


async def refused(server: Program, http: aiohttp.ClientSession) -> None:
    """Nobody new is welcome, and is told so."""
    async with http.get(server.url.removesuffix("/v1") + "/readyz") as response:
        assert response.status == 503
    with pytest.raises(InvalidStatus) as rejected:
        async with open_socket(server.url):
            pass
    assert rejected.value.response.status_code == 503
    assert rejected.value.response.headers["Retry-After"] == "1"
    async with http.post(f"{server.url}/responses", json={"model": "simulated", "input": "x"}) as response:
        assert (response.status, response.headers["Retry-After"]) == (503, "1")
        assert response.headers["Connection"] == "close"


@pytest.mark.slow
async def test_no_turn_of_50_sockets_is_lost_and_idle_ones_leave_one_after_another(tmp_path: Path) -> None:
    grace_s = 12.0
    async with AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(await start(Options(tokens_per_s=10)))
        server = await stack.enter_async_context(served(upstream.url, tmp_path, {"drain_grace_s": grace_s}))
        http = await stack.enter_async_context(aiohttp.ClientSession())
        idle = [await stack.enter_async_context(open_socket(server.url)) for _ in range(IDLE)]
        clients = [await stack.enter_async_context(open_socket(server.url)) for _ in range(SOCKETS)]
        begun = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            by_http = group.create_task(stream(http, server.url, "[[say 30]]", begun))
            working = [group.create_task(busy(client)) for client in clients]
            await begun.wait()
        heard = [task.result() for task in working]

        async with asyncio.TaskGroup() as group:
            told_s = time.monotonic()
            server.signal(signal.SIGTERM)
            await server.prints("draining")
            endings = [group.create_task(hear(c, h)) for c, h in zip(clients, heard, strict=True)]
            leaving = [group.create_task(hear(client, Heard())) for client in idle]
            await refused(server, http)
        await ended_well(server)

    for ending in (task.result() for task in endings):
        assert (ending.code, ending.ended_s > told_s) == (1012, True)
        for lane in LANES:
            check_lane(ending.lanes[lane], lane, turns=2 if lane is None else 1)
        assert ending.ends == ["response.completed"] * 4
        assert ending.closed_s - ending.ended_s < 2, "it did not leave when its turns were over"
    left = [task.result() for task in leaving]
    assert all(each.code == 1012 and not each.lanes for each in left)
    times = sorted(each.closed_s - told_s for each in left)
    assert times[-1] - times[0] > grace_s / 4, "they left as one"
    assert times[-1] < grace_s * 0.6
    assert "response.completed" in by_http.result()
    assert by_http.result().endswith("data: [DONE]\n\n")


# --- And what does not end is ended ----------------------------------------------------------------------------------


async def test_what_outlasts_the_grace_is_ended_with_an_event(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(await start())
        server = await stack.enter_async_context(served(upstream.url, tmp_path, {"drain_grace_s": 0.5}))
        http = await stack.enter_async_context(aiohttp.ClientSession())
        begun = asyncio.Event()
        speaking, silent = [await stack.enter_async_context(open_socket(server.url)) for _ in range(2)]
        await speaking.create([user("[[stall 2]]")])
        heard = await speaking.until("response.output_text.delta")
        await silent.create([user("[[stall 0]]")])
        async with asyncio.TaskGroup() as group:
            by_http = group.create_task(stream(http, server.url, "[[stall 2]]", begun))
            await begun.wait()
            await upstream.wait_for(lambda u: u.open_requests == 3)
            server.signal(signal.SIGTERM)
            await server.prints("draining")
            failed = await speaking.collect(recorded=heard)
            error = await silent.collect()
            assert (await speaking.closed(), await silent.closed()) == (1012, 1012)
        await ended_well(server)
        await upstream.wait_for(lambda u: all(request.aborted for request in u.requests))
    assert (failed.kind, failed.error["code"]) == ("response.failed", "server_error")
    assert (error.kind, error.error["status"], error.error["code"]) == ("error", 503, "server_error")
    kinds = [json.loads(line[6:])["type"] for line in by_http.result().splitlines() if line.startswith("data: {")]
    assert kinds[-1] == "response.failed"


@pytest.mark.parametrize(
    "numbers", [(signal.SIGTERM, signal.SIGTERM), (signal.SIGTERM, signal.SIGINT), (signal.SIGINT,)], ids=str
)
async def test_a_second_signal_and_an_interrupt_are_immediate(
    tmp_path: Path, numbers: tuple[signal.Signals, ...]
) -> None:
    async with AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(await start())
        server = await stack.enter_async_context(served(upstream.url, tmp_path, {"drain_grace_s": 600}))
        client, idle = [await stack.enter_async_context(open_socket(server.url)) for _ in range(2)]
        await client.create([user("[[stall 2]]")])
        heard = await client.until("response.output_text.delta")
        for number in numbers[:-1]:
            server.signal(number)
            await server.prints("draining")
        told_s = time.monotonic()
        server.signal(numbers[-1])
        assert (await client.collect(recorded=heard)).kind == "response.failed"
        assert (await client.closed(), await idle.closed()) == (1012, 1012)
        await ended_well(server)
        assert time.monotonic() - told_s < 3
