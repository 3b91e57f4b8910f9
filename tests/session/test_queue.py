"""Creates on the default lane: one turn at a time, first come first served, and no more than may wait."""

from __future__ import annotations

import pytest

from proxy.tools.simulate import Options
from tests.house import House, open_house
from tests.wire_client import Recorded, WireClient, user

WAITING = "[[stall 1]]"


async def test_creates_are_answered_in_their_order_and_never_overlap(house: House, client: WireClient) -> None:
    for number in range(10):
        await client.create([user(f'[[say "answer {number}"]]')])
    for number in range(10):
        recorded = await client.collect()
        assert recorded.text == f"answer {number}"
    finished = [request.finished for request in house.upstream.requests]
    begun = [request.started for request in house.upstream.requests]
    assert all(end is not None and end <= start for end, start in zip(finished, begun[1:], strict=False))


async def test_a_queued_create_may_continue_the_one_before_it_once_it_is_known(client: WireClient) -> None:
    first = await client.says("one", store=False)
    await client.create([user('[[say "two"]]')], store=False, previous_response_id=first.id)
    await client.create([user('[[say "late"]]')], store=False, previous_response_id=first.id)
    assert (await client.collect()).text == "two"
    # It was bound when it started, and the lane had advanced by then.
    assert (await client.collect()).error["code"] == "previous_response_not_found"


async def test_an_invalid_create_behind_a_running_turn_is_answered_in_its_turn() -> None:
    async with open_house("chat", options=Options(ttft_s=0.2)) as house, house.connect() as client:
        await client.create([user('[[say "one"]]')])
        await client.create(None)
        await client.create([user('[[say "three"]]')])
        kinds = []
        for _ in range(3):
            recorded = await client.collect()
            kinds.append(recorded.text if recorded.kind != "error" else recorded.error["code"])
        assert kinds == ["one", "missing_required_parameter", "three"]


async def test_many_invalid_creates_in_a_row_are_each_answered() -> None:
    async with open_house("chat", options=Options(ttft_s=0.2)) as house, house.connect() as client:
        await client.create([user("[[say 1]]")])
        for _ in range(60):
            await client.create(None)
        assert (await client.collect()).kind == "response.completed"
        for _ in range(60):
            assert (await client.collect()).error["code"] == "missing_required_parameter"
        await client.works()


async def test_one_more_than_may_wait_is_refused_at_once_and_the_rest_is_served() -> None:
    async with open_house("chat", options=Options(ttft_s=0.5)) as house, house.connect() as client:
        await client.create([user('[[say "running"]]')])
        for number in range(65):
            await client.create([user(f'[[say "{number}"]]')], generate=False if number else None)
        error = await client.answer()
        assert (error["status"], error["code"]) == (429, "rate_limit_exceeded")
        assert error["headers"] == {"retry-after": "1"}
        assert (await client.collect()).text == "running"
        assert (await client.collect()).text == "0"
        for _ in range(63):
            assert (await client.collect()).kind == "response.completed"
        await client.works()


@pytest.mark.parametrize(("setting", "value"), [("limits.queued_turns", 2), ("limits.queued_bytes", 1000)])
async def test_the_queue_is_bounded_by_number_and_by_bytes(setting: str, value: int) -> None:
    async with open_house("chat", {setting: value}) as house, house.connect() as client:
        await client.create([user(WAITING)])
        recorded = await client.until("response.output_text.delta")
        for _ in range(3):
            await client.create([user("x" * 300)])
        error = await client.answer()
        assert error["status"] == 429
        assert setting in error["message"]
        assert recorded.kinds[0] == "response.created"


async def test_what_waits_dies_with_the_socket_and_asks_no_upstream(house: House) -> None:
    async with house.connect() as client:
        await client.create([user(WAITING)])
        await client.until("response.output_text.delta")
        for _ in range(5):
            await client.create([user("[[say 1]]")])
    await house.aborted()
    await house.empty()
    assert len(house.upstream.requests) == 1


async def test_a_client_may_continue_in_the_same_instant_as_it_reads_the_end(client: WireClient) -> None:
    previous: Recorded | None = None
    for number in range(20):
        previous = await client.says(str(number), store=False, previous_response_id=previous and previous.id)
