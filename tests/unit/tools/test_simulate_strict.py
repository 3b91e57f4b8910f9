"""The checks and the schema samples, without a socket."""

from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from proxy.tools.simulate.sample import sample
from proxy.tools.simulate.strict import Invalid, Unexpected, check_chat
from proxy.tools.simulate.strict_responses import check as check_responses

USER = {"role": "user", "content": "hi"}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "ok"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
FLAT = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True}
ITEM_CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
ITEM_OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "ok"}
PIXEL = "data:image/png;base64,AAAA"


def chat(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"messages": list(messages), **fields}


@pytest.mark.parametrize(
    "body",
    [
        chat(USER),
        chat(USER, CALLED, RESULT),
        chat(USER, CALLED, {**RESULT, "content": [{"type": "text", "text": "ok"}]}, {**USER}),
        chat(USER, tools=[TOOL], tool_choice={"type": "function", "function": {"name": "f"}}),
        chat(USER, tool_choice="none"),
        chat({"role": "user", "content": [{"type": "image_url", "image_url": {"url": PIXEL}}]}),
        chat(USER, stream=True, stream_options={"include_usage": True}, unknown=1, temperature=None),
        chat(USER, {"role": "assistant", "content": "x", "reasoning_content": "y"}, USER),
        chat(USER, response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": {}}}),
    ],
)
def test_chat_accepts(body: dict[str, Any]) -> None:
    check_chat(body)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "missing or empty"),
        (chat(), "missing or empty"),
        ({"messages": "x"}, "must be a list"),
        (chat("x"), "must be an object"),
        (chat({"role": "robot", "content": "x"}), "unknown role"),
        (chat({"role": "user", "content": None}), "string or a list of parts"),
        (chat({"role": "user", "content": [{"type": "input_text", "text": "x"}]}), "unknown content part"),
        (chat({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:x"}}]}), "data: or http"),
        (chat(USER, RESULT), "No tool call found for function call output with call_id c1."),
        (chat(USER, CALLED), "No tool output found for function call c1."),
        (chat(USER, CALLED, USER), "No tool output found for function call c1."),
        (chat(USER, CALLED, RESULT, RESULT), "No tool call found"),
        (chat(USER, {**CALLED, "tool_calls": [CALL, CALL]}, RESULT), "Duplicate call id"),
        (chat(USER, {**CALLED, "tool_calls": [{**CALL, "type": "x"}]}), "must be 'function'"),
        (chat(USER, {**CALLED, "tool_calls": [{**CALL, "function": {"name": "f", "arguments": "{"}}]}), "valid JSON"),
        (chat(USER, {**CALLED, "tool_calls": [{**CALL, "function": {"name": "f", "arguments": {}}}]}), "a string"),
        (chat(USER, tools=[{"type": "custom"}]), "must be 'function'"),
        (chat(USER, tools=[FLAT]), "must be an object"),
        (chat(USER, tools=[{"type": "function", "function": {"name": ""}}]), "not empty"),
        (chat(USER, tools=[{"type": "function", "function": {"name": "f", "parameters": []}}]), "must be an object"),
        (chat(USER, tool_choice="auto"), "`tools` must be set"),
        (chat(USER, tools=[TOOL], tool_choice="sometimes"), "auto, none, required"),
        (chat(USER, tools=[], tool_choice="required"), "needs a function"),
        (chat(USER, tools=[TOOL], tool_choice={"type": "function", "function": {"name": "g"}}), "does not match"),
        (chat(USER, response_format={"type": "xml"}), "text, json_object or json_schema"),
        (chat(USER, response_format={"type": "json_schema"}), "must be an object"),
        (chat(USER, stream_options={"include_usage": True}), "stream=True"),
        (chat(USER, temperature=3), "a number from 0 to 2"),
        (chat(USER, max_tokens="x"), "an integer"),
        (chat(USER, max_tokens=True), "an integer"),
        (chat(USER, n=2), "one choice"),
        (chat(USER, cache_salt=""), "not empty"),
    ],
)
def test_chat_refuses(body: dict[str, Any], message: str) -> None:
    with pytest.raises(Invalid, match=message.replace("(", r"\(").replace("[", r"\[")) as caught:
        check_chat(body)
    assert caught.value.status == 400
    assert caught.value.param


def test_strict_fields_refuse_extensions() -> None:
    with pytest.raises(Unexpected, match="'cache_salt'"):
        check_chat(chat(USER, cache_salt="x"), strict=True)
    with pytest.raises(Unexpected, match="'client_metadata'"):
        check_responses({"input": "x", "client_metadata": {}}, strict=True)


@pytest.mark.parametrize(
    "body",
    [
        {"input": "hi"},
        {"input": [USER]},
        {"input": [{"type": "message", "id": "msg_1", "role": "developer", "content": "x"}]},
        {"input": [USER, ITEM_CALL, ITEM_OUTPUT]},
        {"input": [USER, {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None}, USER]},
        {"input": [USER, ITEM_CALL, {**ITEM_OUTPUT, "output": [{"type": "input_text", "text": "x"}]}]},
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": PIXEL}]}]},
        {"input": "hi", "tools": [FLAT, {"type": "web_search"}], "tool_choice": {"type": "function", "name": "f"}},
        {"input": "hi", "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}}},
        {"input": "hi", "previous_response_id": None, "tool_choice": "auto", "client_metadata": {}},
    ],
)
def test_responses_accepts(body: dict[str, Any]) -> None:
    check_responses(body)


@pytest.mark.parametrize(
    ("body", "message", "status"),
    [
        ({}, "missing or empty", 400),
        ({"input": []}, "missing or empty", 400),
        ({"input": 3}, "a string or a list of items", 400),
        ({"input": [{"type": "compaction", "encrypted_content": "x"}]}, "unknown item type", 400),
        ({"input": [{"role": "tool", "content": "x"}]}, "unknown role", 400),
        ({"input": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]}, "unknown content part", 400),
        ({"input": [ITEM_CALL]}, "No tool output found for function call c1.", 400),
        ({"input": [ITEM_OUTPUT]}, "No tool call found for function call output with call_id c1.", 400),
        ({"input": [{**ITEM_CALL, "arguments": "{"}, ITEM_OUTPUT]}, "valid JSON", 400),
        ({"input": [{"type": "reasoning", "id": "rs_1"}]}, "must be a list", 400),
        ({"input": [{**USER, "id": 3}]}, "a string that is not empty", 400),
        ({"input": "x", "tools": [TOOL]}, "a string that is not empty", 400),
        ({"input": "x", "tools": [{"type": "teleport"}]}, "unknown tool type", 400),
        ({"input": "x", "tool_choice": {"type": "function", "name": "g"}}, "does not match", 400),
        ({"input": "x", "text": {"format": {"type": "json_schema", "name": "n"}}}, "must be an object", 400),
        ({"input": "x", "background": True}, "background", 400),
        ({"input": "x", "max_output_tokens": 0}, "at least 1", 400),
        ({"input": "x", "previous_response_id": "resp_1"}, "Response with id 'resp_1' not found.", 404),
    ],
)
def test_responses_refuses(body: dict[str, Any], message: str, status: int) -> None:
    with pytest.raises(Invalid, match=message) as caught:
        check_responses(body)
    assert caught.value.status == status


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]}, {"cmd": "echo hello"}),
        ({"type": "object", "properties": {"a": {"type": "string"}}}, {}),
        ({"enum": ["b", "a"]}, "b"),
        ({"const": 3}, 3),
        ({"type": "integer", "minimum": 5}, 5),
        ({"type": "integer", "exclusiveMinimum": 5, "multipleOf": 4}, 12),
        ({"type": "number", "maximum": -2}, -3),
        ({"type": "string", "minLength": 9, "maxLength": 10}, "textxxxxx"),
        ({"type": "string", "format": "date"}, "2026-01-02"),
        ({"type": "array", "items": {"type": "boolean"}, "minItems": 2}, [True, True]),
        ({"type": "array", "items": {"type": "boolean"}, "maxItems": 0}, []),
        ({"type": ["null", "string"]}, "text"),
        ({"type": "null"}, None),
        ({"anyOf": [{"type": "null"}, {"type": "integer"}]}, 1),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"enum": ["y"]}}}, "y"),
        ({"allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"required": []}]}, {"a": 1}),
    ],
)
def test_samples_satisfy_their_schema(schema: dict[str, Any], value: Any) -> None:
    assert sample(schema) == value
    jsonschema.validate(value, schema)


def test_a_schema_without_end_ends() -> None:
    assert sample({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})
