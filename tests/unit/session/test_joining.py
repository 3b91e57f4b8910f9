"""Which trace a turn joins: what its create says, else what the headers say, and only what is valid."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.session.joining import join_trace
from proxy.telemetry.observer import TurnRecord
from proxy.wire.client_events import Create, Limits, parse_create
from proxy.wire.codec import Raw, encode

HEADER, CODEX, PLAIN = (f"00-{digit * 32}-{'1' * 16}-01" for digit in "abc")
BAD = "00-nothing-01"


def create(metadata: Any) -> Create:
    """A create with this `client_metadata`."""
    members = {"input": Raw(b'"x"'), "client_metadata": Raw(encode(metadata))}
    return parse_create(members, 1, Limits())


def joined(headers: dict[str, str], metadata: Any = None) -> tuple[str, str, str]:
    """What the record says then."""
    record = TurnRecord("resp", "websocket", 0.0)
    join_trace(record, headers, None if metadata is None else create(metadata))
    return record.trace_id, record.traceparent, record.tracestate


@pytest.mark.parametrize(
    ("headers", "metadata", "digit", "state"),
    [
        ({"traceparent": HEADER, "tracestate": "a=1"}, None, "a", "a=1"),
        ({"traceparent": HEADER, "tracestate": "a=1"}, {"thread_id": "t"}, "a", "a=1"),
        ({"traceparent": HEADER, "tracestate": "A=1"}, None, "a", ""),
        ({"traceparent": HEADER, "tracestate": "a=1"}, {"ws_request_header_traceparent": CODEX}, "b", ""),
        (
            {"traceparent": HEADER},
            {"ws_request_header_traceparent": CODEX, "ws_request_header_tracestate": "b=1", "traceparent": PLAIN},
            *("b", "b=1"),
        ),
        ({}, {"traceparent": PLAIN, "tracestate": "c=1"}, "c", "c=1"),
        ({"traceparent": HEADER}, {"traceparent": BAD}, "a", ""),
        ({"traceparent": HEADER}, {"traceparent": 5}, "a", ""),
        ({"traceparent": HEADER}, ["traceparent"], "a", ""),
        ({"traceparent": HEADER}, "traceparent", "a", ""),
    ],
)
def test_what_is_joined(headers: dict[str, str], metadata: Any, digit: str, state: str) -> None:
    assert joined(headers, metadata) == (digit * 32, f"00-{digit * 32}-{'1' * 16}-01", state)


@pytest.mark.parametrize("headers", [{}, {"traceparent": BAD}, {"tracestate": "a=1"}])
def test_nothing_to_join(headers: dict[str, str]) -> None:
    assert joined(headers, {"traceparent": ""}) == ("", "", "")
