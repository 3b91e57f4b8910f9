"""What a request and a turn's events must be, whatever was sent: the part of the contract that fuzzing checks."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from tests.conformance.schema import EXTENSIONS, ITEM_KEYS, STREAM_EVENTS, TERMINAL, check_turn

Json = dict[str, Any]

_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
# What an upstream marked `faithful` says within an item, which passes undecoded.
_WITHIN = re.compile(rb'\{"type":"(response\.(?!output_item\.)[\w.]+\.(?:added|delta|done))","sequence_number":(\d+),')


def check_events(events: Sequence[bytes], *, faithful: bool) -> None:
    """All events of a turn, from `response.created` on.

    An upstream marked `faithful` is trusted with the bytes of its events within an item, which pass undecoded, and with
    the order of its events. Events and items that OpenAI's types do not know may be anything that clients can skip.
    """
    read = [_read(event, faithful=faithful) for event in events]
    for number, event in enumerate(read):
        assert next(iter(event)) == "type", "the type does not come first"
        assert isinstance(event["type"], str)
        assert event["sequence_number"] == number, f"numbered {event['sequence_number']}, not {number}"
        assert "stream_id" not in event
    assert [event["type"] in TERMINAL for event in read] == [False] * (len(read) - 1) + [True]
    if not faithful and all(map(_is_known, read)):
        check_turn([_without_extensions(event) for event in read], transport="http")


def _read(event: bytes, *, faithful: bool) -> Json:
    try:
        read: Json = json.loads(event.decode(), parse_constant=_refuse)
    except ValueError:
        within = _WITHIN.match(event)
        if faithful and within is not None:
            return {"type": within[1].decode(), "sequence_number": int(within[2])}
        raise AssertionError(f"no JSON: {event!r}") from None
    return read


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _is_known(event: Json) -> bool:
    """Does an event speak only of events, items and parts that OpenAI's types list?"""
    response = event.get("response") or {}
    items = [*([event["item"]] if "item" in event else ()), *response.get("output", ())]
    parts = [*([event["part"]] if "part" in event else ()), *(part for item in items for part in _parts(item))]
    known_parts = all(isinstance(part, dict) and part.get("type") in _PARTS for part in parts)
    return event["type"] in STREAM_EVENTS and all(item.get("type") in ITEM_KEYS for item in items) and known_parts


def _parts(item: Json) -> list[Any]:
    content = item.get("content")
    return content if isinstance(content, list) else []


_PARTS = frozenset({"output_text", "refusal", "reasoning_text", "summary_text"})


def _without_extensions(event: Json) -> Json:
    """The event without what is the upstream's own: members that OpenAI's types do not know, and clients skip.

    So are log-probabilities, annotations and the like, which pass as they came.
    """
    event = _neutral(event)
    try:
        model = STREAM_EVENTS[event["type"]].model_validate_json(json.dumps(_listed_code(event)), strict=True)
    except ValidationError:
        return event  # check_turn says what is wrong with it
    cleaned: Json = _cleaned(event, model)
    return cleaned


# What passes from an upstream as it came, of whatever type; and what stands in for it here.
_OPAQUE: Mapping[str, Any] = {
    "logprobs": [],
    "annotations": [],
    "annotation": {"type": "file_path", "file_id": "file_1", "index": 0},
    "summary": [],
    "encrypted_content": None,
    "phase": None,
    "caller": None,
    "created_by": None,
}


def _neutral(value: Any) -> Any:
    if isinstance(value, list):
        return [_neutral(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: _stand_in(name, each) if name in _OPAQUE else _neutral(each) for name, each in value.items()}


def _stand_in(name: str, value: Any) -> Any:
    if name == "annotations" and isinstance(value, list):  # as many as there are events that told of them
        return [_OPAQUE["annotation"]] * len(value)
    return _OPAQUE[name]


def _listed_code(event: Json) -> Json:
    response = event.get("response")
    if not response or not response.get("error"):
        return event
    return {**event, "response": {**response, "error": {**response["error"], "code": "server_error"}}}


# Open Responses wants a status in every item.
_OURS: Mapping[str, frozenset[str]] = {"ResponseCustomToolCall": frozenset({"status"})}


def _cleaned(value: Any, model: object) -> Any:
    if isinstance(model, BaseModel) and isinstance(value, dict):
        name = type(model).__name__
        extra = set(model.model_extra or ()) - EXTENSIONS.get(name, frozenset()) - _OURS.get(name, frozenset())
        return {key: _cleaned(each, getattr(model, key, None)) for key, each in value.items() if key not in extra}
    if isinstance(model, list) and isinstance(value, list):
        return [_cleaned(each, part) for each, part in zip(value, model, strict=True)]
    return value


def check_body(body: Json, dialect: str) -> None:
    """A request of a dialect."""
    assert body["model"] == "up"
    assert body["stream"] is True
    if dialect == "chat":
        _check_messages(body["messages"])
        names = [tool["function"]["name"] for tool in body.get("tools", ())]
        assert all(map(_NAME.fullmatch, names)), names
        assert len(set(names)) == len(names), "two functions of one name"
    else:
        assert body["store"] is False
        assert isinstance(body["input"], list)
        assert all(isinstance(item["type"], str) for item in body["input"])


def _check_messages(messages: Sequence[Json]) -> None:
    assert messages
    for message in messages:
        assert message["role"] in _ROLES
        if message["role"] == "tool":
            assert isinstance(message["content"], str | list)
            assert isinstance(message["tool_call_id"], str)
        for call in message.get("tool_calls") or ():
            assert _NAME.fullmatch(call["function"]["name"]), call
            assert isinstance(call["function"]["arguments"], str)
            assert isinstance(call["id"], str)


def check_paired(messages: Sequence[Json]) -> None:
    """Every call is answered right after the message that made it, before anything else is said."""
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] in waiting, "an answer to no call"
            waiting.remove(message["tool_call_id"])
        else:
            assert not waiting, f"{message['role']} before the answers of {waiting}"
        waiting += [call["id"] for call in message.get("tool_calls") or ()]
    assert not waiting, f"no answers to {waiting}"
