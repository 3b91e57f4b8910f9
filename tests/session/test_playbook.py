"""Random plays of a client, an upstream and an end against one session: whatever happens, the rules of a turn hold.

No sockets and no time: the client and the upstream move when the play says so, in any order, with the loop run to
rest between two moves or not at all.
"""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.session import lanes
from proxy.session.lanes import Lane
from proxy.session.state import TABLE, Action, Happened, State
from tests.session.play import Move, Play
from tests.session.playing import SCRIPTS

ENDS = ("lost", "expired", "shut down", "drained", "all done")


MOVES = (
    *(
        "create",
        "continue",
        "continue",
        "continue",
        "continue",
        "fork",
        "fork",
        "flash",
        "warm up",
        "wrong create",
        "bad lane",
    ),
    *("step",) * 16,
    *("steer", "steer", "steer", "bad steer", "cancel", "cancel by id", "noise", "stop reading", "read on", "read on"),
)
PLAYS = st.lists(
    st.builds(
        Move,
        what=st.sampled_from(MOVES),
        lane=st.sampled_from((None, None, None, "a", "a", "a", "b", "c")),
        script=st.sampled_from((*SCRIPTS, "long", "long", "call", "call", "say")),
        pick=st.integers(0, 11),
        rest=st.booleans(),
    ),
    min_size=20,
    max_size=80,
)


async def play(moves: list[Move], end: str) -> Play:
    """Play it through and hold it to the rules."""
    played = Play()
    for move in moves:
        await played.move(move)
    await asyncio.wait_for(played.end(end), 5)
    played.check_nothing_is_left()
    played.check_what_was_said(end)
    return played


@given(moves=PLAYS, end=st.sampled_from(ENDS))
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_happens_each_turn_ends_once_in_order_on_its_lane_and_nothing_is_left(
    moves: list[Move], end: str
) -> None:
    asyncio.run(play(moves, end))


# --- The table -------------------------------------------------------------------------------------------------------


class Recording(dict[tuple[State, Happened], tuple[State, Action]]):
    """The table, and which of its rows were asked for."""

    def __init__(self) -> None:
        super().__init__(TABLE)
        self.reached: set[tuple[State, Happened]] = set()

    def __getitem__(self, key: tuple[State, Happened]) -> tuple[State, Action]:
        self.reached.add(key)
        return super().__getitem__(key)


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Recording:
    """Lanes use a table that is watched."""
    recording = Recording()
    monkeypatch.setattr(lanes, "TABLE", recording)
    return recording


LATE = {row for row in TABLE if row[0] is State.GONE}


async def test_a_session_reaches_every_row_of_the_table(table: Recording) -> None:
    def create(lane: str | None) -> Move:
        return Move("create", lane, "say", 1, rest=True)

    step = Move("step", None, "say", 0, rest=True)
    # Two run, one waits for room and another behind it, one more behind each that runs; the first one ends.
    moves = [create(None), create("a"), create("b"), create("b"), create(None), *[step] * 10]
    await play(moves, "all done")
    await play(moves[:5], "lost")
    assert table.reached == set(TABLE) - LATE


def test_what_comes_late_to_a_lane_that_is_gone_changes_nothing(table: Recording) -> None:
    for happened in (Happened.ENDED_MORE_WAITING, Happened.ENDED_NONE_WAITING, Happened.SOCKET_LOST):
        lane = Lane("a", State.GONE)
        assert lane.moved(happened) is Action.REST
        assert lane.state is State.GONE
    assert table.reached == LATE
