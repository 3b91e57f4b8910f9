"""Streams of a faithful upstream: undecoded or decoded, the client gets and the chain keeps the same, byte for byte."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.errors import Kind, LooplineError
from proxy.translate.responses.passing import Passed
from proxy.translate.responses.translator import ResponsesTranslator
from tests.unit.translate.turns import Event, brief, create, responses

Outcome = tuple[Any, ...]
BRIEF = replace(brief(create(), profile="openai"), seal_reasoning=lambda said: f"sealed:{said}")


def message(index: int, name: str = "msg") -> list[Event]:
    at = {"item_id": name, "output_index": index, "content_index": 0}
    part = {"type": "output_text", "text": "é }", "annotations": [{"type": "file_path", "file_id": "f", "index": 0}]}
    item = {"id": name, "type": "message", "role": "assistant", "status": "in_progress", "content": []}
    return [
        {"type": "response.output_item.added", "output_index": index, "item": item},
        {"type": "response.content_part.added", **at, "part": {**part, "text": "", "annotations": []}},
        *({"type": "response.output_text.delta", **at, "delta": said, "logprobs": []} for said in ("é", " ", "}")),
        {"type": "response.output_text.annotation.added", **at, "annotation": part["annotations"][0]},
        {"type": "response.output_text.done", **at, "text": "é }", "logprobs": []},
        {"type": "response.content_part.done", **at, "part": part},
        {"type": "response.output_item.done", "output_index": index, "item": {**item, "content": [part]}},
    ]


def refusal(index: int) -> list[Event]:
    at = {"item_id": "no", "output_index": index, "content_index": 0}
    item = {"id": "no", "type": "message", "role": "assistant", "content": []}
    part = {"type": "refusal", "refusal": "No."}
    return [
        {"type": "response.output_item.added", "output_index": index, "item": item},
        {"type": "response.content_part.added", **at, "part": {**part, "refusal": ""}},
        {"type": "response.refusal.delta", **at, "delta": "No."},
        {"type": "response.refusal.done", **at, "refusal": "No."},
        {"type": "response.content_part.done", **at, "part": part},
        {"type": "response.output_item.done", "output_index": index, "item": {**item, "content": [part]}},
    ]


def reasoning(index: int, name: str = "rs", **members: Any) -> list[Event]:
    at = {"item_id": name, "output_index": index}
    item = {"id": name, "type": "reasoning", "summary": []}
    whole = {**item, "content": [{"type": "reasoning_text", "text": "hm"}], **members}
    return [
        {"type": "response.output_item.added", "output_index": index, "item": item},
        {"type": "response.reasoning_text.delta", **at, "content_index": 0, "delta": "hm"},
        {"type": "response.reasoning_text.done", **at, "content_index": 0, "text": "hm"},
        {"type": "response.reasoning_summary_part.added", **at, "summary_index": 0, "part": {}},
        {"type": "response.reasoning_summary_text.delta", **at, "summary_index": 0, "delta": "m"},
        {"type": "response.reasoning_summary_text.done", **at, "summary_index": 0, "text": "m"},
        {"type": "response.reasoning_summary_part.done", **at, "summary_index": 0, "part": {}},
        {"type": "response.output_item.done", "output_index": index, "item": whole},
    ]


def call(index: int, kind: str = "function_call", member: str = "arguments") -> list[Event]:
    at = {"item_id": kind, "output_index": index}
    item = {"id": kind, "type": kind, "call_id": f"c_{kind}", "name": "f", member: "", "status": "in_progress"}
    events = f"response.{kind}_arguments" if kind == "function_call" else f"response.{kind}_input"
    return [
        {"type": "response.output_item.added", "output_index": index, "item": item},
        {"type": f"{events}.delta", **at, "delta": "{}"},
        {"type": f"{events}.done", **at, member: "{}"},
        {"type": "response.output_item.done", "output_index": index, "item": {**item, member: "{}"}},
    ]


def tagged(index: int) -> list[Event]:
    """An item that speaks of lanes, which only an event of its own may not."""
    item = {"id": "t", "type": "odd_call", "call_id": "c_t", "stream_id": "lane", "output": {"stream_id": 1}}
    return [{"type": f"response.output_item.{verb}", "output_index": index, "item": item} for verb in ("added", "done")]


BEGUN: Sequence[Event] = [{"type": f"response.{kind}", "response": {"id": "up"}} for kind in ("created", "in_progress")]
ITEMS: Sequence[Callable[[int], list[Event]]] = (
    message,
    refusal,
    reasoning,
    lambda index: reasoning(index, "theirs", encrypted_content="gAAA"),
    lambda index: reasoning(index, "odd", content=[5]),
    lambda index: reasoning(index, "odder", content=[{"text": 5}]),
    call,
    lambda index: call(index, "custom_tool_call", "input"),
    tagged,
    lambda index: message(index, "other"),
)
OTHERS: Sequence[Event] = [
    {"type": "response.in_progress", "response": {"id": "again"}},
    {"type": "response.queued"},
    {"type": "response.new.thing", "item_id": "msg", "x": [1]},
    {"type": "ping"},
    {"type": "error", "message": "no"},
    {"type": "response.output_item.added", "item": {"type": "message", "content": []}},
    {"type": "response.output_item.added", "output_index": 1, "item": 5},
    {"type": "response.output_item.done", "output_index": 9, "item": {"type": "message", "role": 5}},
    {"type": "response.output_item.done", "output_index": 9, "item": {"content": [], "role": "assistant"}},
    {"type": "response.output_text.delta", "item_id": "msg", "output_index": 0, "content_index": 0, "delta": None},
    {"type": "response.output_text.done", "stream_id": "lane", "item_id": "msg", "text": "x"},
    {"type": "response.output_item.added", "stream_id": "lane", "output_index": 7, "item": {"type": "message"}},
    {"type": "response.output_item.done", "stream_id": "lane", "output_index": 7, "item": {"type": "odd", "id": "o"}},
]


def payload_of(event: Event, number: int) -> bytes:
    """An event as a faithful upstream writes it: type, number, the rest, no space between."""
    told = {"type": event["type"], "sequence_number": number, **event}
    return json.dumps(told, separators=(",", ":"), ensure_ascii=False).encode()


def numbered(events: Sequence[Event], start: int = 0) -> bytes:
    payloads = [payload_of(event, number) for number, event in enumerate(events, start)]
    return b"".join(b"event: %b\ndata: %b\n\n" % (b"x", payload) for payload in payloads)


def end(items: Sequence[Event], status: str = "completed") -> Event:
    return {"type": f"response.{status}", "response": {"id": "up", "status": status, "output": [*items]}}


def outcome(reads: Sequence[bytes], first: int = 2, steered_after: int = 0) -> Outcome:
    """What comes of each read and all that is kept, in bytes; as a turn drives it."""
    translator = ResponsesTranslator(replace(BRIEF, sequence=first), faithful=True)
    told: list[Any] = []
    try:
        for count, read in enumerate(reads, 1):
            told.append((translator.feed(read), translator.sequence, translator.call_begun, translator.partial()))
            if translator.ended:
                break
            if count == steered_after and not translator.call_begun:
                return told, translator.interrupt(), translator.result(), None
        return told, translator.finish(), translator.result(), None
    except LooplineError as error:
        return told, translator.feed(b""), translator.partial(), (error.kind, error.message)


def decoded(reads: Sequence[bytes], first: int = 2, steered_after: int = 0) -> Outcome:
    """The same, with every event decoded."""
    with patch.object(Passed, "take_run", lambda *_: 0):
        return outcome(reads, first, steered_after)


def stream(random: Random, first: int) -> bytes:
    """Items one after another or several open at once; some events are missing, odd, told twice or misnumbered."""
    left = [make(index) for index, make in enumerate(random.sample(ITEMS, random.randrange(5)))]
    done = [events[-1]["item"] for events in left]
    events: list[Event] = []
    together = random.random() < 0.4
    while left:
        events.append(left[random.randrange(len(left)) if together else 0].pop(0))
        left = list(filter(None, left))
    for _ in range(random.choice((0, 1, 2, 4))):
        at = random.randrange(len(events) + 1)
        instead = random.choice([[], events[at : at + 1], [random.choice(OTHERS)], [random.choice(OTHERS)]])
        events[at : at + random.randrange(2)] = instead
    finals = [done, done, [], done[:-1], [{**item, "id": "z"} for item in done], done[::-1]]
    ends = [end(random.choice(finals)), end(done), end(done, "incomplete"), end([], "failed"), {"type": "ping"}]
    events = [*BEGUN, *events, random.choice(ends)]
    numbers = list(range(first - 2, first - 2 + len(events)))
    if random.random() < 0.2:
        at, step = random.randrange(2, len(numbers)), random.choice((1, -1, 100))
        numbers[at:] = [number + step for number in numbers[at:]]
    payloads = map(payload_of, events, numbers)
    return b"".join(b"event: x\ndata: %b\n\n" % payload for payload in payloads)


def reads_of(stream: bytes, random: Random) -> list[bytes]:
    """Whole, event by event, or cut at any bytes."""
    frames = [frame + b"\n\n" for frame in stream.split(b"\n\n") if frame]
    places = sorted(random.choices(range(len(stream)), k=5))
    cut = [stream[start:end] for start, end in zip([0, *places], [*places, len(stream)], strict=True)]
    return random.choice([[stream], frames, cut])


# What is drawn is one number: hypothesis alone would draw mostly short streams with nothing odd.
@given(st.integers(0, 2**64).map(Random), st.sampled_from([2, 2, 2, 9_990]), st.sampled_from([0, 0, 1, 2, 5]))
@settings(deadline=None, max_examples=500)
def test_undecoded_or_decoded_is_the_same(random: Random, first: int, steered_after: int) -> None:
    reads = reads_of(stream(random, first), random)
    assert outcome(reads, first, steered_after) == decoded(reads, first, steered_after)


# --- steering a turn of which something cannot be read ---

_AT = {"item_id": "msg", "output_index": 0, "content_index": 0}
_UNREADABLE = {
    "half of a surrogate pair": b'{"type":"response.output_text.delta",%b"item_id":"msg","delta":"\\ud83d"}',
    "no JSON in a delta": b'{"type":"response.output_text.delta",%b"item_id"}',
    "no JSON in a part": b'{"type":"response.content_part.done",%b"part":{}',
    "an index that is none": b'{"type":"response.output_text.done",%b"output_index":"0","text":"x"}',
    "nested too deeply": b'{"type":"response.content_part.done",%b"part":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
}  # fmt: skip


@pytest.mark.parametrize("unreadable", _UNREADABLE.values(), ids=_UNREADABLE.keys())
def test_what_was_said_around_an_event_that_cannot_be_read_is_kept_when_the_answer_is_steered(
    unreadable: bytes,
) -> None:
    translator = responses(faithful=True)
    translator.feed(numbered([*BEGUN, *message(0)[:3]]))
    translator.feed(b"data: " + unreadable % b'"sequence_number":5,' + b"\n\n")
    translator.feed(numbered([{"type": "response.output_text.delta", **_AT, "delta": "!"}], 6))
    assert translator.sequence == 7
    translator.interrupt()
    (kept,) = translator.result().items
    assert b'"text":"\xc3\xa9!"' in kept.raw
    assert not translator.call_begun


@pytest.mark.parametrize("member", [b'"role":5', b'"role":{}'])
def test_a_message_left_open_that_is_none_is_the_upstreams_fault_and_untold_when_steered(member: bytes) -> None:
    added = b'{"type":"response.output_item.added","sequence_number":2,"output_index":0,"item":{"type":"message",%b}}'
    begun = numbered(BEGUN) + b"data: " + added % member + b"\n\n" + numbered(message(0)[1:3], 3)
    steered = responses(faithful=True)
    steered.feed(begun)
    steered.interrupt()
    assert steered.result().items == ()
    with pytest.raises(LooplineError) as raised:
        responses(faithful=True).feed(begun + numbered([end([])], 5))
    assert raised.value.kind is Kind.UPSTREAM_GARBLED


@pytest.mark.parametrize("content", [[5], [None], ["x"], [[]]])
def test_reasoning_to_be_sealed_whose_parts_are_none_is_the_upstreams_fault(content: list[object]) -> None:
    translator = ResponsesTranslator(BRIEF, faithful=True)
    with pytest.raises(LooplineError) as raised:
        translator.feed(numbered([*BEGUN, *reasoning(0, content=content)]))
    assert raised.value.kind is Kind.UPSTREAM_GARBLED


def test_reasoning_is_sealed_once() -> None:
    sealed: list[str] = []
    told_to = replace(BRIEF, seal_reasoning=lambda said: sealed.append(said) or "sealed")  # type: ignore[func-returns-value]
    translator = ResponsesTranslator(told_to, faithful=True)
    translator.feed(numbered([*BEGUN, *reasoning(0), *message(1)]))
    assert sealed == ["hm"]
    assert [item.kind for item in translator.result().items] == ["reasoning", "message"]
