"""Health, readiness, metrics, the list of models, what is forwarded upstream, and what is logged."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import secrets
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import structlog
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families

from proxy.app import Loopline
from proxy.tools.simulate import Options, start
from tests.house import House, open_house, settings_for
from tests.wire_client import open_socket, user

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


async def scrape(house: House) -> Samples:
    """All samples by name and labels."""
    async with house.http.get(f"{house.root}/metrics") as response:
        assert response.status == 200
        assert response.headers["Content-Type"].startswith("text/plain")
        text = await response.text()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    """The sum of the samples that have these labels, among others; 0 where there is none."""
    wanted = labels.items()
    return sum(number for (named, has), number in samples.items() if named == name and wanted <= set(has))


async def get(house: House, path: str) -> tuple[int, dict[str, Any]]:
    """A JSON page: status and document."""
    async with house.http.get(house.root + path) as response:
        return response.status, await response.json()


# --- Health and metrics ----------------------------------------------------------------------------------------------


async def test_a_server_that_serves_is_healthy_and_ready(house: House) -> None:
    status, document = await get(house, "/healthz")
    assert (status, document["status"]) == (200, "ok")
    assert document["version"]
    assert (await get(house, "/readyz"))[0] == 200


async def test_a_server_that_stops_is_not_ready(house: House) -> None:
    house.server.operations.ready = False
    assert await get(house, "/readyz") == (503, {"status": "draining"})
    assert (await get(house, "/healthz"))[0] == 200


async def test_metrics_move_with_turns(house: House) -> None:
    labels = {"transport": "websocket", "dialect": house.dialect}
    async with house.connect() as client:
        first = await client.says("one")
        await client.says("two", previous_response_id=first.id)
        await client.turn([user("[[fail 500]]")])
        await client.turn([user("[[drop 3]]")])
        await client.turn([user("[[length 3]]")])
        samples = await scrape(house)
        assert value(samples, "loopline_session_open") == 1
        assert value(samples, "loopline_turn_running") == 0
    outcomes = {"completed": 2.0, "refused": 1.0, "failed": 1.0, "incomplete": 1.0}
    for outcome, count in outcomes.items():
        assert value(samples, "loopline_turn_ended_total", outcome=outcome, **labels) == count, outcome
    assert value(samples, "loopline_turn_history_saved_bytes_total") > 0
    assert value(samples, "loopline_turn_tokens_total", direction="output") > 0
    assert value(samples, "loopline_turn_duration_seconds_count", endpoint="default") == 3
    assert value(samples, "loopline_turn_first_token_seconds_count", endpoint="default") == 3
    errors = {"endpoint": "default", "kind": "upstream_failed"}
    assert value(samples, "loopline_upstream_errors_total", **errors) == 1
    await house.empty()
    samples = await scrape(house)
    assert value(samples, "loopline_session_open") == 0
    assert value(samples, "loopline_session_ended_total", code="1000") == 1


async def test_with_metrics_and_lines_of_turns_off_nothing_counts_and_everything_says_so(log: io.BytesIO) -> None:
    structlog.get_config()["logger_factory"].direct._level = logging.WARNING
    async with open_house("chat", {"metrics.enabled": False}) as house:
        async with house.connect() as client:
            await client.says("one")
            await client.turn([user("[[say 1]]")], tools=[{"type": "web_search"}])
            await client.turn([user("[[fail 500]]")])
        await house.empty()
        for path in ("/metrics", "/status", "/status.json"):
            status, document = await get(house, path)
            assert (status, document["error"]["code"]) == (404, "not_found")
            assert "metrics.enabled" in document["error"]["message"]
        assert (await get(house, "/readyz?upstream=1"))[1]["endpoints"][0]["health"] == "up"
        for what in ("metrics", "recent", "lag"):
            assert not hasattr(house.server, what)
        assert [type(each).__name__ for each in house.server.services.observer.observers] == [  # type: ignore[attr-defined]
            "Health", "Log", "Watcher",
        ]  # fmt: skip
    lines = [line for line in map(json.loads, written(log).splitlines()) if line["event"] != "session opened"]
    assert [line["level"] for line in lines] == ["warning"], "what an upstream could not be told is still said"
    assert lines[0]["left_out"] == ["tool web_search"]


@pytest.mark.parametrize("enabled", [True, False])
async def test_readiness_knows_its_upstream_with_metrics_and_without(enabled: bool, unused_tcp_port: int) -> None:
    async with Loopline(
        settings_for(f"http://127.0.0.1:{unused_tcp_port}/v1", "chat", {"metrics.enabled": enabled})
    ) as server:
        root = server.url.removesuffix("/v1")
        async with open_socket(server.url, "test") as client:
            await client.turn([user("x")])
        async with aiohttp.ClientSession() as http, http.get(f"{root}/readyz?upstream=1") as response:
            document = await response.json()
            assert (response.status, document["endpoints"][0]["health"]) == (503, "down")


async def test_no_turn_is_lost_between_two_looks_or_at_the_end(log: io.BytesIO) -> None:
    async with open_house("chat") as house:
        async with house.connect() as client:
            await client.says("x")
            await house.watcher.wait_for(lambda: len(house.watcher.turns) == 1)
            assert value(await scrape(house), "loopline_turn_ended_total") == 1
            for _ in range(21):
                await client.says("x")
    told = [json.loads(line) for line in written(log).splitlines()]
    turns = [line for line in told if line["event"] == "turn"]
    assert [line["response"] for line in turns] == [record.response for record in house.watcher.turns]
    stamps = [line["timestamp"] for line in turns]
    assert stamps == sorted(stamps)
    assert told[-1]["event"] == "session", "a session's line follows those of its turns"


async def test_whoever_accepts_open_metrics_gets_them(house: House) -> None:
    headers = {"Accept": "application/openmetrics-text;version=1.0.0;q=0.9,text/plain;q=0.5"}
    async with house.http.get(f"{house.root}/metrics", headers=headers) as response:
        assert response.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
        text = await response.text()
    assert text.endswith("\n# EOF\n")
    assert text.count("# EOF") == 1
    names = [family.name for family in open_metrics(text)]  # type: ignore[no-untyped-call]
    assert {"loopline_build_info", "loopline_turn_ended", "process_cpu_seconds", "python_info"} <= {*names}


async def test_a_running_turn_and_a_cancelled_one_are_counted(house: House) -> None:
    async with house.connect() as client:
        await client.create([user("[[stall 2]]")])
        await client.until("response.output_text.delta")
        assert value(await scrape(house), "loopline_turn_running") == 1
    await house.empty()
    samples = await scrape(house)
    assert value(samples, "loopline_turn_running") == 0
    cancelled = {"transport": "websocket", "dialect": house.dialect, "outcome": "cancelled"}
    assert value(samples, "loopline_turn_ended_total", **cancelled) == 1


async def test_http_turns_are_counted_as_such(house: House) -> None:
    for stream in (True, False):
        async with house.post({"input": "[[say 1]]", "stream": stream}) as response:
            await response.read()
    labels = {"transport": "http", "dialect": house.dialect, "outcome": "completed"}
    assert value(await scrape(house), "loopline_turn_ended_total", **labels) == 2


async def test_no_label_comes_from_a_client() -> None:
    async with open_house("chat") as house:

        async def some(number: int) -> None:
            async with house.connect(f"token-{number}", headers={"x-request-id": f"id-{number}"}) as client:
                for _ in range(10):
                    await client.turn("[[say 1]]", model=f"model-{secrets.token_hex(4)}")
                await client.turn("[[fail 500]]", model=f"model-{secrets.token_hex(4)}")
                await client.send({"type": f"event-{number}"})
                await client.answer()

        await some(0)
        before = await scrape(house)
        async with asyncio.TaskGroup() as group:
            for number in range(1, 20):
                group.create_task(some(number))
        await house.empty()
        after = await scrape(house)
    assert {name for name, _ in after} == {name for name, _ in before} | {"loopline_session_ended_total"}
    assert len(after) - len(before) <= 2  # how sessions ended: one series and when it began
    assert not any("model-" in text or "token-" in text for _, labels in after for _, text in labels)


async def test_an_admin_port_takes_readiness_and_metrics_away_from_clients(unused_tcp_port: int) -> None:
    async with open_house("chat", {"server.admin_port": unused_tcp_port}) as house:
        for path in ("/readyz", "/metrics"):
            async with house.http.get(house.root + path) as response:
                assert response.status == 404, path
        admin = f"http://127.0.0.1:{house.server.admin_port}"
        assert house.server.admin_port == unused_tcp_port
        for path in ("/healthz", "/readyz", "/metrics"):
            async with house.http.get(admin + path) as response:
                assert response.status == 200, path
        async with house.http.post(f"{admin}/v1/responses", json={"input": "x"}) as response:
            assert response.status == 404
        async with house.http.get(f"{house.root}/healthz") as response:
            assert response.status == 200


# --- Models ----------------------------------------------------------------------------------------------------------


async def test_models_are_the_upstreams_and_our_own_names() -> None:
    settings = {"models.aliases": {"fast": "simulated", "gpt-*": "other"}}
    options = Options(models=("other",), any_model=False)
    async with open_house("chat", settings, options) as house:
        _, document = await get(house, "/v1/models")
        assert {model["id"] for model in document["data"]} == {"simulated", "other", "fast"}
        assert (await get(house, "/v1/models/fast"))[0] == 200
        status, document = await get(house, "/v1/models/nothing")
        assert (status, document["error"]["code"]) == (404, "model_not_found")
        async with house.connect() as client:
            await client.says("a", model="fast")
            assert house.upstream.requests[-1].body["model"] == "simulated"
            await client.says("b", model="gpt-5")
            assert house.upstream.requests[-1].body["model"] == "other"


async def test_an_unknown_model_without_a_default_is_refused_before_the_upstream() -> None:
    options = Options(any_model=False)
    async with open_house("chat", {"models.default": ""}, options) as house, house.connect() as client:
        recorded = await client.turn("hello", model="no-such")
        assert (recorded.error["status"], recorded.error["code"]) == (404, "model_not_found")
        assert "simulated" in recorded.error["message"]
        assert not house.upstream.requests
        await client.works()


# --- Headers to the upstream -----------------------------------------------------------------------------------------

SENT = {
    "Authorization": "Bearer client-key",
    "OpenAI-Organization": "org-1",
    "OpenAI-Project": "proj-1",
    "OpenAI-Beta": "responses_websockets=2026-02-06",
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "x-request-id": "mine",
    "Cookie": "session=secret",
    "X-Forwarded-For": "10.1.2.3",
    "X-Api-Key": "secret",
    "X-Custom": "mine too",
    "User-Agent": "an agent",
}
FORWARDED = {"authorization", "openai-organization", "openai-project", "openai-beta", "traceparent", "x-request-id"}


@pytest.mark.parametrize("transport", ["websocket", "http"])
async def test_only_listed_headers_are_forwarded(transport: str, house: House) -> None:
    await turn_with_headers(house, transport)
    got = house.upstream.requests[-1].headers
    sent = {name.lower(): text for name, text in SENT.items()}
    assert {name for name in sent if got.get(name) == sent[name]} == FORWARDED
    assert not {"cookie", "x-forwarded-for", "x-api-key", "x-custom"} & set(got)


async def test_more_headers_are_forwarded_if_listed() -> None:
    async with open_house("chat", {"endpoints[0].forward_headers": ("X-Custom",)}) as house:
        await turn_with_headers(house, "websocket")
        assert house.upstream.requests[-1].headers["x-custom"] == "mine too"


async def turn_with_headers(house: House, transport: str) -> None:
    if transport == "http":
        async with house.post({"input": "[[say 1]]"}, headers=SENT) as response:
            assert response.status == 200
        return
    async with house.connect(token=None, headers=SENT, user_agent_header=None) as client:
        await client.works()


async def test_an_endpoint_with_a_key_of_its_own_never_sees_the_clients(dialect: str, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("endpoint-key\n")
    settings = {"endpoints[0].api_key_file": str(key)}
    async with open_house(dialect, settings, Options(api_key="endpoint-key")) as house:
        await turn_with_headers(house, "websocket")
        assert house.upstream.requests[-1].headers["authorization"] == "Bearer endpoint-key"
        assert "client-key" not in str(house.upstream.requests[-1].headers)


async def test_a_key_from_the_environment(dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPSTREAM_KEY", "from-the-environment")
    async with await start(Options(api_key="from-the-environment")) as upstream:
        settings = settings_for(upstream.url, dialect)
        endpoint = settings.endpoint.model_copy(update={"api_key_env": "UPSTREAM_KEY"})
        async with Loopline(settings.model_copy(update={"endpoints": (endpoint,)})) as server:
            async with open_socket(server.url, "client-key") as client:
                await client.works()
        assert upstream.requests[-1].headers["authorization"] == "Bearer from-the-environment"


async def test_a_key_that_the_upstream_refuses_is_the_clients_to_know(dialect: str) -> None:
    async with open_house(dialect, options=Options(api_key="right")) as house:
        async with house.connect("wrong") as client:
            recorded = await client.turn("hello")
            assert (recorded.error["status"], recorded.error["code"]) == (401, "invalid_api_key")
        async with house.connect("right") as client:
            await client.works()


async def test_headers_and_query_of_an_endpoint_are_added(dialect: str) -> None:
    settings = {"endpoints[0].headers": {"X-Team": "blue"}, "endpoints[0].query": {"api-version": "1"}}
    async with open_house(dialect, settings) as house, house.connect() as client:
        await client.works()
        assert house.upstream.requests[-1].headers["x-team"] == "blue"


# --- Logs ------------------------------------------------------------------------------------------------------------

SECRETS = ("sk-very-secret", "the user's words", "the model's words", "org-secret", "tool result words")


def written(log: io.BytesIO) -> str:
    """What was logged so far; lines are written in a thread of their own."""
    structlog.get_config()["logger_factory"].flush()
    return log.getvalue().decode()


async def test_logs_hold_a_line_a_turn_and_neither_content_nor_credentials(dialect: str, log: io.BytesIO) -> None:
    async with open_house(dialect) as house:
        headers = {"OpenAI-Organization": "org-secret"}
        async with house.connect("sk-very-secret", headers=headers) as client:
            first = await client.turn("the user's words [[say \"the model's words\"]]", instructions="the user's words")
            await client.turn([user("the user's words [[fail 500]]")], previous_response_id=first.id)
            await client.turn([user("the user's words [[garbage 3]]")])
            await client.turn([{"type": "function_call_output", "call_id": "c", "output": "tool result words"}])
            await client.send("the user's words: not JSON")
            await client.answer()
        body = {"input": "the user's words [[say \"the model's words\"]]"}
        async with house.post(body, headers={"Authorization": "Bearer sk-very-secret"}) as response:
            assert response.status == 200
        await house.empty()
    text = written(log)
    lines = [json.loads(line) for line in text.splitlines()]
    assert len([line for line in lines if line["event"] == "turn"]) == 5
    assert len([line for line in lines if line["event"] == "session"]) == 1
    assert first.id in text
    for secret in SECRETS:
        assert secret not in text, secret


async def test_logs_name_what_failed(log: io.BytesIO) -> None:
    async with open_house("chat") as house, house.connect() as client:
        await client.turn([user("[[fail 503]]")])
    [line] = [json.loads(line) for line in written(log).splitlines() if '"turn"' in line]
    assert (line["outcome"], line["error"]) == ("refused", "upstream_unavailable")


# --- Stopping --------------------------------------------------------------------------------------------------------


async def test_stopping_ends_running_and_waiting_turns_with_an_error_and_closes_with_1012(dialect: str) -> None:
    async with await start() as upstream:
        server = Loopline(settings_for(upstream.url, dialect))
        async with server, open_socket(server.url) as client:
            await client.create([user("[[stall 0]]")])
            await client.create([user("[[say 1]]")])
            await upstream.wait_for(lambda u: bool(u.requests) and u.requests[-1].body is not None)
            async with asyncio.TaskGroup() as group:
                group.create_task(server.__aexit__())
                for _ in range(2):
                    recorded = await client.collect()
                    assert (recorded.error["status"], recorded.error["code"]) == (503, "server_error")
                assert await client.closed() == 1012
            await upstream.wait_for(lambda u: u.requests[-1].aborted)
            assert len(server.registry) == 0


async def test_stopping_in_mid_stream_fails_the_response_and_a_document(dialect: str) -> None:
    async with await start() as upstream, aiohttp.ClientSession() as http:
        server = Loopline(settings_for(upstream.url, dialect))
        async with server, open_socket(server.url) as client:
            await client.create([user("[[stall 3]]")])
            begun = await client.until("response.output_text.delta")
            async with asyncio.TaskGroup() as group:
                body = {"model": "simulated", "input": "[[stall 3]]"}
                document = group.create_task(_status(http, server.url, body))
                await upstream.wait_for(lambda u: len(u.requests) == 2 and u.requests[-1].tokens_sent == 3)
                group.create_task(server.__aexit__())
                recorded = await client.collect(recorded=begun)
                assert recorded.kind == "response.failed"
                assert await client.closed() == 1012
            assert document.result() == 503


async def _status(http: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> int:
    async with http.post(f"{url}/responses", json=body) as response:
        await response.read()
        return response.status
