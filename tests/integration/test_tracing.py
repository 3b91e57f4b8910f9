"""Traces, as a collector receives them: spans, links, parents, times, and what upstreams are told of them."""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import structlog

from proxy.app import Loopline
from proxy.settings import BadSetting, Settings, load
from proxy.telemetry import tracing
from tests.house import BEARER, House, house_before, open_house, settings_for
from tests.otlp_receiver import Received, Receiver, otlp_receiver
from tests.program import environment
from tests.recording_upstream import Answer, Exchange, recording_upstream
from tests.wire_client import function, tool_output, user

ROOT = Path(__file__).resolve().parents[2]
OF_SOCKET, OF_TURN, OF_POST = (f"{digit * 32}" for digit in "abc")
PARENT = "1" * 16
STATE = "vendor=value,other@system=1"
SECRETS = ("sk-very-secret", "the user's words", "the model's words", "tool result words", "Paris", "org-secret")


def traceparent(trace: str, flags: str = "01") -> str:
    """What a client says."""
    return f"00-{trace}-{PARENT}-{flags}"


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the machine says of OpenTelemetry is not what the tests say."""
    for name in ("OTEL_TRACES_SAMPLER", "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with otlp_receiver() as running:
        yield running


@asynccontextmanager
async def traced(
    receiver: Receiver, dialect: str = "chat", extra: Mapping[str, object] | None = None
) -> AsyncIterator[House]:
    """A house that is traced; at its end the receiver has everything."""
    settings = {"tracing.enabled": True, "tracing.endpoint": receiver.url, **(extra or {})}
    async with open_house(dialect, settings) as house:
        yield house


# --- One agent loop --------------------------------------------------------------------------------------------------


async def test_the_trace_of_an_agent_loop(dialect: str, receiver: Receiver) -> None:
    headers = {"traceparent": traceparent(OF_SOCKET), "tracestate": STATE, "OpenAI-Organization": "org-secret"}
    metadata = {"ws_request_header_traceparent": traceparent(OF_TURN), "thread_id": "t"}
    tools = [function()]
    async with traced(receiver, dialect) as house:
        async with house.connect("sk-very-secret", headers=headers) as client:
            turn = await client.turn('the user\'s words [[loop 2 get_weather {"city": "Paris"}]]', tools=tools)
            for extra in ({}, {"client_metadata": metadata}):
                output = [tool_output(turn.calls[0]["call_id"], "tool result words")]
                turn = await client.turn(output, previous_response_id=turn.id, tools=tools, **extra)
            assert turn.text == "Done."
            repeated = [user('[[say "the model\'s words"]] [[drop 0 once]]')]
            await client.turn(repeated, previous_response_id=turn.id)
        headers = {**BEARER, "traceparent": traceparent(OF_POST)}
        async with house.post({"input": "[[say 2]]", "stream": True}, headers=headers) as response:
            await response.read()
        records = house.watcher.turns
        said = [request.headers for request in house.upstream.requests]

    [session] = receiver.named("session")
    turns = receiver.named("chat simulated")
    attempts = [receiver.below(turn) for turn in turns]
    assert [len(each) for each in attempts] == [1, 1, 1, 2, 1]
    assert len(receiver.spans) == 1 + 5 + 6
    assert [turn.trace for turn in turns] == [OF_SOCKET, OF_SOCKET, OF_TURN, OF_SOCKET, OF_POST]
    assert [record.trace_id for record in records] == [turn.trace for turn in turns]
    assert (session.trace, session.parent) == (OF_SOCKET, PARENT)
    assert {turn.parent for turn in turns} == {PARENT}
    assert [turn.links for turn in turns] == [[(session.trace, session.id)]] * 4 + [[]]

    flat = [attempt for each in attempts for attempt in each]
    assert [headers.get("traceparent") for headers in said] == [attempt.traceparent for attempt in flat]
    assert [headers.get("tracestate") for headers in said] == [STATE, STATE, None, STATE, STATE, None]
    for span, each, record in zip(turns, attempts, records, strict=True):
        check_times(span, each, (record.ended_s or 0.0) - record.received_s)
        check_turn(span, record.response, dialect)
        assert all(attempt.trace == span.trace for attempt in each)
        assert each[-1].attributes["http.response.status_code"] == 200
        assert not span.failed
        assert not each[-1].failed
        assert (each[-1].raw.kind, span.raw.kind) == (span.raw.SPAN_KIND_CLIENT, span.raw.SPAN_KIND_SERVER)
    first, second = attempts[3]
    assert (first.failed, first.attributes["error.type"]) == (True, "upstream_closed")
    assert "http.response.status_code" not in first.attributes
    assert second.attributes["http.request.resend_count"] == 1
    assert turns[3].attributes["loopline.bytes_upstream"] > turns[3].attributes["loopline.bytes_in"]
    assert turns[1].attributes["gen_ai.request.previous_response.id"] == records[0].response
    assert (session.attributes["loopline.turns"], session.attributes["loopline.close_code"]) == (4, 1000)
    for secret in SECRETS:
        assert secret.encode() not in receiver.bodies, secret


def check_times(turn: Received, attempts: list[Received], took_s: float) -> None:
    """The turn lasts as long as its record says; what is below it lies within it, one attempt after another."""
    raw = turn.raw
    assert raw.end_time_unix_nano - raw.start_time_unix_nano == pytest.approx(took_s * 1e9, abs=2000)
    moments = [raw.start_time_unix_nano]
    for attempt in attempts:
        moments += [attempt.raw.start_time_unix_nano, attempt.raw.end_time_unix_nano]
    moments.append(raw.end_time_unix_nano)
    assert moments == sorted(moments)
    [event] = raw.events
    assert event.name == "first_token"
    assert moments[-3] < event.time_unix_nano <= moments[-1]
    stages = [value for name, value in turn.attributes.items() if name.startswith("loopline.stage.")]
    assert sum(stages) == pytest.approx(took_s, rel=0.01)


def check_turn(turn: Received, response: str, dialect: str) -> None:
    """What the conventions ask for."""
    told = turn.attributes
    wanted = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "simulated",
        "gen_ai.response.model": "simulated",
        "gen_ai.response.id": response,
        "gen_ai.request.stream": True,
        "server.address": "127.0.0.1",
        "loopline.outcome": "completed",
        "loopline.dialect": dialect,
    }
    assert {name: told.get(name) for name in wanted} == wanted
    assert "error.type" not in told
    assert told["gen_ai.usage.input_tokens"] > 0
    assert told["gen_ai.usage.output_tokens"] > 0
    assert told["server.port"] > 0
    assert told["gen_ai.response.time_to_first_chunk"] > 0
    assert turn.resource["service.name"] == "loopline"
    assert turn.resource["service.version"]


async def test_without_a_client_that_traces_each_turn_is_a_trace_of_its_own(receiver: Receiver) -> None:
    async with traced(receiver) as house, house.connect() as client:
        first = await client.says("one")
        await client.says("two", previous_response_id=first.id)
    [session] = receiver.named("session")
    turns = receiver.named("chat")
    assert len({session.trace, *(turn.trace for turn in turns)}) == 3
    assert {span.parent for span in (session, *turns)} == {""}
    assert [record.trace_id for record in house.watcher.turns] == [turn.trace for turn in turns]
    assert [record.trace_id for record in house.watcher.sessions] == [session.trace]


async def test_failures_are_told_by_their_kind(dialect: str, receiver: Receiver) -> None:
    async with traced(receiver, dialect) as house, house.connect() as client:
        await client.turn([user("[[fail 500]]")])
        await client.turn([user("[[say 5]] [[drop 3]]")])
        await client.turn("hello", previous_response_id="resp_unknown")
        await client.create([user("[[stall 2]]")])
        await client.until("response.output_text.delta")
        await client.send({"type": "response.cancel"})
        await client.until_ended()
    failed, dropped, refused, cancelled = receiver.named("chat")
    assert [turn.failed for turn in (failed, dropped, refused, cancelled)] == [True, True, True, False]
    kinds = [turn.attributes.get("error.type") for turn in (failed, dropped, refused, cancelled)]
    assert kinds == ["upstream_failed", "upstream_closed", "parent_not_found", None]
    outcomes = [turn.attributes["loopline.outcome"] for turn in (failed, dropped, refused, cancelled)]
    assert outcomes == ["refused", "failed", "refused", "cancelled"]
    assert [a.attributes["error.type"] for a in receiver.below(failed)] == ["500"]
    assert [a.attributes["error.type"] for a in receiver.below(dropped)] == ["upstream_closed"]
    assert receiver.below(refused) == []
    assert [a.failed for a in receiver.below(cancelled)] == [False]


# --- What is sampled, and who says so --------------------------------------------------------------------------------


async def test_what_is_not_sampled_is_not_sent_but_passed_on(receiver: Receiver) -> None:
    async with traced(receiver, extra={"tracing.sample_ratio": 0.0}) as house:
        async with house.connect() as client:
            await client.works()
            await client.says("x", client_metadata={"traceparent": traceparent(OF_TURN)})
        trace_ids = [record.trace_id for record in house.watcher.turns]
        told = [request.headers["traceparent"] for request in house.upstream.requests]
    assert [span.trace for span in receiver.named("chat")] == [OF_TURN]  # its client has begun it, and sends it
    assert [each[:35] for each in told] == [f"00-{trace}" for trace in trace_ids]
    assert [each[-2:] for each in told] == ["00", "01"]


async def test_a_client_that_does_not_sample_is_followed(receiver: Receiver) -> None:
    async with traced(receiver) as house:
        async with house.post(
            {"input": "x"}, headers={**BEARER, "traceparent": traceparent(OF_POST, "00")}
        ) as response:
            assert response.status == 200
        assert house.upstream.requests[-1].headers["traceparent"].startswith(f"00-{OF_POST}-")
        assert house.watcher.turns[0].trace_id == OF_POST
    assert receiver.spans == []


async def test_settings_win_over_variables_and_variables_over_defaults(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-one=variable,x-two=variable")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "of-the-variable")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    monkeypatch.setenv("COLLECTOR", "x-one=setting")
    variables = {"tracing.endpoint": "", "tracing.headers_env": "COLLECTOR"}
    settings = {"tracing.sample_ratio": 1.0, "tracing.service_name": "of-the-setting"}
    monkeypatch.setattr("tests.house.settings_for", settings_with_environment)
    for given in (variables, {**variables, **settings}, {**variables, "tracing.sample_ratio": 1.0}):
        async with traced(receiver, extra=given) as house, house.connect() as client:
            await client.works()
    names = [span.resource["service.name"] for span in receiver.named("chat")]
    assert names == ["of-the-setting", "of-the-variable"]  # the first of the three was not sampled
    assert {span.resource["deployment.environment.name"] for span in receiver.spans} == {"test"}
    assert {(headers["x-one"], headers["x-two"]) for headers in receiver.headers} == {("setting", "variable")}


def settings_with_environment(url: str, dialect: str, extra: Mapping[str, object]) -> Settings:
    """As `settings_for`, with the variable that holds headers."""
    flags = {"server.port": 0, "endpoints[0].url": url, "endpoints[0].dialect": dialect, "models.default": "simulated"}
    return load(None, {**flags, **extra}, {"COLLECTOR": "x-one=setting"})


# --- What is passed on -----------------------------------------------------------------------------------------------


def answers(status: bytes) -> Answer:
    """An upstream that answers everything so."""

    async def answer(exchange: Exchange) -> None:
        await exchange.read()
        if status:
            exchange.writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 2\r\n\r\n{}")
        else:
            exchange.writer.close()

    return answer


@pytest.mark.parametrize(
    ("status", "error", "failed"),
    [(b"200 OK", None, False), (b"404 Not Found", None, False), (b"500 No", "500", True),
     (b"", "upstream_closed", True)],
)  # fmt: skip
async def test_what_is_passed_on_makes_a_span_and_its_upstream_is_told(
    status: bytes, error: str | None, failed: bool, receiver: Receiver, log: io.BytesIO
) -> None:
    headers = {**BEARER, "traceparent": traceparent(OF_POST), "tracestate": STATE}
    settings = {"tracing.enabled": True, "tracing.endpoint": receiver.url}
    async with recording_upstream(answers(status)) as upstream:
        async with house_before(upstream.url, "chat", settings) as house:
            url = f"{house.url}/embeddings?secret=sk-very-secret"
            async with house.http.post(url, json={"input": "the user's words"}, headers=headers) as response:
                assert response.status == (int(status[:3]) if status else 502)
            [record] = house.watcher.passed_on
        said = upstream.exchanges[-1].request
    [span] = [each for each in receiver.named("POST") if each.parent == PARENT]
    [attempt] = receiver.below(span)
    assert record.trace_id == span.trace == attempt.trace == OF_POST
    assert said.values(b"traceparent") == [attempt.traceparent.encode()]
    assert said.values(b"tracestate") == [STATE.encode()]
    assert (span.raw.kind, attempt.raw.kind) == (span.raw.SPAN_KIND_SERVER, span.raw.SPAN_KIND_CLIENT)
    assert span.attributes["url.path"] == "/v1/embeddings"
    assert span.attributes.get("http.response.status_code") == response.status
    assert (span.attributes.get("error.type"), span.failed) == (error, failed)
    assert attempt.failed == (status != b"200 OK")
    assert [line["trace_id"] for line in written(log) if line["event"] == "passed"] == [OF_POST]
    for secret in SECRETS:
        assert secret.encode() not in receiver.bodies, secret


async def test_what_is_passed_on_keeps_its_headers_where_nothing_is_traced() -> None:
    headers = {**BEARER, "traceparent": traceparent(OF_POST), "tracestate": STATE}
    async with recording_upstream(answers(b"200 OK")) as upstream, house_before(upstream.url, "chat") as house:
        async with house.http.get(f"{house.url}/files", headers=headers) as response:
            assert response.status == 200
        assert house.watcher.passed_on[0].watch is None
        assert upstream.exchanges[-1].request.values(b"traceparent") == [traceparent(OF_POST).encode()]


async def test_only_traces_that_are_kept_stand_beside_histograms(receiver: Receiver) -> None:
    async with traced(receiver) as house:
        for trace, flags in ((OF_SOCKET, "00"), (OF_TURN, "01")):
            headers = {**BEARER, "traceparent": traceparent(trace, flags)}
            async with house.post({"input": "[[say 1]]"}, headers=headers) as response:
                await response.read()
            text = house.server.metrics.render("application/openmetrics-text")[0].decode()
            assert (OF_TURN in text) == (trace == OF_TURN)
            assert OF_SOCKET not in text


# --- In the background -----------------------------------------------------------------------------------------------


async def test_spans_leave_while_the_server_runs(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    async with traced(receiver) as house, house.connect() as client:
        await client.works()
        await receiver.until(lambda r: bool(r.named("chat")))


async def test_a_collector_that_is_down_costs_one_warning(
    log: io.BytesIO, monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    monkeypatch.setattr(tracing, "_FLUSH_S", 0.2)
    nobody = Receiver(url=f"http://127.0.0.1:{unused_tcp_port}")
    async with asyncio.timeout(20), traced(nobody) as house, house.connect() as client:
        for _ in range(5):
            await client.works()
    warnings = [line for line in written(log) if line["event"] == "traces are not taken"]
    assert len(warnings) == 1
    assert warnings[0]["level"] == "warning"


async def test_a_collector_that_refuses_is_told_by_its_status(receiver: Receiver, log: io.BytesIO) -> None:
    receiver.status = 401
    async with traced(receiver) as house, house.connect() as client:
        await client.works()
    [warning] = [line for line in written(log) if line["event"] == "traces are not taken"]
    assert warning["status"] == 401
    assert "the collector's words" not in str(warning)


def written(log: io.BytesIO) -> list[dict[str, object]]:
    """What was logged so far; lines are written in a thread of their own."""
    structlog.get_config()["logger_factory"].flush()
    return [json.loads(line) for line in log.getvalue().splitlines()]


# --- Off -------------------------------------------------------------------------------------------------------------

OFF = """
import asyncio, sys
from proxy.app import Loopline
from proxy.tools.simulate import Options, start
from tests.house import settings_for
from tests.wire_client import open_socket

async def main():
    async with await start(Options()) as upstream, Loopline(settings_for(upstream.url, "chat")) as server:
        async with open_socket(server.url) as client:
            await client.works()
        print([type(each).__name__ for each in server.services.observer.observers])

asyncio.run(main())
print(sorted(name for name in sys.modules if "opentelemetry" in name or name == "proxy.telemetry.tracing"))
"""


def test_off_imports_nothing_and_adds_no_observer() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", OFF], cwd=ROOT, env=environment(), capture_output=True, text=True, check=False
    )
    printed = [line for line in ran.stdout.splitlines() if line.startswith("[")]
    assert printed == ["['Metrics', 'Log', 'Recent']", "[]"], ran.stderr


@pytest.mark.parametrize("transport", ["websocket", "http"])
async def test_off_headers_pass_as_they_are_and_logs_join_the_clients_trace(
    transport: str, log: io.BytesIO, house: House
) -> None:
    headers = {**BEARER, "traceparent": traceparent(OF_SOCKET)}
    if transport == "http":
        async with house.post({"input": "[[say 1]]"}, headers=headers) as response:
            assert response.status == 200
    else:
        async with house.connect(headers={"traceparent": traceparent(OF_SOCKET)}) as client:
            await client.works()
    assert house.upstream.requests[-1].headers["traceparent"] == traceparent(OF_SOCKET)
    await house.empty()
    assert [record.trace_id for record in house.watcher.turns] == [OF_SOCKET]
    assert [line["trace_id"] for line in written(log) if line["event"] == "turn"] == [OF_SOCKET]


async def test_a_variable_switches_off_what_is_on(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    async with traced(receiver) as house, house.connect() as client:
        await client.works()
    assert not receiver.headers


async def test_what_is_not_installed_is_named_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "proxy.telemetry.tracing")
    monkeypatch.setitem(sys.modules, "opentelemetry.context", None)
    settings = settings_for("http://127.0.0.1:1/v1", "chat", {"tracing.enabled": True})
    with pytest.raises(BadSetting, match=r"^tracing\.enabled: .*pip install 'loopline\[otel\]'"):
        await Loopline(settings).__aenter__()


async def test_a_variable_that_opentelemetry_refuses_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "0")
    settings = settings_for("http://127.0.0.1:1/v1", "chat", {"tracing.enabled": True})
    with pytest.raises(BadSetting, match=r"^tracing: .*OTEL_"):
        await Loopline(settings).__aenter__()
