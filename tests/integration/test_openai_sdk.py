"""The openai package as agents use it: sockets, lanes helper, HTTP, models, schemas, and leaving early."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError, OpenAI, RateLimitError
from openai.lib.responses_websocket import (
    AsyncResponsesWebSocketSession,
    ResponsesWebSocketError,
    ResponsesWebSocketLimits,
)

from tests.house import House

TOOLS: Any = [
    {
        "type": "function",
        "name": "get_weather",
        "description": "The weather of a city.",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    }
]
TWO_ROUNDS = (
    '[[call get_weather {"city": "Oslo"}]] [[then]] '
    '[[call get_weather {"city": "Rome"}]] [[then]] [[say "Both known."]]'
)
SCHEMA: Any = {
    "format": {
        "type": "json_schema",
        "name": "place",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "size": {"type": "integer"}},
            "required": ["city", "size"],
            "additionalProperties": False,
        },
    }
}
LIMITS = ResponsesWebSocketLimits(
    max_lanes=4,
    max_events_per_lane=1000,
    max_events=4000,
    max_bytes_per_lane=2**24,
    max_bytes=2**25,
    max_response_bytes=None,
)


@pytest.fixture
async def openai(house: House) -> AsyncIterator[AsyncOpenAI]:
    """An asynchronous client that does not try again."""
    async with AsyncOpenAI(base_url=house.url, api_key="test", max_retries=0) as client:
        yield client


def in_thread(house: House, work: Callable[[OpenAI], Any]) -> Any:
    """Run `work` with a synchronous client in a thread."""

    def run() -> Any:
        with OpenAI(base_url=house.url, api_key="test", max_retries=0) as client:
            return work(client)

    return asyncio.to_thread(run)


def create(news: Any, **members: Any) -> Any:
    """A `response.create` for the lanes helper."""
    return {"type": "response.create", "model": "simulated", "input": news, **members}


def outputs(response: Any) -> list[dict[str, Any]]:
    """What the tools return for the calls of a response."""
    return [
        {
            "type": "function_call_output",
            "call_id": item.call_id,
            "output": f"sunny in {json.loads(item.arguments)['city']}",
        }
        for item in response.output
        if item.type == "function_call"
    ]


# --- Sockets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", [True, False])
async def test_a_tool_loop_on_an_asynchronous_socket(store: bool, house: House, openai: AsyncOpenAI) -> None:
    news: Any = [{"role": "user", "content": TWO_ROUNDS}]
    parent: str | None = None
    rounds = 0
    async with openai.responses.connect() as connection:
        while news:
            extra: Any = {"previous_response_id": parent} if parent else {}
            await connection.response.create(model="simulated", input=news, tools=TOOLS, store=store, **extra)
            async for event in connection:
                if event.type == "response.completed":
                    response = event.response
                    break
            news, parent, rounds = outputs(response), response.id, rounds + 1
    assert rounds == 3
    assert response.output_text == "Both known."
    assert "sunny in Oslo" in house.said()
    assert "sunny in Rome" in house.said()


@pytest.mark.parametrize("store", [True, False])
async def test_a_tool_loop_on_a_synchronous_socket(store: bool, house: House) -> None:
    def work(client: OpenAI) -> Any:
        news: Any = [{"role": "user", "content": TWO_ROUNDS}]
        extra: Any = {}
        with client.responses.connect() as connection:
            while news:
                connection.response.create(model="simulated", input=news, tools=TOOLS, store=store, **extra)
                for event in connection:
                    if event.type == "response.completed":
                        response = event.response
                        break
                news, extra = outputs(response), {"previous_response_id": response.id}
        return response

    response = await in_thread(house, work)
    assert response.output_text == "Both known."
    assert len(house.upstream.requests) == 3


async def test_parallel_calls_are_answered_in_one_create(house: House, openai: AsyncOpenAI) -> None:
    script = '[[call get_weather {"city": "Oslo"}]] [[call get_weather {"city": "Rome"}]] [[then]] [[say "Done."]]'
    async with openai.responses.connect() as connection, session_of(connection) as session:
        lane = session.default
        await lane.send(create(script, tools=TOOLS, store=False))
        first = await lane.get_final_response()
        assert [each["output"] for each in outputs(first)] == ["sunny in Oslo", "sunny in Rome"]
        await lane.send(create(outputs(first), tools=TOOLS, store=False, previous_response_id=first.id))
        second = await lane.get_final_response()
    assert second.output_text == "Done."
    assert house.said()[-2:] == ["sunny in Oslo", "sunny in Rome"]


@asynccontextmanager
async def session_of(connection: Any) -> AsyncIterator[AsyncResponsesWebSocketSession]:
    """The helper, with bounds for these tests."""
    async with AsyncResponsesWebSocketSession(connection, limits=LIMITS) as session:
        yield session


async def test_the_lanes_helper_on_the_default_lane(openai: AsyncOpenAI) -> None:
    async with openai.responses.connect() as connection, session_of(connection) as session:
        lane, parent = session.default, None
        for number in range(3):
            await lane.send(create(f'[[say "{number}"]]', store=False, previous_response_id=parent))
            response = await lane.get_final_response()
            assert response.output_text == str(number)
            parent = response.id


async def test_the_lanes_helper_gets_failures_as_its_own_errors(openai: AsyncOpenAI) -> None:
    async with openai.responses.connect() as connection, session_of(connection) as session:
        await session.default.send(create("x", previous_response_id="resp_unknown"))
        with pytest.raises(ResponsesWebSocketError) as caught:
            await session.default.get_final_response()
        event: Any = caught.value.event
        assert event.error.code == "previous_response_not_found"
        await session.default.send(create("[[drop 3]]"))
        failed = await session.default.get_final_response()
        assert failed.status == "failed"
        await session.default.send(create('[[say "alive"]]'))
        assert (await session.default.get_final_response()).output_text == "alive"


async def test_leaving_a_socket_in_mid_stream_ends_the_upstream_call(house: House, openai: AsyncOpenAI) -> None:
    async with openai.responses.connect() as connection:
        await connection.response.create(model="simulated", input="[[stall 3]]")
        async for event in connection:
            if event.type == "response.output_text.delta":
                break
    await house.aborted()
    await house.empty()


# --- HTTP ------------------------------------------------------------------------------------------------------------


async def test_a_document(openai: AsyncOpenAI) -> None:
    response = await openai.responses.create(model="simulated", input='[[think "hm"]] [[say "Hello."]]')
    assert response.output_text == "Hello."
    assert response.status == "completed"
    assert response.usage is not None
    assert response.usage.output_tokens_details.reasoning_tokens == 1


async def test_a_stream(openai: AsyncOpenAI) -> None:
    async with openai.responses.stream(model="simulated", input='[[say "one two three"]]') as stream:
        text = "".join([event.delta async for event in stream if event.type == "response.output_text.delta"])
        final = await stream.get_final_response()
    assert text == final.output_text == "one two three"


async def test_a_synchronous_document_and_stream(house: House) -> None:
    def work(client: OpenAI) -> tuple[str, str]:
        whole = client.responses.create(model="simulated", input='[[say "whole"]]').output_text
        stream = client.responses.create(model="simulated", input='[[say "streamed"]]', stream=True)
        return whole, "".join(event.delta for event in stream if event.type == "response.output_text.delta")

    assert await in_thread(house, work) == ("whole", "streamed")


async def test_a_tool_loop_over_http_by_id(house: House, openai: AsyncOpenAI) -> None:
    response = await openai.responses.create(model="simulated", input=TWO_ROUNDS, tools=TOOLS)
    while outputs(response):
        news: Any = outputs(response)
        response = await openai.responses.create(
            model="simulated", input=news, tools=TOOLS, previous_response_id=response.id
        )
    assert response.output_text == "Both known."
    assert len(house.upstream.requests) == 3


async def test_a_tool_loop_over_http_by_full_history(openai: AsyncOpenAI) -> None:
    history: Any = [{"role": "user", "content": TWO_ROUNDS}]
    response = await openai.responses.create(model="simulated", input=history, tools=TOOLS, store=False)
    while outputs(response):
        history += [item.model_dump(exclude_none=True) for item in response.output] + outputs(response)
        response = await openai.responses.create(model="simulated", input=history, tools=TOOLS, store=False)
    assert response.output_text == "Both known."


async def test_a_json_schema_is_satisfied_over_http_and_on_a_socket(openai: AsyncOpenAI) -> None:
    response = await openai.responses.create(model="simulated", input="Which city?", text=SCHEMA)
    assert set(json.loads(response.output_text)) == {"city", "size"}
    async with openai.responses.connect() as connection, session_of(connection) as session:
        await session.default.send(create("Which city?", text=SCHEMA))
        answer = await session.default.get_final_response()
    assert set(json.loads(answer.output_text)) == {"city", "size"}


async def test_models(house: House, openai: AsyncOpenAI) -> None:
    assert [model.id async for model in openai.models.list()] == ["simulated"]
    assert (await openai.models.retrieve("simulated")).id == "simulated"
    with pytest.raises(NotFoundError):
        await openai.models.retrieve("no-such-model")


async def test_failures_are_the_sdks_own_exceptions(openai: AsyncOpenAI) -> None:
    with pytest.raises(BadRequestError) as missing:
        await openai.responses.create(model="simulated", input="x", previous_response_id="resp_unknown")
    assert missing.value.code == "previous_response_not_found"
    assert missing.value.request_id
    with pytest.raises(RateLimitError) as limited:
        await openai.responses.create(model="simulated", input="[[fail 429 retry-after=2]]")
    assert limited.value.response.headers["retry-after"] == "2"


async def test_the_sdk_tries_again_after_a_failure_of_the_upstream(house: House) -> None:
    async with AsyncOpenAI(base_url=house.url, api_key="test", max_retries=1) as client:
        response = await client.responses.create(model="simulated", input='[[fail 500 once]] [[say "at last"]]')
        assert response.output_text == "at last"
        cut = await client.responses.create(model="simulated", input='[[say "not cut"]] [[drop 1 once]]')
        assert cut.output_text == "not cut"


async def test_closing_a_stream_ends_the_upstream_call(house: House, openai: AsyncOpenAI) -> None:
    stream = await openai.responses.create(model="simulated", input="[[stall 3]]", stream=True)
    async for event in stream:
        if event.type == "response.output_text.delta":
            break
    await stream.close()
    await house.aborted()
    await house.empty()


async def test_cancelling_a_document_ends_the_upstream_call(house: House, openai: AsyncOpenAI) -> None:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(openai.responses.create(model="simulated", input="[[stall 3]]"))
        await house.upstream.wait_for(lambda u: bool(u.requests) and u.requests[-1].tokens_sent == 3)
        task.cancel()
    await house.aborted()
    await house.empty()
