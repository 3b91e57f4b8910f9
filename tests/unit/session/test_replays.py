"""Events of responses that have ended are kept for a while, within bounds."""

from __future__ import annotations

from proxy.session.replays import KEPT_S, Replays

EVENTS = [b"created", b"completed"]


def test_they_are_kept_for_a_while() -> None:
    replays = Replays()
    replays.keep(("a", "resp"), EVENTS, 0.0)
    assert replays.find(("a", "resp"), KEPT_S - 1) == tuple(EVENTS)
    assert replays.find(("b", "resp"), 0.0) is None
    assert replays.find(("a", "resp"), KEPT_S) is None
    assert replays.size == 0


def test_the_oldest_make_room() -> None:
    replays = Replays(max_bytes=300)
    for name in "abc":
        replays.keep(("t", name), [b"x" * 60], 0.0)
    assert [replays.find(("t", name), 0.0) is not None for name in "abc"] == [False, True, True]
    replays.keep(("t", "large"), [b"x" * 300], 0.0)
    assert replays.find(("t", "large"), 0.0) is None
    assert replays.find(("t", "c"), 0.0) is not None
    assert replays.size == 240


def test_what_is_forgotten_takes_no_room() -> None:
    replays = Replays()
    replays.keep(("t", "a"), EVENTS, 0.0)
    replays.keep(("t", "a"), EVENTS, 1.0)
    replays.forget(("t", "a"))
    replays.forget(("t", "a"))
    assert (replays.find(("t", "a"), 0.0), replays.size) == (None, 0)
