"""What the rest of the code reports, and to whom: a protocol, so that logic needs no metrics library to run.

A turn adds its numbers up in its `TurnRecord` and reports once, at its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(slots=True)
class TurnRecord:
    """One turn, from its create to its terminal event. Times are seconds, sizes bytes.

    `outcome` is `completed`, `incomplete`, `failed`, `refused` (no response began) or `cancelled`; `error` the kind
    of failure. `left_out` is what the upstream could not be told: what it is, from a closed set, and its name. Stages
    are measured on the monotonic clock from `received_s`; None where they were not reached.
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
    started_s: float | None = None
    sent_s: float | None = None
    accepted_s: float | None = None
    first_output_s: float | None = None
    upstream_end_s: float | None = None
    ended_s: float | None = None


@dataclass(slots=True)
class SessionRecord:
    """One WebSocket, from its upgrade to its end. Times are monotonic seconds, sizes bytes."""

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
    ended_s: float | None = None


@dataclass(slots=True)
class PassedRecord:
    """One request that was passed on as it came. Times are monotonic seconds, sizes bytes of bodies.

    `outcome` is `passed`, `refused` (nothing was sent), `failed` (the upstream's fault) or `cancelled`; `status` what
    the client was answered, 0 for nothing. `path` has no query.
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
    ended_s: float | None = None


class Observer(Protocol):
    """Told of what happened. Must not raise, wait, or keep what it is given."""

    def session_opened(self, record: SessionRecord) -> None: ...

    def session_ended(self, record: SessionRecord) -> None: ...

    def turn_started(self, record: TurnRecord) -> None: ...

    def turn_ended(self, record: TurnRecord) -> None: ...

    def passed(self, record: PassedRecord) -> None: ...

    def upstream_failed(self, endpoint: str, kind: str) -> None: ...

    def unreadable(self, why: str) -> None: ...

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

    def passed(self, record: PassedRecord) -> None:
        pass

    def upstream_failed(self, endpoint: str, kind: str) -> None:
        pass

    def unreadable(self, why: str) -> None:
        pass

    def crashed(self, where: str, error: BaseException) -> None:
        pass


@dataclass(slots=True)
class Observers:
    """Passes everything on to each of several observers."""

    observers: Sequence[Observer] = field(default_factory=tuple)

    def session_opened(self, record: SessionRecord) -> None:
        for observer in self.observers:
            observer.session_opened(record)

    def session_ended(self, record: SessionRecord) -> None:
        for observer in self.observers:
            observer.session_ended(record)

    def turn_started(self, record: TurnRecord) -> None:
        for observer in self.observers:
            observer.turn_started(record)

    def turn_ended(self, record: TurnRecord) -> None:
        for observer in self.observers:
            observer.turn_ended(record)

    def passed(self, record: PassedRecord) -> None:
        for observer in self.observers:
            observer.passed(record)

    def upstream_failed(self, endpoint: str, kind: str) -> None:
        for observer in self.observers:
            observer.upstream_failed(endpoint, kind)

    def unreadable(self, why: str) -> None:
        for observer in self.observers:
            observer.unreadable(why)

    def crashed(self, where: str, error: BaseException) -> None:
        for observer in self.observers:
            observer.crashed(where, error)
