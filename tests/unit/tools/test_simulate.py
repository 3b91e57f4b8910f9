"""The simulated upstream over real sockets: both dialects, every documented directive, pace, faults, the journal."""

import asyncio
import json
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import jsonschema  # type: ignore[import-untyped]
import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from proxy.tools.simulate import Options, Simulated, start
from proxy.tools.simulate.tokens import filler
from tests.unit.tools.simulate_client import DIALECTS, WEATHER, ask, data_of, http, results, tool, upstream, user

__all__ = ["http", "upstream"]

ROOT = Path(__file__).parents[3]
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(("after", "stream"), [(3, True), (0, True), (3, False)])
async def test_stall_lasts_until_the_client_leaves(
    upstream: Simulated, http: aiohttp.ClientSession, dialect: str, after: int, stream: bool
) -> None:
    asking = asyncio.create_task(ask(http, upstream, dialect, f"[[stall {after}]]", stream=stream))
    sent = after if stream else 0
    await upstream.wait_for(lambda u: bool(u.requests) and u.requests[-1].tokens_sent == sent, timeout=2)
    assert upstream.open_requests == 1
    asking.cancel()
    await upstream.wait_for(lambda u: u.requests[-1].aborted and not u.open_requests, timeout=1)
    assert upstream.requests[-1].finished is not None


async def test_wait_for_times_out(upstream: Simulated) -> None:
    with pytest.raises(TimeoutError):
        await upstream.wait_for(lambda u: False, timeout=0.01)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_mistake_in_the_script_is_400(upstream: Simulated, http: aiohttp.ClientSession, dialect: str) -> None:
    got = await ask(http, upstream, dialect, "[[sya 20]]")
    assert got.status == 400
    assert "[[sya 20]]: there is no directive 'sya'" in json.loads(got.raw)["error"]["message"]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("kind", ["drop", "eof", "garbage", "null", "error"])
async def test_faults_before_the_first_event_and_without_a_stream(
    upstream: Simulated, http: aiohttp.ClientSession, dialect: str, kind: str
) -> None:
    streamed = await ask(http, upstream, dialect, f"[[{kind} 0]]")
    whole = await ask(http, upstream, dialect, f"[[{kind} 2]]", stream=False)
    if kind == "drop":
        assert streamed.cut and whole.cut and whole.raw  # noqa: PT018
    elif kind == "eof":
        assert streamed.raw == ""
    elif kind == "error":
        assert streamed.finish == "error"
        assert whole.status == 500
    else:
        assert streamed.raw.startswith("data: ")
        assert len(streamed.odd) == 1
        assert streamed.finish == "stop"
    if kind in ("eof", "garbage"):
        with pytest.raises(json.JSONDecodeError):
            json.loads(whole.raw)
    if kind == "null":
        assert whole.raw == "null"


# ---------------------------------------------------------------------------------------------- the agent


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("stream", [True, False])
async def test_with_tools_it_calls_reads_and_answers(
    upstream: Simulated, http: aiohttp.ClientSession, dialect: str, stream: bool
) -> None:
    tools = [tool(dialect)]
    got = await ask(http, upstream, dialect, "weather?", tools=tools, stream=stream)
    assert got.calls == [("get_weather", '{"city":"Paris","unit":"C"}')]
    history = [user("weather?"), *results(dialect, got, "18 degrees", 0)]
    answer = await ask(http, upstream, dialect, history, tools=tools, stream=stream)
    assert answer.text == "get_weather returned: 18 degrees"
    forced = await ask(http, upstream, dialect, history, tools=tools, stream=stream, tool_choice="required")
    assert len(forced.calls) == 1
    again = await ask(http, upstream, dialect, [*history, user("more?")], tools=tools, stream=stream)
    assert len(again.calls) == 1
    none = await ask(http, upstream, dialect, "weather?", tools=tools, stream=stream, tool_choice="none")
    assert none.text == "This is a simulated answer to: weather?"


async def test_a_named_tool_is_called_and_chat_says_stop(upstream: Simulated, http: aiohttp.ClientSession) -> None:
    tools = [tool("chat"), tool("chat", "get_time", {"type": "object"})]
    choice = {"type": "function", "function": {"name": "get_time"}}
    got = await ask(http, upstream, "chat", "now?", tools=tools, tool_choice=choice)
    assert got.calls == [("get_time", "{}")]
    assert got.finish == "stop"


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_schema_is_satisfied(upstream: Simulated, http: aiohttp.ClientSession, dialect: str) -> None:
    form = {"name": "n", "schema": WEATHER}
    fields: dict[str, Any] = (
        {"response_format": {"type": "json_schema", "json_schema": form}}
        if dialect == "chat"
        else {"text": {"format": {"type": "json_schema", **form}}}
    )
    got = await ask(http, upstream, dialect, "json please", **fields)
    jsonschema.validate(json.loads(got.text), WEATHER)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_limits_of_the_request_hold(upstream: Simulated, http: aiohttp.ClientSession, dialect: str) -> None:
    limit = "max_completion_tokens" if dialect == "chat" else "max_output_tokens"
    got = await ask(http, upstream, dialect, "[[think 3]] [[say 9]]", **{limit: 5})
    assert (got.thought, got.text, got.finish) == (filler(3), filler(2), "length")
    one = await ask(http, upstream, dialect, "[[call f]] [[call g]]", parallel_tool_calls=False)
    assert one.calls == [("f", "{}")]


# ---------------------------------------------------------------------------------------------- the SDK


@pytest.mark.parametrize(
    "text",
    ["[[think 4]] [[say 5]]", '[[say 2]] [[call f {"a": 1}]] [[call g]]', "[[refuse]]", "[[length 3]]", "[[error 2]]"],
)
async def test_every_responses_event_is_valid_and_numbered(
    upstream: Simulated, http: aiohttp.ClientSession, text: str
) -> None:
    got = await ask(http, upstream, "responses", text, tools=[tool("responses")], instructions="be brief")
    frames = [frame.split("\n") for frame in got.raw.split("\n\n")[:-2]]
    for number, (event, data) in enumerate(frames):
        value = json.loads(data.removeprefix("data: "))
        parsed = EVENT.validate_python(value)
        assert next(iter(value)) == "type"
        assert (event, value["sequence_number"]) == (f"event: {value['type']}", number)
        assert type(parsed).model_fields.keys() <= value.keys() | {"agent"} or value["type"] == "error"
        if "response" in value:
            assert len(value["response"]) == 31
    if "error" not in text:
        assert value["response"]["output"] == _done_items(got.raw)
        assert value["response"]["usage"]["output_tokens"] > 0


def _done_items(raw: str) -> list[Any]:
    values, _, _ = data_of(raw)
    return [value["item"] for value in values if value["type"] == "response.output_item.done"]


@pytest.fixture
async def sdk(upstream: Simulated) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=upstream.url, api_key="unused", max_retries=1) as client:
        yield client


async def test_sdk_chat(sdk: openai.AsyncOpenAI) -> None:
    text = '[[think 2]] [[say 3]] [[call get_weather {"city": "Paris"}]]'
    whole = await sdk.chat.completions.create(model="m", messages=[{"role": "user", "content": text}])
    message = whole.choices[0].message
    assert message.content == filler(3)
    assert message.tool_calls
    assert whole.usage is not None
    stream = await sdk.chat.completions.create(
        model="m",
        messages=[{"role": "user", "content": text}],
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert chunks[-1].choices == []
    assert chunks[-2].choices[0].finish_reason == "tool_calls"
    assert chunks[0].choices[0].delta.role == "assistant"


async def test_sdk_responses(sdk: openai.AsyncOpenAI, upstream: Simulated) -> None:
    whole = await sdk.responses.create(model="m", input="[[think 2]] [[say 3]]")
    assert whole.output_text == filler(3)
    Response.model_validate(whole.model_dump(warnings=False), strict=True)
    async with sdk.responses.stream(model="m", input="[[say 4]]") as stream:
        async for _ in stream:
            pass
        assert (await stream.get_final_response()).output_text == filler(4)


async def test_sdk_retries_a_failure_that_comes_once(sdk: openai.AsyncOpenAI, upstream: Simulated) -> None:
    whole = await sdk.responses.create(model="m", input='[[fail 500 once]] [[say "better"]]')
    assert whole.output_text == "better"
    assert [entry.status for entry in upstream.requests] == [500, 200]
    with pytest.raises(openai.RateLimitError):
        await sdk.with_options(max_retries=0).responses.create(model="m", input="[[fail 429]]")


async def test_sdk_lists_models(sdk: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in sdk.models.list()] == ["simulated"]


# ---------------------------------------------------------------------------------------------- options and HTTP


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_chunks_and_writes(http: aiohttp.ClientSession, dialect: str) -> None:
    async with await start(Options(tokens_per_chunk=4, chunks_per_write=2)) as server:
        got = await ask(http, server, dialect, "[[say 10]]")
        assert got.text == filler(10)
        mark = '"delta":{"content":"' if dialect == "chat" else "event: response.output_text.delta"
        assert got.raw.count(mark) == 3
        assert (await ask(http, server, dialect, "[[say 10]] [[drop 3]]")).text == filler(3)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_pace(http: aiohttp.ClientSession, dialect: str) -> None:
    async with await start(Options(ttft_s=0.05, tokens_per_s=200)) as server:
        for stream in (True, False):
            began = time.monotonic()
            await ask(http, server, dialect, "[[say 11]]", stream=stream)
            assert 0.1 <= time.monotonic() - began < 0.5  # no sooner; later only by what a busy machine costs


async def test_the_prefix_cache_spares_prefill(http: aiohttp.ClientSession) -> None:
    async with await start(Options(prefill_tokens_per_s=10_000)) as server:
        history = [user(filler(1_500) + " [[say 20]]")]
        times, cached = [], []
        for _ in range(2):
            began = time.monotonic()
            got = await ask(http, server, "chat", history, stream_options={"include_usage": True})
            times.append(time.monotonic() - began)
            cached.append(data_of(got.raw)[0][-1]["usage"]["prompt_tokens_details"]["cached_tokens"])
        assert cached[0] == 0
        assert cached[1] >= 1_488
        assert times[0] >= 0.15
        assert times[0] > times[1]
        history += [{"role": "assistant", "content": got.text}, user("and?")]
        whole = await ask(http, server, "responses", history, stream=False)
        assert json.loads(whole.raw)["usage"]["input_tokens_details"]["cached_tokens"] > cached[1]


async def test_refusals_of_the_server(http: aiohttp.ClientSession) -> None:
    options = Options(api_key="k", any_model=False, models=("other",), context_tokens=50)
    async with await start(options) as server:
        url = server.url + "/chat/completions"
        auth = {"Authorization": "Bearer k"}

        async def post(body: dict[str, Any], **headers: str) -> tuple[int, Any]:
            async with http.post(url, json=body, headers={**auth, **headers}) as response:
                return response.status, await response.json()

        async with http.post(url, json={}) as response:
            assert (response.status, await response.json()) == (401, {"error": "Unauthorized"})
        status, body = await post({"model": "m", "messages": [user("x")]})
        assert status == 404
        assert body["error"] == {
            "message": "The model `m` does not exist.",
            "type": "NotFoundError",
            "param": "model",
            "code": 404,
        }
        assert (await post({"model": "other", "messages": [user("x")]}))[0] == 200
        status, body = await post({"model": "other", "messages": [user(filler(60))]})
        assert status == 400
        assert "maximum context length is 50 tokens" in body["error"]["message"]
        assert (await post({}, **{"Content-Type": "text/plain"}))[0] == 400
        for data in (b"{", b"[]", b'"\xff"', b"[" * 100_000):
            async with http.post(url, data=data, headers={**auth, "Content-Type": "application/json"}) as response:
                assert response.status == 400
        assert server.open_requests == 0


async def test_strict_fields_answer_422(http: aiohttp.ClientSession) -> None:
    async with await start(Options(strict_fields=True)) as server:
        got = await ask(http, server, "chat", "hi", cache_salt="x")
        assert (got.status, json.loads(got.raw)) == (
            422,
            {"detail": "Unexpected fields in the request: {'cache_salt'}"},
        )


async def test_other_routes(upstream: Simulated, http: aiohttp.ClientSession) -> None:
    base = upstream.url.removesuffix("/v1")
    for path, status in [("/health", 200), ("/version", 200), ("/v1/models", 200), ("/x", 404), ("/v1/responses", 405)]:
        async with http.get(base + path) as response:
            assert response.status == status
            if path == "/version":
                assert await response.json() == {"version": "loopline-simulate"}
    with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
        await http.ws_connect(base + "/v1/responses")
    assert caught.value.status == 405
    assert not upstream.requests


async def test_the_journal(upstream: Simulated, http: aiohttp.ClientSession) -> None:
    await ask(http, upstream, "responses", "[[say 4]]")
    await ask(http, upstream, "chat", "[[say 4]]")
    first, second = upstream.requests
    assert (first.dialect, first.path, first.status, first.tokens_sent) == ("responses", "/v1/responses", 200, 4)
    assert first.body["input"] == [user("[[say 4]]")]
    assert first.body_bytes > 0
    assert second.headers["content-type"] == "application/json"
    assert second.finished is not None
    assert second.finished >= second.started
    assert (upstream.connections, upstream.open_connections) == (1, 1)


async def test_a_large_body_is_taken(upstream: Simulated, http: aiohttp.ClientSession) -> None:
    got = await ask(http, upstream, "chat", [{"role": "system", "content": "x" * 3_000_000}, user("hi")])
    assert got.status == 400  # too long for the context, not for the server
    assert "maximum context length" in got.raw


async def test_ids_are_unique_and_the_same_in_every_run(http: aiohttp.ClientSession) -> None:
    bodies = []
    for _ in range(2):
        async with await start() as server:
            got = [await ask(http, server, "responses", "[[say 1]] [[call f]]") for _ in range(2)]
            ids = [re.findall(r'"(?:id|call_id)":"(\w+)"', one.raw) for one in got]
            assert not set(ids[0]) & set(ids[1])
            bodies.append(ids)
    assert bodies[0] == bodies[1]


def test_options_are_checked() -> None:
    for fields in ({"tokens_per_chunk": 0}, {"ttft_s": -1.0}, {"prefix_cache_blocks": -1}):
        with pytest.raises(ValueError, match="must"):
            Options(**fields)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_run_ends_cleanly(number: signal.Signals) -> None:
    code = "from proxy.tools.simulate import *; run('127.0.0.1', 0, Options())"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=environment
    )
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), 10)
    assert re.fullmatch(rb"simulated upstream on http://127\.0\.0\.1:\d+/v1\n", line)
    process.send_signal(number)
    output, errors = await asyncio.wait_for(process.communicate(), 5)
    assert (process.returncode, output, errors) == (0, b"", b"")
