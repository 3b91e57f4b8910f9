"""What stands in the lines of turns, sessions and passed requests. Pure.

Structs, because they are encoded without a dict; what does not apply is UNSET and left out. Times are seconds to the
microsecond, sizes bytes. Each is filled in the order of its members.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from proxy.telemetry.observer import PassedRecord, SessionRecord, TurnRecord


class Line(msgspec.Struct, gc=False):
    """A line; the names are its members."""

    event: str
    level: str
    timestamp: str

    def fields(self) -> dict[str, Any]:
        """All that applies, by name."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value is not UNSET}


class TurnLine(Line):
    """A turn. From `parse_s` to `send_s` the parts of its time, which add up to `total_s`."""

    response: str
    parent: str | UnsetType
    session: str | UnsetType
    request_id: str | UnsetType
    trace_id: str | UnsetType
    client: str | UnsetType
    transport: str
    model: str | UnsetType
    upstream_model: str | UnsetType
    endpoint: str | UnsetType
    dialect: str | UnsetType
    outcome: str
    error: str | UnsetType
    cause: str | UnsetType
    warm_up: bool | UnsetType
    attempts: int
    items_in: int
    items_out: int
    bytes_in: int
    bytes_history: int
    bytes_upstream: int
    bytes_out: int
    events_out: int
    left_out: list[str] | UnsetType
    tokens_in: int
    tokens_cached: int
    tokens_out: int
    client_s: float | UnsetType
    tools: bool | UnsetType
    parse_s: float
    queued_s: float
    chain_s: float
    prepare_s: float
    translate_s: float
    connect_s: float | UnsetType
    upstream_s: float
    stall_s: float | UnsetType
    store_s: float
    send_s: float
    first_token_s: float | UnsetType
    total_s: float | UnsetType


class SessionLine(Line):
    """A session."""

    session: str
    client: str | UnsetType
    turns: int
    errors: int
    bytes_in: int
    bytes_out: int
    close_code: int | UnsetType
    reason: str | UnsetType
    duration_s: float | UnsetType


class PassedLine(Line):
    """A request that was passed on as it came."""

    method: str
    path: str
    request_id: str | UnsetType
    trace_id: str | UnsetType
    client: str | UnsetType
    endpoint: str | UnsetType
    outcome: str
    status: int | UnsetType
    error: str | UnsetType
    bytes_in: int
    bytes_out: int
    total_s: float | UnsetType


def turn_line(record: TurnRecord, timestamp: str, level: str) -> TurnLine:
    """The line of a turn, written at `timestamp`."""
    # Written out, and not by `_since`: of thirty thousand calls a second most are saved.
    parse, queue, chain, prepare, translate, connect, upstream, stall, store, send = record.stages()
    received_s, previous_end_s, left_out = record.received_s, record.previous_end_s, record.left_out
    first_output_s, ended_s = record.first_output_s, record.ended_s
    return TurnLine(
        "turn",
        level,
        timestamp,
        record.response,
        record.parent[:64] or UNSET,
        record.session or UNSET,
        record.request_id[:128] or UNSET,
        record.trace_id or UNSET,
        record.client or UNSET,
        record.transport,
        record.model[:128] or UNSET,
        record.upstream_model[:128] or UNSET,
        record.endpoint or UNSET,
        record.dialect or UNSET,
        record.outcome,
        record.error or UNSET,
        record.cause[:300] if record.cause else UNSET,
        record.warm_up or UNSET,
        record.attempts,
        record.items_in,
        record.items_out,
        record.bytes_in,
        record.bytes_history,
        record.bytes_upstream,
        record.bytes_out,
        record.events_out,
        _named(left_out) if left_out else UNSET,
        record.tokens_in,
        record.tokens_cached,
        record.tokens_out,
        UNSET if previous_end_s is None else ((received_s - previous_end_s) * 1e6 + 0.5) // 1 / 1e6,
        record.answers_calls or UNSET,
        (parse * 1e6 + 0.5) // 1 / 1e6,
        (queue * 1e6 + 0.5) // 1 / 1e6,
        (chain * 1e6 + 0.5) // 1 / 1e6,
        (prepare * 1e6 + 0.5) // 1 / 1e6,
        (translate * 1e6 + 0.5) // 1 / 1e6,
        (connect * 1e6 + 0.5) // 1 / 1e6 if connect else UNSET,
        (upstream * 1e6 + 0.5) // 1 / 1e6,
        (stall * 1e6 + 0.5) // 1 / 1e6 if stall else UNSET,
        (store * 1e6 + 0.5) // 1 / 1e6,
        (send * 1e6 + 0.5) // 1 / 1e6,
        UNSET if first_output_s is None else ((first_output_s - received_s) * 1e6 + 0.5) // 1 / 1e6,
        UNSET if ended_s is None else ((ended_s - received_s) * 1e6 + 0.5) // 1 / 1e6,
    )


def session_line(record: SessionRecord, timestamp: str) -> SessionLine:
    """The line of a session, written at `timestamp`."""
    return SessionLine(
        "session",
        "info",
        timestamp,
        record.id,
        record.client or UNSET,
        record.turns,
        record.errors,
        record.bytes_in,
        record.bytes_out,
        record.close_code or UNSET,
        record.reason or UNSET,
        _since(record.opened_s, record.ended_s),
    )


def passed_line(record: PassedRecord, timestamp: str) -> PassedLine:
    """The line of a passed, written at `timestamp`."""
    return PassedLine(
        "passed",
        "info",
        timestamp,
        record.method,
        record.path[:128],
        record.request_id[:128] or UNSET,
        record.trace_id or UNSET,
        record.client or UNSET,
        record.endpoint or UNSET,
        record.outcome,
        record.status or UNSET,
        record.error or UNSET,
        record.bytes_in,
        record.bytes_out,
        _since(record.received_s, record.ended_s),
    )


def _named(left_out: Sequence[tuple[str, str]]) -> list[str]:
    return [f"{what} {name[:64]}" for what, name in left_out[:32]]


def _since(start_s: float | None, end_s: float | None) -> float | UnsetType:
    # `round` and `int` would take several times as long.
    return UNSET if start_s is None or end_s is None else ((end_s - start_s) * 1e6 + 0.5) // 1 / 1e6
