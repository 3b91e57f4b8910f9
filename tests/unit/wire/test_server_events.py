from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.errors import Kind, LooplineError
from proxy.wire import server_events as events
from proxy.wire.client_events import Create, Limits, parse_create
from proxy.wire.codec import decode_object
from proxy.wire.error_events import failed_error
from tests.conformance.schema import RESPONSE_KEYS, check_event
from tests.unit.strategies import TEXT, dumped, json_values

STATES: dict[str, dict[str, Any]] = {
    "in_progress": {},
    "completed": {"usage": events.usage(7, 3, 5, 2, 12), "completed_at": 1_700_000_001},
    "incomplete": {"incomplete": b'{"reason":"max_output_tokens"}', "usage": events.NO_USAGE},
    "failed": {"error": failed_error(LooplineError(Kind.UPSTREAM_CLOSED, "cut"))},
}
ITEM = b'{"type":"message","id":"msg_1","status":"completed","role":"assistant","content":[%b]}' % events.text_part(
    b'"hi"'
)


def create(**members: Any) -> Create:
    return parse_create(decode_object(dumped({"input": "x", **members})), 0, Limits())


def snapshot(made: Create, status: str, **state: Any) -> dict[str, Any]:
    shot = events.Snapshot("resp_1", made, "m", b"[]", 1_700_000_000)
    kind = b"response." + status.encode()
    event: dict[str, Any] = json.loads(
        events.event(kind, 3, b'"response":' + shot.render(status.encode(), **{**STATES[status], **state}))
    )
    check_event(event)
    check_event(event, transport="sse")
    response: dict[str, Any] = event["response"]
    return response


@pytest.mark.parametrize("status", STATES)
def test_a_snapshot_has_all_keys_in_every_state(status: str) -> None:
    response = snapshot(create(), status, output=ITEM)
    assert len(RESPONSE_KEYS) == 31
    assert set(response) == RESPONSE_KEYS
    assert (response["id"], response["model"], response["status"]) == ("resp_1", "m", status)
    assert response["output"] == [json.loads(ITEM)]


@pytest.mark.parametrize("status", STATES)
def test_a_snapshot_echoes_what_was_asked(status: str) -> None:
    asked = {
        "previous_response_id": "resp_0", "instructions": "be \"brief\" 😀", "tool_choice": "required",
        "truncation": "auto", "parallel_tool_calls": False, "top_p": 0.5, "presence_penalty": 0.1,
        "frequency_penalty": 0.2, "top_logprobs": 2, "temperature": 0.0, "max_output_tokens": 9, "max_tool_calls": 3,
        "store": False, "background": False, "service_tier": "flex", "metadata": {"a": "b"},
        "safety_identifier": "s", "prompt_cache_key": "k",
    }  # fmt: skip
    response = snapshot(create(**asked), status)
    assert {name: response[name] for name in asked} == asked


def test_a_silent_request_gets_openais_defaults() -> None:
    response = snapshot(create(store=None, tool_choice=None, metadata=None), "in_progress")
    assert (response["store"], response["tool_choice"], response["metadata"]) == (True, "auto", {})
    assert (response["text"], response["reasoning"]) == ({"format": {"type": "text"}}, None)


@pytest.mark.parametrize(
    ("text", "echoed"),
    [
        ({}, {"format": {"type": "text"}}),
        ({"verbosity": "low"}, {"format": {"type": "text"}, "verbosity": "low"}),
        ({"format": None, "verbosity": None}, {"format": {"type": "text"}}),
        ({"format": {"type": "json_object"}}, {"format": {"type": "json_object"}}),
    ],
)
def test_text_always_says_its_format(text: dict[str, Any], echoed: dict[str, Any]) -> None:
    assert snapshot(create(text=text), "in_progress")["text"] == echoed


def test_reasoning_always_says_effort_and_summary() -> None:
    assert snapshot(create(reasoning={"effort": "low"}), "in_progress")["reasoning"] == {
        "effort": "low",
        "summary": None,
    }


def test_the_response_is_the_same_but_for_its_state() -> None:
    made = create(metadata={"a": "b"})
    changing = {"status", "output", "usage", "error", "incomplete_details", "completed_at"}
    shots = [snapshot(made, status) for status in STATES]
    fixed = [{name: shot[name] for name in RESPONSE_KEYS - changing} for shot in shots]
    assert fixed[1:] == fixed[:-1]


@pytest.mark.parametrize(
    "tool",
    [b'{"type":"function","name":"f"}', b'{"type":"function","name":"f","strict":true,"parameters":{"a":[]},"x":1}'],
)
def test_a_function_tool_is_echoed_with_all_keys(tool: bytes) -> None:
    silent = {"description": None, "parameters": None, "strict": None}
    assert json.loads(events.echo_tool(tool)) == {**silent, **json.loads(tool)}


def test_other_tools_are_echoed_as_they_came() -> None:
    tool = b'{ "type":"namespace","name":"n","tools":[{"type":"function","name":"f"}]}'
    assert events.echo_tool(tool) == tool


def test_a_tools_numbers_are_not_rewritten() -> None:
    assert b"1e400,1.50" in events.echo_tool(b'{"type":"function","name":"f","parameters":[1e400,1.50]}')


@given(json_values("text", "format", "effort"), TEXT, st.sampled_from(sorted(STATES)))
@settings(deadline=None, max_examples=60)
def test_any_create_gives_a_snapshot_that_is_json(value: Any, text: str, status: str) -> None:
    made = create(tool_choice=value, instructions=text, metadata={text: text}, prompt_cache_key=text)
    shot = events.Snapshot("resp_1", made, text, b"[]", 1).render(status.encode(), **STATES[status])
    response = json.loads(shot)
    assert set(response) == RESPONSE_KEYS
    assert (response["model"], response["instructions"], response["metadata"]) == (text, text, {text: text})


def test_usage_has_every_count_that_the_types_require() -> None:
    assert json.loads(events.usage(7, 3, 5, 2, 12)) == {
        "input_tokens": 7,
        "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 12,
    }
