"""Turns that run, the latest of each session, and the last minute's throughput: what /status shows beside counters.

An `Observer` that keeps no record of what is over: of each turn it keeps numbers and names, in deques of fixed length.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from proxy.telemetry.observer import NoObserver, SessionRecord, Stages, TurnRecord

TURNS = 64  # of a session
SESSIONS = 200  # of which turns are kept, those of the latest turns
BY_HTTP = "http"  # the name under which all turns that no WebSocket carried are kept
WINDOW_S = 60


class Kept(msgspec.Struct, frozen=True, gc=False):
    """What is kept of one turn that has ended. Times as in `TurnRecord`; `began_s` is its `received_s`."""

    response: str
    model: str
    endpoint: str
    outcome: str
    error: str
    began_s: float
    previous_end_s: float | None
    answers_calls: bool
    first_output_s: float | None
    stages: Stages
    tokens_in: int
    tokens_cached: int
    tokens_out: int
    bytes_in: int
    bytes_out: int
    bytes_history: int


class Second:
    """What ended within one second."""

    __slots__ = ("bytes_in", "bytes_out", "number", "tokens_in", "tokens_out", "turns")

    def __init__(self, number: int) -> None:
        self.number = number
        self.turns = self.tokens_in = self.tokens_out = self.bytes_in = self.bytes_out = 0


class Rates(NamedTuple):
    """Per second, over the last `seconds`. Counted when a turn ends, all of its tokens and bytes at once."""

    seconds: int
    turns: float
    tokens_in: float
    tokens_out: float
    bytes_in: float
    bytes_out: float


class Ended(NamedTuple):
    """A session that is over, while its turns are still kept. `ended_s` is monotonic seconds."""

    id: str
    client: str
    opened_s: float
    ended_s: float
    turns: int
    close_code: int | None


class Recent(NoObserver):
    """Told of every turn; costs it some two microseconds. `before` is called before anything is read."""

    def __init__(self) -> None:
        self.before: Callable[[], object] = lambda: None
        self._rings: OrderedDict[str, deque[Kept]] = OrderedDict()
        self._running: dict[str, TurnRecord] = {}  # by response
        self._ended: dict[str, Ended] = {}
        self._cut: OrderedDict[str, Ended] = OrderedDict()  # ended, while of their turns none is kept yet
        self._seconds: deque[Second] = deque(maxlen=WINDOW_S)
        self._second = Second(-1)

    def turn_started(self, record: TurnRecord) -> None:
        self._running[record.response] = record

    def turn_ended(self, record: TurnRecord) -> None:
        self.turns_ended((record,))

    def turns_ended(self, records: Sequence[TurnRecord]) -> None:
        for record in records:
            self._keep(record)

    def _keep(self, record: TurnRecord) -> None:
        self._running.pop(record.response, None)
        session = record.session or BY_HTTP
        ring = self._rings.get(session)
        if ring is None:
            ring = self._ring(session)
        else:
            self._rings.move_to_end(session)
        ended_s = record.ended_s or record.received_s
        ring.append(
            Kept(
                record.response,
                record.model,
                record.endpoint,
                record.outcome,
                record.error,
                record.received_s,
                record.previous_end_s,
                record.answers_calls,
                record.first_output_s,
                record.stages(ended_s),
                record.tokens_in,
                record.tokens_cached,
                record.tokens_out,
                record.bytes_in,
                record.bytes_out,
                record.bytes_history,
            )
        )
        second = self._second
        if second.number != int(ended_s):
            second = self._second = Second(int(ended_s))
            self._seconds.append(second)
        second.turns += 1
        second.tokens_in += record.tokens_in
        second.tokens_out += record.tokens_out
        second.bytes_in += record.bytes_in
        second.bytes_out += record.bytes_out

    def session_ended(self, record: SessionRecord) -> None:
        if not record.turns:
            return
        ended_s = record.ended_s or record.opened_s
        ended = Ended(record.id, record.client, record.opened_s, ended_s, record.turns, record.close_code)
        if record.id in self._rings:
            self._ended[record.id] = ended
            return
        self._cut[record.id] = ended  # a socket that is cut ends before its turns do
        if len(self._cut) > SESSIONS:
            self._cut.popitem(last=False)

    def turns(self, session: str) -> tuple[Kept, ...]:
        """The session's latest turns, oldest first."""
        self.before()
        return tuple(self._rings.get(session, ()))

    def running(self, session: str) -> tuple[TurnRecord, ...]:
        """The session's turns that run now, the first begun first; to be looked at, not kept."""
        self.before()
        wanted = "" if session == BY_HTTP else session
        return tuple(record for record in self._running.values() if record.session == wanted)

    def ended(self) -> tuple[Ended, ...]:
        """Sessions that are over and of which turns are kept, newest first."""
        self.before()
        return tuple(sorted(self._ended.values(), key=lambda each: each.opened_s, reverse=True))

    def rates(self, now: float, seconds: int) -> Rates:
        """Of the whole seconds before `now` (monotonic), `seconds` of them, at most `WINDOW_S - 1`."""
        self.before()
        last = int(now)
        counted = [each for each in self._seconds if last - seconds <= each.number < last]
        return Rates(
            seconds,
            *(
                sum(getattr(each, name) for each in counted) / seconds
                for name in ("turns", "tokens_in", "tokens_out", "bytes_in", "bytes_out")
            ),
        )

    def by_second(self, now: float) -> list[int]:
        """How many turns ended in each of the last `WINDOW_S - 1` whole seconds, oldest first."""
        self.before()
        last = int(now)
        counts = {each.number: each.turns for each in self._seconds}
        return [counts.get(number, 0) for number in range(last - WINDOW_S + 1, last)]

    def _ring(self, session: str) -> deque[Kept]:
        ring = self._rings[session] = deque(maxlen=TURNS)
        if session in self._cut:
            self._ended[session] = self._cut.pop(session)
        if len(self._rings) > SESSIONS:
            gone, _ = self._rings.popitem(last=False)
            self._ended.pop(gone, None)
        return ring
