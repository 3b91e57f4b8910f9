"""What servers of this protocol easily get wrong, entries 1 to 33: framing, state, lanes and limits.

Entries 34 to 62 are in `test_easy_to_get_wrong_events.py`. Each test is short and says one thing; what stands behind it
is tested at length elsewhere.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection

from proxy.tools.simulate import Options
from tests.conformance import test_easy_to_get_wrong_events as the_rest
from tests.house import BEARER, House, open_house
from tests.lane_client import LaneClient, open_lanes
from tests.session.test_continuation import assert_not_found
from tests.wire_client import Recorded, WireClient, function, tool_output, user

DELTA = "response.output_text.delta"
ONE = ['[[say "one"]]', "one"]

# Entries that say nothing about a client's WebSocket, and why.
ELSEWHERE = {
    8: "how server-sent events are framed: tests/conformance/test_streams.py",
    33: "upstreams are reached by HTTP alone, so there is no socket of theirs to rotate",
    35: "the shape of an error among server-sent events: tests/integration/test_openai_sdk.py",
}


def test_every_entry_is_held_or_said_to_be_elsewhere() -> None:
    names = [*globals(), *vars(the_rest)]
    held = {int(found[1]) for name in names if (found := re.match(r"test_(\d\d)_", name))}
    assert held.isdisjoint(ELSEWHERE)
    assert held | set(ELSEWHERE) == set(range(1, 63))


# --- Framing ---------------------------------------------------------------------------------------------------------


async def test_01_members_of_a_create_stand_beside_its_type(house: House, client: WireClient) -> None:
    await client.send({"type": "response.create", "response": {"model": "simulated", "input": "nested"}})
    assert (await client.collect()).error["param"] == "input"
    assert not house.upstream.requests
    await client.says("at the top", temperature=0.5)
    assert house.upstream.requests[-1].body["temperature"] == 0.5


async def test_02_stream_true_is_accepted(client: WireClient) -> None:
    for stream in (True, False, None):
        await client.send({"type": "response.create", "input": "[[say 2]]", "stream": stream})
        assert (await client.collect()).kind == "response.completed"


@pytest.mark.parametrize("dialect", ["chat"])
async def test_03_unknown_keys_are_accepted_and_stay_here(dialect: str) -> None:
    item = {**user('[[say "fine"]]'), "id": "msg_mine", "internal_chat_message_metadata_passthrough": {"a": 1}}
    async with open_house(dialect, options=Options(strict_fields=True)) as house, house.connect() as client:
        assert (await client.turn([item], client_metadata={"turn_id": "1"})).text == "fine"
        assert "client_metadata" not in house.upstream.requests[-1].body
        assert "passthrough" not in json.dumps(house.asked())


async def test_04_tools_of_unknown_type_do_not_fail_the_turn(client: WireClient) -> None:
    tools: list[dict[str, Any]] = [
        function(),
        {"type": "web_search"},
        {"type": "tool_search"},
        {"type": "custom", "name": "patch"},
        {"type": "namespace", "name": "mcp", "description": "Tools.", "tools": [function("inner")]},
    ]
    assert (await client.turn("[[say 2]]", tools=tools)).kind == "response.completed"


async def test_05_input_comes_in_every_form(house: House, client: WireClient) -> None:
    part = {"type": "input_text", "text": "[[say 1]]"}
    for form in ("[[say 1]]", [{"role": "user", "content": "[[say 1]]"}], [{"role": "user", "content": [part]}]):
        assert (await client.turn(form)).kind == "response.completed"
        assert house.said() == ["[[say 1]]"]
    for role in ("system", "developer"):
        assert (await client.turn([{"role": role, "content": "Rule."}, user("[[say 1]]")])).kind == "response.completed"
        assert house.said() == ["Rule.", "[[say 1]]"]


async def frames(connection: ClientConnection) -> list[str | bytes]:
    """The frames of one turn, as they came."""
    received: list[str | bytes] = []
    while not received or b"response.completed" not in _bytes(received[-1]):
        received.append(await connection.recv())
    return received


def _bytes(frame: str | bytes) -> bytes:
    return frame if isinstance(frame, bytes) else frame.encode()


async def test_06_frames_are_text(client: WireClient) -> None:
    await client.create("[[think 2]] [[say 3]]")
    assert {type(frame) for frame in await frames(client.connection)} == {str}


async def test_07_no_done_on_a_socket_but_by_sse(house: House, client: WireClient) -> None:
    await client.says("one")
    await client.create("[[say 3]]")
    # The frame that follows the terminal one is the next turn's.
    assert not any("[DONE]" in str(frame) for frame in await frames(client.connection))
    await client.works()
    async with house.post({"input": "[[say 3]]", "stream": True}) as response:
        assert (await response.text()).endswith("data: [DONE]\n\n")


async def test_09_a_message_of_many_megabytes_is_taken() -> None:
    async with open_house("chat", options=Options(context_tokens=10**8)) as house, house.connect() as client:
        assert (await client.turn([user("x" * 20_000_000), user('[[say "read"]]')])).text == "read"


@pytest.mark.parametrize("compression", ["deflate", None])
async def test_10_compression_is_negotiated_when_offered(compression: str | None, house: House) -> None:
    async with house.connect(compression=compression) as client:
        assert bool(client.connection.protocol.extensions) == (compression is not None)
        assert (await client.turn("word " * 1000 + '[[say "read"]]')).text == "read"


async def test_11_pings_are_answered_under_load(house: House) -> None:
    async with open_lanes(house, thorough=False) as lanes:
        for number in range(8):
            await lanes.create(f"n{number}", "[[say 500]]")
        await lanes.until("n0", DELTA)
        pong = await lanes.client.connection.ping()
        for number in range(8):
            assert (await lanes.result(f"n{number}")).kind == "response.completed"
        assert await pong < 5


async def test_12_a_silent_turn_gets_a_text_event_of_a_safe_type() -> None:
    async with open_house("chat", {"server.keepalive_s": 0.05}) as house, open_lanes(house) as lanes:
        await lanes.create(None, "[[stall 0]]")
        while len(lanes.keepalives) < 2:
            await lanes.read()
        assert lanes.keepalives[0] == {"type": "keepalive"}


# --- State -----------------------------------------------------------------------------------------------------------


async def test_13_a_warm_up_has_an_id_that_can_be_continued_and_asks_no_model(house: House, client: WireClient) -> None:
    warm = await client.turn("Rules.", generate=False, store=False)
    assert warm.kinds == ["response.created", "response.in_progress", "response.completed"]
    assert warm.output == []
    assert not house.upstream.requests
    await client.says("one", store=False, previous_response_id=warm.id)
    assert house.said() == ["Rules.", '[[say "one"]]']


async def test_14_a_second_create_on_the_default_lane_waits(client: WireClient) -> None:
    await client.create([user('[[say "first of two"]]')])
    await client.create([user('[[say "second"]]')])
    # `collect` would find the events of one turn among those of the other.
    assert [(await client.collect()).text for _ in range(2)] == ["first of two", "second"]


async def test_15_an_unstored_id_is_unknown_on_another_socket(house: House) -> None:
    async with house.connect() as client, house.connect() as other:
        first = await client.says("one", store=False)
        assert_not_found(await other.turn("x", store=False, previous_response_id=first.id), first.id)


async def test_16_after_that_error_the_socket_goes_on(client: WireClient) -> None:
    assert_not_found(await client.turn("x", store=False, previous_response_id="resp_unknown"), "resp_unknown")
    await client.works()


@pytest.mark.parametrize("failure", [[tool_output("call_unknown", "x")], [user("[[fail 500]]")]], ids=["400", "500"])
async def test_17_a_failed_continuation_evicts_and_a_failed_fork_does_not(failure: Any, house: House) -> None:
    async with open_lanes(house) as lanes:
        first = await lanes.says("a", "one", store=False)
        parent = {"store": False, "previous_response_id": first.id}
        await lanes.turn("b", failure, **parent)
        await lanes.create("a", "[[stall 1]]", **parent)
        await lanes.until("a", DELTA)
        await lanes.cancel("a")  # a cancel is no failure either
        await lanes.turn("a", failure, **parent)
        assert (await lanes.turn("a", "x", **parent)).error["code"] == "previous_response_not_found"


async def test_18_a_lane_holds_its_latest_alone(client: WireClient) -> None:
    first = await client.says("one", store=False)
    await client.says("two", store=False, previous_response_id=first.id)
    assert_not_found(await client.turn("x", store=False, previous_response_id=first.id), first.id)


async def test_19_a_null_parent_is_none(house: House, client: WireClient) -> None:
    await client.says("one")
    await client.send({"type": "response.create", "input": '[[say "two"]]', "previous_response_id": None})
    assert (await client.collect()).response["previous_response_id"] is None
    assert house.said() == ['[[say "two"]]']


async def test_20_calls_and_outputs_are_paired_before_the_upstream_is_asked(house: House, client: WireClient) -> None:
    unknown = await client.turn([user("x"), tool_output("call_unknown", "x")])
    assert not house.upstream.requests
    called = await client.turn("[[call get_weather {}]]", tools=[function()])
    unanswered = await client.turn([user("never mind")], previous_response_id=called.id)
    assert len(house.upstream.requests) == 1
    for recorded in (unknown, unanswered):
        error = recorded.error
        assert (error["status"], error["error"]["type"], error["param"]) == (400, "invalid_request_error", "input")


async def test_21_history_is_whole_and_in_order_and_instructions_are_not_in_it(
    house: House, client: WireClient
) -> None:
    first = await client.says("one", instructions="Old rule.")
    second = await client.says("two", instructions="New rule.", previous_response_id=first.id)
    assert house.said() == ["New rule.", *ONE, '[[say "two"]]']
    await client.says("three", previous_response_id=second.id)
    assert house.said() == [*ONE, '[[say "two"]]', "two", '[[say "three"]]']


async def test_22_settings_are_those_of_the_present_create(house: House, client: WireClient) -> None:
    first = await client.says("one", tools=[function()], tool_choice="auto", temperature=0.25)
    await client.says("two", previous_response_id=first.id)
    body = house.upstream.requests[-1].body
    assert not {"temperature", "tool_choice"} & set(body)
    assert not body.get("tools")


@pytest.mark.parametrize("dialect", ["responses"])
async def test_23_reasoning_and_phase_survive(house: House, client: WireClient) -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "SECRET"}
    said = {"role": "assistant", "phase": "commentary", "content": [{"type": "output_text", "text": "Hm."}]}
    first = await client.turn([user("x"), reasoning, said, user("[[think 2]] [[say 1]]")], store=False)
    await client.says("two", store=False, previous_response_id=first.id)
    asked = house.asked()
    assert asked[1] == reasoning
    assert asked[2]["phase"] == "commentary"
    assert asked[4]["type"] == "reasoning", "the model's own reasoning is gone"


async def test_24_a_response_can_be_continued_the_moment_its_end_is_read(house: House) -> None:
    async with house.connect() as client, house.connect() as other:
        for number in range(10):
            first = await client.says(str(number))
            await other.says("next", previous_response_id=first.id)


async def test_25_a_response_is_stored_unless_told_otherwise(house: House) -> None:
    async with house.connect() as client:
        first = await client.says("one")
    async with house.connect() as other:
        await other.says("two", previous_response_id=first.id)
    async with house.post({"input": "[[say 1]]", "previous_response_id": first.id}) as response:
        assert response.status == 200
    assert house.said()[:2] == ONE
    async with house.http.get(f"{house.url}/responses/{first.id}", headers=BEARER) as response:
        assert await response.json() == first.response


async def test_26_a_lane_without_an_id_starts_empty(house: House) -> None:
    async with open_lanes(house) as lanes:
        await lanes.says("a", "one")
        await lanes.says("a", "two")
    assert house.said() == ['[[say "two"]]']


async def test_27_a_fork_is_bound_before_it_is_in_progress(dialect: str) -> None:
    async with open_house(dialect, {"server.early_events_s": 0.0}) as house, open_lanes(house) as lanes:
        first = await lanes.says("a", "one", store=False)
        await lanes.say("b", "fork", store=False, previous_response_id=first.id)
        await lanes.until("b", "response.in_progress")
        await lanes.says("a", "two", store=False, previous_response_id=first.id)
        assert (await lanes.result("b")).text == "fork"
        assert house.said(1)[:2] == ONE


# --- Lanes and limits ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "x" * 257, "a b", "ä", 1, ["a"]])
async def test_28_a_bad_name_is_refused_without_an_echo(name: Any, client: WireClient) -> None:
    error = (await client.turn("x", stream_id=name)).error
    assert (error["status"], error["code"], error["param"]) == (400, "invalid_stream_id", "stream_id")
    assert "stream_id" not in error
    await client.works()


async def test_29_one_name_too_many_is_echoed_and_the_others_go_on(house: House) -> None:
    async with open_lanes(house) as lanes:
        for number in range(32):
            await lanes.turn(f"n{number}", None, generate=False)
        refused = await lanes.turn("n32", "x")
        assert (refused.error["code"], refused.error["stream_id"]) == ("websocket_stream_limit_reached", "n32")
        await lanes.says("n0", "used before")
        await lanes.says(None, "default")


async def test_30_the_17th_create_waits(house: House) -> None:
    async with open_lanes(house) as lanes:
        await _stall(lanes, 16)
        await lanes.say("one-more", "first")
        await lanes.say("one-more", "second")
        await lanes.answered()
        assert len(house.server.registry) == 16
        await lanes.cancel("n0")
        assert [(await lanes.result("one-more")).text for _ in range(2)] == ["first", "second"]


async def _stall(lanes: LaneClient, number: int) -> None:
    for name in (f"n{each}" for each in range(number)):
        await lanes.create(name, "[[stall 1]]")
        await lanes.until(name, DELTA)


async def test_31_named_lanes_name_themselves_and_the_default_lane_does_not(house: House) -> None:
    async with open_lanes(house) as lanes:
        for name in ("a", None):
            for script in ("[[say 2]]", "[[fail 500]]", "[[drop 2]]", None):
                for event in (await lanes.turn(name, script)).events:
                    assert ("stream_id" in event) == (name is not None)
                    assert event.get("stream_id") == name


async def test_32_at_the_end_of_its_life_a_socket_says_so_and_closes() -> None:
    settings = {"server.lifetime_s": 0.2, "server.lifetime_grace_s": 0.05}
    async with open_house("chat", settings) as house, house.connect() as idle, house.connect() as busy:
        await busy.create("[[stall 1]]")
        recorded: Recorded = await busy.collect()
        assert recorded.kind == "response.failed", "a running response was cut silently"
        for client in (idle, busy):
            error = await client.answer()
            assert (error["status"], error["code"]) == (400, "websocket_connection_limit_reached")
            assert await client.closed() == 1001
