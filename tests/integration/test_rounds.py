"""Which turn a turn follows where no lane tells: an agent that sends everything, or comes back, has its rounds told."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from agents import Agent, OpenAIResponsesModel, RunConfig, Runner, function_tool
from openai import AsyncOpenAI

from proxy.session.known import Known
from proxy.telemetry.observer import TurnRecord
from tests.house import House, open_house
from tests.keyed import KeyRing, bearer
from tests.wire_client import user

QUIET = RunConfig(tracing_disabled=True)
NOTHING: Mapping[str, Any] = MappingProxyType({})
CALLS = 5
SCRIPT = " [[then]] ".join([*('[[call get_weather {"city": "Oslo"}]]',) * CALLS, '[[say "It is sunny."]]'])


@function_tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


async def turns(house: House, count: int) -> list[TurnRecord]:
    await house.watcher.wait_for(lambda: len(house.watcher.turns) >= count)
    return house.watcher.turns


def follows(record: TurnRecord, other: TurnRecord) -> bool:
    return record.previous_end_s is not None and record.previous_end_s == other.ended_s


def is_told(records: list[TurnRecord]) -> bool:
    """Does each turn but the first follow the one before it, with what its calls gave?"""
    first, *later = records
    assert first.previous_end_s is None
    return all(follows(one, before) and one.answers_calls for before, one in zip(records, later, strict=False))


async def test_an_agents_rounds_by_http_are_told_as_those_of_a_socket(house: House) -> None:
    async with AsyncOpenAI(base_url=house.url, api_key="test", max_retries=0) as client:
        agent = Agent(name="a", model=OpenAIResponsesModel("simulated", client), tools=[get_weather])
        result = await Runner.run(agent, SCRIPT, max_turns=CALLS + 2, run_config=QUIET)
    assert result.final_output == "It is sunny."
    assert is_told(await turns(house, CALLS + 1))


async def test_rounds_that_continue_by_id_over_http_are_told(house: House) -> None:
    said: list[dict[str, Any]] = [user(SCRIPT)]
    parent = None
    for _ in range(CALLS + 1):
        async with house.post({"input": said, "previous_response_id": parent}) as response:
            made = await response.json()
        parent = made["id"]
        said = [outputs(item) for item in made["output"] if item["type"] == "function_call"]
    assert is_told(await turns(house, CALLS + 1))


def outputs(call: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}


async def whole(house: House, items: list[dict[str, Any]], sent: Mapping[str, Any] = NOTHING) -> list[dict[str, Any]]:
    """One request with everything; the history after it."""
    async with house.post({"input": items, "store": False}, **sent) as response:
        assert response.status == 200
        return [*items, *(await response.json())["output"]]


async def test_a_client_that_comes_back_with_everything_has_its_round_told(house: House) -> None:
    begun = [user('[[call get_weather {}]] [[then]] [[say "done"]]')]
    async with house.connect() as client:
        first = await client.turn(begun, store=False)
        given = outputs(first.calls[0])
        second = await client.turn([given], previous_response_id=first.id, store=False)
    await house.watcher.wait_for(lambda: len(house.watcher.sessions) == 1)
    async with house.connect() as client:
        items = [*begun, *first.response["output"], given, *second.response["output"], user("again")]
        assert (await client.turn(items, store=False)).kind == "response.completed"
    records = await turns(house, 3)
    assert follows(records[2], records[1])
    assert not records[2].answers_calls


async def test_a_warm_up_that_says_nothing_is_followed_by_what_continues_it(house: House) -> None:
    async with house.connect() as client:
        warm = await client.turn([], instructions="Be brief.", generate=False, store=False)
        await client.turn([user("begin")], previous_response_id=warm.id, store=False)
    await whole(house, [user("begin")])
    first, second, stranger = await turns(house, 3)
    assert follows(second, first)
    assert stranger.previous_end_s is None


async def test_forks_of_one_history_all_follow_its_last_turn(house: House) -> None:
    trunk = await whole(house, [user("begin")])
    for word in ("one", "two", "three"):
        await whole(house, [*trunk, user(word)])
    first, *forks = await turns(house, 4)
    assert all(follows(fork, first) for fork in forks)


async def test_a_request_that_is_sent_again_follows_the_same_turn(house: House) -> None:
    said = await whole(house, [user("begin")])
    for _ in range(3):
        await whole(house, [*said, user("next")])
    first, *again = await turns(house, 4)
    assert all(follows(one, first) for one in again)


async def test_a_history_that_was_changed_follows_nothing(house: House) -> None:
    said = await whole(house, [user("begin"), user("here")])
    await whole(house, [user("begin"), user("there"), *said[2:], user("next")])
    await whole(house, [user("a summary of it"), *said[2:], user("next")])
    assert [record.previous_end_s for record in await turns(house, 3)] == [None, None, None]


async def test_what_another_tenant_said_is_not_followed(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path / "keys.jsonl")
    async with open_house("chat", {"access.keys_file": str(ring.path)}) as house:
        ring.house = house
        alice, bob = ({"headers": bearer(ring.make(name))} for name in ("alice", "bob"))
        said = await whole(house, [user("begin")], alice)
        await whole(house, [*said, user("next")], bob)
        await whole(house, [*said, user("next")], alice)
        first, stranger, second = await turns(house, 3)
        assert stranger.previous_end_s is None
        assert follows(second, first)


async def test_what_goes_wrong_with_what_was_left_harms_no_end_of_a_socket(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Known, "leave", crash)
    house.expected_crashes = 1
    async with house.connect() as client:
        await client.turn([user("begin")], store=False)
        await client.create([user("[[stall 10]]")], store=False)
        await client.until("response.created")
    await house.watcher.wait_for(lambda: [turn.outcome for turn in house.watcher.turns] == ["completed", "cancelled"])
    await house.watcher.wait_for(lambda: len(house.watcher.sessions) == 1)


async def test_what_was_not_stored_is_forgotten_in_time_though_no_request_follows() -> None:
    async with open_house("chat", {"prefix.unstored_ttl_s": 0.1}) as house:
        await whole(house, [user("begin"), user("here")])
        kept = house.server.services.known
        assert kept is not None
        async with asyncio.timeout(30.0):
            while any(kept.caches()[name].used_bytes() for name in ("items", "fragments", "chains")):
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("dialect", ["chat"])
async def test_with_nothing_remembered_nothing_is_told(dialect: str) -> None:
    async with open_house(dialect, {"prefix.memory_bytes": 0}) as house:
        said = await whole(house, [user("begin")])
        await whole(house, [*said, user("next")])
        assert [record.previous_end_s for record in await turns(house, 2)] == [None, None]
