"""A socket that is to be closed for a restart, step by step: what still runs, what is refused, when it closes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.session.play import Move, Play

FAR_S = 600.0


def step() -> Move:
    """The upstream goes on."""
    return Move("step", None, "say", 0, rest=True)


def create(lane: str | None = None, *, rest: bool = True) -> Move:
    """A create that names no parent."""
    return Move("create", lane, "say", 1, rest)


def heard(play: Play) -> list[tuple[str | None, str]]:
    """Ends and errors as they came, with their lanes."""
    ends = ("response.completed", "response.failed", "error")
    return [(event.get("stream_id"), event["type"]) for event in play.socket.events if event["type"] in ends]


async def until_end(play: Play) -> None:
    """The upstream goes on until nobody waits for it."""
    while play.upstream.waiting:
        await play.move(step())


@pytest.fixture
async def play() -> AsyncIterator[Play]:
    """A session, closed by whatever the test does."""
    played = Play()
    yield played
    played.socket.lose()
    await played.rest()
    played.check_nothing_is_left()


@asynccontextmanager
async def draining(play: Play, delay_s: float) -> AsyncIterator[asyncio.Task[None]]:
    """A drain that has begun."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(play.session.drain(delay_s, 2 * FAR_S))
        await play.rest()
        yield task
        await play.rest()


async def test_an_idle_socket_leaves_at_its_turn_without_an_event(play: Play) -> None:
    async with draining(play, 0) as task:
        await asyncio.wait([task], timeout=5)
        assert play.socket.close_code == 1012
        assert play.socket.events == []


async def test_a_busy_socket_leaves_with_the_end_of_its_last_turn(play: Play) -> None:
    for lane in (None, "a", None):
        await play.move(create(lane))
    async with draining(play, FAR_S):
        assert play.socket.close_code is None
        await until_end(play)
        assert heard(play) == [(None, "response.completed"), ("a", "response.completed"), (None, "response.completed")]
        assert play.socket.close_code == 1012


async def test_an_idle_socket_that_gets_a_create_serves_it_and_leaves_then(play: Play) -> None:
    async with draining(play, FAR_S):
        await play.move(create())
        assert play.socket.close_code is None
        await until_end(play)
        assert heard(play) == [(None, "response.completed")]
        assert play.socket.close_code == 1012


async def test_a_create_in_the_moment_of_the_last_end_is_refused_and_asks_no_upstream(play: Play) -> None:
    await play.move(create())
    play.socket.on_end = lambda: play.socket.put(play.message(create()))
    async with draining(play, FAR_S):
        await until_end(play)
        assert heard(play) == [(None, "response.completed"), (None, "error")]
        assert play.socket.events[-1]["status"] == 503
        assert play.socket.close_code == 1012
    assert play.upstream.posts == 1


async def test_late_in_the_grace_creates_are_refused_and_what_runs_goes_on(play: Play) -> None:
    await play.move(create())
    async with draining(play, FAR_S):
        play.session._leave()  # half of the grace is over
        await play.move(create("a"))
        await play.move(create())
        assert heard(play) == [("a", "error")]
        await until_end(play)
        assert heard(play) == [("a", "error"), (None, "response.completed"), (None, "error")]
        assert play.socket.close_code == 1012
    assert play.upstream.posts == 1


async def test_past_the_grace_what_runs_is_ended_with_an_event(play: Play) -> None:
    await play.move(create())
    await play.move(step())
    await play.session.drain(0, 0.01)
    assert heard(play) == [(None, "response.failed")]
    assert play.socket.close_code == 1012
