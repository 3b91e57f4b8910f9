"""Lanes over real sockets: many conversations on one connection, none of which harms another."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest
from openai import AsyncOpenAI
from openai.lib.responses_websocket import AsyncResponsesWebSocketSession, ResponsesWebSocketLimits

from proxy.tools.simulate import Options
from tests.house import House, open_house
from tests.lane_client import LaneClient, open_lanes
from tests.wire_client import WireClient

DELTA = "response.output_text.delta"
STALL = "[[stall 1]]"
SIXTEEN = [f"lane-{number}" for number in range(16)]


@pytest.fixture
async def lanes(house: House) -> AsyncIterator[LaneClient]:
    """One socket for many lanes."""
    async with open_lanes(house) as opened:
        yield opened


async def stall(lanes: LaneClient, *names: str | None) -> None:
    """Have a turn on each of these lanes that has begun and will not end."""
    for name in names:
        await lanes.create(name, STALL)
    for name in names:
        await lanes.until(name, DELTA)


# --- Beside one another ----------------------------------------------------------------------------------------------


async def test_events_of_lanes_interleave_while_both_stream(dialect: str) -> None:
    async with open_house(dialect, options=Options(tokens_per_s=100)) as house, open_lanes(house) as lanes:
        await lanes.create("a", "[[say 20]]")
        await lanes.create("b", "[[say 20]]")
        assert (await lanes.result("a")).kind == (await lanes.result("b")).kind == "response.completed"
    deltas = [lane for lane, kind in lanes.trace if kind == DELTA]
    switches = sum(one != other for one, other in itertools.pairwise(deltas))
    assert switches >= 10, "the lanes streamed one after the other"


@pytest.mark.parametrize("name", [None, "a"], ids=["default", "named"])
async def test_a_lane_answers_in_its_order_and_never_two_at_once(name: str | None, house: House) -> None:
    async with open_lanes(house) as lanes:
        for number in range(8):
            await lanes.say(name, str(number))
        assert [(await lanes.result(name)).text for _ in range(8)] == [str(number) for number in range(8)]
    pairs = itertools.pairwise(house.upstream.requests)
    assert all(one.finished is not None and one.finished <= other.started for one, other in pairs)


async def test_the_default_lane_runs_beside_named_ones(lanes: LaneClient) -> None:
    await stall(lanes, "a")
    await lanes.says(None, "default")
    await lanes.says("b", "named")
    assert (await lanes.cancel("a")).kind == "response.failed"


async def test_the_number_16_runs_and_17_waits_until_one_ends(house: House, lanes: LaneClient) -> None:
    await stall(lanes, *SIXTEEN)
    await lanes.say("lane-16", "late")
    await lanes.say(None, "later")
    await lanes.answered()
    assert len(house.server.registry) == 16
    await lanes.cancel("lane-3")
    assert (await lanes.result("lane-16")).text == "late"
    assert (await lanes.result(None)).text == "later"
    for name in SIXTEEN:
        if name != "lane-3":
            await lanes.cancel(name)


async def test_the_number_of_running_turns_is_a_setting() -> None:
    async with open_house("chat", {"limits.running_turns": 2}) as house, open_lanes(house) as lanes:
        await stall(lanes, "a", "b")
        await lanes.say("c", "waited")
        await lanes.answered()
        assert len(house.server.registry) == 2
        await lanes.cancel("b")
        assert (await lanes.result("c")).text == "waited"


async def test_what_waits_is_bounded_and_the_refusal_names_its_lane() -> None:
    limits = {"limits.running_turns": 1, "limits.queued_turns": 2}
    async with open_house("chat", limits) as house, open_lanes(house) as lanes:
        await stall(lanes, "a")
        for name in ("b", "c", "d"):
            await lanes.say(name, name)
        refused = await lanes.result("d")
        assert (refused.error["status"], refused.error["code"]) == (429, "rate_limit_exceeded")
        await lanes.cancel("a")
        assert [(await lanes.result(name)).text for name in ("b", "c")] == ["b", "c"]
        await lanes.says("d", "and now")


# --- stream_id on the wire -------------------------------------------------------------------------------------------

ENDS = {
    "completed": ("[[say 2]]", "response.completed"),
    "reasoning and a call": ("[[think 2]] [[call get_weather {}]]", "response.completed"),
    "incomplete": ("[[length 3]]", "response.incomplete"),
    "failed": ("[[drop 3]]", "response.failed"),
    "refused by the upstream": ("[[fail 500]]", "error"),
    "refused here": (None, "error"),
}


@pytest.mark.parametrize("name", ["a", "x" * 256, "A-z_0.9", "."])
async def test_every_event_of_a_named_lane_carries_its_name(name: str, lanes: LaneClient) -> None:
    for script, kind in ENDS.values():
        assert (await lanes.turn(name, script)).kind == kind
    assert {lane for lane, _ in lanes.trace} == {name}


async def test_no_event_of_the_default_lane_carries_a_name(lanes: LaneClient) -> None:
    await stall(lanes, "a")
    for script, kind in ENDS.values():
        assert (await lanes.turn(None, script)).kind == kind  # `read` asserts that the key is absent, not null
    await lanes.cancel("a")


@pytest.mark.parametrize("name", [None, "a"], ids=["default", "named"])
async def test_a_keepalive_belongs_to_the_lane_that_is_silent(name: str | None) -> None:
    async with open_house("chat", {"server.keepalive_s": 0.05}) as house, open_lanes(house) as lanes:
        await stall(lanes, name)
        while len(lanes.keepalives) < 2:
            await lanes.read()
        expected: dict[str, Any] = {"type": "keepalive"} if name is None else {"type": "keepalive", "stream_id": name}
        assert lanes.keepalives[:2] == [expected, expected]


async def test_a_name_is_no_business_of_the_upstream(house: House, lanes: LaneClient) -> None:
    await lanes.says("a", "hello")
    assert "stream_id" not in house.upstream.requests[-1].body


async def test_a_cancel_of_an_idle_lane_is_answered_on_that_lane(lanes: LaneClient) -> None:
    await stall(lanes, None)
    await lanes.client.send({"type": "response.cancel", "stream_id": "a"})
    assert (await lanes.result("a")).error["code"] == "response_not_found"
    await lanes.says("a", "goes on")


# --- Names -----------------------------------------------------------------------------------------------------------

BAD_NAMES = ["", "x" * 257, "a b", " ", "é", "a/b", "a\n", '"', 1, 1.5, True, [], ["a"], {"a": 1}]


@pytest.mark.parametrize("name", BAD_NAMES, ids=lambda name: repr(name)[:12])
async def test_a_bad_name_is_refused_without_an_echo(name: Any, house: House, client: WireClient) -> None:
    recorded = await client.turn("hello", stream_id=name)
    error = recorded.error
    assert (error["status"], error["code"], error["param"]) == (400, "invalid_stream_id", "stream_id")
    assert "stream_id" not in error
    assert not house.upstream.requests
    await client.works()


async def test_a_bad_name_takes_none_of_the_names() -> None:
    async with open_house("chat", {"limits.lanes": 1}) as house, open_lanes(house) as lanes:
        for _ in range(3):
            await lanes.client.create("hello", stream_id="not good")
            assert (await lanes.result(None)).error["code"] == "invalid_stream_id"
        await lanes.says("a", "good")


async def test_null_is_the_default_lane(house: House, client: WireClient) -> None:
    first = await client.says("one", store=False)
    await client.send({"type": "response.create", "input": "x", "stream_id": None, "previous_response_id": first.id})
    assert (await client.collect()).kind == "response.completed"
    assert house.said()[:2] == ['[[say "one"]]', "one"]


async def test_the_33rd_name_is_refused_and_everything_else_goes_on(house: House, lanes: LaneClient) -> None:
    names = [f"n{number}" for number in range(32)]
    for name in names:
        assert (await lanes.turn(name, None, generate=False)).kind == "response.completed"
    for name in ("one-more", "another"):
        error = (await lanes.turn(name, "hello")).error  # found on its own lane: the id is echoed
        assert (error["status"], error["code"]) == (400, "websocket_stream_limit_reached")
        assert error["param"] == "stream_id"
        assert "32" in error["message"]
    assert not house.upstream.requests
    await lanes.says(None, "default")
    for name in ("n0", "n31"):
        await lanes.says(name, "used before")


# --- No harm to others -----------------------------------------------------------------------------------------------

HARM = ["[[fail 500]]", "[[fail 429]]", "[[drop 0]]", "[[drop 3]]", "[[eof 3]]", "[[garbage 3]]", "[[error 3]]"]


@pytest.mark.parametrize("harm", HARM)
async def test_a_lane_that_fails_harms_no_other(harm: str, house: House, lanes: LaneClient) -> None:
    first = await lanes.says("good", "one", store=False)
    await lanes.create("bad", harm)
    await lanes.create("bad", harm)
    await lanes.says("good", "two", store=False, previous_response_id=first.id)
    for _ in range(2):
        assert (await lanes.result("bad")).kind in ("error", "response.failed")
    await lanes.says("bad", "good again")


async def test_a_lane_that_waits_for_its_upstream_holds_up_no_other(lanes: LaneClient) -> None:
    await stall(lanes, "bad")
    await lanes.create("silent", "[[stall 0]]")
    for number in range(10):
        await lanes.says("good", str(number))
        await lanes.says(None, str(number))
    assert not [kind for lane, kind in lanes.trace if lane == "bad" and kind == "response.failed"]


async def test_a_client_that_leaves_ends_the_upstream_calls_of_all_its_lanes(house: House) -> None:
    async with open_lanes(house) as lanes:
        await stall(lanes, *SIXTEEN)
        await lanes.say("lane-16", "never asked")
    await house.upstream.wait_for(lambda u: all(request.aborted for request in u.requests), 5)
    await house.empty()
    assert len(house.upstream.requests) == 16


async def test_a_lane_with_a_long_queue_takes_its_share_and_no_more() -> None:
    async with open_house("chat", {"limits.running_turns": 1}) as house, open_lanes(house) as lanes:
        await stall(lanes, "greedy")
        for number in range(10):
            await lanes.say("greedy", str(number))
        await lanes.say("modest", "first")
        await lanes.say("modest", "second")
        await lanes.answered()
        await lanes.cancel("greedy")
        await lanes.result("modest")
        await lanes.result("modest")
        ends = [lane for lane, kind in lanes.trace if kind == "response.completed"]
        assert ends.count("greedy") <= 2
        for _ in range(10):
            assert (await lanes.result("greedy")).kind == "response.completed"


@pytest.mark.parametrize("dialect", ["chat"])
@pytest.mark.slow
async def test_a_socket_full_of_streams_leaves_room_for_another(dialect: str) -> None:
    async with open_house(dialect) as house:
        async with open_lanes(house, thorough=False) as busy, open_lanes(house) as quick:
            for name in SIXTEEN[:6]:
                await busy.create(name, "[[say 2500]]")
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(busy.result("lane-0"))
                await house.upstream.wait_for(lambda u: sum(each.tokens_sent > 0 for each in u.requests) == 6, 20)
                for number in range(2):
                    await quick.says(None, str(number))
                reading.cancel()
        assert [turn.outcome for turn in house.watcher.turns[:2]] == ["completed"] * 2
        assert all(turn.outcome != "completed" for turn in house.watcher.turns[2:])


# --- Many ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ["chat"])
@pytest.mark.slow
async def test_a_thousand_turns_over_32_lanes_of_one_socket(house: House) -> None:
    names = [f"n{number}" for number in range(32)]
    async with open_lanes(house, thorough=False) as lanes:
        parents: dict[str, str | None] = dict.fromkeys(names)
        turns = 0
        while turns < 1000:
            row = names[: 1000 - turns]
            for name in row:
                await lanes.say(name, f"{name} {turns}", store=False, previous_response_id=parents[name])
            for name in row:
                recorded = await lanes.result(name)
                assert recorded.text == f"{name} {turns}"
                assert recorded.response["previous_response_id"] == parents[name]
                parents[name] = recorded.id
            turns += len(row)
        assert len(house.watcher.turns) == 1000
        # Each lane has its own history and nothing of any other.
        await lanes.says("n0", "end", store=False, previous_response_id=parents["n0"])
        said = [text for text in house.said() if not text.startswith("[[")]
        assert said == [f"n0 {number}" for number in range(0, 1000, 32)]


async def test_openais_own_lanes_16_at_once(house: House) -> None:
    limits = ResponsesWebSocketLimits(
        max_lanes=17, max_events_per_lane=1000, max_events=10_000, max_bytes_per_lane=2**24, max_bytes=2**26
    )

    async def converse(session: AsyncResponsesWebSocketSession, name: str) -> str:
        lane, parent = session.lane(name), None
        for number in range(3):
            create: Any = {
                "type": "response.create",
                "model": "simulated",
                "store": False,
                "input": f'[[say "{name} {number}"]]',
                "previous_response_id": parent,
            }
            await lane.send(create)
            response = await lane.get_final_response()
            assert response.output_text == f"{name} {number}"
            parent = response.id
        return response.output_text

    async with AsyncOpenAI(base_url=house.url, api_key="test", max_retries=0) as openai:
        async with openai.responses.connect() as connection:
            async with (
                AsyncResponsesWebSocketSession(connection, limits=limits) as session,
                asyncio.TaskGroup() as group,
            ):
                tasks = [group.create_task(converse(session, name)) for name in SIXTEEN]
    assert [task.result() for task in tasks] == [f"{name} 2" for name in SIXTEEN]
