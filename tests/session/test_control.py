"""What clients send beside creates and steers, `response.cancel` above all, and what upstreams say beside answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.conformance.schema import TERMINAL
from tests.house import House, house_before, open_house
from tests.raw_upstream import HEAD, LAST, Connection, coded, raw_upstream
from tests.session.steered import ARGUMENTS, CALL, Heard, begin, finish, given_back, read, steer
from tests.wire_client import Event, WireClient, user

DELTA = "response.output_text.delta"


async def cancel(client: WireClient, **members: Any) -> None:
    """Send a `response.cancel`."""
    await client.send({"type": "response.cancel", **members})


async def cancelled(client: WireClient, heard: Heard, stream_id: str | None = None) -> Heard:
    """The one terminal event of a cancelled response."""
    heard = await finish(client, heard, stream_id)
    assert heard.turn.kind == "response.failed"
    assert heard.turn.response["status"] == "cancelled"
    assert heard.turn.response["error"] is None
    return heard


async def nothing(client: WireClient, for_s: float) -> None:
    """No event comes in this time."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(for_s):
            raise AssertionError(await client.event())


# --- response.cancel -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["id", "lane", "id and lane"])
async def test_a_response_is_cancelled_by_its_id_or_its_lane(how: str, house: House, client: WireClient) -> None:
    heard = await begin(client, "[[stall 2]]", stream_id="work")
    by = {"response_id": heard.id} if "id" in how else {}
    await cancel(client, **by, **({"stream_id": "work"} if "lane" in how else {}))
    heard = await cancelled(client, heard, "work")
    await house.aborted()
    assert heard.deltas
    await client.works()


async def test_without_a_name_the_default_lane_is_meant(house: House, client: WireClient) -> None:
    other = await begin(client, "[[stall 1]]", stream_id="other")
    heard = await begin(client, "[[stall 1]]")
    await cancel(client)
    await cancelled(client, heard)
    await cancel(client, stream_id="other")
    await cancelled(client, other, "other")
    await house.upstream.wait_for(lambda upstream: all(request.aborted for request in upstream.requests), 1.0)


async def test_a_cancel_before_the_first_event_ends_in_a_whole_turn(house: House, client: WireClient) -> None:
    await client.create([user("[[stall 0]]")])
    await house.upstream.wait_for(lambda upstream: bool(upstream.requests), 1.0)
    await cancel(client)
    heard = await cancelled(client, Heard())
    assert heard.turn.kinds == ["response.created", "response.in_progress", "response.failed"]
    await house.aborted()
    await client.works()


async def test_a_cancel_in_a_call_leaves_nothing_to_answer(house: House, client: WireClient) -> None:
    heard = await begin(client, CALL + " [[stall 2]]", until=ARGUMENTS)
    await cancel(client)
    heard = await cancelled(client, heard)
    assert heard.turn.output == []
    await house.aborted()


async def test_the_parent_of_a_cancelled_response_stays(house: House, client: WireClient) -> None:
    first = await client.says("one", store=False)
    heard = await begin(client, "[[stall 2]]", store=False, previous_response_id=first.id)
    await cancel(client)
    await cancelled(client, heard)
    await client.says("two", store=False, previous_response_id=first.id)
    assert house.said() == ['[[say "one"]]', "one", '[[say "two"]]']


async def test_what_waits_on_the_lane_is_served_after_a_cancel(client: WireClient) -> None:
    heard = await begin(client, "[[stall 1]]")
    for number in range(3):
        await client.create([user(f'[[say "{number}"]]')])
    await cancel(client, response_id=heard.id)
    await cancelled(client, heard)
    assert [(await finish(client)).turn.text for _ in range(3)] == ["0", "1", "2"]


async def test_a_create_that_waits_for_room_is_cancelled_by_its_lane() -> None:
    async with open_house("chat", {"limits.running_turns": 1}) as house, house.connect() as client:
        running = await begin(client, "[[stall 1]]", stream_id="one")
        await client.create([user("[[say 1]]")], stream_id="two")
        await client.create([user('[[say "after it"]]')], stream_id="two")
        await cancel(client, stream_id="two")
        await cancel(client, stream_id="one")
        await cancelled(client, running, "one")
        refused = await finish(client, stream_id="two")
        assert (refused.turn.kind, refused.turn.error["code"]) == ("error", "cancelled")
        assert (await finish(client, stream_id="two")).turn.text == "after it"
        assert house.said() == ['[[say "after it"]]']
        assert len(house.upstream.requests) == 2


async def test_a_successor_that_waits_for_room_is_cancelled_by_its_lane() -> None:
    async with open_house("chat", {"limits.running_turns": 1}) as house, house.connect() as client:
        heard = await begin(client, "[[stall 1]]", stream_id="one")
        await client.create([user("[[stall 1]]")], stream_id="two")
        await steer(client, heard.id, "go on")
        heard = await finish(client, heard, "one")
        other = await read(client, until=DELTA)  # the other lane has the room now
        await cancel(client, stream_id="one")
        await cancel(client, stream_id="two")
        await cancelled(client, other, "two")
        given_back(await client.event(), heard.told[0]["steer"]["id"], heard.id, "go on")
        assert "go on" not in house.said()


async def test_a_turn_that_could_not_begin_is_refused_as_cancelled() -> None:
    asked = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        async with house_before(url, "chat") as house, house.connect() as client:
            await client.create("anything")
            await asked.wait()  # for its models: no response can be described yet
            await cancel(client)
            error = (await finish(client)).turn
            assert (error.kind, error.error["code"]) == ("error", "cancelled")


@pytest.mark.parametrize("members", [{"response_id": "resp_unknown"}, {"stream_id": "unused"}, {}, {"response_id": 5}])
async def test_a_cancel_of_nothing_says_so(members: dict[str, Any], client: WireClient) -> None:
    await cancel(client, **members)
    event = await client.event()
    assert (event["type"], event["status"], event["code"]) == ("error", 404, "response_not_found")
    assert event.get("stream_id") == members.get("stream_id")
    await client.works()


async def test_an_unknown_id_stops_nothing_else(client: WireClient) -> None:
    heard = await begin(client, "[[stall 1]]", stream_id="work")
    await cancel(client, response_id="resp_unknown", stream_id="work")
    assert (await client.event())["code"] == "response_not_found"
    await cancel(client, response_id=heard.id)
    await cancelled(client, heard, "work")


async def test_a_second_cancel_changes_nothing(client: WireClient) -> None:
    heard = await begin(client, "[[stall 1]]")
    await cancel(client, response_id=heard.id)
    await cancel(client, response_id=heard.id)
    await cancelled(client, heard)
    ended = client.turn([user('[[say "next"]]')])
    # The second came in time, and was the same wish, or too late.
    recorded = await ended
    if recorded.kind == "error":
        assert recorded.error["code"] == "response_not_found"
        recorded = await client.collect()
    assert recorded.text == "next"


async def test_a_completed_response_cannot_be_cancelled(client: WireClient) -> None:
    first = await client.says("one", store=False)
    await cancel(client, response_id=first.id)
    assert (await client.answer())["code"] == "response_not_found"
    await client.says("two", store=False, previous_response_id=first.id)


async def test_a_lane_that_cannot_be_is_said(client: WireClient) -> None:
    await cancel(client, stream_id="no spaces")
    assert (await client.answer())["code"] == "invalid_stream_id"


async def test_a_cancelled_response_gives_its_steers_back(dialect: str) -> None:
    async with open_house(dialect) as house, house.connect() as client:
        heard = await begin(client, CALL + " [[stall 2]]", until=ARGUMENTS)
        await steer(client, heard.id, "go on")
        heard = await read(client, heard, until="response.steer.accepted")
        await cancel(client)
        heard = await cancelled(client, heard)
        given_back(await client.event(), heard.told[0]["steer"]["id"], heard.id, "go on")
        await client.works()


# --- Other messages --------------------------------------------------------------------------------------------------


async def test_injected_input_is_given_back(client: WireClient) -> None:
    from openai.types.beta.beta_response_inject_failed_event import BetaResponseInjectFailedEvent

    items = [{"type": "function_call_output", "call_id": "call_1", "output": "x"}]
    await client.send({"type": "response.inject", "response_id": "resp_1", "input": items})
    event = await client.event()
    told = BetaResponseInjectFailedEvent.model_validate(event)
    assert (told.type, told.response_id, told.error.code) == ("response.inject.failed", "resp_1", "response_not_found")
    assert event["input"] == items
    await client.works()


async def test_that_a_response_was_processed_needs_no_answer(client: WireClient) -> None:
    first = await client.says("one")
    await client.send({"type": "response.processed", "response_id": first.id})
    await client.send({"type": "response.processed"})
    await client.says("two")  # the very next event is of this turn


@pytest.mark.parametrize("kind", ["response.append", "session.update", "", "response.created"])
async def test_an_unknown_message_is_named_and_the_socket_goes_on(kind: str, client: WireClient) -> None:
    await client.send({"type": kind})
    error = await client.answer()
    assert (error["type"], error["status"], error["code"], error["param"]) == (
        "error",
        400,
        "unsupported_event_type",
        "type",
    )
    assert f"'{kind}'" in error["message"]
    assert "response.cancel" in error["message"], "what is known is not told"
    await client.works()


# --- What a Responses upstream says beside its answer ----------------------------------------------------------------

BESIDE: tuple[Mapping[str, Any], ...] = (
    {"type": "codex.rate_limits", "rate_limits": {"primary": {"used_percent": 12.5, "window_minutes": 300}}},
    {"type": "response.metadata", "metadata": {"openai_verification_recommendation": ["trusted_access"]}},
)


async def test_limits_and_metadata_of_an_upstream_are_passed_on() -> None:
    answer: tuple[Mapping[str, Any], ...] = (
        {"type": "response.created", "response": {"id": "up_1", "status": "in_progress", "output": []}},
        *BESIDE,
        {"type": "response.completed", "response": {"id": "up_1", "status": "completed", "output": []}},
    )

    async def speak(connection: Connection) -> None:
        frames = b"".join(
            b"event: %b\ndata: %b\n\n" % (event["type"].encode(), json.dumps(event).encode()) for event in answer
        )
        connection.writer.write(HEAD + coded(frames) + LAST)

    async with raw_upstream(speak) as upstream, house_before(upstream.url, "responses") as house:
        async with house.connect() as client:
            await client.create("anything", stream_id="work")
            events: list[Event] = []
            while not events or events[-1]["type"] not in TERMINAL:
                events.append(await client.event())
    assert [event["type"] for event in events[2:-1]] == ["codex.rate_limits", "response.metadata"]
    for event, said in zip(events[2:-1], BESIDE, strict=True):
        assert {name: event[name] for name in said} == said
        assert event["stream_id"] == "work"
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


async def test_they_are_never_made_up(client: WireClient) -> None:
    kinds = (await client.turn([user("[[say 3]]")])).kinds
    assert not {"codex.rate_limits", "response.metadata"} & set(kinds)
