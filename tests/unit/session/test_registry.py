from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any

import pytest

from proxy.errors import Kind, LooplineError
from proxy.session.registry import Registry, RunningTurn
from proxy.session.tasks import Tasks

Run = Callable[[RunningTurn], Coroutine[Any, Any, None]]


class Follower:
    """A subscriber that writes down what it is told, in order."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.room = asyncio.Event()
        self.room.set()

    def deliver(self, events: Sequence[bytes]) -> None:
        self.told.extend(events)

    def refused(self, error: LooplineError) -> None:
        self.told.append(error.kind)

    def ended(self) -> None:
        self.told.append("ended")

    @property
    def congested(self) -> bool:
        return not self.room.is_set()

    async def drained(self) -> None:
        await self.room.wait()


class House:
    """A registry, its tasks, and what crashed in them."""

    def __init__(self) -> None:
        self.crashes: list[tuple[str, BaseException]] = []
        self.tasks = Tasks(lambda where, error: self.crashes.append((where, error)))
        self.registry = Registry(self.tasks)
        self.go = asyncio.Event()
        self.cancelled = 0

    async def turn(self, running: RunningTurn) -> None:
        """Publishes, waits to be let go on, publishes and ends; as `Turn.run` ends it."""
        try:
            running.publish([b"one", b"two"])
            await self.go.wait()
            running.publish([b"three"])
        except asyncio.CancelledError:
            self.cancelled += 1
            if running.cancel_reason is not None:
                running.publish([running.cancel_reason.kind.value.encode()])
            raise
        finally:
            running.end()

    def start(self, follower: Follower, response: str = "r", run: Run | None = None) -> RunningTurn:
        return self.registry.start(response, run or self.turn, follower)


@pytest.fixture
async def house() -> AsyncIterator[House]:
    opened = House()
    yield opened
    await opened.registry.aclose()
    await opened.tasks.aclose()
    assert len(opened.registry) == len(opened.tasks) == 0


@pytest.fixture
def follower() -> Follower:
    return Follower()


async def over(running: RunningTurn) -> None:
    assert running.task is not None
    await asyncio.wait([running.task])


async def reached(running: RunningTurn, events: int) -> None:
    while running.events_out < events:
        await asyncio.sleep(0)


async def test_a_follower_gets_everything_in_order_and_then_the_end_once(house: House, follower: Follower) -> None:
    house.go.set()
    running = house.start(follower)
    assert len(house.registry) == 1
    await over(running)
    assert follower.told == [b"one", b"two", b"three", "ended"]
    assert (running.events_out, running.bytes_out) == (3, 11)
    assert len(house.registry) == 0
    running.end()
    running.unsubscribe(follower)
    assert follower.told.count("ended") == 1


async def test_a_turn_without_followers_is_cancelled_and_nobody_is_told(house: House, follower: Follower) -> None:
    running = house.start(follower)
    await reached(running, 2)
    running.unsubscribe(follower)
    await over(running)
    assert house.cancelled == 1
    assert follower.told == [b"one", b"two"]
    assert len(house.registry) == 0


async def test_a_turn_left_before_its_first_step_never_runs(house: House, follower: Follower) -> None:
    running = house.start(follower)
    running.unsubscribe(follower)
    await over(running)
    assert (running.events_out, follower.told, len(house.registry)) == (0, [], 0)


async def test_a_stranger_that_leaves_changes_nothing(house: House, follower: Follower) -> None:
    running = house.start(follower)
    await reached(running, 2)
    running.unsubscribe(Follower())
    house.go.set()
    await over(running)
    assert follower.told[-1] == "ended"


async def test_a_cancelled_turn_tells_its_followers_why(house: House, follower: Follower) -> None:
    running = house.start(follower)
    await reached(running, 2)
    running.cancel(LooplineError(Kind.CANCELLED, "as you wish"))
    await over(running)
    assert follower.told == [b"one", b"two", b"cancelled", "ended"]


async def test_a_turn_cancelled_before_its_first_step_tells_its_followers_too(house: House, follower: Follower) -> None:
    running = house.start(follower)
    running.cancel(LooplineError(Kind.CANCELLED, "as you wish"))
    await over(running)
    await asyncio.sleep(0)
    assert follower.told == [Kind.CANCELLED, "ended"]
    assert len(house.registry) == 0


async def test_a_turn_that_crashes_ends_for_its_followers_and_is_reported(house: House, follower: Follower) -> None:
    async def crash(running: RunningTurn) -> None:
        raise RuntimeError("bug")

    running = house.start(follower, run=crash)
    await over(running)
    await asyncio.sleep(0)
    assert follower.told == ["ended"]
    assert [(where, str(error)) for where, error in house.crashes] == [("turn r", "bug")]


async def test_a_refusal_reaches_the_follower_before_the_end(house: House, follower: Follower) -> None:
    async def refuse(running: RunningTurn) -> None:
        running.refuse(LooplineError(Kind.PARENT_NOT_FOUND, "no"))
        running.end()

    await over(house.start(follower, run=refuse))
    assert follower.told == [Kind.PARENT_NOT_FOUND, "ended"]


async def test_a_follower_without_room_holds_the_turn(house: House, follower: Follower) -> None:
    running = house.start(follower)
    assert not running.congested
    follower.room.clear()
    assert running.congested
    waiting = asyncio.create_task(running.drained())
    await asyncio.sleep(0)
    assert not waiting.done()
    follower.room.set()
    await waiting


async def test_closing_ends_what_runs_with_a_reason_and_refuses_what_comes(house: House) -> None:
    followers = [Follower() for _ in range(3)]
    running = [house.start(each, f"r{n}") for n, each in enumerate(followers)]
    await reached(running[2], 2)
    late = Follower()
    house.start(late, "late")  # has not had its first step
    await house.registry.aclose()
    await asyncio.sleep(0)
    assert [each.told for each in followers] == [[b"one", b"two", b"shutting_down", "ended"]] * 3
    assert late.told == [Kind.SHUTTING_DOWN, "ended"]
    with pytest.raises(LooplineError) as raised:
        house.start(Follower())
    assert raised.value.kind is Kind.SHUTTING_DOWN
    assert len(house.registry) == 0
