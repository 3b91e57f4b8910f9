"""Steers that cannot be taken, and accepted ones that come to nothing: a code each, and the input returned."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.tools.simulate import Options
from tests.conformance.schema import check_event
from tests.house import BEARER, House, open_house
from tests.session.steered import ARGUMENTS, CALL, Heard, begin, finish, given_back, read, refused, steer
from tests.session.test_steering import SHORTER, SLOW, steered
from tests.wire_client import WireClient, tool_output, user

STALLED_CALL = CALL + " [[stall 3]]"
INVALID: dict[str, Any] = {
    "no input": {},
    "null": {"input": None},
    "a number": {"input": 5},
    "an object": {"input": {"role": "user", "content": "x"}},
    "no items": {"input": []},
    "an item that is none": {"input": ["x"]},
    "the assistant": {"input": [{"role": "assistant", "content": "x"}]},
    "the system": {"input": [{"role": "system", "content": "x"}]},
    "a developer": {"input": [user("x"), {"role": "developer", "content": "x"}]},
    "a role of the wrong type": {"input": [{"role": 1, "content": "x"}]},
    "an output": {"input": [tool_output("call_1", "x")]},
    "another item": {"input": [{"type": "item_reference", "id": "msg_1", "role": "user", "content": "x"}]},
    "no content": {"input": [{"role": "user"}]},
    "null content": {"input": [{"role": "user", "content": None}]},
    "empty content": {"input": [{"role": "user", "content": []}]},
    "content of the wrong type": {"input": [{"role": "user", "content": 5}]},
    "a part of the assistant": {"input": [{"role": "user", "content": [{"type": "output_text", "text": "x"}]}]},
    "a sound": {"input": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]},
    "a part without a type": {"input": [{"role": "user", "content": [{"text": "x"}]}]},
    "a part that is none": {"input": [{"role": "user", "content": ["x"]}]},
    "a lane": {"input": "x", "stream_id": "work"},
    "an unknown member": {"input": "x", "model": "other"},
}


async def still_runs(client: WireClient, heard: Heard) -> None:
    """The response was not touched."""
    await client.send({"type": "response.cancel"})
    heard = await finish(client, heard)
    assert heard.turn.response["status"] == "cancelled"
    assert "response.steer.accepted" not in heard.order
    await client.works()


@pytest.mark.parametrize("name", INVALID)
async def test_invalid_input_is_returned_and_stops_nothing(name: str) -> None:
    async with open_house("chat") as house, house.connect() as client:
        heard = await begin(client, "[[stall 1]]")
        given = INVALID[name]
        await client.send({"type": "response.steer", "previous_response_id": heard.id, **given})
        event = await client.event()
        # What was wrong in the input is wrong in its return.
        check_event({**event, "steer": {**event["steer"], "input": ""}})
        assert event["type"] == "response.steer.failed"
        assert event["error"]["code"] == "invalid_input"
        assert event["error"]["type"] == "invalid_request_error"
        assert event["error"]["message"]
        assert event["steer"]["previous_response_id"] == heard.id
        assert event["steer"]["input"] == given.get("input", "")
        assert "id" not in event["steer"]
        await still_runs(client, heard)


@pytest.mark.parametrize("target", [None, 5, "", ["resp_1"]])
async def test_a_steer_without_a_target_is_invalid(target: Any, client: WireClient) -> None:
    message = {"input": "x"} if target is None else {"input": "x", "previous_response_id": target}
    assert (await refused(client, message))["error"]["code"] == "invalid_input"
    await client.works()


async def test_a_response_of_nobody_of_another_socket_or_of_http_is_not_found(house: House, client: WireClient) -> None:
    async def not_found(target: str) -> None:
        event = await refused(client, {"previous_response_id": target, "input": "x"})
        assert event["error"]["code"] == "response_not_found"
        assert event["steer"] == {"previous_response_id": target, "input": "x"}

    await not_found("resp_unknown")
    async with house.connect() as other:
        heard = await begin(other, "[[stall 1]]")
        await not_found(heard.id)
        await still_runs(other, heard)
    body = {"model": "simulated", "input": "[[stall 2]]", "stream": True}
    async with house.http.post(f"{house.url}/responses", json=body, headers=BEARER) as response:
        await response.content.readuntil(b"\n\n")
        [target] = house.server.registry._turns
        await not_found(target)


async def test_a_response_that_has_ended_says_so(client: WireClient) -> None:
    first = await client.says("one", stream_id=None)
    event = await refused(client, {"previous_response_id": first.id, "input": "late"})
    assert event["error"]["code"] == "response_already_completed"
    second = await client.says("two", previous_response_id=first.id)
    event = await refused(client, {"previous_response_id": second.id, "input": "late"})
    assert event["error"]["code"] == "response_already_completed"


async def test_a_steered_response_takes_no_steer_after_its_end(client: WireClient) -> None:
    heard = await steered(client, await begin(client, "[[stall 2]]"), "[[stall 1]]")
    event = await refused_beside(client, heard.id)
    assert event["error"]["code"] == "response_already_completed"
    assert event["steer"]["input"] == "late"


async def refused_beside(client: WireClient, target: str) -> dict[str, Any]:
    """A steer that is refused while another response sends its events."""
    await steer(client, target, "late")
    while (event := await client.event())["type"] != "response.steer.failed":
        pass
    return event


async def test_more_than_sixteen_steers_are_too_many(dialect: str) -> None:
    async with open_house(dialect) as house, house.connect() as client:
        heard = await begin(client, STALLED_CALL, until=ARGUMENTS)
        for number in range(17):
            await steer(client, heard.id, f"steer {number}")
        while len(heard.told) < 17:
            heard.add(await client.event())
        accepted, failed = heard.told[:16], heard.told[16]
        assert {event["type"] for event in accepted} == {"response.steer.accepted"}
        assert failed["error"]["code"] == "too_many_pending_steers"
        assert failed["steer"] == {"previous_response_id": heard.id, "input": "steer 16"}
        await client.send({"type": "response.cancel"})
        assert (await finish(client, heard)).turn.response["status"] == "cancelled"
        for number, event in enumerate(accepted):
            given_back(await client.event(), event["steer"]["id"], heard.id, f"steer {number}")
        await client.works()


async def test_what_steers_hold_is_bounded_over_all_lanes() -> None:
    async with open_house("chat", {"limits.queued_bytes": 2000}) as house, house.connect() as client:
        heard = {}
        for lane in ("one", "two"):
            heard[lane] = await begin(client, CALL + " [[stall 1]]", until=ARGUMENTS, stream_id=lane)
        await steer(client, heard["one"].id, "x" * 1200)
        await steer(client, heard["two"].id, "x" * 1200)
        told: list[dict[str, Any]] = []
        while len(told) < 2:
            event = await client.event()
            if event["type"].startswith("response.steer."):
                told.append(event)
        assert (told[0]["type"], told[0]["stream_id"]) == ("response.steer.accepted", "one")
        assert (told[1]["error"]["code"], told[1]["stream_id"]) == ("too_many_pending_steers", "two")
        assert "limits.queued_bytes" in told[1]["error"]["message"]


@pytest.mark.parametrize("stream_id", [None, "work"])
async def test_a_response_that_fails_while_it_is_steered_gives_the_input_back(
    stream_id: str | None, dialect: str
) -> None:
    async with open_house(dialect, options=SLOW) as house, house.connect() as client:
        heard = await begin(client, CALL + " [[drop 6]]", until=ARGUMENTS, stream_id=stream_id)
        given = [user("go on")]
        await steer(client, heard.id, given)
        heard = await finish(client, heard, stream_id)
        assert heard.turn.kind == "response.failed"
        event = await client.event()
        given_back(event, heard.told[0]["steer"]["id"], heard.id, given)
        assert event.get("stream_id") == stream_id
        await client.works()


async def test_a_successor_that_never_began_gives_the_input_back_and_is_no_turn(dialect: str) -> None:
    async with open_house(dialect) as house, house.connect() as client:
        heard = await begin(client, "[[stall 2]]", store=False)
        heard = await steered(client, heard, '[[fail 500 "broken"]]')
        event = await client.event()
        given_back(event, heard.told[0]["steer"]["id"], heard.id, '[[fail 500 "broken"]]')
        assert event["error"]["message"]
        # The client can send it itself: what was steered is still there.
        await client.says("again", store=False, previous_response_id=heard.id)
        assert house.said() == ["[[stall 2]]", heard.turn.text, '[[say "again"]]']


async def test_a_successor_that_has_begun_fails_as_a_response(client: WireClient) -> None:
    heard = await steered(client, await begin(client, "[[stall 2]]"), "[[drop 2]]")
    successor = await finish(client)
    assert successor.turn.kind == "response.failed"
    assert successor.turn.response["previous_response_id"] == heard.id
    await client.works()


async def test_a_warm_up_that_has_ended_cannot_be_steered(client: WireClient) -> None:
    warm = await client.turn(None, generate=False)
    event = await refused(client, {"previous_response_id": warm.id, "input": "x"})
    assert event["error"]["code"] == "response_already_completed"


@pytest.mark.parametrize("waiting", [True, False])
async def test_a_socket_that_is_closed_for_good_gives_steers_back(waiting: bool, dialect: str) -> None:
    """SIGTERM while a call is being written (`waiting`: while its output is awaited)."""
    options = SLOW if waiting else Options()
    async with open_house(dialect, {"server.drain_grace_s": 0.2}, options) as house, house.connect() as client:
        heard = await begin(client, CALL if waiting else STALLED_CALL, until=ARGUMENTS)
        await steer(client, heard.id, SHORTER)
        if waiting:
            heard = await finish(client, heard)
            assert (await client.event())["type"] == "response.steer.pending"
        else:
            heard = await read(client, heard, until="response.steer.accepted")
        await house.server.drain()
        if not waiting:
            heard = await finish(client, heard)
            assert heard.turn.kind == "response.failed"
        given_back(await client.event(), heard.told[0]["steer"]["id"], heard.id, SHORTER)
        assert await client.closed() == 1012


async def test_a_socket_whose_time_is_up_asks_for_no_outputs_that_it_could_not_take(dialect: str) -> None:
    async with open_house(dialect, options=SLOW) as house, house.connect() as client:
        heard = await begin(client, CALL, until=ARGUMENTS)
        await steer(client, heard.id, SHORTER)
        heard = await read(client, heard, until="response.steer.accepted")
        [session] = house.server.sockets.sessions
        session._expire()
        heard = await finish(client, heard)
        assert heard.turn.kind == "response.completed"
        given_back(await client.event(), heard.told[0]["steer"]["id"], heard.id, SHORTER)
        assert (await client.answer())["code"] == "websocket_connection_limit_reached"
