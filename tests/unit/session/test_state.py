from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.errors import Kind, LooplineError
from proxy.session.state import TABLE, Action, Happened, State, Waiting

# What cannot happen: a turn that ends on a lane where none runs, a create after the socket is gone.
IMPOSSIBLE = {
    (State.IDLE, Happened.ENDED_MORE_WAITING),
    (State.IDLE, Happened.ENDED_NONE_WAITING),
    (State.GONE, Happened.CREATE),
}


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("happened", list(Happened))
def test_the_table_says_what_may_happen_and_nothing_else(state: State, happened: Happened) -> None:
    assert ((state, happened) in TABLE) != ((state, happened) in IMPOSSIBLE)


def test_a_lane_that_is_gone_stays_gone_and_starts_nothing() -> None:
    for (state, _), (after, action) in TABLE.items():
        if state is State.GONE:
            assert (after, action) == (State.GONE, Action.REST)


@given(st.lists(st.sampled_from(["create", "end", "lose"]), max_size=40))
@settings(deadline=None, max_examples=200)
def test_one_turn_at_a_time_and_every_create_gets_its_turn(steps: list[str]) -> None:
    """A lane driven by the table as a session drives it."""
    state, waiting, running, started, created = State.IDLE, 0, 0, 0, 0
    for step in steps:
        if step == "create":
            if state is State.GONE:
                continue  # nobody reads the socket any more
            happened, created, waiting = Happened.CREATE, created + 1, waiting + 1
        elif step == "end":
            if not running:
                continue
            running -= 1
            happened = Happened.ENDED_MORE_WAITING if waiting else Happened.ENDED_NONE_WAITING
        else:
            happened = Happened.SOCKET_LOST
        state, action = TABLE[state, happened]
        if action in (Action.START, Action.START_NEXT):
            waiting, running, started = waiting - 1, running + 1, started + 1
        elif action is Action.STOP:
            waiting = 0
        assert running <= 1
        assert (state is State.IDLE) <= (running == 0 and waiting == 0)
        assert (state is State.BUSY) <= (running == 1)
    if state is not State.GONE:
        assert started + waiting == created


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
