"""Metrics for Prometheus; the only file that imports its client library.

A turn reports once, at its end. Labels come from closed sets: outcomes, transports, dialects, kinds of failure, and
the names of configured endpoints; never from what a client sends.
"""

from __future__ import annotations

from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from proxy.telemetry.observer import PassedRecord, SessionRecord, TurnRecord

# From a tenth of a millisecond, which a delta turn costs here, to the minutes that a long answer takes.
_SECONDS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
    0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600,
)  # fmt: skip


_Family = TypeVar("_Family", Counter, Histogram)


class Metrics:
    """An `Observer` that counts."""

    def __init__(self, version: str) -> None:
        registry = self._registry = CollectorRegistry()
        self._children: dict[tuple[Counter | Histogram, tuple[str, ...]], Any] = {}
        build = Gauge("loopline_build_info", "The version that runs, as a label.", ["version"], registry=registry)
        build.labels(version).set(1)
        self._sessions_open = Gauge("loopline_session_open", "WebSockets open now.", registry=registry)
        self._sessions = Counter(
            "loopline_session_ended_total", "WebSockets that ended, by close code.", ["code"], registry=registry
        )
        self._running = Gauge("loopline_turn_running", "Turns that run now.", registry=registry)
        self._turns = Counter(
            "loopline_turn_ended_total",
            "Turns that ended, by transport, dialect and outcome.",
            ["transport", "dialect", "outcome"],
            registry=registry,
        )
        self._first_token = Histogram(
            "loopline_turn_first_token_seconds",
            "From the create's arrival to the first output.",
            ["dialect"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._turn = Histogram(
            "loopline_turn_duration_seconds",
            "From the create's arrival to the terminal event.",
            ["dialect"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._proxy = Histogram(
            "loopline_turn_proxy_seconds",
            "The part of a turn that Loopline took before the upstream was asked and after it had answered.",
            ["dialect"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._saved = Counter(
            "loopline_turn_history_saved_bytes_total",
            "History that was sent upstream and that the client did not have to send.",
            registry=registry,
        )
        self._left_out = Counter(
            "loopline_translate_left_out_total",
            "What upstreams could not be told (tool, field, item, part, reasoning), and calls that were not allowed.",
            ["what"],
            registry=registry,
        )
        tokens = Counter(
            "loopline_turn_tokens_total", "Tokens as upstreams counted them.", ["direction"], registry=registry
        )
        self._tokens_in, self._tokens_cached, self._tokens_out = map(tokens.labels, ("input", "cached", "output"))
        self._upstream_errors = Counter(
            "loopline_upstream_errors_total",
            "Failures of upstreams, by endpoint and kind.",
            ["endpoint", "kind"],
            registry=registry,
        )
        self._passed = Counter(
            "loopline_passthrough_total",
            "Requests passed on as they came, by outcome and class of status.",
            ["outcome", "status"],
            registry=registry,
        )
        self._unreadable = Counter(
            "loopline_http_unreadable_total",
            "Requests that could not be read as HTTP, by reason (malformed, too_large).",
            ["reason"],
            registry=registry,
        )
        self._crashes = Counter("loopline_process_crashes_total", "Errors of Loopline itself.", registry=registry)

    def render(self) -> tuple[bytes, str]:
        """The exposition text and its content type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    def session_opened(self, record: SessionRecord) -> None:
        self._sessions_open.inc()

    def session_ended(self, record: SessionRecord) -> None:
        self._sessions_open.dec()
        self._sessions.labels(_close_label(record.close_code)).inc()

    def turn_started(self, record: TurnRecord) -> None:
        self._running.inc()

    def turn_ended(self, record: TurnRecord) -> None:
        self._running.dec()
        dialect = record.dialect or "none"
        self._child(self._turns, record.transport, dialect, record.outcome).inc()
        self._saved.inc(record.bytes_history)
        for what, _ in record.left_out:
            self._child(self._left_out, what).inc()
        self._tokens_in.inc(record.tokens_in)
        self._tokens_cached.inc(record.tokens_cached)
        self._tokens_out.inc(record.tokens_out)
        if record.warm_up or record.outcome not in ("completed", "incomplete") or record.ended_s is None:
            return
        self._child(self._turn, dialect).observe(record.ended_s - record.received_s)
        if record.first_output_s is not None:
            self._child(self._first_token, dialect).observe(record.first_output_s - record.received_s)
        if record.started_s is not None and record.sent_s is not None and record.upstream_end_s is not None:
            before = record.sent_s - record.started_s
            self._child(self._proxy, dialect).observe(before + record.ended_s - record.upstream_end_s)

    def _child(self, family: _Family, *labels: str) -> _Family:
        """A family's child, looked up once: labels() takes a lock and checks each time."""
        child = self._children.get((family, labels))
        if child is None:
            child = self._children[family, labels] = family.labels(*labels)
        return child

    def passed(self, record: PassedRecord) -> None:
        family = f"{record.status // 100}xx" if 100 <= record.status < 600 else "none"
        self._child(self._passed, record.outcome, family).inc()

    def upstream_failed(self, endpoint: str, kind: str) -> None:
        self._upstream_errors.labels(endpoint or "none", kind).inc()

    def unreadable(self, why: str) -> None:
        self._child(self._unreadable, why).inc()

    def crashed(self, where: str, error: BaseException) -> None:
        self._crashes.inc()


def _close_label(code: int | None) -> str:
    # A client may send any code from 3000 to 4999: those are one label.
    return str(code) if code is not None and 1000 <= code <= 1015 else "other"
