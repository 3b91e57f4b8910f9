"""Which trace a turn, a session or a request that is passed on belongs to, by what its client says. Pure.

A create on a WebSocket has no headers of its own: Codex puts them into `client_metadata` under names of its own; the
plain names are taken there too. What a create says counts for its turn, otherwise what the upgrade's headers say.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from proxy.telemetry.observer import PassedRecord, SessionRecord, TurnRecord
from proxy.wire.client_events import Create
from proxy.wire.trace_context import is_sampled, read_traceparent, read_tracestate, trace_of


class _Metadata(msgspec.Struct):
    ws_request_header_traceparent: str | None = None
    ws_request_header_tracestate: str | None = None
    traceparent: str | None = None
    tracestate: str | None = None


_METADATA = msgspec.json.Decoder(_Metadata)
_NOTHING = _Metadata()


def join_trace(
    record: SessionRecord | TurnRecord | PassedRecord, headers: Mapping[str, str], create: Create | None = None
) -> None:
    """Note in the record which trace its client names, if any. `headers` have lower-case names."""
    told = _NOTHING if create is None else _told(create)
    if told is _NOTHING and "traceparent" not in headers:
        return
    for parent, state in (
        (told.ws_request_header_traceparent, told.ws_request_header_tracestate),
        (told.traceparent, told.tracestate),
        (headers.get("traceparent"), headers.get("tracestate")),
    ):
        if parent and (traceparent := read_traceparent(parent)):
            record.traceparent, record.tracestate = traceparent, read_tracestate(state or "")
            record.trace_id, record.sampled = trace_of(traceparent), is_sampled(traceparent)
            return


def _told(create: Create) -> _Metadata:
    raw = create.raw("client_metadata")
    if raw is None or b"traceparent" not in raw:
        return _NOTHING
    try:
        return _METADATA.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return _NOTHING
