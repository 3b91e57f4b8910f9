"""What every stream of events must be, whatever was asked: OpenAI's types, Open Responses' keys, and their order.

`check_turn` takes the events of one turn; each rule raises `AssertionError` with the event at fault. Source:
openai-python's `ResponsesServerEvent` and `ResponseStreamEvent`; Open Responses 2026-04-24, required keys and the
lifecycle of items.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from openai.types.responses import ResponsesServerEvent, ResponseStreamEvent
from pydantic import BaseModel, ValidationError

Event = Mapping[str, Any]

TERMINAL = frozenset({"response.completed", "response.failed", "response.incomplete", "error"})
LIFECYCLE = frozenset({"response.created", "response.in_progress"}) | (TERMINAL - {"error"})

# Members that OpenAI's types do not know, and why they are sent.
EXTENSIONS: Mapping[str, frozenset[str]] = {
    # Open Responses requires them in every snapshot.
    "Response": frozenset({"presence_penalty", "frequency_penalty", "store"}),
    # The union of the shapes that clients read: Codex the top, openai-python `error`, Vercel both.
    "ResponseWsError": frozenset({"code", "message", "param", "headers"}),
    "ResponseErrorEvent": frozenset({"status", "error", "headers"}),
    # Required by the types of openai-python 2, gone from those of 3.
    "ResponseFunctionCallArgumentsDoneEvent": frozenset({"name"}),
    "ResponseFunctionCallArgumentsWsDone": frozenset({"name"}),
    # Sent by OpenAI, missing in its types; Open Responses requires it of every item.
    "ResponseCustomToolCall": frozenset({"status"}),
}
# `response.error.code` is a closed list in OpenAI's types; Codex acts on these two, which are not in it.
EXTRA_FAILED_CODES = frozenset({"context_length_exceeded", "insufficient_quota"})

# fmt: off
RESPONSE_KEYS = frozenset(
    {
        "id", "object", "created_at", "completed_at", "status", "incomplete_details", "model",
        "previous_response_id", "instructions", "output", "error", "tools", "tool_choice", "truncation",
        "parallel_tool_calls", "text", "top_p", "presence_penalty", "frequency_penalty", "top_logprobs",
        "temperature", "reasoning", "usage", "max_output_tokens", "max_tool_calls", "store", "background",
        "service_tier", "metadata", "safety_identifier", "prompt_cache_key",
    }
)
# fmt: on
ITEM_KEYS: Mapping[str, frozenset[str]] = {
    "message": frozenset({"type", "id", "status", "role", "content"}),
    "function_call": frozenset({"type", "id", "call_id", "name", "arguments", "status"}),
    "custom_tool_call": frozenset({"type", "id", "call_id", "name", "input"}),
    "reasoning": frozenset({"type", "id", "summary"}),
    "compaction": frozenset({"type", "id", "encrypted_content"}),
    "shell_call": frozenset({"type", "id", "call_id", "action", "environment", "status"}),
    "local_shell_call": frozenset({"type", "id", "call_id", "action", "status"}),
    "apply_patch_call": frozenset({"type", "id", "call_id", "operation", "status"}),
    "tool_search_call": frozenset({"type", "id", "call_id", "arguments", "execution", "status"}),
}
TOOL_KEYS = frozenset({"type", "name", "description", "parameters", "strict"})
USAGE_KEYS = frozenset(
    {"input_tokens", "output_tokens", "total_tokens", "input_tokens_details", "output_tokens_details"}
)
PART_EVENTS = {
    "response.output_text": "text",
    "response.refusal": "refusal",
    "response.reasoning_text": "text",
}
CALL_EVENTS = {
    "response.function_call_arguments": "arguments",
    "response.custom_tool_call_input": "input",
}


def _models(union: Any) -> dict[str, type[BaseModel]]:
    models: dict[str, type[BaseModel]] = {}
    for model in get_args(get_args(union)[0]):
        models[get_args(model.model_fields["type"].annotation)[0]] = model
    return models


SERVER_EVENTS = _models(ResponsesServerEvent)
STREAM_EVENTS = _models(ResponseStreamEvent)


def check_turn(events: Sequence[Event], *, transport: str = "websocket", stream_id: str | None = None) -> None:
    """One turn, from its first event to its terminal one."""
    assert events, "a turn without any event"
    for event in events:
        check_event(event, transport=transport, stream_id=stream_id)
    kinds = [event["type"] for event in events]
    ends = [kind for kind in kinds if kind in TERMINAL]
    assert len(ends) == 1, f"not one terminal event: {ends}"
    assert kinds[-1] in TERMINAL, f"{kinds[-1]} came last"
    assert [event["sequence_number"] for event in events] == list(range(len(events))), "gaps in sequence_number"
    if kinds == ["error"]:
        return
    assert kinds[:2] == ["response.created", "response.in_progress"], f"began with {kinds[:2]}"
    assert kinds[-1] != "error", "an error event after response.created; it must be response.failed"
    _check_identity(events)
    _check_nesting(events)


def check_event(event: Event, *, transport: str = "websocket", stream_id: str | None = None) -> None:
    """One event alone."""
    kind = event.get("type")
    assert isinstance(kind, str), f"an event without a type: {event}"
    assert ("stream_id" in event) == (stream_id is not None), f"stream_id in {kind} on lane {stream_id}"
    assert event.get("stream_id") == stream_id
    models = SERVER_EVENTS if transport == "websocket" else STREAM_EVENTS
    assert kind in models, f"OpenAI's types have no event {kind}"
    try:
        model = models[kind].model_validate_json(json.dumps(_known_codes(event)), strict=True)
    except ValidationError as error:
        raise AssertionError(f"{kind} is not what OpenAI's types say: {error}") from error
    unknown = sorted(set(_unknown(model)))
    assert not unknown, f"members that OpenAI's types do not know, in {kind}: {unknown}"
    if kind in LIFECYCLE:
        check_response(event["response"], kind)
    if kind == "error":
        check_error(event)
    if "item" in event:
        check_item(event["item"])


def check_response(response: Event, kind: str) -> None:
    """A snapshot: all keys, in every state."""
    assert set(response) == RESPONSE_KEYS, f"keys of {kind}: {sorted(set(response) ^ RESPONSE_KEYS)}"
    status = kind.removeprefix("response.")
    cancelled = status == "failed" and response["status"] == "cancelled"
    assert cancelled or response["status"] == ("in_progress" if status == "created" else status)
    assert response["object"] == "response"
    assert response["id"].startswith("resp_")
    assert len(response["id"]) <= 64
    for name in ("created_at", "completed_at"):
        assert response[name] is None or type(response[name]) is int, f"{name} is no integer"
    assert (response["completed_at"] is not None) == (status == "completed")
    assert (response["error"] is not None) == (status == "failed" and not cancelled)
    assert (response["incomplete_details"] is not None) == (status == "incomplete")
    for item in response["output"]:
        check_item(item)
        assert item.get("status") != "in_progress", "an unfinished item in a snapshot"
    for tool in response["tools"]:
        assert tool.get("type") != "function" or set(tool) >= TOOL_KEYS, f"an echoed tool without all keys: {tool}"
    if response["usage"] is not None:
        check_usage(response["usage"])


def check_usage(usage: Event) -> None:
    """The usage object."""
    assert set(usage) >= USAGE_KEYS
    assert set(usage["input_tokens_details"]) >= {"cached_tokens", "cache_write_tokens"}
    assert "reasoning_tokens" in usage["output_tokens_details"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]


def check_item(item: Event) -> None:
    """An output item: the keys that Open Responses requires."""
    required = ITEM_KEYS[item["type"]]
    assert required <= set(item), f"a {item['type']} without {sorted(required - set(item))}"
    for part in item.get("content") or ():
        if part["type"] == "output_text":
            assert {"text", "annotations", "logprobs"} <= set(part)


def check_error(event: Event) -> None:
    """An `error` event carries every shape that clients read, and all of them say the same."""
    error = event["error"]
    assert type(event["status"]) is int, "without an integer status Codex hangs"
    assert set(error) >= {"type", "code", "message", "param"}
    for name in ("code", "message", "param"):
        assert event[name] == error[name], f"'{name}' differs at the top and in 'error'"
    assert event.get("headers") == error.get("headers")
    assert error["message"]


def _known_codes(event: Event) -> Event:
    """The event with a code that OpenAI's types list in place of one of ours."""
    response = event.get("response")
    if not response or not response.get("error") or response["error"]["code"] not in EXTRA_FAILED_CODES:
        return event
    return {**event, "response": {**response, "error": {**response["error"], "code": "server_error"}}}


def _unknown(value: object) -> Iterator[str]:
    if isinstance(value, BaseModel):
        name = type(value).__name__
        for member in value.model_extra or ():
            if member not in EXTENSIONS.get(name, ()):
                yield f"{name}.{member}"
        for member in value.model_fields_set:
            yield from _unknown(getattr(value, member, None))
    elif isinstance(value, list):
        for each in value:
            yield from _unknown(each)


def _check_identity(events: Sequence[Event]) -> None:
    """Snapshots of one turn are of one response and differ only in what changes."""
    changing = {"status", "output", "usage", "error", "incomplete_details", "completed_at"}
    first = events[0]["response"]
    for event in events[1:]:
        if event["type"] in LIFECYCLE:
            for name in RESPONSE_KEYS - changing:
                assert event["response"][name] == first[name], f"'{name}' changed during the turn"
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    output = events[-1]["response"]["output"]
    assert output == done, "the terminal event's output is not the items that were done"
    ids = [item["id"] for item in output]
    assert len(set(ids)) == len(ids), "two items with one id"
    if events[-1]["type"] == "response.completed":
        assert all(item.get("status") in ("completed", None) for item in output)
    calls = [item["call_id"] for item in output if "call_id" in item]
    assert len(set(calls)) == len(calls), "two calls with one call_id"


def _check_nesting(events: Sequence[Event]) -> None:
    """Each item is opened, filled and closed before the next one opens."""
    nesting = Nesting()
    for event in events[2:-1]:
        nesting.take(event)
    if events[-1]["type"] == "response.failed":
        return
    if events[-1]["response"]["incomplete_details"] == {"reason": "steered"}:
        # What was begun and not yet said is dropped: a thought, a message without a word.
        assert nesting.item is None or nesting.item["type"] == "reasoning" or not nesting.text, "what was said is lost"
    else:
        assert nesting.item is None, "an item was never done"


class Nesting:
    """The items of one stream as they open and close."""

    def __init__(self) -> None:
        self.item: Event | None = None
        self.part: Event | None = None
        self.text: str | None = None
        self.parts: list[Event] = []
        self.annotations: list[Event] = []
        self.index = -1

    def take(self, event: Event) -> None:
        """The next event."""
        kind: str = event["type"]
        stem, _, verb = kind.rpartition(".")
        if kind == "response.output_item.added":
            self._item_added(event)
        elif kind == "response.output_item.done":
            self._item_done(event)
        elif kind == "response.content_part.added":
            self._part_added(event)
        elif kind == "response.content_part.done":
            self._part_done(event)
        elif stem in PART_EVENTS or stem in CALL_EVENTS:
            self._text(event, stem, verb)
        elif kind == "response.output_text.annotation.added":
            self._annotation(event)
        else:
            raise AssertionError(f"no rule for {kind}")

    def _item_added(self, event: Event) -> None:
        assert self.item is None, "an item opened inside another"
        self.index += 1
        assert event["output_index"] == self.index
        item = event["item"]
        assert item.get("status") == "in_progress"
        empty = {"message": "content", "function_call": "arguments", "custom_tool_call": "input"}.get(item["type"])
        assert empty is None or item[empty] in ("", []), "an item opened with content"
        self.item, self.parts, self.text = item, [], None

    def _item_done(self, event: Event) -> None:
        assert self.item is not None, "an item closed that was not open"
        assert self.part is None, "an item closed before its part"
        assert event["output_index"] == self.index
        done = event["item"]
        for name in ("id", "type", "role", "call_id", "name"):
            assert done.get(name) == self.item.get(name), f"'{name}' changed while the item was open"
        if done["type"] in ("message", "reasoning"):
            assert list(done.get("content") or []) == self.parts
        elif done["type"] in ("function_call", "custom_tool_call"):
            written = done["arguments"] if done["type"] == "function_call" else done["input"]
            assert written == self.text, "a call's text is not what its events said"
        self.item = None

    def _part_added(self, event: Event) -> None:
        self._check_place(event)
        assert self.part is None, "a part opened inside another"
        assert event["content_index"] == len(self.parts)
        self.part, self.text, self.annotations = event["part"], None, []

    def _part_done(self, event: Event) -> None:
        self._check_place(event)
        assert self.part is not None, "a part closed that was not open"
        part = event["part"]
        assert part["type"] == self.part["type"]
        assert (part["refusal"] if part["type"] == "refusal" else part["text"]) == self.text
        assert part.get("annotations", []) == self.annotations, "a part's annotations are not those that were told"
        self.parts.append(part)
        self.part = None

    def _text(self, event: Event, stem: str, verb: str) -> None:
        self._check_place(event)
        if stem in PART_EVENTS:
            assert self.part is not None, f"{event['type']} outside a part"
            assert event["content_index"] == len(self.parts)
        if verb == "delta":
            self.text = (self.text or "") + event["delta"]
            return
        whole = event[{**PART_EVENTS, **CALL_EVENTS}[stem]]
        assert whole == (self.text or ""), "the deltas do not add up to the whole"
        self.text = whole

    def _annotation(self, event: Event) -> None:
        self._check_place(event)
        assert self.part is not None, "an annotation outside a part"
        assert event["content_index"] == len(self.parts)
        assert event["annotation_index"] == len(self.annotations)
        self.annotations.append(event["annotation"])

    def _check_place(self, event: Event) -> None:
        assert self.item is not None, f"{event['type']} outside an item"
        assert event["item_id"] == self.item["id"]
        assert event["output_index"] == self.index
