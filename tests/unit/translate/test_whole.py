"""An item that came whole is told as one that grew."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.translate.whole import grown
from proxy.wire.items import parse_item
from tests.conformance.schema import Nesting, check_event

MESSAGE = {
    "type": "message",
    "id": "msg_1",
    "status": "completed",
    "role": "assistant",
    "content": [
        {"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []},
        {"type": "refusal", "refusal": "No."},
    ],
}
REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "status": "completed",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": "Hm"}],
}
CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "f",
    "arguments": '{"a":1}',
    "status": "completed",
}
CUSTOM = {"type": "custom_tool_call", "id": "ct_1", "call_id": "call_1", "name": "patch", "input": "*** Begin"} | {
    "status": "completed"
}


def told(item: dict[str, Any]) -> list[dict[str, Any]]:
    parsed = parse_item(json.dumps(item).encode())
    return [json.loads(event) for event in grown(parsed, 0, 7)]


@pytest.mark.parametrize("item", [MESSAGE, REASONING, CALL], ids=lambda item: str(item["type"]))
def test_events_are_valid_nested_and_numbered(item: dict[str, Any]) -> None:
    events = told(item)
    nesting = Nesting()
    for number, event in enumerate(events):
        assert event["sequence_number"] == 7 + number
        check_event(event)
        nesting.take(event)
    assert events[-1]["item"] == item


@pytest.mark.parametrize(
    ("item", "kind", "text"),
    [
        (MESSAGE, "response.output_text.delta", "Hello"),
        (MESSAGE, "response.refusal.delta", "No."),
        (REASONING, "response.reasoning_text.delta", "Hm"),
        (CALL, "response.function_call_arguments.delta", '{"a":1}'),
        (CUSTOM, "response.custom_tool_call_input.delta", "*** Begin"),
    ],
)
def test_text_comes_as_one_delta(item: dict[str, Any], kind: str, text: str) -> None:
    assert [event["delta"] for event in told(item) if event["type"] == kind] == [text]


def test_an_item_without_anything_that_grows_is_added_and_done() -> None:
    item = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}}
    assert [event["type"] for event in told(item)] == ["response.output_item.added", "response.output_item.done"]
