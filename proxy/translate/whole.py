"""Items that came whole or stayed unfinished, as the events that clients read items from, whatever the upstream does.

Source: Open Responses, item lifecycle; API reference, Responses, streaming events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from proxy.wire.codec import Raw, encode
from proxy.wire.items import Item, parse_item

_MEMBERS = msgspec.json.Decoder(dict[str, Any])


class _Shape(NamedTuple):
    """A part: the member that holds its text, the start of its event names, what an empty one and a delta also hold."""

    member: str
    events: str
    empty: Mapping[str, Any]
    extra: Mapping[str, Any]


_PARTS: Mapping[str, _Shape] = {
    "output_text": _Shape("text", "response.output_text", {"annotations": [], "logprobs": []}, {"logprobs": []}),
    "refusal": _Shape("refusal", "response.refusal", {}, {}),
    "reasoning_text": _Shape("text", "response.reasoning_text", {}, {}),
}
# Item type → its member that streams, and the start of those events' names.
_STREAMED: Mapping[str, tuple[str, str]] = {
    "function_call": ("arguments", "response.function_call_arguments"),
    "custom_tool_call": ("input", "response.custom_tool_call_input"),
}


def grown(item: Item, index: int, sequence: int) -> list[bytes]:
    """The events of one whole item, the first numbered `sequence`. Raises msgspec's errors for an item that is none."""
    members = _MEMBERS.decode(item.raw)
    return [
        encode({"type": kind, "sequence_number": sequence + number, **rest})
        for number, (kind, rest) in enumerate(_events(item.kind, members, index))
    ]


def ended(item: Item, index: int, sequence: int) -> list[bytes]:
    """The events that close a message of one part whose deltas were all sent."""
    members = _MEMBERS.decode(item.raw)
    (part,) = members["content"]
    shape = _PARTS[part["type"]]
    at = {"item_id": members["id"], "output_index": index}
    closing: list[tuple[str, dict[str, Any]]] = [
        (f"{shape.events}.done", {**at, "content_index": 0, **shape.extra, shape.member: part[shape.member]}),
        ("response.content_part.done", {**at, "content_index": 0, "part": part}),
        ("response.output_item.done", {"output_index": index, "item": members}),
    ]
    return [
        encode({"type": kind, "sequence_number": sequence + number, **rest})
        for number, (kind, rest) in enumerate(closing)
    ]


def cut_message(added: Raw, deltas: Sequence[bytes]) -> Item | None:
    """A message as far as it was said: `added` as it was announced, and its delta events. None where nothing was."""
    said = [_MEMBERS.decode(delta) for delta in deltas]
    if not said:
        return None
    part_type = "refusal" if said[0]["type"].startswith("response.refusal") else "output_text"
    shape = _PARTS[part_type]
    part = {"type": part_type, shape.member: "".join(delta["delta"] for delta in said), **shape.empty}
    members = {**_MEMBERS.decode(added), "status": "incomplete", "content": [part]}
    return parse_item(encode(members), "output")


def _events(kind: str, item: dict[str, Any], index: int) -> Iterator[tuple[str, dict[str, Any]]]:
    streamed = _STREAMED.get(kind)
    parts = item.get("content") if kind in ("message", "reasoning") else None
    empty: dict[str, Any] = {"status": "in_progress"} if "status" in item else {}
    if streamed:
        empty[streamed[0]] = ""
    if isinstance(parts, list):
        empty["content"] = []
    yield "response.output_item.added", {"output_index": index, "item": {**item, **empty}}
    at = {"item_id": item.get("id", ""), "output_index": index}
    if streamed:
        yield from _member(item, at, *streamed)
    for position, part in enumerate(parts if isinstance(parts, list) else ()):
        yield from _part(part, {**at, "content_index": position})
    yield "response.output_item.done", {"output_index": index, "item": item}


def _member(item: dict[str, Any], at: dict[str, Any], member: str, events: str) -> Iterator[tuple[str, dict[str, Any]]]:
    value = item.get(member, "")
    yield f"{events}.delta", {**at, "delta": value}
    named = {"name": item.get("name", "")} if member == "arguments" else {}
    yield f"{events}.done", {**at, **named, member: value}


def _part(part: Any, at: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    shape = _PARTS.get(str(part.get("type"))) if isinstance(part, dict) else None
    if shape is None:
        yield "response.content_part.added", {**at, "part": part}
    else:
        whole = {**shape.empty, **part}
        text = part.get(shape.member, "")
        yield "response.content_part.added", {**at, "part": {**whole, **shape.empty, shape.member: ""}}
        yield f"{shape.events}.delta", {**at, **shape.extra, "delta": text}
        yield f"{shape.events}.done", {**at, **shape.extra, shape.member: text}
        part = whole
    yield "response.content_part.done", {**at, "part": part}
