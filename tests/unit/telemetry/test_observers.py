"""Who is told of what, and when: turns that ended are gathered for those who ask for that, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from proxy.telemetry.observer import GATHERED, NoObserver, Observers, PassedRecord, SessionRecord, TurnRecord


class Several(NoObserver):
    """Would rather be told of several turns at once."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def turns_ended(self, records: Sequence[TurnRecord]) -> None:
        self.told.append([record.response for record in records])

    def session_ended(self, record: SessionRecord) -> None:
        self.told.append("session")

    def passed(self, record: PassedRecord) -> None:
        self.told.append("passed")

    def upstream_failed(self, endpoint: str, kind: str) -> None:
        self.told.append(kind)

    def crashed(self, where: str, error: BaseException) -> None:
        self.told.append("crash")


class AtOnce(NoObserver):
    """Is told of each turn as it ends."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def turn_ended(self, record: TurnRecord) -> None:
        self.told.append(record.response)


def turn(number: int) -> TurnRecord:
    """A turn with a name."""
    return TurnRecord(f"r{number}", "http", 0.0, ended_s=1.0)


def test_turns_are_gathered_up_to_a_bound_for_those_who_ask_for_it() -> None:
    several, at_once, soon = Several(), AtOnce(), list[Callable[[], None]]()
    observers = Observers((several, at_once), soon.append)
    for number in range(GATHERED - 1):
        observers.turn_ended(turn(number))
    assert at_once.told == [f"r{number}" for number in range(GATHERED - 1)]
    assert several.told == []
    assert len(soon) == 1, "one timer for all of them"
    observers.turn_ended(turn(99))
    assert several.told == [[*at_once.told]]
    observers.turn_ended(turn(100))
    soon[-1]()
    assert several.told[1:] == [["r100"]]
    soon[0]()
    observers.settle()
    assert len(several.told) == 2, "nothing is told twice"


def test_turns_are_told_before_whatever_else_ends_or_fails() -> None:
    several = Several()
    observers = Observers((several,))
    events: tuple[Callable[[], None], ...] = (
        lambda: observers.session_ended(SessionRecord("s", 0.0)),
        lambda: observers.passed(PassedRecord("GET", "/v1/files", 0.0)),
        lambda: observers.upstream_failed("default", "upstream_closed"),
        lambda: observers.crashed("turn", ValueError()),
    )
    for number, event in enumerate(events):
        observers.turn_ended(turn(number))
        event()
    assert several.told == [["r0"], "session", ["r1"], "passed", ["r2"], "upstream_closed", ["r3"], "crash"]


def test_who_does_nothing_with_a_turn_is_not_called_for_it() -> None:
    class Started(NoObserver):
        begun = 0

        def turn_started(self, record: TurnRecord) -> None:
            self.begun += 1

    started = Started()
    observers = Observers((started, NoObserver(), Several()))
    observers.turn_started(turn(0))
    assert started.begun == 1
    assert len(observers._at_start) == 1
    assert observers._at_end == []
