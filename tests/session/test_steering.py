"""Steering: what a running response and its successor become, in both dialects over real sockets."""

from __future__ import annotations

import re
from typing import Any

import pytest

from proxy.tools.simulate import Options
from tests.house import House, open_house
from tests.session.steered import ARGUMENTS, CALL, STEERED, Heard, begin, finish, given_back, read, steer
from tests.wire_client import WireClient, function, tool_output, user

SHORTER = '[[say "Shorter then."]]'
SLOW = Options(tokens_per_s=40)  # a call takes a quarter of a second
REASONING = "response.reasoning_text.delta"


async def steered(client: WireClient, heard: Heard, given: str = SHORTER, stream_id: str | None = None) -> Heard:
    """Steer a response in mid-answer: accepted, then it ends with what it has said."""
    await steer(client, heard.id, given)
    heard = await finish(client, heard, stream_id)
    assert [event["type"] for event in heard.told] == ["response.steer.accepted"]
    assert heard.order.index("response.steer.accepted") < len(heard.order) - 1
    assert heard.turn.kind == "response.incomplete"
    assert heard.turn.response["incomplete_details"] == STEERED
    assert heard.turn.text == heard.deltas
    return heard


async def pending(client: WireClient, heard: Heard, count: int = 1) -> list[dict[str, Any]]:
    """The response completes; each steer is told to wait for outputs."""
    heard = await finish(client, heard)
    assert heard.turn.kind == "response.completed"
    accepted = [event["steer"]["id"] for event in heard.told]
    told = [await client.answer() for _ in range(count)]
    assert [event["type"] for event in told] == ["response.steer.pending"] * count
    assert [event["steer"]["id"] for event in told] == accepted
    for event in told:
        assert event["reason"] == "waiting_for_required_input"
        assert event["steer"]["previous_response_id"] == heard.id
    return told


# --- Text and thoughts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", [True, False])
async def test_a_steer_in_mid_text_keeps_what_was_said_and_goes_on_from_it(
    store: bool, house: House, client: WireClient
) -> None:
    heard = await begin(client, "[[stall 3]]", store=store)
    heard = await steered(client, heard)
    await house.upstream.wait_for(lambda upstream: upstream.requests[0].aborted, 1.0)
    assert re.fullmatch(r"steer_[0-9a-f]{32}", heard.told[0]["steer"]["id"])
    assert heard.told[0]["steer"]["previous_response_id"] == heard.id
    assert heard.turn.text
    assert [item["status"] for item in heard.turn.output] == ["incomplete"]

    successor = await finish(client)
    assert successor.turn.kind == "response.completed"
    assert successor.turn.text == "Shorter then."
    assert successor.turn.response["previous_response_id"] == heard.id
    assert house.said() == ["[[stall 3]]", heard.turn.text, SHORTER]


async def test_the_successor_has_the_settings_of_what_was_steered(house: House, client: WireClient) -> None:
    settings: dict[str, Any] = {
        "instructions": "Be brief.",
        "tools": [function("get_weather"), function("get_time")],
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "temperature": 0.25,
        "top_p": 0.5,
        "max_output_tokens": 77,
        "metadata": {"a": "b"},
        "store": False,
    }
    heard = await steered(client, await begin(client, "[[stall 2]]", **settings))
    successor = await finish(client)
    own = {"id", "created_at", "completed_at", "status", "output", "usage", "incomplete_details"}
    own |= {"previous_response_id"}
    for name in heard.turn.response.keys() - own:
        assert successor.turn.response[name] == heard.turn.response[name], name
    first, second = ({**request.body} for request in house.upstream.requests)
    conversation = "messages" if house.dialect == "chat" else "input"
    del first[conversation], second[conversation]
    assert first == second
    assert house.said()[0] == "Be brief."
    assert house.said().count("Be brief.") == 1


async def test_a_steer_may_hold_texts_images_and_files(house: House, client: WireClient) -> None:
    parts = [{"type": "input_text", "text": SHORTER}, {"type": "input_image", "image_url": "https://example.com/a.png"}]
    heard = await begin(client, "[[stall 2]]")
    await steer(client, heard.id, [{"role": "user", "content": parts}, {"role": "user", "content": SHORTER}])
    heard = await finish(client, heard)
    assert (await finish(client)).turn.text == "Shorter then."
    assert house.said() == ["[[stall 2]]", heard.turn.text, SHORTER, SHORTER]


async def test_a_response_that_the_upstream_has_not_begun_is_steered(dialect: str) -> None:
    async with open_house(dialect, {"server.early_events_s": 0.01}) as house, house.connect() as client:
        heard = await begin(client, "[[stall 0]]", until="response.in_progress")
        await house.upstream.wait_for(lambda upstream: bool(upstream.requests), 1.0)
        heard = await steered(client, heard)
        assert heard.turn.output == []
        await house.upstream.wait_for(lambda upstream: upstream.requests[0].aborted, 1.0)
        assert (await finish(client)).turn.text == "Shorter then."
        assert house.said() == ["[[stall 0]]", SHORTER]


async def test_an_unfinished_thought_is_dropped(house: House, client: WireClient) -> None:
    script = "[[think 5]] [[say 3]] [[stall 2]]"
    heard = await steered(client, await begin(client, script, until=REASONING))
    assert heard.turn.output == []
    assert (await finish(client)).turn.text == "Shorter then."
    assert house.said() == [script, SHORTER]


async def test_a_finished_thought_stays(house: House, client: WireClient) -> None:
    heard = await steered(client, await begin(client, "[[think 2]] [[say 9]] [[stall 4]]"))
    assert [item["type"] for item in heard.turn.output] == ["reasoning", "message"]
    assert [item["status"] for item in heard.turn.output] == ["completed", "incomplete"]
    assert (await finish(client)).turn.kind == "response.completed"
    assert heard.turn.text in house.said()


async def test_a_successor_is_steered_like_any_response(house: House, client: WireClient) -> None:
    heard = await steered(client, await begin(client, "[[stall 2]]"), "[[stall 3]]")
    second = await steered(client, await read(client, until="response.output_text.delta"))
    third = await finish(client)
    assert third.turn.text == "Shorter then."
    assert third.turn.response["previous_response_id"] == second.id
    assert house.said() == ["[[stall 2]]", heard.turn.text, "[[stall 3]]", second.turn.text, SHORTER]


# --- Calls -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", [True, False])
async def test_a_call_is_not_interrupted_and_the_steer_goes_with_its_output(store: bool, dialect: str) -> None:
    async with open_house(dialect, options=SLOW) as house, house.connect() as client:
        heard = await begin(client, CALL, until=ARGUMENTS, store=store)
        await steer(client, heard.id, SHORTER)
        [told] = await pending(client, heard)
        [call] = heard.turn.calls
        assert call["arguments"] == '{"city": "Paris"}'
        stub = {"type": "function_call_output", "call_id": call["call_id"], "name": "get_weather"}
        assert told["required_input"] == [stub]
        # The stub, filled, is what the client sends.
        answer = [{**told["required_input"][0], "output": "sunny"}]
        await client.create(answer, previous_response_id=heard.id, temperature=0.5, store=store)
        after = await finish(client)
        assert after.turn.text == "Shorter then."
        assert after.turn.response["temperature"] == 0.5, "an explicit create has its own settings"
        assert after.told == []
        assert house.said() == [CALL, '{"city": "Paris"}', "sunny", SHORTER]


async def test_what_was_said_before_a_call_does_not_make_it_interruptible(dialect: str) -> None:
    async with open_house(dialect, options=SLOW) as house, house.connect() as client:
        heard = await begin(client, '[[say "One moment."]] ' + CALL, until=ARGUMENTS)
        await steer(client, heard.id, SHORTER)
        await pending(client, heard)
        assert heard.turn.text == "One moment."
        assert len(heard.turn.calls) == 1


async def test_parallel_calls_are_all_asked_for_and_several_steers_wait_in_their_order(dialect: str) -> None:
    async with open_house(dialect, options=SLOW) as house, house.connect() as client:
        heard = await begin(client, CALL + " [[call get_time {}]]", until=ARGUMENTS)
        for text in ("first", "second", SHORTER):
            await steer(client, heard.id, text)
        told = await pending(client, heard, 3)
        calls = {call["call_id"]: call["name"] for call in heard.turn.calls}
        assert sorted(calls.values()) == ["get_time", "get_weather"]
        for event in told:
            assert {stub["call_id"]: stub["name"] for stub in event["required_input"]} == calls
        outputs = [tool_output(call, name) for call, name in calls.items()]
        await client.create([*outputs, user("and mine")], previous_response_id=heard.id)
        assert (await finish(client)).turn.kind == "response.completed"
        assert house.said()[-6:] == [*calls.values(), "first", "second", SHORTER, "and mine"]


async def test_a_lane_that_goes_on_elsewhere_gives_the_steer_back(dialect: str) -> None:
    async with open_house(dialect, options=SLOW) as house, house.connect() as client:
        heard = await begin(client, CALL, until=ARGUMENTS)
        await steer(client, heard.id, "go on")
        [told] = await pending(client, heard)
        await client.create([user('[[say "new"]]')])
        fresh = await finish(client)
        assert fresh.turn.text == "new"
        given_back(fresh.told[0], told["steer"]["id"], heard.id, "go on")
        assert "go on" not in house.said()
        # What was given back is not sent again with the outputs.
        [call] = heard.turn.calls
        await client.create([tool_output(call["call_id"], "sunny")], previous_response_id=heard.id)
        assert (await finish(client)).told == []
        assert "go on" not in house.said()


async def test_a_steer_waits_for_its_own_lane_while_another_goes_on_from_the_response(dialect: str) -> None:
    async with open_house(dialect, options=SLOW) as house, house.connect() as client:
        heard = await begin(client, CALL, until=ARGUMENTS)
        await steer(client, heard.id, SHORTER)
        await pending(client, heard)
        output = [tool_output(heard.turn.calls[0]["call_id"], "sunny")]
        await client.create(output, previous_response_id=heard.id, stream_id="other")
        assert (await finish(client, stream_id="other")).told == []
        assert SHORTER not in house.said()
        await client.create(output, previous_response_id=heard.id)
        assert (await finish(client)).turn.text == "Shorter then."


async def test_a_create_that_is_refused_gives_back_the_steer_that_it_carried(dialect: str) -> None:
    async with open_house(dialect, options=SLOW) as house, house.connect() as client:
        heard = await begin(client, CALL, until=ARGUMENTS)
        await steer(client, heard.id, SHORTER)
        [told] = await pending(client, heard)
        await client.create([tool_output("call_unknown", "sunny")], previous_response_id=heard.id)
        assert (await finish(client)).turn.error["param"] == "input"
        given_back(await client.event(), told["steer"]["id"], heard.id, SHORTER)
        assert len(house.upstream.requests) == 1


async def test_a_malformed_create_leaves_the_steer_waiting(dialect: str) -> None:
    async with open_house(dialect, options=SLOW) as house, house.connect() as client:
        heard = await begin(client, CALL, until=ARGUMENTS)
        await steer(client, heard.id, SHORTER)
        await pending(client, heard)
        await client.create(None, previous_response_id=heard.id)
        assert (await finish(client)).turn.error["code"] == "missing_required_parameter"
        output = [tool_output(heard.turn.calls[0]["call_id"], "sunny")]
        await client.create(output, previous_response_id=heard.id)
        assert (await finish(client)).turn.text == "Shorter then."
        assert house.said()[-1] == SHORTER


async def test_a_waiting_steer_dies_with_its_socket(dialect: str) -> None:
    async with open_house(dialect, options=SLOW) as house:
        async with house.connect() as client:
            heard = await begin(client, CALL, until=ARGUMENTS)
            await steer(client, heard.id, SHORTER)
            await pending(client, heard)
        async with house.connect() as client:
            output = [tool_output(heard.turn.calls[0]["call_id"], "sunny")]
            await client.create(output, previous_response_id=heard.id)
            after = await finish(client)
        assert after.turn.kind == "response.completed"
        assert after.told == []
        assert house.said() == [CALL, '{"city": "Paris"}', "sunny"]


# --- Lanes and lineage -----------------------------------------------------------------------------------------------


async def test_the_events_of_a_steered_lane_carry_its_name(house: House, client: WireClient) -> None:
    heard = await begin(client, "[[stall 2]]", stream_id="work")
    await steered(client, heard, stream_id="work")
    successor = await finish(client, stream_id="work")
    assert successor.turn.text == "Shorter then."
    await client.works()


@pytest.mark.parametrize("store", [True, False])
async def test_the_successor_comes_before_what_waits_and_a_waiting_continuation_becomes_a_fork(
    store: bool, house: House, client: WireClient
) -> None:
    heard = await begin(client, "[[stall 3]]", store=store)
    await client.create([user('[[say "unrelated"]]')], store=store)
    await client.create([user('[[say "fork"]]')], store=store, previous_response_id=heard.id)
    heard = await steered(client, heard)
    texts = [(await finish(client)).turn.text for _ in range(3)]
    assert texts == ["Shorter then.", "unrelated", "fork"]
    assert house.said() == ["[[stall 3]]", heard.turn.text, '[[say "fork"]]']


async def test_once_nothing_waits_a_lane_holds_its_latest_response_alone(client: WireClient) -> None:
    heard = await steered(client, await begin(client, "[[stall 2]]", store=False))
    successor = await finish(client)
    late = await client.turn([user("[[say 1]]")], store=False, previous_response_id=heard.id)
    assert late.error["code"] == "previous_response_not_found"
    await client.says("on", store=False, previous_response_id=successor.id)


async def test_a_stored_steered_response_is_continued_by_its_id_on_another_socket(house: House) -> None:
    async with house.connect() as client:
        heard = await steered(client, await begin(client, "[[stall 3]]"))
        successor = await finish(client)
    async with house.connect() as client:
        await client.says("from the first", previous_response_id=heard.id)
        assert house.said() == ["[[stall 3]]", heard.turn.text, '[[say "from the first"]]']
        await client.says("from the second", previous_response_id=successor.id)
        assert house.said()[-2:] == ["Shorter then.", '[[say "from the second"]]']


async def test_steering_one_lane_leaves_the_others_alone(client: WireClient) -> None:
    for lane in ("one", "two"):
        await client.create([user("[[stall 2]]")], stream_id=lane)
    heard: dict[str, Heard] = {"one": Heard(), "two": Heard()}
    while not all(lane.order.count("response.output_text.delta") == 2 for lane in heard.values()):
        await _hear(client, heard)
    await steer(client, heard["two"].id, SHORTER)
    while heard["two"].order[-1] != "response.completed":
        await _hear(client, heard)
    assert heard["two"].order.count("response.incomplete") == 1
    await client.send({"type": "response.cancel", "stream_id": "one"})
    assert (await finish(client, heard["one"], "one")).deltas == heard["two"].deltas.removesuffix("Shorter then.")


async def _hear(client: WireClient, heard: dict[str, Heard]) -> None:
    event = await client.event()
    heard[event["stream_id"]].add(event)
