"""Items that came whole or stayed unfinished, as the events that clients read items from, whatever the upstream does.

Source: Open Responses, item lifecycle; API reference, Responses, streaming events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from proxy.translate.responses.events import output_item
from proxy.translate.responses.logprobs import in_event, in_item
from proxy.wire.codec import Raw, encode
from proxy.wire.items import Item

_MEMBERS = msgspec.json.Decoder(dict[str, Any])


class _Shape(NamedTuple):
    """A part: the member that holds its text, the start of its event names, what an empty one and a delta also hold."""

    member: str
    events: str
    empty: Mapping[str, Any]
    extra: Mapping[str, Any]


PARTS: Mapping[str, _Shape] = {
    "output_text": _Shape("text", "response.output_text", {"annotations": [], "logprobs": []}, {"logprobs": []}),
    "refusal": _Shape("refusal", "response.refusal", {}, {}),
    "reasoning_text": _Shape("text", "response.reasoning_text", {}, {}),
}
PART_OF_EVENTS = {shape.events: part for part, shape in PARTS.items()}
_OF_PARTS = ("response.content_part.", *(f"{events}." for events in PART_OF_EVENTS))
# Item type → its member that streams, and the start of those events' names.
STREAMED: Mapping[str, tuple[str, str]] = {
    "function_call": ("arguments", "response.function_call_arguments"),
    "custom_tool_call": ("input", "response.custom_tool_call_input"),
}


def grown(item: Item, index: int, sequence: int) -> list[bytes]:
    """The events of one whole item, the first numbered `sequence`. Raises msgspec's errors for an item that is none."""
    members = _MEMBERS.decode(item.raw)
    return _numbered(_events(item.kind, members, index), sequence)


def _numbered(events: Iterable[tuple[str, dict[str, Any]]], sequence: int) -> list[bytes]:
    return [
        encode({"type": kind, "sequence_number": number, **rest})
        for number, (kind, rest) in enumerate(events, sequence)
    ]


class _Place(msgspec.Struct, gc=False):
    output_index: int | None = None


_PLACE = msgspec.json.Decoder(_Place)


def by_index(said: Sequence[bytes]) -> dict[int, list[bytes]]:
    """Events by the index of their item; one that names none goes with the one before it."""
    found: dict[int, list[bytes]] = {}
    index = 0
    for event in said:
        place = _PLACE.decode(event).output_index
        index = index if place is None else place
        found.setdefault(index, []).append(event)
    return found


def is_event(event: bytes) -> bool:
    """Can all of it be read that is looked at here?"""
    try:
        _PLACE.decode(event)
        _MEMBERS.decode(event)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def cut(
    added: Raw, said: Sequence[bytes], index: int, sequence: int, status: str = "incomplete"
) -> tuple[Item, list[bytes]] | None:
    """A message as far as it was said, and the events that close what is open of it. None where nothing was said.

    `added` is the item as it was announced, `said` its events since then. Raises `LooplineError` (upstream_garbled) and
    msgspec's errors where they are none.
    """
    growing = [(position, part) for position, part in sorted(_growing(said).items()) if part.part]
    if not any(part.text for _, part in growing):
        return None
    members = {**_MEMBERS.decode(added), "status": status, "content": [part.whole() for _, part in growing]}
    at = {"item_id": members.get("id", ""), "output_index": index}
    closing = [event for position, part in growing for event in part.closing({**at, "content_index": position})]
    closing.append(("response.output_item.done", {"output_index": index, "item": members}))
    return output_item(Raw(encode(members))), _numbered(closing, sequence)


def closed(item: Item, said: Sequence[bytes], index: int, sequence: int) -> list[bytes]:
    """The events that a whole item still lacks after it was announced and `said` was said of it."""
    members = _MEMBERS.decode(item.raw)
    return _numbered(_lacking(item.kind, members, index, said), sequence)


def _lacking(
    kind: str, item: dict[str, Any], index: int, said: Sequence[bytes]
) -> Iterator[tuple[str, dict[str, Any]]]:
    at = {"item_id": item.get("id", ""), "output_index": index}
    if kind in STREAMED:
        member, events = STREAMED[kind]
        of_it = [event for event in map(_MEMBERS.decode, said) if event["type"].startswith(f"{events}.")]
        if not any(event["type"] == f"{events}.done" for event in of_it):
            yield from _member(item, at, member, events, "".join(map(_delta, of_it)))
    parts = item.get("content") if kind in ("message", "reasoning") else None
    growing = _growing(said) if parts else {}
    for position, part in enumerate(parts if isinstance(parts, list) else ()):
        where = {**at, "content_index": position}
        if position in growing and growing[position].part:
            yield from growing[position].become(part).closing(where)
        else:
            yield from _part(part, where)
    yield "response.output_item.done", {"output_index": index, "item": item}


def _growing(said: Sequence[bytes]) -> dict[int, _Growing]:
    parts: dict[int, _Growing] = {}
    for event in map(_MEMBERS.decode, said):
        if event["type"].startswith(_OF_PARTS):
            position = event.get("content_index")
            parts.setdefault(position if isinstance(position, int) else 0, _Growing()).take(event)
    return parts


def _delta(event: dict[str, Any]) -> str:
    delta = event.get("delta")
    return delta if isinstance(delta, str) else ""


class _Growing:
    """A part of an item, as far as its events tell."""

    def __init__(self) -> None:
        self.part: dict[str, Any] = {}
        self.said: list[str] = []
        self.logprobs: list[Any] = []
        self.is_told = self.is_done = self.is_final = False
        self.owed = ""

    @property
    def text(self) -> str:
        """What was said of it."""
        return "".join(self.said)

    def take(self, event: dict[str, Any]) -> None:
        """Its next event."""
        stem, _, verb = event["type"].rpartition(".")
        if stem == "response.content_part":
            part = event.get("part")
            if isinstance(part, dict) and isinstance(part.get("type"), str):
                self.part = part
            self.is_done = verb == "done"
        elif stem in PART_OF_EVENTS:
            shape = PARTS[PART_OF_EVENTS[stem]]
            self.part = self.part or {"type": PART_OF_EVENTS[stem], **shape.empty}
            self.is_told = verb == "done"
            if isinstance(event.get(shape.member), str) and self.is_told:
                self.said = [event[shape.member]]
            elif not self.is_told:
                self.said.append(_delta(event))
            given = in_item(Raw(encode(event.get("logprobs"))))
            self.logprobs = (given or self.logprobs) if self.is_told else self.logprobs + given

    def become(self, part: Any) -> _Growing:
        """What the upstream says in the end that it is."""
        shape = PARTS.get(self.part["type"])
        if isinstance(part, dict) and part.get("type") == self.part["type"]:
            self.part, self.is_final = part, True
            if shape is not None and isinstance(part.get(shape.member), str):
                text, self.said = self.text, [part[shape.member]]
                if part[shape.member].startswith(text) and not self.is_told:
                    self.owed = part[shape.member][len(text) :]
        return self

    def whole(self) -> dict[str, Any]:
        """The part, with the text that was said."""
        shape = PARTS.get(self.part["type"])
        if shape is None:
            return self.part
        whole = {**shape.empty, **self.part, shape.member: self.text}
        if self.logprobs and not self.is_final and not whole.get("logprobs"):
            whole["logprobs"] = self.logprobs
        return whole

    def closing(self, at: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        """The events that it still lacks."""
        shape = PARTS.get(self.part["type"])
        if shape is not None and self.owed:
            yield f"{shape.events}.delta", {**at, **shape.extra, "delta": self.owed}
        if shape is not None and not self.is_told:
            whole = self.whole()
            extra = _extra(shape, whole if whole.get("logprobs") else {"logprobs": self.logprobs})
            yield f"{shape.events}.done", {**at, **extra, shape.member: self.text}
        if not self.is_done:
            yield "response.content_part.done", {**at, "part": self.whole()}


def _extra(shape: _Shape, part: Mapping[str, Any]) -> Mapping[str, Any]:
    """What events of a whole part hold beside its text."""
    return {name: in_event(Raw(encode(part.get(name)))) for name in shape.extra}


def _events(kind: str, item: dict[str, Any], index: int) -> Iterator[tuple[str, dict[str, Any]]]:
    streamed = STREAMED.get(kind)
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


def _member(
    item: dict[str, Any], at: dict[str, Any], member: str, events: str, said: str = ""
) -> Iterator[tuple[str, dict[str, Any]]]:
    value = item.get(member, "")
    if not said:
        yield f"{events}.delta", {**at, "delta": value}
    elif isinstance(value, str) and value.startswith(said) and value != said:
        yield f"{events}.delta", {**at, "delta": value[len(said) :]}
    named = {"name": item.get("name", "")} if member == "arguments" else {}
    yield f"{events}.done", {**at, **named, member: value}


def _part(part: Any, at: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    shape = PARTS.get(str(part.get("type"))) if isinstance(part, dict) else None
    if shape is None:
        yield "response.content_part.added", {**at, "part": part}
    else:
        whole = {**shape.empty, **part}
        text = part.get(shape.member, "")
        yield "response.content_part.added", {**at, "part": {**whole, **shape.empty, shape.member: ""}}
        extra = _extra(shape, part)
        yield f"{shape.events}.delta", {**at, **extra, "delta": text}
        yield f"{shape.events}.done", {**at, **extra, shape.member: text}
        part = whole
    yield "response.content_part.done", {**at, "part": part}
