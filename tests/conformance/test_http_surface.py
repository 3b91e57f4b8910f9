"""The HTTP surface that a client swaps in, row by row: what each endpoint of the Responses resource is relied on for.

The openai package is the client wherever it has a method; the rows of other resources are tested where they are served.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, BadRequestError, InternalServerError, NotFoundError, RateLimitError
from openai.types.responses import Response
from pydantic import BaseModel

from proxy.tools.simulate import Options
from tests.conformance.schema import check_turn
from tests.house import BEARER, House, open_house

MODEL = "simulated"


class Place(BaseModel):
    """What the model is asked for."""

    city: str
    size: int


@pytest.fixture
async def sdk(house: House) -> AsyncIterator[AsyncOpenAI]:
    """The openai package before the server; its own retries are off."""
    async with opened(house) as client:
        yield client


@asynccontextmanager
async def opened(house: House) -> AsyncIterator[AsyncOpenAI]:
    """One such client."""
    async with AsyncOpenAI(api_key="test", base_url=house.url, max_retries=0) as client:
        yield client


# --- POST /v1/responses ----------------------------------------------------------------------------------------------


async def test_create_answers_with_a_response(sdk: AsyncOpenAI) -> None:
    made = await sdk.responses.create(model=MODEL, input='[[say "Hello."]]', metadata={"a": "b"})
    assert (made.status, made.output_text, made.metadata) == ("completed", "Hello.", {"a": "b"})
    assert made.usage is not None
    assert made.usage.input_tokens_details.cached_tokens is not None
    for name in ("id", "created_at", "model", "object", "output", "parallel_tool_calls", "tool_choice", "tools"):
        assert getattr(made, name) is not None, name


async def test_create_streams_events_named_by_their_type_and_ends_with_done(house: House, sdk: AsyncOpenAI) -> None:
    kinds = [event.type async for event in await sdk.responses.create(model=MODEL, input="[[say 3]]", stream=True)]
    assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")
    async with house.post({"input": "[[say 3]]", "stream": True}) as response:
        assert response.content_type == "text/event-stream"
        frames = (await response.text()).removesuffix("\n\n").split("\n\n")
    assert frames.pop() == "data: [DONE]"
    events = []
    for frame in frames:
        name, data = frame.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == "event: " + events[-1]["type"]
    check_turn(events)


async def test_stream_and_parse_give_helpers_what_they_read(sdk: AsyncOpenAI) -> None:
    async with sdk.responses.stream(model=MODEL, input='[[say "One two."]]') as stream:
        assert [event.type async for event in stream][-1] == "response.completed"
        assert (await stream.get_final_response()).output_text == "One two."
    script = '[[say "{\\"city\\": \\"Oslo\\", \\"size\\": 3}"]]'
    parsed = await sdk.responses.parse(model=MODEL, input=script, text_format=Place)
    assert parsed.output_parsed == Place(city="Oslo", size=3)


async def test_raw_responses_name_their_request(sdk: AsyncOpenAI) -> None:
    raw = await sdk.responses.with_raw_response.create(
        model=MODEL, input="[[say 1]]", extra_headers={"x-request-id": "mine"}
    )
    assert raw.headers["x-request-id"] == "mine"
    made = raw.parse()
    assert (made._request_id, (await sdk.responses.retrieve(made.id))._request_id) != (None, None)


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ("[[fail 429 retry-after=3]]", RateLimitError),
        ("[[fail 500]]", InternalServerError),
        ("[[fail 400]]", BadRequestError),
    ],
)
async def test_errors_are_mapped_by_status_and_have_a_body(
    script: str, kind: type[openai.APIStatusError], sdk: AsyncOpenAI
) -> None:
    with pytest.raises(kind) as caught:
        await sdk.responses.create(model=MODEL, input=script)
    assert isinstance(caught.value.body, dict)
    assert caught.value.body.keys() == {"message", "type", "param", "code"}
    assert caught.value.request_id
    if kind is RateLimitError:
        assert caught.value.response.headers["retry-after"] == "3"


# --- GET, DELETE, cancel, input_items, input_tokens ------------------------------------------------------------------


async def test_retrieve_gives_what_create_gave(sdk: AsyncOpenAI) -> None:
    made = await sdk.responses.create(model=MODEL, input="[[say 5]]")
    assert (await sdk.responses.retrieve(made.id)).to_dict() == made.to_dict()
    assert (await sdk.responses.retrieve(made.id, include=["reasoning.encrypted_content"])).id == made.id
    with pytest.raises(BadRequestError) as caught:
        await sdk.responses.retrieve(made.id, stream=True)
    assert caught.value.param == "stream"


async def test_what_is_unknown_deleted_or_not_stored_is_a_404(sdk: AsyncOpenAI) -> None:
    made = await sdk.responses.create(model=MODEL, input="[[say 1]]")
    unstored = await sdk.responses.create(model=MODEL, input="[[say 1]]", store=False)
    await sdk.responses.delete(made.id)
    for name in (made.id, unstored.id, "resp_foreign"):
        with pytest.raises(NotFoundError) as caught:
            await sdk.responses.retrieve(name)
        assert caught.value.body == {
            "message": f"Response with id '{name}' not found.",
            "type": "invalid_request_error",
            "param": "response_id",
            "code": "not_found",
        }
        with pytest.raises(NotFoundError):
            await sdk.responses.delete(name)


async def test_delete_answers_with_what_was_deleted(sdk: AsyncOpenAI) -> None:
    made = await sdk.responses.create(model=MODEL, input="[[say 1]]")
    raw = await sdk.responses.with_raw_response.delete(made.id)
    assert json.loads(raw.text) == {"id": made.id, "object": "response.deleted", "deleted": True}


@pytest.mark.parametrize("dialect", ["chat"])
async def test_background_is_polled_and_cancelled(dialect: str) -> None:
    async with open_house(dialect, None, Options(tokens_per_s=40.0)) as house, opened(house) as sdk:
        first = await sdk.responses.create(model=MODEL, input="[[say 8]]", background=True)
        second = await sdk.responses.create(model=MODEL, input="[[say 1000]]", background=True)
        assert first.status == second.status == "queued"
        cancelled = await sdk.responses.cancel(second.id)
        assert (cancelled.id, cancelled.status) == (second.id, "cancelled")
        polled: Response = first
        async with asyncio.timeout(10):
            while polled.status in ("queued", "in_progress"):
                polled = await sdk.responses.retrieve(first.id)
                await asyncio.sleep(0.01)
        assert polled.status == "completed"
        assert len(polled.output_text.split()) == 8
        with pytest.raises(BadRequestError):
            await sdk.responses.create(model=MODEL, input="x", background=True, store=False)


@pytest.mark.parametrize("dialect", ["chat"])
async def test_a_background_stream_is_taken_up_again_where_it_was_left(dialect: str) -> None:
    async with open_house(dialect, None, Options(tokens_per_s=40.0)) as house, opened(house) as sdk:
        seen: list[Any] = []
        async with await sdk.responses.create(model=MODEL, input="[[say 9]]", background=True, stream=True) as begun:
            async for event in begun:
                seen.append(event)
                if event.type == "response.output_text.delta":
                    break
        made, last = seen[0].response.id, seen[-1].sequence_number
        async with await sdk.responses.retrieve(made, stream=True, starting_after=last) as rest:
            seen += [event async for event in rest]
        assert [event.sequence_number for event in seen] == list(range(len(seen)))
        text = "".join(event.delta for event in seen if event.type == "response.output_text.delta")
        assert text == seen[-1].response.output_text == (await sdk.responses.retrieve(made)).output_text
        async with sdk.responses.stream(response_id=made, starting_after=last) as helped:
            again = [event.sequence_number async for event in helped]
            assert (await helped.get_final_response()).output_text == text
        assert again == list(range(last + 1, len(seen)))


async def test_input_items_are_paged_newest_first(sdk: AsyncOpenAI) -> None:
    first = await sdk.responses.create(model=MODEL, input=[{"role": "user", "content": str(n)} for n in range(30)])
    made = await sdk.responses.create(model=MODEL, input='last [[say "x"]]', previous_response_id=first.id)
    page = await sdk.responses.input_items.list(made.id)
    assert len(page.data) == 20
    assert page.has_more
    listed = [item async for item in sdk.responses.input_items.list(made.id, limit=7)]
    assert len(listed) == 32
    assert len({item.id for item in listed}) == 32
    newest: Any = listed[0]
    assert (newest.type, newest.role, newest.content[0].text) == ("message", "user", 'last [[say "x"]]')
    oldest = [item async for item in sdk.responses.input_items.list(made.id, order="asc")]
    assert [item.id for item in oldest] == [item.id for item in listed][::-1]


async def test_input_tokens_are_counted(sdk: AsyncOpenAI) -> None:
    raw = await sdk.responses.input_tokens.with_raw_response.count(model=MODEL, input="How many?")
    counted = raw.parse()
    assert counted.object == "response.input_tokens"
    assert counted.input_tokens > 0
    assert raw.headers["x-loopline-estimated"] == "true"


async def test_compaction_is_not_served(sdk: AsyncOpenAI) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        await sdk.responses.compact(model=MODEL, input="x")
    assert caught.value.status_code in (404, 405)


# --- GET /v1/models --------------------------------------------------------------------------------------------------


async def test_models_are_listed_and_shown(house: House, sdk: AsyncOpenAI) -> None:
    listed = [model async for model in sdk.models.list()]
    assert MODEL in [model.id for model in listed]
    assert (await sdk.models.retrieve(MODEL)).object == "model"
    async with house.http.get(f"{house.url}/models", headers=BEARER) as response:
        assert (await response.json())["object"] == "list"


# --- The same, without asyncio ---------------------------------------------------------------------------------------


async def test_the_synchronous_client_does_the_same(house: House) -> None:
    def use() -> str:
        with openai.OpenAI(api_key="test", base_url=house.url, max_retries=0) as sdk:
            made = sdk.responses.create(model=MODEL, input='[[say "Hi."]]')
            items = list(sdk.responses.input_items.list(made.id, limit=1))
            assert len(items) == 1
            assert sdk.responses.retrieve(made.id).output_text == "Hi."
            sdk.responses.delete(made.id)
            with pytest.raises(NotFoundError):
                sdk.responses.retrieve(made.id)
            return made.output_text

    assert await asyncio.to_thread(use) == "Hi."
