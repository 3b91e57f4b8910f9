from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.errors import Kind, LooplineError
from proxy.session.state import TABLE, Action, Happened, State, Waiting

# What cannot happen: room for a lane that waits for none, the end of a turn where none runs, a create after the socket
# is gone.
IMPOSSIBLE = {
    (State.IDLE, Happened.ROOM),
    (State.IDLE, Happened.ENDED_MORE_WAITING),
    (State.IDLE, Happened.ENDED_NONE_WAITING),
    (State.READY, Happened.ENDED_MORE_WAITING),
    (State.READY, Happened.ENDED_NONE_WAITING),
    (State.BUSY, Happened.ROOM),
    (State.GONE, Happened.CREATE),
    (State.GONE, Happened.ROOM),
}


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("happened", list(Happened))
def test_the_table_says_what_may_happen_and_nothing_else(state: State, happened: Happened) -> None:
    assert ((state, happened) in TABLE) != ((state, happened) in IMPOSSIBLE)


def test_a_lane_that_is_gone_stays_gone_and_starts_nothing() -> None:
    for (state, _), (after, action) in TABLE.items():
        if state is State.GONE:
            assert (after, action) == (State.GONE, Action.REST)


def test_a_turn_starts_only_when_there_is_room_for_it() -> None:
    assert {(state, happened) for (state, happened), (_, action) in TABLE.items() if action is Action.START} == {
        (State.READY, Happened.ROOM)
    }


def test_a_lane_enters_the_line_exactly_when_it_becomes_ready() -> None:
    for (before, _), (after, action) in TABLE.items():
        becomes_ready = after is State.READY and before is not State.READY
        assert (action is Action.ENLIST) == becomes_ready


@given(st.lists(st.sampled_from(["create", "room", "end", "lose"]), max_size=40))
@settings(deadline=None, max_examples=200)
def test_one_turn_at_a_time_and_every_create_gets_its_turn(steps: list[str]) -> None:
    """A lane driven by the table as a session drives it."""
    lane = Driven()
    for step in steps:
        lane.do(step)
        assert lane.running <= 1
        assert (lane.state is State.IDLE) <= (lane.running == 0 and lane.waiting == 0)
        assert (lane.state is State.READY) <= (lane.running == 0 and lane.waiting > 0)
        assert (lane.state is State.BUSY) <= (lane.running == 1)
        assert lane.in_line == (lane.state is State.READY)
    if lane.state is not State.GONE:
        assert lane.started + lane.waiting == lane.created


class Driven:
    """A lane as its counters see it."""

    def __init__(self) -> None:
        self.state = State.IDLE
        self.waiting = self.running = self.started = self.created = 0
        self.in_line = False

    def do(self, step: str) -> None:
        """A step, where it can happen."""
        if step == "create" and self.state is not State.GONE:  # nobody reads a socket that is gone
            self.created, self.waiting = self.created + 1, self.waiting + 1
            self._happened(Happened.CREATE)
        elif step == "room" and self.in_line:
            self.in_line = False
            self._happened(Happened.ROOM)
        elif step == "end" and self.running:
            self.running -= 1
            self._happened(Happened.ENDED_MORE_WAITING if self.waiting else Happened.ENDED_NONE_WAITING)
        elif step == "lose":
            self.in_line, self.waiting = False, 0
            self._happened(Happened.SOCKET_LOST)

    def _happened(self, happened: Happened) -> None:
        self.state, action = TABLE[self.state, happened]
        if action is Action.ENLIST:
            assert not self.in_line, "a lane that stands in line twice"
            self.in_line = True
        elif action is Action.START:
            self.waiting, self.running, self.started = self.waiting - 1, self.running + 1, self.started + 1


def test_what_waits_is_bounded_by_number_and_by_bytes_and_room_comes_back() -> None:
    waiting = Waiting(2, 100)
    waiting.add(60)
    waiting.add(40)
    with pytest.raises(LooplineError, match=r"limits\.queued_turns"):
        waiting.add(0)
    waiting.remove(60)
    with pytest.raises(LooplineError, match=r"limits\.queued_bytes") as raised:
        waiting.add(61)
    assert (raised.value.kind, raised.value.status, raised.value.retry_after_s) == (Kind.QUEUE_FULL, 429, 1)
    waiting.add(60)
    assert (waiting.turns, waiting.bytes) == (2, 100)


def test_a_refused_create_takes_no_room() -> None:
    waiting = Waiting(1, 10)
    with pytest.raises(LooplineError):
        waiting.add(11)
    assert (waiting.turns, waiting.bytes) == (0, 0)
    waiting.add(10)
