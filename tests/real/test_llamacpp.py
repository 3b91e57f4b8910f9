"""The road with a real model at its end: llama.cpp with SmolLM2-135M-Instruct."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from openai import AsyncOpenAI

from proxy.app import Loopline
from proxy.tools import embedded

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
]

WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "strict": False,
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "maximum": 120}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
TERMINAL = ("response.completed", "response.incomplete", "response.failed", "error")


@pytest_asyncio.fixture(loop_scope="module")
async def client(server: Loopline) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=server.url, api_key="none", max_retries=0) as made:
        yield made


async def turn(socket: Any, **create: Any) -> list[Any]:
    """One turn over a socket → its events."""
    await socket.response.create(**create)
    events = []
    async for event in socket:
        events.append(event)
        if event.type in TERMINAL:
            return events
    raise AssertionError("the socket ended before the turn did")


async def test_the_server_is_recognised_without_a_generation(server: Loopline, client: AsyncOpenAI) -> None:
    assert [model.id async for model in await client.models.list()] == ["smollm2"]
    catalog = await server.services.catalogs.get(server.services.endpoints[0], "", {})
    assert (catalog.profile.name, catalog.dialect) == ("llamacpp", "chat")


async def test_a_conversation_over_one_socket(client: AsyncOpenAI) -> None:
    async with client.responses.connect() as socket:
        first = await turn(socket, model="any", input="My name is Ada. Say hello.", max_output_tokens=24, store=False)
        deltas = "".join(event.delta for event in first if event.type == "response.output_text.delta")
        response = first[-1].response
        assert deltas
        assert response.output_text == deltas
        assert response.usage.input_tokens > 0

        second = await turn(
            socket,
            model="any",
            input="What is my name?",
            previous_response_id=response.id,
            max_output_tokens=24,
            store=False,
        )
    again = second[-1].response
    # The engine reads the whole conversation and finds the first turn in its prefix cache.
    assert again.usage.input_tokens > response.usage.input_tokens + response.usage.output_tokens
    assert again.usage.input_tokens_details.cached_tokens >= response.usage.input_tokens


async def test_http_streamed_and_whole(client: AsyncOpenAI) -> None:
    whole = await client.responses.create(model="any", input="Say hello.", max_output_tokens=16)
    assert whole.output_text
    stream = await client.responses.create(
        model="any", input="And again.", previous_response_id=whole.id, max_output_tokens=16, stream=True
    )
    kinds = [event.type async for event in stream]
    assert kinds[0] == "response.created"
    assert kinds[-1] in ("response.completed", "response.incomplete")


async def test_an_answer_cut_by_length_is_incomplete(client: AsyncOpenAI) -> None:
    response = await client.responses.create(model="any", input="Write a long story.", max_output_tokens=4)
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.output[-1].status == "incomplete"  # type: ignore[union-attr]


async def test_a_json_schema_is_held(client: AsyncOpenAI) -> None:
    response = await client.responses.create(
        model="any",
        input="Make up a person. Answer in JSON.",
        text={"format": {"type": "json_schema", "name": "person", "schema": PERSON, "strict": True}},
        max_output_tokens=80,
    )
    person = json.loads(response.output_text)
    assert set(person) == {"name", "age"}
    assert isinstance(person["age"], int)


async def test_a_prefilled_tool_call_and_its_output(client: AsyncOpenAI) -> None:
    async with client.responses.connect() as socket:
        question = {"role": "user", "content": "What is the weather in Paris?"}
        lead = {"role": "assistant", "content": "<tool_call>\n"}
        events = await turn(
            socket,
            model="any",
            input=[question, lead],
            tools=[WEATHER],
            tool_choice="required",
            max_output_tokens=32,
            store=False,
        )
        response = events[-1].response
        call = response.output[0]
        assert call.type == "function_call"
        assert call.name == "get_weather"
        assert "city" in json.loads(call.arguments)
        streamed = [event for event in events if event.type == "response.function_call_arguments.delta"]
        assert "".join(event.delta for event in streamed if event.item_id == call.id) == call.arguments

        calls = [item for item in response.output if item.type == "function_call" and item.status == "completed"]
        outputs = [{"type": "function_call_output", "call_id": each.call_id, "output": "sunny"} for each in calls]
        answer = await turn(
            socket,
            model="any",
            input=outputs,
            tools=[WEATHER],
            tool_choice="none",
            previous_response_id=response.id,
            max_output_tokens=16,
            store=False,
        )
    assert answer[-1].response.output_text


async def test_a_client_that_leaves_stops_the_model(
    server: Loopline, llama: embedded.Embedded, client: AsyncOpenAI
) -> None:
    async with client.responses.connect() as socket:
        await socket.response.create(model="any", input="Write a very long story.", max_output_tokens=1500, store=False)
        async for event in socket:
            if event.type == "response.output_text.delta":
                break
        assert await _busy_slots(llama) == 1
    async with asyncio.timeout(5):
        while await _busy_slots(llama):
            await asyncio.sleep(0.05)
    assert len(server.registry) == 0
    assert server.services.endpoints[0].in_flight == 0


async def test_a_prompt_too_long_is_said_in_the_servers_words(client: AsyncOpenAI) -> None:
    with pytest.raises(Exception, match="exceeds the available context size") as failure:
        await client.responses.create(model="any", input="word " * 5000)
    assert getattr(failure.value, "code", None) == "context_length_exceeded"


async def _busy_slots(llama: embedded.Embedded) -> int:
    async with aiohttp.ClientSession() as session, session.get(llama.url.removesuffix("/v1") + "/slots") as answer:
        return sum(slot["is_processing"] for slot in await answer.json())
