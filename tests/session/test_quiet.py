"""What keeps a silent socket alive, and how long a turn took: `keepalive`, pings, `responsesapi.websocket_timing`."""

from __future__ import annotations

import asyncio
from collections import Counter

import aiohttp
import pytest

from proxy.tools.simulate import Options
from tests.house import BEARER, House, open_house
from tests.session.steered import Heard, begin, finish, read, steer
from tests.session.test_control import cancel, cancelled, nothing
from tests.wire_client import Event, user

TIMING = "responsesapi.websocket_timing"
ASKED = {"x-responsesapi-include-timing-metrics": "true"}


def soon(seconds: float, **extra: object) -> dict[str, object]:
    """Settings under which a silent turn speaks after this long."""
    return {"server.keepalive_s": seconds, **extra}


# --- keepalive -------------------------------------------------------------------------------------------------------


async def test_a_silent_turn_is_told_to_be_alive_again_and_again(dialect: str) -> None:
    async with open_house(dialect, soon(0.05)) as house, house.connect() as client:
        heard = await begin(client, "[[stall 1]]")
        for _ in range(3):
            event = await client.event()
            assert event == {"type": "keepalive"}, "neither a number nor a lane"
        await cancel(client)
        await cancelled(client, heard)


async def test_each_silent_lane_is_told_by_name_and_the_others_are_not() -> None:
    async with open_house("chat", soon(0.05)) as house, house.connect() as client:
        await client.says("idle from now on", stream_id=None)
        for lane in ("one", "two"):
            await client.create([user("[[stall 1]]")], stream_id=lane)
        told: Counter[str | None] = Counter()
        while min(told["one"], told["two"]) < 2:
            event = await client.event()
            if event["type"] == "keepalive":
                assert set(event) == {"type", "stream_id"}
                told[event["stream_id"]] += 1
        assert set(told) == {"one", "two"}


async def test_a_turn_is_kept_alive_before_its_first_event() -> None:
    async with open_house("chat", soon(0.05)) as house, house.connect() as client:
        await client.create([user("[[stall 0]]")])
        assert (await client.event())["type"] == "keepalive"
        await cancel(client)
        await cancelled(client, Heard())


async def test_no_keepalive_comes_while_events_do() -> None:
    options = Options(tokens_per_s=40)
    async with open_house("chat", soon(0.4), options) as house, house.connect() as client:
        await client.create([user("[[say 40]]")])
        heard = await finish(client)
    assert len(heard.turn.kinds) > 40
    assert heard.told == []


async def test_no_keepalive_comes_to_an_idle_socket_and_the_next_turn_has_its_own() -> None:
    async with open_house("chat", soon(0.05)) as house, house.connect() as client:
        for _ in range(2):
            heard = await read(client, await begin(client, "[[stall 1]]"), until="keepalive")
            await cancel(client)
            await cancelled(client, heard)
            await nothing(client, 0.2)


async def test_zero_switches_it_off() -> None:
    async with open_house("chat", soon(0)) as house, house.connect() as client:
        await begin(client, "[[stall 1]]")
        await nothing(client, 0.2)


async def test_a_turn_that_is_silent_by_http_gets_a_comment() -> None:
    async with open_house("chat", soon(0.05)) as house:
        async with house.post({"input": "[[stall 1]]", "stream": True}) as response:
            for _ in range(2):
                assert await response.content.readuntil(b": keepalive\n\n")


# --- Pings -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("running", [True, False])
async def test_pings_come_in_a_turn_and_without_one(running: bool) -> None:
    async with open_house("chat", {"server.ping_interval_s": 0.1}) as house:
        url = f"{house.url}/responses"
        async with house.http.ws_connect(url, headers=BEARER, autoping=False) as socket, asyncio.timeout(5):
            if running:
                await socket.send_json({"type": "response.create", "model": "simulated", "input": "[[stall 1]]"})
            pings = 0
            while pings < 2:
                message = await socket.receive()
                assert message.type in (aiohttp.WSMsgType.PING, aiohttp.WSMsgType.TEXT)
                if message.type is aiohttp.WSMsgType.PING:
                    pings += 1
                    await socket.pong(message.data)


# --- Timing ----------------------------------------------------------------------------------------------------------


def timings(heard: Heard) -> list[Event]:
    """The events that tell of times."""
    return [event for event in heard.told if event["type"] == TIMING]


async def test_times_come_before_the_end_when_asked_for_and_add_up(dialect: str) -> None:
    options = Options(ttft_s=0.05, tokens_per_s=100)
    async with open_house(dialect, options=options) as house, house.connect(headers=ASKED) as client:
        await client.create([user("[[say 5]]")], stream_id="work")
        heard = await finish(client, stream_id="work")
        assert heard.order[-2] == TIMING
        [event] = timings(heard)
        assert event["stream_id"] == "work"
        metrics = event["timing_metrics"]
        ours = metrics["responses_duration_excl_engine_and_client_tool_time_ms"]
        engine, first = metrics["engine_service_total_ms"], metrics["engine_service_ttft_total_ms"]
        record = house.watcher.turns[-1]
        assert record.ended_s is not None
        assert 50 <= first <= engine
        assert engine >= 80
        assert ours >= 0
        assert ours + engine == pytest.approx((record.ended_s - record.received_s) * 1000, abs=20)


@pytest.mark.parametrize("script", ["[[fail 500]]", "[[drop 2]]", "[[length 3]]", "[[say 1]]"])
async def test_every_end_of_a_response_has_its_times_once(script: str) -> None:
    async with open_house("chat") as house, house.connect(headers=ASKED) as client:
        await client.create([user(script)])
        heard = await finish(client)
        assert len(timings(heard)) == (heard.turn.kind != "error")
        await client.create(None, generate=False)
        assert len(timings(await finish(client))) == 1


async def test_a_steered_response_and_its_successor_have_their_own_times() -> None:
    async with open_house("chat") as house, house.connect(headers=ASKED) as client:
        heard = await begin(client, "[[stall 1]]")
        await steer(client, heard.id, "[[say 2]]")
        heard = await finish(client, heard)
        assert heard.order[-2:] == [TIMING, "response.incomplete"]
        assert (await finish(client)).order[-2:] == [TIMING, "response.completed"]


@pytest.mark.parametrize("headers", [{}, {"x-responsesapi-include-timing-metrics": "false"}])
async def test_times_come_to_nobody_else(headers: dict[str, str], house: House) -> None:
    async with house.connect(headers=headers) as client:
        await client.create([user("[[say 1]]")])
        assert (await finish(client)).told == []
