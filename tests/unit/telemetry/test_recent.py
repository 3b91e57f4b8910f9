"""What is kept of the latest turns: bounded, without records, and throughput by whole seconds."""

from __future__ import annotations

import msgspec
import pytest

from proxy.telemetry import recent as r
from proxy.telemetry.observer import SessionRecord, TurnRecord
from proxy.telemetry.recent import Recent
from tests.unit.telemetry.test_metrics import turn


def ended(recent: Recent, session: str, at_s: float = 102.0, **members: object) -> TurnRecord:
    """A turn of two seconds that ended at a moment."""
    record = turn(session=session, **members)
    record.received_s, record.ended_s = at_s - 2.0, at_s
    recent.turn_ended(record)
    return record


def test_a_turn_is_kept_as_numbers_and_names() -> None:
    recent = Recent()
    record = turn(session="sess_1")
    recent.turn_ended(record)
    [kept] = recent.turns("sess_1")
    assert kept.stages == record.stages()
    assert (kept.response, kept.model, kept.endpoint, kept.outcome) == ("resp_lp1", "m", "default", "completed")
    assert (kept.began_s, kept.previous_end_s, kept.first_output_s) == (100.0, 97.0, 100.5)
    assert (kept.tokens_in, kept.tokens_cached, kept.tokens_out) == (5, 3, 11)
    assert (kept.bytes_in, kept.bytes_out, kept.bytes_history) == (10, 40, 20)
    assert record not in msgspec.structs.astuple(kept)


def test_a_turn_that_reached_nothing_is_kept_too() -> None:
    recent = Recent()
    recent.turn_ended(TurnRecord("resp_lp1", "http", 5.0, outcome="cancelled"))
    [kept] = recent.turns(r.BY_HTTP)
    assert sum(kept.stages) == 0


def test_a_turn_that_runs_is_told_until_it_ends() -> None:
    recent = Recent()
    first, second = (turn(session="sess_1", response=name, ended_s=None) for name in ("resp_1", "resp_2"))
    by_http = TurnRecord("resp_3", "http", 5.0)
    for record in (first, second, by_http):
        recent.turn_started(record)
    assert recent.running("sess_1") == (first, second)
    assert recent.running(r.BY_HTTP) == (by_http,)
    for record in (first, by_http, second):
        recent.turn_ended(record)
    assert recent.running("sess_1") == recent.running(r.BY_HTTP) == ()
    assert [kept.response for kept in recent.turns("sess_1")] == ["resp_1", "resp_2"]
    assert not recent._running, "no record is kept of what is over"


def test_a_session_that_ends_before_its_only_turn_is_kept_with_it() -> None:
    recent = Recent()
    record = turn(session="sess_1", ended_s=None)
    recent.turn_started(record)
    recent.session_ended(SessionRecord("sess_1", 1.0, turns=1, ended_s=2.0))
    recent.turn_ended(record)
    assert [each.id for each in recent.ended()] == ["sess_1"]
    assert len(recent.turns("sess_1")) == 1
    for number in range(r.SESSIONS):
        ended(recent, f"sess_new_{number}")
    assert recent.ended() == ()


def test_the_latest_turns_of_a_session_are_kept() -> None:
    recent = Recent()
    for number in range(r.TURNS + 10):
        ended(recent, "sess_1", response=f"resp_{number}")
    assert [kept.response for kept in recent.turns("sess_1")] == [f"resp_{n}" for n in range(10, r.TURNS + 10)]


def test_the_sessions_of_the_latest_turns_are_kept() -> None:
    recent = Recent()
    for number in range(r.SESSIONS):
        ended(recent, f"sess_{number}")
    recent.session_ended(SessionRecord("sess_1", 1.0, turns=1, ended_s=2.0))
    ended(recent, "sess_0")
    ended(recent, "sess_new")
    assert recent.turns("sess_1") == ()
    assert recent.ended() == (), "nothing is kept of a session whose turns are not"
    assert len(recent.turns("sess_0")) == 2
    assert len(recent.turns("sess_new")) == 1


def test_memory_is_bounded_whatever_comes() -> None:
    recent = Recent()
    for number in range(3 * r.SESSIONS):
        for _ in range(r.TURNS + 1):
            ended(recent, f"sess_{number}", at_s=102.0 + number)
        recent.session_ended(SessionRecord(f"sess_{number}", 1.0, turns=1, ended_s=2.0))
        recent.session_ended(SessionRecord(f"sess_of_lost_turns_{number}", 1.0, turns=1, ended_s=2.0))
    assert len(recent._cut) == r.SESSIONS
    assert sum(map(len, recent._rings.values())) == r.SESSIONS * r.TURNS
    assert len(recent.ended()) == r.SESSIONS
    assert len(recent._seconds) == r.WINDOW_S


def test_sessions_that_ended_are_told_newest_first() -> None:
    recent = Recent()
    for name, opened_s in (("a", 1.0), ("b", 3.0), ("c", 2.0)):
        ended(recent, name)
        recent.session_ended(SessionRecord(name, opened_s, client="::1", turns=1, close_code=1000, ended_s=9.0))
    recent.session_ended(SessionRecord("without turns", 4.0))
    assert [each.id for each in recent.ended()] == ["b", "c", "a"]
    assert recent.ended()[0] == ("b", "::1", 3.0, 9.0, 1, 1000)


def test_rates_are_of_whole_seconds() -> None:
    recent = Recent()
    for at_s in (100.5, 101.1, 101.9, 102.5):
        ended(recent, "s", at_s=at_s)
    rates = recent.rates(102.6, 2)
    assert rates == (2, 1.5, 1.5 * 5, 1.5 * 11, 1.5 * 10, 1.5 * 40), "the second that is not over does not count"
    assert recent.rates(103.0, 1).turns == 1
    assert recent.rates(1000.0, 5).turns == 0


def test_turns_by_second_have_every_second() -> None:
    recent = Recent()
    for at_s in (100.5, 102.1, 102.9):
        ended(recent, "s", at_s=at_s)
    counts = recent.by_second(103.2)
    assert len(counts) == r.WINDOW_S - 1
    assert counts[-3:] == [1, 0, 2]
    assert sum(counts) == 3


@pytest.mark.parametrize("ended_s", [-1.0, 0.0])
def test_a_clock_that_begins_anywhere_is_fine(ended_s: float) -> None:
    recent = Recent()
    ended(recent, "s", at_s=ended_s)
    assert len(recent.turns("s")) == 1
