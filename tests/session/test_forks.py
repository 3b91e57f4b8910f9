"""A response of one lane continued on another: what the fork is bound to, when, and what its failure leaves alone."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from proxy.tools.simulate import Options
from tests.house import House, open_house
from tests.lane_client import LaneClient, open_lanes
from tests.wire_client import Recorded, function, tool_output, user

IN_PROGRESS = "response.in_progress"
ONE = ['[[say "one"]]', "one"]


@pytest.fixture
async def lanes(house: House) -> AsyncIterator[LaneClient]:
    """One socket for many lanes."""
    async with open_lanes(house) as opened:
        yield opened


def assert_missed(recorded: Recorded, parent: Recorded) -> None:
    """The documented error, and nothing else."""
    assert recorded.kinds == ["error"]
    assert (recorded.error["status"], recorded.error["code"]) == (400, "previous_response_not_found")
    assert recorded.error["message"] == f"Previous response with id '{parent.id}' not found."


@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize(("source", "fork"), [("a", "b"), (None, "b"), ("a", None)])
async def test_a_fork_has_its_parents_history_and_the_source_goes_its_own_way(
    source: str | None, fork: str | None, store: bool, house: House, lanes: LaneClient
) -> None:
    one = await lanes.says(source, "one", store=store)
    two = await lanes.says(fork, "two", store=store, previous_response_id=one.id)
    assert two.response["previous_response_id"] == one.id
    assert house.said() == [*ONE, '[[say "two"]]']
    await lanes.says(source, "three", store=store, previous_response_id=one.id)
    assert house.said() == [*ONE, '[[say "three"]]']
    await lanes.says(fork, "four", store=store, previous_response_id=two.id)
    assert house.said() == [*ONE, '[[say "two"]]', "two", '[[say "four"]]']


async def test_many_forks_of_one_response_at_once(house: House, lanes: LaneClient) -> None:
    one = await lanes.says("a", "one", store=False)
    names = [f"fork-{number}" for number in range(10)]
    for name in names:
        await lanes.say(name, name, store=False, previous_response_id=one.id)
    for name in names:
        assert (await lanes.result(name)).text == name
    assert all(house.said(number)[:2] == ONE for number in range(1, 11))


@pytest.mark.parametrize("early_events_s", [0.0, 60.0], ids=["begun before the upstream accepts", "begun after"])
async def test_once_a_fork_is_in_progress_the_source_may_advance(dialect: str, early_events_s: float) -> None:
    settings = {"server.early_events_s": early_events_s}
    async with open_house(dialect, settings, Options(ttft_s=0.1)) as house, open_lanes(house) as lanes:
        one = await lanes.says("a", "one", store=False)
        await lanes.say("b", "forked", store=False, previous_response_id=one.id)
        await lanes.until("b", IN_PROGRESS)
        await lanes.says("a", "advanced", store=False, previous_response_id=one.id)
        forked = await lanes.result("b")
        assert (forked.text, forked.response["previous_response_id"]) == ("forked", one.id)
        await lanes.says("b", "after", store=False, previous_response_id=forked.id)
        assert house.said() == [*ONE, '[[say "forked"]]', "forked", '[[say "after"]]']


@pytest.mark.parametrize("store", [True, False])
async def test_a_queued_fork_is_bound_when_it_starts_and_can_miss(store: bool) -> None:
    async with open_house("chat", {"limits.running_turns": 1}) as house, open_lanes(house) as lanes:
        one = await lanes.says("a", "one", store=store)
        await lanes.say("a", "two", store=store, previous_response_id=one.id)
        await lanes.say("b", "forked", store=store, previous_response_id=one.id)
        assert (await lanes.result("a")).text == "two"
        forked = await lanes.result("b")
        if store:
            assert forked.text == "forked"
        else:
            assert_missed(forked, one)
        await lanes.says("b", "fresh")


FAILURES = ["[[fail 500]]", "[[fail 400]]", "[[drop 0]]", "[[drop 3]]", "unknown call"]


def failing(failure: str) -> list[dict[str, object]]:
    """Input that makes a turn fail, by the upstream or by the check of its calls."""
    return [tool_output("call_unknown", "x")] if failure == "unknown call" else [user(failure)]


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_failed_fork_keeps_the_parent_for_its_own_lane(failure: str, lanes: LaneClient) -> None:
    one = await lanes.says("a", "one", store=False)
    failed = await lanes.turn("b", failing(failure), store=False, previous_response_id=one.id)
    assert failed.kind in ("error", "response.failed")
    # The fork's lane can try again, and the source goes on.
    await lanes.says("b", "again", store=False, previous_response_id=one.id)
    await lanes.says("a", "two", store=False, previous_response_id=one.id)


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_failed_fork_keeps_what_its_own_lane_held(failure: str, lanes: LaneClient) -> None:
    one = await lanes.says("a", "one", store=False)
    other = await lanes.says("b", "other", store=False)
    await lanes.turn("b", failing(failure), store=False, previous_response_id=one.id)
    await lanes.says("b", "goes on", store=False, previous_response_id=other.id)


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_failure_on_its_own_lane_evicts_the_parent_for_everybody(failure: str, lanes: LaneClient) -> None:
    one = await lanes.says("a", "one", store=False)
    await lanes.turn("a", failing(failure), store=False, previous_response_id=one.id)
    assert_missed(await lanes.turn("a", "x", store=False, previous_response_id=one.id), one)
    assert_missed(await lanes.turn("b", "x", store=False, previous_response_id=one.id), one)


async def test_a_fork_that_runs_survives_the_eviction_of_its_parent(dialect: str) -> None:
    async with open_house(dialect, options=Options(ttft_s=0.1)) as house, open_lanes(house) as lanes:
        one = await lanes.says("a", "one", store=False)
        await lanes.say("b", "forked", store=False, previous_response_id=one.id)
        await lanes.until("b", IN_PROGRESS)
        await lanes.turn("a", "[[fail 500]]", store=False, previous_response_id=one.id)
        forked = await lanes.result("b")
        assert forked.text == "forked"
        await lanes.says("b", "after", store=False, previous_response_id=forked.id)
        assert house.said()[:2] == ONE


async def test_a_cancelled_turn_keeps_its_parent(lanes: LaneClient) -> None:
    one = await lanes.says("a", "one", store=False)
    await lanes.create("a", "[[stall 1]]", store=False, previous_response_id=one.id)
    await lanes.until("a", "response.output_text.delta")
    await lanes.cancel("a")
    await lanes.says("a", "two", store=False, previous_response_id=one.id)


async def test_a_fork_answers_the_calls_of_its_parent_for_itself(lanes: LaneClient) -> None:
    script = '[[call get_weather {"city": "Oslo"}]] [[then]] [[say "Cold."]]'
    one = await lanes.turn("a", script, tools=[function()], store=False)
    answers = [tool_output(one.calls[0]["call_id"], "cold")]
    for name in ("b", "a"):
        two = await lanes.turn(name, answers, tools=[function()], store=False, previous_response_id=one.id)
        assert two.text == "Cold."


async def test_a_lane_used_again_without_an_id_starts_empty(house: House, lanes: LaneClient) -> None:
    one = await lanes.says("a", "one", store=False)
    fresh = await lanes.says("a", "fresh", store=False)
    assert house.said() == ['[[say "fresh"]]']
    assert fresh.response["previous_response_id"] is None
    # The lane holds the fresh one now, and the first no longer.
    assert_missed(await lanes.turn("a", "x", store=False, previous_response_id=one.id), one)
    await lanes.says("a", "on", store=False, previous_response_id=fresh.id)


async def test_a_name_selects_no_history_on_another_socket(house: House) -> None:
    async with open_lanes(house) as lanes, open_lanes(house) as others:
        one = await lanes.says("a", "one", store=False)
        await others.says("a", "mine", store=False)
        assert house.said() == ['[[say "mine"]]']
        assert_missed(await others.turn("a", "x", store=False, previous_response_id=one.id), one)
