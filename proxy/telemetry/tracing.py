"""Traces: an observer that makes spans of sessions, turns, requests that are passed on, and attempts.

It hands them to OpenTelemetry's exporter. The only file that imports OpenTelemetry, and imported only where tracing is
on (`proxy/wiring.py`). While a turn runs there are only its ids; its spans are made at its end, from its record.
Attributes are those of the GenAI and HTTP conventions where these have one, else ours (`loopline.`); content, headers
and addresses of clients are in none.
Source: OpenTelemetry semantic conventions for GenAI 0.1 (client inference), HTTP 1.44 (client spans).
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import structlog
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import Decision, ParentBased, Sampler, TraceIdRatioBased
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
    set_span_in_context,
)

from proxy import __version__
from proxy.errors import kind_of
from proxy.settings import BadSetting, Settings
from proxy.telemetry.observer import NoObserver, PassedRecord, SessionRecord, TurnRecord
from proxy.telemetry.span_attributes import (
    Server,
    Value,
    cut,
    known_method,
    named,
    of_passed,
    of_session,
    of_turn,
    server_of,
)

# How long the end of the process waits for what is still to be sent, and how seldom a collector's failure is told.
_FLUSH_S = 5.0
_QUIET_S = 60.0
_PATH = "/v1/traces"
_LOGGERS = ("opentelemetry.exporter", "opentelemetry.sdk")

_UNSAMPLED, _SAMPLED = TraceFlags(0), TraceFlags(TraceFlags.SAMPLED)
_NO_CONTEXT = Context()
_UNSET, _ERROR = Status(), Status(StatusCode.ERROR)
_SCOPE = InstrumentationScope("loopline", __version__)


@dataclass(slots=True)
class _Attempt:
    span_id: int
    begun_s: float
    status: int = 0
    error: str = ""
    ended_s: float | None = None


@dataclass(slots=True)
class _Trace:
    """The ids of a span that will be made, and of those below it. An `AttemptWatch`.

    `offset_ns` leads from the monotonic clock to the time since 1970: one for all of them, so that they keep their
    order. `session` is what the span is linked to.
    """

    trace: str
    span_id: int
    sampled: bool
    parent: SpanContext | None
    state: str
    offset_ns: int
    session: _Trace | None = None
    attempts: list[_Attempt] = field(default_factory=list)
    _links: tuple[Link, ...] = ()

    def begun(self) -> Sequence[tuple[str, str]]:
        attempt = _Attempt(_span_id(), time.monotonic())
        self.attempts.append(attempt)
        told = ("traceparent", f"00-{self.trace}-{attempt.span_id:016x}-0{self.sampled:d}")
        return (told, ("tracestate", self.state)) if self.state else (told,)

    def answered(self, status: int) -> None:
        self.attempts[-1].status = status

    def failed(self, kind: str) -> None:
        attempt = self.attempts[-1]
        attempt.error, attempt.ended_s = kind, time.monotonic()

    def context(self, span_id: int) -> SpanContext:
        """Of its own span or one below it."""
        flags = _SAMPLED if self.sampled else _UNSAMPLED
        state = TraceState.from_header([self.state]) if self.state else None
        return SpanContext(int(self.trace, 16), span_id, False, flags, state)

    def links(self) -> tuple[Link, ...]:
        """To its own span, for those that belong to it; made once."""
        if not self._links:
            self._links = (Link(self.context(self.span_id)),)
        return self._links

    def at_ns(self, at_s: float) -> int:
        """A moment of the monotonic clock in nanoseconds since 1970."""
        return self.offset_ns + int(at_s * 1e9)


class Tracing(NoObserver):
    """An `Observer` that makes spans. Close it with `aclose`.

    `servers` tells of each endpoint, by its name, where it is.
    """

    def __init__(
        self, exporter: SpanExporter, sampler: Sampler, resource: Resource, servers: Mapping[str, Server]
    ) -> None:
        self._exporter = exporter
        self._processor = BatchSpanProcessor(exporter)
        self._sampler = sampler
        self._resource = resource
        self._servers = servers
        self._sessions: dict[str, _Trace] = {}
        self._failures = _Failures()

    async def aclose(self) -> None:
        """Send what is left, for at most 5 s; what a collector has not taken then is lost."""
        ending = threading.Thread(target=self._processor.shutdown, name="last traces", daemon=True)
        ending.start()
        await asyncio.to_thread(ending.join, _FLUSH_S)
        if ending.is_alive():
            self._exporter.shutdown()  # no more retries
        self._failures.close()

    # --- Observer ----------------------------------------------------------------------------------------------------

    def session_opened(self, record: SessionRecord) -> None:
        trace = self._sessions[record.id] = self._begin(record.traceparent, record.tracestate)
        record.trace_id = trace.trace

    def session_ended(self, record: SessionRecord) -> None:
        trace = self._sessions.pop(record.id, None)
        if trace is None or not trace.sampled:
            return
        attributes = of_session(record)
        ended_s = record.opened_s if record.ended_s is None else record.ended_s
        self._end(trace, "session", attributes, (record.opened_s, ended_s))

    def turn_started(self, record: TurnRecord) -> None:
        trace = record.watch = self._begin(record.traceparent, record.tracestate)
        trace.session = self._sessions.get(record.session)
        record.trace_id, record.sampled = trace.trace, trace.sampled

    def turn_ended(self, record: TurnRecord) -> None:
        trace = record.watch
        if not isinstance(trace, _Trace) or not trace.sampled or record.ended_s is None:
            return
        server = self._servers.get(record.endpoint)
        attributes = of_turn(record)
        if server is not None:
            attributes |= server.turn
            last_s = record.ended_s if record.upstream_end_s is None else record.upstream_end_s
            self._end_attempts(trace, server, "POST", last_s, record.error)
        events = []
        if record.first_output_s is not None:
            events.append(Event("first_token", None, trace.at_ns(record.first_output_s)))
            if record.sent_s is not None:
                attributes["gen_ai.response.time_to_first_chunk"] = record.first_output_s - record.sent_s
        # The names of spans must be few: a model that only a client knows is not in one.
        name = f"chat {cut(record.upstream_model)}" if record.model_known else "chat"
        times = record.received_s, record.ended_s
        self._end(trace, name, attributes, times, events)

    def passing(self, record: PassedRecord) -> None:
        trace = record.watch = self._begin(record.traceparent, record.tracestate)
        record.trace_id, record.sampled = trace.trace, trace.sampled

    def passed(self, record: PassedRecord) -> None:
        trace, server = record.watch, self._servers.get(record.endpoint)
        if not isinstance(trace, _Trace) or not trace.sampled or record.ended_s is None:
            return
        attributes, method = of_passed(record), known_method(record.method)
        if server is not None:
            self._end_attempts(trace, server, method, record.ended_s, record.error)
        # The names of spans must be few: a path is not in one.
        self._end(trace, named(method), attributes, (record.received_s, record.ended_s))

    # --- Spans -------------------------------------------------------------------------------------------------------

    def _begin(self, traceparent: str, tracestate: str) -> _Trace:
        """The ids of a new span, below the client's if there is one, and whether it is to be sent."""
        if traceparent:
            trace_id, flags = int(traceparent[3:35], 16), TraceFlags(int(traceparent[-2:], 16))
            parent = SpanContext(trace_id, int(traceparent[36:52], 16), True, flags)
            context = set_span_in_context(NonRecordingSpan(parent), _NO_CONTEXT)
        else:
            trace_id = random.getrandbits(128) or 1  # all zeros are no id
            parent, context = None, _NO_CONTEXT
        decision = self._sampler.should_sample(context, trace_id, "chat").decision
        sampled = decision is Decision.RECORD_AND_SAMPLE
        offset_ns = time.time_ns() - time.monotonic_ns()
        return _Trace(f"{trace_id:032x}", _span_id(), sampled, parent, tracestate, offset_ns)

    def _end(
        self,
        trace: _Trace,
        name: str,
        attributes: Mapping[str, Value],
        times: tuple[float, float],
        events: Sequence[Event] = (),
    ) -> None:
        self._send(
            ReadableSpan(
                name=name,
                context=trace.context(trace.span_id),
                parent=trace.parent,
                resource=self._resource,
                attributes=attributes,
                events=events,
                links=() if trace.session is None else trace.session.links(),
                kind=SpanKind.SERVER,
                status=_ERROR if "error.type" in attributes else _UNSET,
                start_time=trace.at_ns(times[0]),
                end_time=trace.at_ns(times[1]),
                instrumentation_scope=_SCOPE,
            )
        )

    def _end_attempts(self, trace: _Trace, server: Server, method: str, last_s: float, failure: str) -> None:
        """`last_s` is when the last of them ended, `failure` the kind of what ended all."""
        parent = trace.context(trace.span_id)
        for number, attempt in enumerate(trace.attempts):
            attributes: dict[str, Value] = {"http.request.method": method, **server.attempt}
            if attempt.status:
                attributes["http.response.status_code"] = attempt.status
            if number:
                attributes["http.request.resend_count"] = number
            error = attempt.error
            if not error and attempt.status and not 200 <= attempt.status < 400:
                error = str(attempt.status)
            elif not error and failure.startswith("upstream"):
                error = failure  # it failed in the middle of its answer
            if error:
                attributes["error.type"] = error
            self._send(
                ReadableSpan(
                    name=named(method),
                    context=trace.context(attempt.span_id),
                    parent=parent,
                    resource=self._resource,
                    attributes=attributes,
                    kind=SpanKind.CLIENT,
                    status=_ERROR if error else _UNSET,
                    start_time=trace.at_ns(attempt.begun_s),
                    end_time=trace.at_ns(last_s if attempt.ended_s is None else attempt.ended_s),
                    instrumentation_scope=_SCOPE,
                )
            )

    def _send(self, span: ReadableSpan) -> None:
        self._processor.on_end(span)


def _span_id() -> int:
    return random.getrandbits(64) or 1


# --- What is set up once ---------------------------------------------------------------------------------------------


def open_tracing(settings: Settings, headers: Mapping[str, str]) -> Tracing:
    """Tracing as the settings say, and OpenTelemetry's own variables (OTEL_*) where they say nothing.

    `headers` go to the collector. Raises `BadSetting` where those variables hold what OpenTelemetry refuses.
    """
    tracing = settings.tracing
    ratio = ParentBased(TraceIdRatioBased(tracing.sample_ratio)) if "sample_ratio" in tracing.model_fields_set else None
    try:
        exporter = OTLPSpanExporter(endpoint=_traces_url(tracing.endpoint), headers=headers)
        provider = TracerProvider(sampler=ratio, resource=_resource(tracing.service_name), shutdown_on_exit=False)
        servers = {endpoint.name: server_of(endpoint) for endpoint in settings.endpoints}
        return Tracing(exporter, provider.sampler, provider.resource, servers)
    except (ValueError, RuntimeError, OSError) as error:
        raise BadSetting(f"tracing: OpenTelemetry refuses one of its variables (OTEL_*): {error}") from error


def _traces_url(url: str) -> str | None:
    return None if not url else url if url.endswith(_PATH) else url + _PATH


class _Resource(Resource):
    """Whose spans these are. OpenTelemetry asks for its hash with each span, and would write it as JSON for that."""

    def __init__(self, made: Resource) -> None:
        super().__init__(made.attributes, made.schema_url)
        self._hash = super().__hash__()

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or super().__eq__(other)


def _resource(name: str) -> Resource:
    resource = Resource.create({SERVICE_VERSION: __version__})
    if name or str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: name or "loopline"}))
    return _Resource(resource)


class _Failures(logging.Handler):
    """What OpenTelemetry says of its failures, as one warning now and then: it says it for every batch and retry.

    Its words are not repeated: they may quote the collector's address with what is secret in it, and its answers.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._said_s: float | None = None
        self._loggers = [logging.getLogger(name) for name in _LOGGERS]
        for logger in self._loggers:
            logger.addHandler(self)
            logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        now = time.monotonic()
        if self._said_s is not None and now - self._said_s < _QUIET_S:
            return
        self._said_s = now
        args = record.args if isinstance(record.args, tuple) else ()
        cause = next((kind_of(each) for each in args if isinstance(each, BaseException)), None)
        status = next((each for each in args if isinstance(each, int)), None)
        said = record.msg.partition("%")[0].strip()  # the words around what is filled in
        structlog.get_logger().warning("traces are not taken", said=said, cause=cause, status=status)

    def close(self) -> None:
        for logger in self._loggers:
            logger.removeHandler(self)
            logger.propagate = True
        super().close()
