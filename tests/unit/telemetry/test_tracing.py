"""Spans that need no server: what clients choose is bounded, what does not fit is dropped, nothing waits."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Sequence

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from proxy.settings import Endpoint
from proxy.telemetry.observer import SessionRecord, TurnRecord
from proxy.telemetry.span_attributes import server_of
from proxy.telemetry.tracing import Tracing, _traces_url


class Kept(SpanExporter):
    """An exporter that keeps what it is given, and waits while it is `held`."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []
        self.free = threading.Event()
        self.entered = threading.Event()
        self.free.set()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.entered.set()
        self.free.wait(10)
        self.spans += spans
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        self.free.set()


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
async def tracing(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Tracing]:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "64")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "8")
    tracing = Tracing(kept, ALWAYS_ON, Resource.create(), {"default": server_of(Endpoint())})
    yield tracing
    await tracing.aclose()


def ended(tracing: Tracing, **members: object) -> TurnRecord:
    """A turn that has begun and ended."""
    record = TurnRecord("resp_1", "websocket", 1.0, endpoint="default", outcome="completed")
    tracing.turn_started(record)
    for name, value in members.items():
        setattr(record, name, value)
    record.ended_s = 2.0
    tracing.turn_ended(record)
    return record


async def test_what_clients_choose_is_bounded_and_can_be_sent(tracing: Tracing, kept: Kept) -> None:
    bad = "\udcff" + "x" * 1000
    ended(tracing, model=bad, parent=bad, upstream_model=bad)
    await tracing.aclose()
    [span] = kept.spans
    assert span.attributes is not None
    assert span.name == "chat"  # no name of a model that only the client knows
    assert len(encode_spans(kept.spans).SerializeToString()) < 1500
    assert max(len(str(value)) for value in span.attributes.values()) == 128


async def test_a_known_model_names_the_span(tracing: Tracing, kept: Kept) -> None:
    ended(tracing, model="mine", upstream_model="theirs", model_known=True)
    await tracing.aclose()
    assert [span.name for span in kept.spans] == ["chat theirs"]


async def test_an_exporter_that_hangs_holds_nothing_up_and_fills_no_memory(tracing: Tracing, kept: Kept) -> None:
    kept.free.clear()
    for _ in range(1000):
        ended(tracing)
    assert kept.entered.wait(10)
    for _ in range(1000):
        ended(tracing)
    kept.free.set()
    await tracing.aclose()
    assert len(kept.spans) < 1000 + 64 + 8
    assert kept.spans


async def test_a_session_that_ended_is_forgotten(tracing: Tracing, kept: Kept) -> None:
    record = SessionRecord("sess_1", 1.0, ended_s=2.0, reason="client_stalled")
    tracing.session_opened(record)
    tracing.session_ended(record)
    assert not tracing._sessions
    ended(tracing, session="sess_1")
    await tracing.aclose()
    session, turn = kept.spans
    assert (session.name, session.status.is_ok) == ("session", False)
    assert turn.links == ()


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("", None),
        ("http://collector:4318", "http://collector:4318/v1/traces"),
        ("https://collector/otlp", "https://collector/otlp/v1/traces"),
        ("http://collector:4318/v1/traces", "http://collector:4318/v1/traces"),
    ],
)
def test_where_traces_go(given: str, url: str | None) -> None:
    assert _traces_url(given) == url


@pytest.mark.parametrize(
    ("profile", "provider"),
    [("auto", "openai"), ("xai", "x_ai"), ("vllm", "vllm"), ("./mine.toml", "openai"), ("generic", "openai")],
)
def test_who_serves(profile: str, provider: str) -> None:
    server = server_of(Endpoint(url="https://gpu.example/v1", profile=profile))
    assert server.turn["gen_ai.provider.name"] == provider
    assert (server.turn["server.address"], server.attempt["server.port"]) == ("gpu.example", 443)
