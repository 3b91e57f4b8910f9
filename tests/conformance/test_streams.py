"""Every kind of answer, over both dialects: the recording client checks each event and the order of all of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conformance.schema import check_turn
from tests.house import House
from tests.wire_client import WireClient, function, tool_output, user

SCRIPTS = {
    "text": ('[[say "Hello, world."]]', ["message"]),
    "long text": ("[[say 300]]", ["message"]),
    "reasoning": ("[[think 5]] [[say 3]]", ["reasoning", "message"]),
    "call": ('[[call get_weather {"city": "Paris"}]]', ["function_call"]),
    "call with empty arguments": ("[[call get_weather {}]]", ["function_call"]),
    "call with broken arguments": ('[[call get_weather "{broken"]]', ["function_call"]),
    "parallel calls": (
        '[[call get_weather {"city": "Paris"}]] [[call get_weather {"city": "Rome"}]]',
        ["function_call", "function_call"],
    ),
    "all at once": (
        '[[think 4]] [[say 4]] [[call get_weather {"city": "Oslo"}]]',
        ["reasoning", "message", "function_call"],
    ),
    "refusal": ('[[refuse "No."]]', ["message"]),
}


@pytest.mark.parametrize("name", SCRIPTS)
async def test_every_kind_of_answer_is_a_well_formed_stream(name: str, client: WireClient) -> None:
    script, kinds = SCRIPTS[name]
    recorded = await client.turn([user(script)], tools=[function()], store=False)
    assert recorded.kind == "response.completed"
    assert [item["type"] for item in recorded.output] == kinds


async def test_an_answer_cut_by_length_is_incomplete_and_so_is_its_last_item(client: WireClient) -> None:
    recorded = await client.turn([user("[[length 5]]")])
    assert recorded.kind == "response.incomplete"
    assert recorded.response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert recorded.output[-1]["status"] == "incomplete"


async def test_an_error_in_mid_stream_fails_the_response_and_keeps_the_items_that_were_done(
    client: WireClient,
) -> None:
    recorded = await client.turn([user("[[think 3]] [[say 20]] [[error 8]]")])
    assert recorded.kind == "response.failed"
    assert recorded.error["code"] == "server_error"
    assert [item["type"] for item in recorded.output] == ["reasoning"]


async def test_the_snapshot_echoes_what_was_asked(client: WireClient) -> None:
    asked: dict[str, Any] = {
        "instructions": "Be brief.",
        "temperature": 0.5,
        "top_p": 0.9,
        "max_output_tokens": 50,
        "metadata": {"key": "value"},
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "store": False,
        "prompt_cache_key": "thread-1",
    }
    recorded = await client.turn([user("[[say 2]]")], tools=[function()], **asked)
    for event in (recorded.events[0], recorded.events[1], recorded.events[-1]):
        assert {name: event["response"][name] for name in asked} == asked
    tool = recorded.response["tools"][0]
    assert tool["name"] == "get_weather"
    assert tool["description"] is None
    assert tool["strict"] in (None, True, False)


async def test_usage_is_what_the_upstream_counted(client: WireClient) -> None:
    recorded = await client.turn([user("[[think 4]] [[say 6]]")])
    usage = recorded.response["usage"]
    assert usage["output_tokens"] >= 10
    assert usage["output_tokens_details"]["reasoning_tokens"] == 4
    assert usage["input_tokens"] > 0


async def test_usage_reports_cached_tokens_of_a_continued_conversation(client: WireClient) -> None:
    first = await client.turn([user("word " * 200 + "[[say 3]]")])
    second = await client.turn([user("[[say 3]]")], previous_response_id=first.id)
    assert second.response["usage"]["input_tokens_details"]["cached_tokens"] >= 100


@pytest.mark.parametrize("model", ["simulated", "a-name-of-my-own"])
async def test_the_response_names_the_model_as_the_client_did(model: str, client: WireClient) -> None:
    await client.says("hello", model=model)


async def test_a_model_that_is_not_named_is_the_default(client: WireClient) -> None:
    await client.send({"type": "response.create", "input": "[[say 2]]"})
    recorded = await client.collect("simulated")
    assert recorded.kind == "response.completed"


@pytest.mark.parametrize(
    "content",
    ["[[say 2]]", [{"type": "input_text", "text": "[[say 2]]"}]],
    ids=["string", "parts"],
)
@pytest.mark.parametrize("typed", [True, False], ids=["with a type", "without a type"])
async def test_input_comes_in_every_form(content: Any, typed: bool, client: WireClient) -> None:
    item = {"role": "user", "content": content, **({"type": "message"} if typed else {})}
    recorded = await client.turn([item])
    assert recorded.kind == "response.completed"


async def test_fields_of_real_clients_are_taken(client: WireClient) -> None:
    recorded = await client.turn(
        [{"role": "developer", "content": "Work."}, user("[[say 2]]")],
        stream=True,
        include=["reasoning.encrypted_content"],
        client_metadata={"thread_id": "1"},
        reasoning={"summary": "auto"},
        previous_response_id=None,
        tools=[function(), {"type": "web_search"}],
    )
    assert recorded.kind == "response.completed"


async def test_ids_of_a_turn_are_its_own(client: WireClient) -> None:
    first, second = await client.says("one"), await client.says("two")
    assert first.id != second.id
    assert first.output[0]["id"] != second.output[0]["id"]


async def test_a_tool_loop_over_the_wire(client: WireClient) -> None:
    tools = [function()]
    first = await client.turn(
        [user('[[call get_weather {"city": "Paris"}]] [[then]] [[say "Sunny."]]')], tools=tools, store=False
    )
    call = first.calls[0]
    assert json.loads(call["arguments"]) == {"city": "Paris"}
    second = await client.turn(
        [tool_output(call["call_id"], "sunny")], tools=tools, store=False, previous_response_id=first.id
    )
    assert second.text == "Sunny."
    assert second.response["previous_response_id"] == first.id


@pytest.mark.parametrize("name", SCRIPTS)
async def test_the_same_answers_as_server_sent_events(name: str, house: House) -> None:
    script, kinds = SCRIPTS[name]
    body = {"input": [user(script)], "tools": [function()], "stream": True}
    async with house.post(body) as response:
        assert response.headers["Content-Type"].startswith("text/event-stream")
        frames = (await response.text()).strip().split("\n\n")
    assert frames[-1] == "data: [DONE]"
    events = []
    for frame in frames[:-1]:
        named, data = frame.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert named == f"event: {events[-1]['type']}"
    check_turn(events, transport="sse")
    assert [item["type"] for item in events[-1]["response"]["output"]] == kinds


@pytest.mark.parametrize("name", SCRIPTS)
async def test_the_same_answers_as_one_document(name: str, house: House) -> None:
    script, kinds = SCRIPTS[name]
    async with house.post({"input": [user(script)], "tools": [function()]}) as response:
        assert response.status == 200
        document = await response.json()
    # A document is the response of a terminal event.
    assert document["status"] == "completed"
    assert [item["type"] for item in document["output"]] == kinds
