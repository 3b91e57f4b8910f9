"""The rules of `schema.py` themselves: a good stream passes, and each way to spoil it is noticed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.schema import check_turn
from tests.house import open_house
from tests.wire_client import function, user

Events = list[dict[str, Any]]
_SCRIPT = '[[think 2]] [[say 3]] [[call get_weather {"city": "Oslo"}]]'


@pytest.fixture
async def stream() -> Events:
    """A good stream with an item of each kind."""
    async with open_house("chat") as house, house.connect() as client:
        return (await client.turn([user(_SCRIPT)], tools=[function()])).events


def first(events: Events, kind: str) -> dict[str, Any]:
    return next(event for event in events if event["type"] == kind)


def renumber(events: Events) -> None:
    for number, event in enumerate(events):
        event["sequence_number"] = number


def without(kind: str) -> Callable[[Events], None]:
    """Spoils by leaving out the first event of this type, numbers and all."""

    def spoil(events: Events) -> None:
        events.remove(first(events, kind))
        renumber(events)

    return spoil


def setting(kind: str, path: str, value: Any) -> Callable[[Events], None]:
    """Spoils by setting a member of the first event of this type."""

    def spoil(events: Events) -> None:
        target: Any = first(events, kind)
        *parents, name = path.split(".")
        for parent in parents:
            target = target[int(parent) if parent.isdigit() else parent]
        target[name] = value

    return spoil


def dropping(kind: str, path: str) -> Callable[[Events], None]:
    """Spoils by removing a member of the first event of this type."""

    def spoil(events: Events) -> None:
        target: Any = first(events, kind)
        *parents, name = path.split(".")
        for parent in parents:
            target = target[int(parent) if parent.isdigit() else parent]
        del target[name]

    return spoil


def twice_terminal(events: Events) -> None:
    events.append(copy.deepcopy(events[-1]))
    renumber(events)


def after_the_end(events: Events) -> None:
    events.append(events.pop(-2))
    renumber(events)


def interleaved(events: Events) -> None:
    added = [event for event in events if event["type"] == "response.output_item.added"]
    events.remove(added[1])
    events.insert(events.index(added[0]) + 1, added[1])
    renumber(events)


SPOILT: dict[str, Callable[[Events], None]] = {
    "no created": without("response.created"),
    "no in_progress": without("response.in_progress"),
    "no item added": without("response.output_item.added"),
    "no item done": without("response.output_item.done"),
    "no part added": without("response.content_part.added"),
    "no part done": without("response.content_part.done"),
    "a delta lost": without("response.output_text.delta"),
    "a reasoning delta lost": without("response.reasoning_text.delta"),
    "arguments never streamed": without("response.function_call_arguments.delta"),
    "no terminal event": without("response.completed"),
    "two terminal events": twice_terminal,
    "an event after the end": after_the_end,
    "items interleaved": interleaved,
    "a gap in the numbers": setting("response.output_text.done", "sequence_number", 99),
    "a number as text": setting("response.output_text.delta", "sequence_number", "5"),
    "a lane on the default lane": setting("response.output_text.delta", "stream_id", "a"),
    "a null lane": setting("response.completed", "stream_id", None),
    "an unknown type": setting("response.output_text.done", "type", "response.output_text.finished"),
    "an unknown member": setting("response.output_text.delta", "surprise", 1),
    "an unknown member deep inside": setting("response.completed", "response.usage.surprise", 1),
    "no logprobs": dropping("response.output_text.delta", "logprobs"),
    "another item's id": setting("response.output_text.delta", "item_id", "msg_other"),
    "another index": setting("response.output_text.done", "output_index", 7),
    "a key missing in created": dropping("response.created", "response.top_logprobs"),
    "a key missing at the end": dropping("response.completed", "response.safety_identifier"),
    "a float time": setting("response.created", "response.created_at", 1.5),
    "the id changed": setting("response.completed", "response.id", "resp_other"),
    "the model changed": setting("response.completed", "response.model", "other"),
    "status against type": setting("response.completed", "response.status", "incomplete"),
    "output against items": setting("response.completed", "response.output", []),
    "an open item in the output": setting("response.completed", "response.output.0.status", "in_progress"),
    "usage without details": dropping("response.completed", "response.usage.input_tokens_details"),
    "totals that do not add up": setting("response.completed", "response.usage.total_tokens", 1),
    "a tool without strict": dropping("response.created", "response.tools.0.strict"),
    "an item opened as completed": setting("response.output_item.added", "item.status", "completed"),
    "text that differs from its deltas": setting("response.output_text.done", "text", "other"),
}


async def test_a_good_stream_passes(stream: Events) -> None:
    check_turn(stream)


@pytest.mark.parametrize("name", SPOILT)
async def test_a_spoilt_stream_is_noticed(name: str, stream: Events) -> None:
    SPOILT[name](stream)
    with pytest.raises(AssertionError):
        check_turn(stream)


@pytest.mark.parametrize("member", ["status", "code", "message", "error"])
async def test_a_spoilt_error_is_noticed(member: str) -> None:
    async with open_house("chat") as house, house.connect() as client:
        events = (await client.turn([user("[[fail 500]]")])).events
    del events[0][member]
    with pytest.raises((AssertionError, KeyError)):
        check_turn(events)
