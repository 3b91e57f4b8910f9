"""What the rest of the code reports, and to whom: a protocol, so that logic needs no metrics library to run.

A turn adds its numbers up in its `TurnRecord` and reports once, at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import msgspec

from proxy.http_client import AttemptWatch

GATHERED = 16  # turns: while they are told, everything else waits for half a millisecond


class Stages(NamedTuple):
    """Where a turn's time went, in seconds: each moment from its arrival to its end is in one of them.

    `parse` reads the create, `queue` waits for its lane and for room, `chain` finds what it continues, `prepare` reads
    its items, models and tools, `translate` makes the upstream's request, `connect` waits for a connection (0 for one
    that was kept), `upstream` lasts from the request's first byte to the answer's last or to the turn's end, `stall`
    is what of it the client took to make room, `store` keeps the answer, `send` hands over the terminal event.
    """

    parse: float
    queue: float
    chain: float
    prepare: float
    translate: float
    connect: float
    upstream: float
    stall: float
    store: float
    send: float


class Loop(NamedTuple):
    """One round of an agent's loop, in seconds, from the end of the lane's previous turn to the end of this one.

    `client` is None where no turn went before. What of a queue lay before the previous turn's end is in neither turn.
    """

    client: float | None
    proxy: float
    upstream: float


class TurnRecord(msgspec.Struct, eq=False):
    """One turn, from its create to its terminal event. Times are seconds, sizes bytes.

    `outcome` is `completed`, `incomplete`, `failed`, `refused` (no response began) or `cancelled`; `error` the kind
    of failure. `left_out` is what the upstream could not be told: what it is, from a closed set, and its name. Stages
    are measured on the monotonic clock from `received_s`, when the create had arrived in full; None where they were
    not reached. `stalled_s` sums what the client took to make room while the upstream answered, without what it takes
    since `stall_began_s`.

    `previous_end_s` is when the turn before this one ended, the lane's or, where no lane tells, its history's;
    `answers_calls` says that that one waited for outputs of tools. `model_known` says that `upstream_model` is one that
    the upstream or the settings name. `forked`: it continues another response than its lane's latest.

    `trace_id` (32 hex digits) joins log, trace and exemplars, empty for none, and `sampled` says that the trace is sent
    somewhere; `traceparent` and `tracestate` are what its client said of it, if that was valid. `watch` is whoever
    wants to know of each attempt.
    """

    response: str
    transport: str
    received_s: float
    model: str = ""
    upstream_model: str = ""
    endpoint: str = ""
    dialect: str = ""
    parent: str = ""
    session: str = ""
    request_id: str = ""
    client: str = ""
    outcome: str = ""
    error: str = ""
    cause: str = ""
    warm_up: bool = False
    attempts: int = 0
    items_in: int = 0
    items_out: int = 0
    bytes_in: int = 0
    bytes_history: int = 0
    bytes_upstream: int = 0
    bytes_out: int = 0
    events_out: int = 0
    left_out: tuple[tuple[str, str], ...] = ()
    tokens_in: int = 0
    tokens_cached: int = 0
    tokens_out: int = 0
    trace_id: str = ""
    sampled: bool = False
    model_known: bool = False
    answers_calls: bool = False
    forked: bool = False
    steers: int = 0
    previous_end_s: float | None = None
    parsed_s: float | None = None
    traceparent: str = ""
    tracestate: str = ""
    watch: AttemptWatch | None = None
    started_s: float | None = None
    chained_s: float | None = None
    prepared_s: float | None = None
    sent_s: float | None = None
    connected_s: float | None = None
    accepted_s: float | None = None
    first_output_s: float | None = None
    stalled_s: float = 0.0
    stall_began_s: float | None = None
    upstream_end_s: float | None = None
    stored_s: float | None = None
    ended_s: float | None = None
    _stages: Stages | None = None

    def stages(self, now: float = 0.0) -> Stages:
        """Where its time went, until `now` where it has not ended. Their sum is that time.

        What was not reached takes nothing: the time belongs to the last stage that was. An upstream that never said
        anything, or was left, had all the time since it was asked.
        """
        if self._stages is not None:
            return self._stages
        end = self.ended_s if self.ended_s is not None else now
        stored = self.stored_s if self.stored_s is not None else end
        answered = self.upstream_end_s if self.upstream_end_s is not None else stored
        sent = self.sent_s if self.sent_s is not None else answered
        prepared = self.prepared_s if self.prepared_s is not None else sent
        chained = self.chained_s if self.chained_s is not None else prepared
        started = self.started_s if self.started_s is not None else chained
        parsed = self.parsed_s if self.parsed_s is not None else self.received_s
        connected = self.connected_s if self.connected_s is not None else sent
        stalled = self.stalled_s if self.stall_began_s is None else self.stalled_s + (end - self.stall_began_s)
        stages = Stages(
            parsed - self.received_s,
            started - parsed,
            chained - started,
            prepared - chained,
            sent - prepared,
            connected - sent,
            answered - connected - stalled,
            stalled,
            stored - answered,
            end - stored,
        )
        if self.ended_s is not None:
            self._stages = stages  # several observers ask
        return stages

    def part(self) -> str:
        """The field of `Stages` to which a moment of it is added now, as far as its marks tell."""
        if self.stall_began_s is not None:
            return "stall"
        reached = (self.stored_s, self.upstream_end_s, self.sent_s, self.prepared_s, self.chained_s, self.started_s)
        return next((part for mark, part in zip(reached, _AFTER, strict=True) if mark is not None), "queue")

    def loop(self, stages: Stages) -> Loop:
        """The client's, the proxy's and the upstream's part of this round of the loop."""
        return loop_of(stages, self.received_s, self.previous_end_s)


_AFTER = ("send", "store", "upstream", "translate", "prepare", "chain")  # what follows each mark, the last one first


def loop_of(stages: Stages, received_s: float, previous_end_s: float | None) -> Loop:
    """A round of the loop from a turn's stages, its arrival, and the end of the lane's turn before it, if any."""
    return Loop(*loop_parts(stages, received_s, previous_end_s))


def loop_parts(stages: Stages, received_s: float, previous_end_s: float | None) -> tuple[float | None, float, float]:
    """The members of `loop_of`, for who needs them often."""
    upstream, client = stages[6], stages[7]
    proxy = sum(stages) - upstream - client
    if previous_end_s is None:
        return None, proxy, upstream
    paused_s = received_s - previous_end_s
    if paused_s >= 0:
        return client + paused_s, proxy, upstream
    return client, max(0.0, proxy + paused_s), upstream


@dataclass(slots=True)
class SessionRecord:
    """One WebSocket, from its upgrade to its end. Times are monotonic seconds, sizes bytes.

    `trace_id`, `traceparent` and `tracestate` as in `TurnRecord`, of the upgrade.
    """

    id: str
    opened_s: float
    client: str = ""
    turns: int = 0
    bytes_in: int = 0
    messages_in: int = 0
    bytes_out: int = 0
    errors: int = 0
    close_code: int | None = None
    reason: str = ""
    trace_id: str = ""
    sampled: bool = False
    traceparent: str = ""
    tracestate: str = ""
    ended_s: float | None = None


@dataclass(slots=True)
class PassedRecord:
    """One request that was passed on as it came. Times are monotonic seconds, sizes bytes of bodies.

    `outcome` is `passed`, `refused` (nothing was sent), `failed` (the upstream's fault) or `cancelled`; `status` what
    the client was answered, 0 for nothing. `path` has no query. What is said of its trace is as in `TurnRecord`.
    """

    method: str
    path: str
    received_s: float
    endpoint: str = ""
    request_id: str = ""
    client: str = ""
    outcome: str = "cancelled"
    status: int = 0
    error: str = ""
    bytes_in: int = 0
    bytes_out: int = 0
    trace_id: str = ""
    sampled: bool = False
    traceparent: str = ""
    tracestate: str = ""
    watch: AttemptWatch | None = None
    ended_s: float | None = None


class Observer(Protocol):
    """Told of what happened. Must not raise, wait, or keep what it is given, but for a turn until it has ended. The
    record of a turn that ended does not change any more.
    """

    def session_opened(self, record: SessionRecord) -> None: ...

    def session_ended(self, record: SessionRecord) -> None: ...

    def turn_started(self, record: TurnRecord) -> None: ...

    def turn_ended(self, record: TurnRecord) -> None: ...

    def passing(self, record: PassedRecord) -> None:
        """A request is about to be passed on."""
        ...

    def passed(self, record: PassedRecord) -> None: ...

    def upstream_failed(self, endpoint: str, kind: str) -> None: ...

    def unreadable(self, why: str) -> None: ...

    def limited(self, limit: str) -> None:
        """A client was told that it is too much, by the setting of that name."""
        ...

    def crashed(self, where: str, error: BaseException) -> None: ...


class NoObserver:
    """Observes nothing."""

    def session_opened(self, record: SessionRecord) -> None:
        pass

    def session_ended(self, record: SessionRecord) -> None:
        pass

    def turn_started(self, record: TurnRecord) -> None:
        pass

    def turn_ended(self, record: TurnRecord) -> None:
        pass

    def passing(self, record: PassedRecord) -> None:
        pass

    def passed(self, record: PassedRecord) -> None:
        pass

    def upstream_failed(self, endpoint: str, kind: str) -> None:
        pass

    def unreadable(self, why: str) -> None:
        pass

    def limited(self, limit: str) -> None:
        pass

    def crashed(self, where: str, error: BaseException) -> None:
        pass


class Gathers(Protocol):
    """An observer that would rather be told of several turns that ended at once."""

    def turns_ended(self, records: Sequence[TurnRecord]) -> None: ...


class Observers:
    """Passes everything on to each of several observers.

    Turns that ended are gathered for those that are `Gathers`, for at most `GATHERED` turns, until anything else ends
    or fails, or until `settle`, whichever comes first: code that runs again at once is still in the processor's
    caches, and the same work takes a third of the time. `soon` has a function called a moment later.
    """

    def __init__(
        self, observers: Sequence[Observer] = (), soon: Callable[[Callable[[], None]], object] | None = None
    ) -> None:
        self.observers = observers
        self._soon = soon
        self._ended: list[TurnRecord] = []
        # Of what every turn reports it is kept who listens.
        self._at_start = [each.turn_started for each in observers if _listens(each, "turn_started")]
        self._gathers: list[Callable[[Sequence[TurnRecord]], None]] = [
            each.turns_ended for each in observers if hasattr(each, "turns_ended")
        ]
        self._at_end = [
            each.turn_ended for each in observers if _listens(each, "turn_ended") and not hasattr(each, "turns_ended")
        ]

    def settle(self) -> None:
        """Tell of all turns that have ended. Those who gather are read after this."""
        if self._ended:
            ended, self._ended = self._ended, []
            for told in self._gathers:
                told(ended)

    def session_opened(self, record: SessionRecord) -> None:
        for observer in self.observers:
            observer.session_opened(record)

    def session_ended(self, record: SessionRecord) -> None:
        self.settle()
        for observer in self.observers:
            observer.session_ended(record)

    def turn_started(self, record: TurnRecord) -> None:
        for told in self._at_start:
            told(record)

    def turn_ended(self, record: TurnRecord) -> None:
        for told in self._at_end:
            told(record)
        ended = self._ended
        ended.append(record)
        if len(ended) >= GATHERED:
            self.settle()
        elif len(ended) == 1 and self._soon is not None:
            self._soon(self.settle)

    def passing(self, record: PassedRecord) -> None:
        for observer in self.observers:
            observer.passing(record)

    def passed(self, record: PassedRecord) -> None:
        self.settle()
        for observer in self.observers:
            observer.passed(record)

    def upstream_failed(self, endpoint: str, kind: str) -> None:
        self.settle()
        for observer in self.observers:
            observer.upstream_failed(endpoint, kind)

    def unreadable(self, why: str) -> None:
        for observer in self.observers:
            observer.unreadable(why)

    def limited(self, limit: str) -> None:
        for observer in self.observers:
            observer.limited(limit)

    def crashed(self, where: str, error: BaseException) -> None:
        self.settle()
        for observer in self.observers:
            observer.crashed(where, error)


def _listens(observer: Observer, event: str) -> bool:
    return getattr(type(observer), event, None) is not getattr(NoObserver, event)
