"""An item that came whole is told as one that grew."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.translate.responses.whole import cut, grown
from proxy.wire.codec import Raw
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


@pytest.mark.parametrize("count", range(1, len(told(MESSAGE))))
def test_a_message_cut_at_any_event_is_closed_once_with_what_was_said(count: int) -> None:
    events = told(MESSAGE)[:count]
    added, said = json.dumps(events[0]["item"]).encode(), [json.dumps(event).encode() for event in events[1:]]
    kept = cut(Raw(added), said, 0, 7 + count)
    deltas = "".join(event["delta"] for event in events if event["type"].endswith(".delta"))
    if not deltas:
        assert kept is None
        return
    assert kept is not None
    item, closing = kept
    nesting = Nesting()
    whole = events + [json.loads(event) for event in closing]
    for number, event in enumerate(whole):
        assert event["sequence_number"] == 7 + number
        check_event(event)
        nesting.take(event)
    assert nesting.item is None
    done = whole[-1]["item"]
    assert json.loads(item.raw) == done
    assert done["status"] == "incomplete"
    assert "".join(part.get("text") or part.get("refusal") or "" for part in done["content"]) == deltas


def test_a_message_of_an_upstream_that_announces_no_parts_is_cut_too() -> None:
    added = b'{"type":"message","id":"msg_1","role":"assistant","status":"in_progress","content":[]}'
    delta = {"type": "response.output_text.delta", "item_id": "msg_1", "delta": "Hello"}
    kept = cut(Raw(added), [json.dumps(delta).encode(), b'{"type":"codex.rate_limits","sequence_number":3}'], 0, 4)
    assert kept is not None
    assert [json.loads(event)["type"] for event in kept[1]] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
    ]
    assert json.loads(kept[0].raw)["content"] == [
        {"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}
    ]
