"""Upstreams on bad days: one terminal event with the right code, whatever the transport, and the next turn works."""

from __future__ import annotations

import json
import socket
from typing import Any, NamedTuple

import pytest

from proxy.errors import TABLE, Kind
from proxy.tools.simulate import Options, start
from proxy.translate.chat.translator import ChatTranslator
from proxy.translate.responses.translator import ResponsesTranslator
from tests.conformance.schema import check_turn
from tests.house import House, house_before, open_house
from tests.wire_client import WireClient, user


class Case(NamedTuple):
    """What the upstream does, and what a client is told: as a refusal before `response.created`, or after it."""

    script: str
    kind: Kind
    begun: bool
    retry_after: str | None = None


CASES = {
    "fail 400": Case("[[fail 400]]", Kind.UPSTREAM_REJECTED, False),
    "fail 401": Case("[[fail 401]]", Kind.UPSTREAM_UNAUTHORIZED, False),
    "fail 403": Case("[[fail 403]]", Kind.UPSTREAM_UNAUTHORIZED, False),
    "fail 404": Case("[[fail 404]]", Kind.UPSTREAM_NOT_FOUND, False),
    "fail 413": Case("[[fail 413]]", Kind.CONTEXT_LENGTH, False),
    "fail 422": Case("[[fail 422]]", Kind.UPSTREAM_REJECTED, False),
    "fail 429": Case("[[fail 429]]", Kind.UPSTREAM_RATE_LIMITED, False),
    "fail 429 with a time": Case("[[fail 429 retry-after=2]]", Kind.UPSTREAM_RATE_LIMITED, False, "2"),
    "fail 429 quota": Case("[[fail 429 code=insufficient_quota]]", Kind.QUOTA, False),
    "fail 500": Case("[[fail 500]]", Kind.UPSTREAM_FAILED, False),
    "fail 500 as text": Case("[[fail 500 text]]", Kind.UPSTREAM_FAILED, False),
    "fail 502": Case("[[fail 502]]", Kind.UPSTREAM_FAILED, False),
    "fail 503 with a time": Case("[[fail 503 retry-after=7]]", Kind.UPSTREAM_UNAVAILABLE, False, "7"),
    "fail 504": Case("[[fail 504]]", Kind.UPSTREAM_TIMEOUT, False),
    "context": Case("[[fail 400 code=context_length_exceeded]]", Kind.CONTEXT_LENGTH, False),
    "drop before a byte": Case("[[drop 0]]", Kind.UPSTREAM_CLOSED, False),
    "drop": Case("[[drop 5]]", Kind.UPSTREAM_CLOSED, True),
    "eof": Case("[[eof 5]]", Kind.UPSTREAM_CLOSED, True),
    "garbage": Case("[[garbage 5]]", Kind.UPSTREAM_GARBLED, True),
    "error": Case("[[error 5]]", Kind.UPSTREAM_FAILED, True),
    "stall": Case("[[stall 5]]", Kind.UPSTREAM_TIMEOUT, True),
    "stall before a byte": Case("[[stall 0]]", Kind.UPSTREAM_TIMEOUT, False),
}
# `response.error.code` has a closed list: refusals that are not in it become one of its codes.
FAILED_CODES = {"server_error", "rate_limit_exceeded", "context_length_exceeded", "insufficient_quota"}


def patience(case: Case) -> dict[str, object]:
    """Little of it where the upstream falls silent."""
    if "stall" not in case.script:
        return {}
    return {"upstream.idle_timeout_s": 0.2, "upstream.first_byte_timeout_s": 0.4}


@pytest.mark.parametrize("name", CASES)
async def test_over_websocket(name: str, dialect: str) -> None:
    case = CASES[name]
    async with open_house(dialect, patience(case)) as house, house.connect() as client:
        recorded = await client.turn([user(case.script)])
        row = TABLE[case.kind]
        if case.begun:
            assert recorded.kinds[:2] == ["response.created", "response.in_progress"]
            assert recorded.kind == "response.failed"
            assert recorded.error["code"] in FAILED_CODES
            assert recorded.response["status"] == "failed"
        else:
            assert recorded.kinds == ["error"]
            assert (recorded.error["status"], recorded.error["code"]) == (row.status, row.code)
            assert recorded.error["error"]["type"] == row.type
            retry = {"retry-after": case.retry_after} if case.retry_after else None
            assert recorded.error.get("headers") == retry
        assert house.watcher.turns[0].error == case.kind.value
        await client.works()


@pytest.mark.parametrize("name", CASES)
async def test_over_server_sent_events(name: str, dialect: str) -> None:
    case = CASES[name]
    async with open_house(dialect, patience(case)) as house:
        async with house.post({"input": case.script, "stream": True}) as response:
            if case.begun:
                assert response.status == 200
                frames = (await response.text()).strip().split("\n\n")
                assert frames[-1] == "data: [DONE]"
                events = [json.loads(frame.split("\ndata: ")[1]) for frame in frames[:-1]]
                check_turn(events, transport="sse")
                assert events[-1]["type"] == "response.failed"
            else:
                await _refused(response, case)
        async with house.post({"input": "[[say 1]]", "stream": True}) as response:
            assert response.status == 200
            assert "response.completed" in await response.text()


@pytest.mark.parametrize("name", CASES)
async def test_as_one_document(name: str, dialect: str) -> None:
    """Nothing was sent before the failure is known: the status says it, so that a client's retries see it."""
    case = CASES[name]
    async with open_house(dialect, patience(case)) as house:
        async with house.post({"input": case.script}) as response:
            await _refused(response, case)
        async with house.post({"input": "[[say 1]]"}) as response:
            assert response.status == 200


async def _refused(response: Any, case: Case) -> None:
    row = TABLE[case.kind]
    assert response.status == row.status
    assert response.headers.get("Retry-After") == case.retry_after
    assert response.headers["x-request-id"]
    error = (await response.json())["error"]
    assert (error["type"], error["code"]) == (row.type, row.code)
    assert error["message"]


@pytest.mark.parametrize("script", ["[[say 3]] [[nodone]]", "[[say 8]] [[null 3]]", "[[say 3]] [[json]]"])
async def test_oddities_that_are_no_failure(script: str, client: WireClient) -> None:
    recorded = await client.turn([user(script)])
    assert recorded.kind == "response.completed"
    assert recorded.text
    assert recorded.response["usage"]["output_tokens"] > 0
    await client.works()


async def test_a_call_in_one_document(client: WireClient) -> None:
    tools = [{"type": "function", "name": "get_weather", "parameters": {"type": "object"}}]
    recorded = await client.turn([user('[[call get_weather {"city": "Oslo"}]] [[json]]')], tools=tools)
    assert recorded.kind == "response.completed"
    assert recorded.calls[0]["arguments"] == '{"city": "Oslo"}'


async def test_the_upstreams_message_reaches_the_client(client: WireClient) -> None:
    recorded = await client.turn([user('[[fail 400 "temperature must not be purple"]]')])
    assert "temperature must not be purple" in recorded.error["message"]


async def test_a_prompt_that_is_too_long_is_named_so(dialect: str) -> None:
    async with open_house(dialect, options=Options(context_tokens=100)) as house, house.connect() as client:
        recorded = await client.turn([user("word " * 500)])
        assert (recorded.error["status"], recorded.error["code"]) == (400, "context_length_exceeded")
        await client.works()


async def test_an_upstream_that_checks_strictly_gets_only_what_it_knows(dialect: str) -> None:
    async with open_house(dialect, options=Options(strict_fields=True)) as house, house.connect() as client:
        recorded = await client.turn(
            [user("[[say 2]]")],
            store=False,
            stream=True,
            client_metadata={"a": "b"},
            metadata={"k": "v"},
            prompt_cache_key="p",
            truncation="disabled",
        )
        assert recorded.kind == "response.completed"


async def test_a_failed_turn_leaves_what_was_said_so_far_visible(client: WireClient) -> None:
    recorded = await client.turn([user('[[think "hm"]] [[say 30]] [[drop 12]]')])
    assert recorded.kind == "response.failed"
    assert [item["type"] for item in recorded.output] == ["reasoning"]
    assert "response.output_text.delta" in recorded.kinds


# --- Connections -----------------------------------------------------------------------------------------------------


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def test_an_upstream_that_is_not_there(dialect: str) -> None:
    async with house_before(f"http://127.0.0.1:{_free_port()}/v1", dialect) as house:
        async with house.connect() as client:
            for _ in range(3):
                recorded = await client.turn("hello")
                assert (recorded.error["status"], recorded.error["code"]) == (502, "server_error")
                assert recorded.error["message"] == "The upstream refused the connection."
        async with house.post({"input": "hello"}) as response:
            assert response.status == 502


async def test_an_upstream_that_comes_back_is_used_at_once(dialect: str) -> None:
    port = _free_port()
    async with house_before(f"http://127.0.0.1:{port}/v1", dialect) as house, house.connect() as client:
        assert (await client.turn("hello")).error["status"] == 502
        async with await start(port=port):
            await client.works()
        assert (await client.turn("hello")).kind == "error"


async def test_an_early_begun_turn_fails_by_its_response_alone(dialect: str) -> None:
    settings = {"server.early_events_s": 0.05, "upstream.first_byte_timeout_s": 0.4}
    async with open_house(dialect, settings) as house, house.connect() as client:
        await client.create([user("[[stall 0]]")])
        begun = await client.until("response.in_progress")
        assert house.upstream.requests[-1].status == 0, "the upstream had answered: nothing was early"
        recorded = await client.collect(recorded=begun)
        assert recorded.kinds == ["response.created", "response.in_progress", "response.failed"]
        assert recorded.error["code"] == "server_error"
        await client.works()


async def test_an_early_begun_turn_completes_like_any_other(dialect: str) -> None:
    async with open_house(dialect, {"server.early_events_s": 0.0}, Options(ttft_s=0.1)) as house:
        async with house.connect() as client:
            recorded = await client.says("at last")
            assert recorded.kinds.count("response.created") == 1


async def test_an_early_begun_document_still_says_its_failure_by_status(dialect: str) -> None:
    settings = {"server.early_events_s": 0.0, "upstream.first_byte_timeout_s": 0.2}
    async with open_house(dialect, settings) as house:
        async with house.post({"input": "[[stall 0]]"}) as response:
            assert response.status == 504
        async with house.post({"input": "[[fail 429 retry-after=2]]"}) as response:
            assert response.status == 429
            assert response.headers["Retry-After"] == "2"


async def test_output_above_its_limit_is_cut_off(dialect: str) -> None:
    async with open_house(dialect, {"upstream.max_output_bytes": 20_000}) as house, house.connect() as client:
        recorded = await client.turn([user("[[say 2000]]")])
        assert recorded.kind == "response.failed"
        assert "upstream.max_output_bytes" in recorded.error["message"]
        await client.works()


async def test_an_event_above_its_limit_is_cut_off(dialect: str) -> None:
    async with open_house(dialect, {"upstream.max_event_bytes": 6_000}) as house, house.connect() as client:
        text = "x" * 20_000
        recorded = await client.turn([user(f'[[say "{text}"]] [[json]]')])
        assert recorded.kind == "response.failed"
        await client.works()


async def test_every_failure_is_counted_once(house: House, client: WireClient) -> None:
    for script in ("[[fail 500]]", "[[drop 3]]", "[[error 3]]"):
        await client.turn([user(script)])
    rendered = house.server.metrics.render()[0].decode()
    assert 'loopline_upstream_errors_total{endpoint="default",kind="upstream_failed"} 2.0' in rendered
    assert 'loopline_upstream_errors_total{endpoint="default",kind="upstream_closed"} 1.0' in rendered


@pytest.mark.parametrize("where", ["request", "feed", "result"])
async def test_a_bug_of_ours_reaches_the_client_as_a_failure(
    where: str, dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug, with the user's words in it")

    async with open_house(dialect) as house, house.connect() as client:
        with monkeypatch.context() as patch:
            for translator in (ChatTranslator, ResponsesTranslator):
                patch.setattr(translator, where, broken)
            recorded = await client.turn("[[say 3]]")
        assert recorded.kind == ("error" if where == "request" else "response.failed")
        assert recorded.error["code"] == "server_error"
        assert recorded.error["message"] == "Internal error."
        await client.works()
        house.expected_crashes = 1
        assert "loopline_process_crashes_total 1.0" in house.server.metrics.render()[0].decode()
