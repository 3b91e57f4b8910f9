"""A socket's time is up: what runs ends first, everything else is refused, and the next socket goes on."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from typing import Any

import pytest

from proxy.session.lifetime import expires_after
from proxy.session.limits import SessionLimits
from proxy.session.registry import Registry
from proxy.session.services import Caller
from proxy.session.session import Session
from proxy.session.tasks import Tasks
from proxy.tools.simulate import Options
from tests.house import House, open_house
from tests.session.playing import PlaySocket
from tests.session.scripted import Checkpoints, ScriptedClient, WaitingStore, services
from tests.wire_client import WireClient, user

MESSAGE = "Responses websocket connection limit reached (60 minutes). Create a new websocket connection to continue."
LIMIT = "websocket_connection_limit_reached"
ERROR = {"type": "invalid_request_error", "code": LIMIT, "message": MESSAGE, "param": None}


def expire(house: House) -> None:
    """The one socket's time is up now."""
    [session] = house.server.sockets.sessions
    session._expire()


async def goodbye(client: WireClient) -> None:
    """The documented error, on no lane, and a prompt clean close; nothing between or after."""
    event = await client.answer()
    assert (event["type"], event["status"], event["error"]) == ("error", 400, ERROR)
    assert "stream_id" not in event
    assert await client.closed() == 1001


async def per_lane(client: WireClient) -> dict[str | None, list[str]]:
    """What comes until the close, by lane: the types of terminal events, the codes of errors."""
    heard: dict[str | None, list[str]] = defaultdict(list)
    async for frame in client.connection:
        event = _decoded(frame)
        if event["type"] == "error":
            heard[event.get("stream_id")].append(event["error"]["code"])
        elif event["type"] in ("response.completed", "response.failed", "response.incomplete"):
            heard[event.get("stream_id")].append(event["type"])
    return dict(heard)


def _decoded(frame: str | bytes) -> dict[str, Any]:
    event: dict[str, Any] = json.loads(frame)
    return event


async def test_an_idle_socket_is_told_and_closed_when_its_time_is_up() -> None:
    async with open_house("chat", {"server.lifetime_s": 0.3}) as house, house.connect() as client:
        event = await client.answer()
        assert (event["status"], event["error"]["code"], event["error"]["param"]) == (400, LIMIT, None)
        assert event["error"]["message"] == MESSAGE.replace("60", "0.005")
        assert "stream_id" not in event
        assert await client.closed() == 1001
        await house.empty()
        assert house.watcher.sessions[-1].close_code == 1001


async def test_at_the_default_lifetime_the_error_is_the_documented_one(house: House, client: WireClient) -> None:
    await client.works()
    expire(house)
    await goodbye(client)


async def test_a_running_response_gets_its_end_before_the_error(dialect: str) -> None:
    async with open_house(dialect, options=Options(tokens_per_s=50)) as house, house.connect() as client:
        await client.create([user("[[say 20]]")])
        begun = await client.until("response.output_text.delta")
        expire(house)
        recorded = await client.collect(recorded=begun)
        assert recorded.kind == "response.completed"
        assert recorded.response["usage"]["output_tokens"] == 20
        await goodbye(client)


async def test_a_response_that_takes_longer_than_the_grace_is_ended_with_an_event(dialect: str) -> None:
    async with open_house(dialect, {"server.lifetime_grace_s": 0.1}) as house, house.connect() as client:
        await client.create([user("[[stall 2]]")])
        begun = await client.until("response.output_text.delta")
        expire(house)
        recorded = await client.collect(recorded=begun)
        assert recorded.kind == "response.failed"
        assert recorded.error["message"] == MESSAGE
        await goodbye(client)
        assert (await house.aborted()).tokens_sent == 2


async def test_what_waits_and_what_comes_late_is_refused_on_its_lane_after_what_runs_there() -> None:
    async with open_house("chat", {"limits.running_turns": 2}) as house, house.connect() as client:
        for lane in (None, "a"):
            await client.create([user("[[stall 1]]")], stream_id=lane)
            await client.until("response.output_text.delta")
        for lane in (None, "a", "b"):  # behind the first two, and one that has never had room
            await client.create([user("[[say 1]]")], stream_id=lane)
        await client.send({"type": "response.inject", "response_id": "x"})  # its answer: all that was read
        await client.until("response.inject.failed")
        expire(house)
        for lane in (None, "a", "c"):
            await client.create([user("[[say 1]]")], stream_id=lane)
        for lane in (None, "a"):
            await client.send({"type": "response.cancel", **({"stream_id": lane} if lane else {})})
        heard = await per_lane(client)
        assert client.connection.close_code == 1001
    assert heard == {
        None: ["response.failed", LIMIT, LIMIT, LIMIT],  # the last one is the socket's
        "a": ["response.failed", LIMIT, LIMIT],
        "b": [LIMIT],
        "c": [LIMIT],
    }
    assert len(house.upstream.requests) == 2


async def test_a_steer_that_can_have_no_successor_is_given_back_and_stops_nothing(dialect: str) -> None:
    async with open_house(dialect) as house, house.connect() as client:
        await client.create([user("[[stall 2]]")])
        begun = await client.until("response.output_text.delta")
        target = begun.events[0]["response"]["id"]
        expire(house)
        await client.send({"type": "response.steer", "previous_response_id": target, "input": "shorter"})
        begun.events.append(await client.event())  # the second of its two tokens
        failed = await client.answer()
        assert (failed["type"], failed["error"]["code"]) == ("response.steer.failed", "successor_creation_failed")
        assert failed["steer"]["input"] == "shorter"
        await client.send({"type": "response.cancel"})
        assert (await client.collect(recorded=begun)).response["status"] == "cancelled"
        await goodbye(client)


async def test_a_server_that_stops_meanwhile_closes_once(dialect: str) -> None:
    async with open_house(dialect, {"server.drain_grace_s": 0.1}) as house, house.connect() as client:
        await client.create([user("[[stall 2]]")])
        begun = await client.until("response.output_text.delta")
        expire(house)
        async with asyncio.TaskGroup() as group:
            group.create_task(house.server.drain())
            assert (await client.collect(recorded=begun)).kind == "response.failed"
            await goodbye(client)


async def test_the_next_socket_goes_on_from_what_was_stored_and_not_from_the_rest(house: House) -> None:
    async with house.connect() as client:
        kept = await client.says("to be kept")
        unkept = await client.says("unkept", store=False)
        expire(house)
        await goodbye(client)
    async with house.connect() as client:
        await client.says("and on", previous_response_id=kept.id)
        assert "to be kept" in house.said()
        recorded = await client.turn("more", previous_response_id=unkept.id)
        assert recorded.error["code"] == "previous_response_not_found"


# --- When ------------------------------------------------------------------------------------------------------------


def session(limits: SessionLimits) -> Session:
    """A session before nothing."""
    made = services(ScriptedClient(Checkpoints()), WaitingStore(Checkpoints()))
    return Session(PlaySocket(), Caller("t", {}), made, Registry(Tasks(lambda *_: None)), limits)


async def test_fleets_do_not_come_back_as_one() -> None:
    loop = asyncio.get_running_loop()
    delays = []
    for _ in range(100):
        handle = session(SessionLimits())._expiry()
        assert handle is not None
        handle.cancel()
        delays.append(handle.when() - loop.time())
    assert all(0.9 * 3600 - 1 <= delay <= 3600 for delay in delays)
    assert max(delays) - min(delays) > 0.05 * 3600


@pytest.mark.parametrize(("share", "after_s"), [(0, 1000), (0.5, 950), (1, 900)])
def test_a_socket_lives_at_most_its_time_and_at_least_nine_tenths(share: float, after_s: float) -> None:
    assert expires_after(1000, share) == after_s


async def test_zero_is_for_ever() -> None:
    assert session(SessionLimits(lifetime_s=0))._expiry() is None
