"""What servers of this protocol easily get wrong, entries 34 to 62: errors, events, lifecycle.

Entries 1 to 33, and those that are held elsewhere, are in `test_easy_to_get_wrong.py`.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from tests.adversity.test_slow_reader import flooded, held_bytes, lazy, stuck
from tests.conformance.schema import RESPONSE_KEYS, TOOL_KEYS, USAGE_KEYS
from tests.house import BEARER, House, open_house
from tests.lane_client import open_lanes
from tests.wire_client import Event, Recorded, WireClient, function, tool_output, user

DELTA = "response.output_text.delta"
EARLY = {"server.early_events_s": 0.0}
ALL_ITEMS = '[[think 3]] [[say 3]] [[call get_weather {"city": "Oslo"}]]'


@pytest.fixture
async def everything(client: WireClient) -> Recorded:
    """A turn with an item of each kind, its order and nesting already checked."""
    return await client.turn(ALL_ITEMS, tools=[function()])


def of_kind(recorded: Recorded, kind: str) -> list[Event]:
    """The events of this type."""
    return [event for event in recorded.events if event["type"] == kind]


# --- Errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("script", [None, "[[fail 400]]", "[[fail 429]]", "[[fail 503 text]]", "[[drop 0]]"])
async def test_34_an_error_has_a_status_and_a_nested_code_and_message(script: str | None, client: WireClient) -> None:
    event = (await client.turn(script)).error
    assert type(event["status"]) is int
    assert {"code", "message", "type", "param"} <= set(event["error"])
    assert event["error"]["message"]


async def test_36_the_codes_that_clients_recover_from_are_spelled_exactly(client: WireClient) -> None:
    unknown = (await client.turn("x", previous_response_id="resp_unknown")).error
    assert unknown["error"]["code"] == "previous_response_not_found"
    async with open_house("chat", {"server.lifetime_s": 0.05}) as house, house.connect() as brief:
        assert (await brief.answer())["error"]["code"] == "websocket_connection_limit_reached"


@pytest.mark.parametrize(("script", "status"), [("[[fail 500]]", 502), ("[[fail 503]]", 503), ("[[drop 0]]", 502)])
async def test_37_trouble_that_may_pass_is_no_400(script: str, status: int, client: WireClient) -> None:
    assert (await client.turn(script)).error["status"] == status


async def test_37_the_time_to_wait_is_where_clients_look_for_it(client: WireClient) -> None:
    event = (await client.turn("[[fail 429 retry-after=2]]")).error
    assert event["status"] == 429
    assert event["headers"] == event["error"]["headers"] == {"retry-after": "2"}


async def test_38_what_fails_after_created_is_response_failed_alone(client: WireClient) -> None:
    recorded = await client.turn("[[drop 3]]")
    assert (recorded.kinds[0], recorded.kind) == ("response.created", "response.failed")
    assert "error" not in recorded.kinds
    assert set(recorded.response["error"]) == {"code", "message"}
    assert set(recorded.response) == RESPONSE_KEYS
    await client.works()  # nothing more came of it


async def test_39_a_cut_by_length_is_incomplete_and_so_is_its_last_item(client: WireClient) -> None:
    recorded = await client.turn("[[length 5]]")
    assert recorded.kind == "response.incomplete"
    assert recorded.response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert recorded.output[-1]["status"] == "incomplete"


@pytest.mark.parametrize("code", ["context_length_exceeded", "insufficient_quota"])
async def test_40_these_codes_stand_in_a_failed_response(code: str) -> None:
    status = 429 if code == "insufficient_quota" else 400
    async with open_house("chat", EARLY) as house, house.connect() as client:
        recorded = await client.turn(f"[[fail {status} code={code}]]")
        assert (recorded.kind, recorded.error["code"]) == ("response.failed", code)


async def test_41_a_refused_upgrade_is_a_426() -> None:
    async with open_house("chat", {"server.websocket": False}) as house:
        assert await _refused(house) == 426


async def test_42_who_may_not_come_in_is_told_before_the_upgrade(house: House) -> None:
    assert await _refused(house, headers={"Origin": "https://elsewhere.example"}) == 403


async def _refused(house: House, **options: Any) -> int:
    with pytest.raises(InvalidStatus) as caught:
        async with house.connect(**options):
            pass
    return caught.value.response.status_code


async def test_43_the_upgrade_names_no_model(client: WireClient) -> None:
    assert client.connection.response is not None
    assert "openai-model" not in client.connection.response.headers


# --- Events ----------------------------------------------------------------------------------------------------------


async def test_44_every_item_is_done_whole_and_is_the_same_in_what_follows(
    everything: Recorded, house: House, client: WireClient
) -> None:
    done = [event["item"] for event in of_kind(everything, "response.output_item.done")]
    assert [item["type"] for item in done] == ["reasoning", "message", "function_call"]
    call = done[-1]
    await client.turn([tool_output(call["call_id"], "cold")], previous_response_id=everything.id)
    asked = json.dumps(house.asked())
    assert asked.count(call["call_id"]) == 2  # the call and its output
    assert done[1]["content"][0]["text"] in house.said()
    # A client that replays everything instead says the same.
    replayed = [user(ALL_ITEMS), *done, tool_output(call["call_id"], "cold")]
    await client.turn(replayed, tools=[function()])
    assert [text for text in house.said(-1) if text] == [text for text in house.said(-2) if text]


async def test_45_the_terminal_event_holds_the_done_items_and_the_usage(everything: Recorded) -> None:
    done = [event["item"] for event in of_kind(everything, "response.output_item.done")]
    assert everything.output == done
    usage = everything.response["usage"]
    assert set(usage) >= USAGE_KEYS
    assert "cached_tokens" in usage["input_tokens_details"]
    assert usage["output_tokens_details"]["reasoning_tokens"] == 3


async def test_46_an_item_is_added_before_its_first_delta_and_empty(everything: Recorded) -> None:
    added: set[str] = set()
    for event in everything.events:
        if event["type"] == "response.output_item.added":
            item = event["item"]
            added.add(item["id"])
            assert item["status"] == "in_progress"
            assert item.get("arguments", "") == ""
            assert item.get("content", []) == []
        elif event["type"].endswith(".delta"):
            assert event["item_id"] in added


async def test_47_arguments_are_streamed_even_if_they_came_whole(client: WireClient) -> None:
    recorded = await client.turn('[[call get_weather {"city": "Oslo"}]] [[json]]', tools=[function()])
    deltas = of_kind(recorded, "response.function_call_arguments.delta")
    [done] = of_kind(recorded, "response.function_call_arguments.done")
    assert "".join(event["delta"] for event in deltas) == done["arguments"] == '{"city": "Oslo"}'


async def test_48_each_response_counts_its_own_events(house: House) -> None:
    async with open_lanes(house) as lanes:
        for name in ("a", "b", "a"):
            await lanes.create(name, "[[say 20]]")
        for name in ("a", "b", "a"):
            events = (await lanes.result(name)).events
            assert [event["sequence_number"] for event in events] == list(range(len(events)))


async def test_49_logprobs_and_annotations_are_there_and_empty(everything: Recorded) -> None:
    for kind in (DELTA, "response.output_text.done"):
        assert of_kind(everything, kind)
        assert all(event["logprobs"] == [] for event in of_kind(everything, kind))
    for kind in ("response.content_part.added", "response.content_part.done"):
        parts = [event["part"] for event in of_kind(everything, kind)]
        assert all(part["annotations"] == [] for part in parts if part["type"] == "output_text")


async def test_50_raw_reasoning_is_named_as_openai_and_codex_read_it(everything: Recorded) -> None:
    assert of_kind(everything, "response.reasoning_text.delta")
    assert of_kind(everything, "response.reasoning_text.done")
    assert not [kind for kind in everything.kinds if kind.startswith("response.reasoning.")]


async def test_51_every_snapshot_has_all_its_keys(everything: Recorded) -> None:
    for event in (everything.events[0], everything.events[1], everything.events[-1]):
        response = event["response"]
        assert set(response) == RESPONSE_KEYS
        assert type(response["created_at"]) is int
        assert set(response["tools"][0]) >= TOOL_KEYS


async def test_52_an_items_events_point_to_it(everything: Recorded) -> None:
    added = [
        (event["output_index"], event["item"]["id"]) for event in of_kind(everything, "response.output_item.added")
    ]
    assert [index for index, _ in added] == [0, 1, 2]
    pointing = [event for event in everything.events if "item_id" in event]
    assert pointing
    assert all((event["output_index"], event["item_id"]) in added for event in pointing)
    assert {event["content_index"] for event in pointing if "content_index" in event} == {0}


# --- Lifecycle -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("script", ["[[stall 0]]", "[[stall 3]]"], ids=["before the first token", "mid-stream"])
async def test_53_a_client_that_drops_its_connection_frees_the_upstream(script: str, house: House) -> None:
    async with house.connect() as client:
        await client.create(script)
        await house.upstream.wait_for(lambda upstream: bool(upstream.requests), 5)
        client.vanish(reset=False)
        await house.aborted()
        await house.empty()


async def test_54_the_socket_is_read_while_a_response_is_generated(client: WireClient) -> None:
    await client.create("[[stall 1]]")
    recorded = await client.until(DELTA)
    await client.send({"type": "response.cancel", "response_id": recorded.events[0]["response"]["id"]})
    assert (await client.collect(recorded=recorded)).response["status"] == "cancelled"


async def test_55_unknown_types_do_not_close_and_processed_is_swallowed(client: WireClient) -> None:
    await client.send({"type": "session.update"})
    error = await client.answer()
    assert (error["status"], error["code"], error["param"]) == (400, "unsupported_event_type", "type")
    await client.send({"type": "response.processed", "response_id": "resp_1"})
    await client.works()  # an answer would be taken for this turn's


async def test_56_a_steer_that_cannot_be_taken_gives_its_input_back(client: WireClient) -> None:
    await client.send({"type": "response.steer", "previous_response_id": "resp_1", "input": [user("stop")]})
    event = await client.answer()
    assert event["type"] == "response.steer.failed"
    assert event["error"]["code"] == "response_not_found"
    assert event["steer"] == {"previous_response_id": "resp_1", "input": [user("stop")]}


async def test_57_a_compaction_that_nobody_makes_is_refused_clearly(client: WireClient) -> None:
    error = (await client.turn([user("x"), {"type": "compaction_trigger"}])).error
    assert error["status"] == 400
    assert "compaction_trigger" in error["message"]
    await client.works()


@pytest.mark.parametrize("dialect", ["responses"])
async def test_58_a_compacted_window_reaches_the_upstream_as_it_came(house: House, client: WireClient) -> None:
    window = [user("kept"), {"type": "compaction", "id": "cmp_1", "encrypted_content": "SECRET"}]
    await client.turn([*window, user("[[say 1]]")], previous_response_id=None)
    assert house.asked()[:2] == window  # the simulated upstream can do nothing with it; one that made it can


async def test_59_http_and_websocket_share_their_ids(house: House, client: WireClient) -> None:
    stored, unstored = await client.says("one"), await client.says("two", store=False)
    for recorded, status, found in ((stored, 200, 200), (unstored, 400, 404)):
        async with house.post({"input": "[[say 1]]", "previous_response_id": recorded.id}) as response:
            assert response.status == status
        for path in (recorded.id, f"{recorded.id}/input_items"):
            async with house.http.get(f"{house.url}/responses/{path}", headers=BEARER) as response:
                assert response.status == found
    async with house.post({"input": "[[say 1]]"}) as response:
        document = await response.json()
    await client.says("three", previous_response_id=document["id"])


async def test_60_a_slow_reader_is_waited_for_and_loses_nothing() -> None:
    async with flooded() as (house, flood), lazy(house) as slow:
        await slow.create("flood", stream_id="a")
        await stuck(house, flood)  # meanwhile another client's turns go on
        assert held_bytes(house) < 2**20
        await slow.create("quick", stream_id="b")
        turns: dict[str, Recorded] = {"a": Recorded(), "b": Recorded()}
        while not all("response.completed" in recorded.kinds for recorded in turns.values()):
            event = await slow.event()
            turns[event["stream_id"]].events.append(event)
    for recorded in turns.values():
        assert [event["sequence_number"] for event in recorded.events] == list(range(len(recorded.events)))
    assert turns["b"].text == "Hello."


async def test_61_nothing_of_a_cancelled_response_reaches_the_next(house: House, client: WireClient) -> None:
    for _ in range(5):
        await client.create("[[say 200]] [[stall 150]]")
        recorded = await client.until(DELTA)
        await client.send({"type": "response.cancel"})
        await client.create([user('[[say "next"]]')])
        aborted = await client.collect(recorded=recorded)
        following = await client.collect()
        assert aborted.response["status"] == "cancelled"
        assert following.text == "next"
        assert following.events[0]["response"]["id"] != aborted.id


async def test_62_no_turn_state_is_made_up(client: WireClient) -> None:
    await client.create("[[say 2]]", client_metadata={"x-codex-turn-state": "mine"})
    assert "response.metadata" not in (await client.collect()).kinds
    assert client.connection.response is not None
    assert not [name for name in client.connection.response.headers if name.lower().startswith("x-codex")]
