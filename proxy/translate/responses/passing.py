"""The answer of a faithful upstream: its events pass, with our numbers; what it leaves open is closed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import Any

import msgspec

from proxy.errors import LooplineError
from proxy.translate.responses.events import HEAD, MEMBERS, Event, Head, Open, output_item, recognised
from proxy.translate.responses.growing import RAWS, is_sealed, text_of
from proxy.translate.responses.sink import Sink
from proxy.translate.responses.whole import by_index, closed, cut, grown, is_event
from proxy.wire.codec import NULL, Raw, encode, is_null
from proxy.wire.items import CALLS, Item, parse_item, string

# Deltas re-made from a typed decode: type → what else the event must hold.
_DELTAS: Mapping[str, bytes] = {
    "response.output_text.delta": b',"logprobs":[]',
    "response.refusal.delta": b"",
    "response.reasoning_text.delta": b"",
    "response.function_call_arguments.delta": b"",
}
# Events that speak of a part of an item.
_HAS_PART = ("response.content_part.", "response.output_text.", "response.refusal.", "response.reasoning_text.")
_RIGHT = b'{"type":"%b","sequence_number":%d,'
# What the events that pass undecoded begin with, those within an item: up to the type, up to the number.
_HEADS: Mapping[bytes, bytes] = {
    kind: kind + b',"sequence_number":'
    for kind in (
        b'{"type":"response.%b"' % name
        for name in (
            *(b"content_part.added", b"content_part.done", b"output_text.annotation.added"),
            *(b"reasoning_summary_part.added", b"reasoning_summary_part.done"),
            *(
                b"%b.%b" % (grows, verb)
                for grows in (
                    *(b"output_text", b"refusal", b"reasoning_text", b"reasoning_summary_text"),
                    *(b"function_call_arguments", b"custom_tool_call_input"),
                )
                for verb in (b"delta", b"done")
            ),
        )
    )
}
_ADDED, _DONE = b'{"type":"response.output_item.added"', b'{"type":"response.output_item.done"'
_LANE = b'"stream_id"'
_TOGETHER = 64  # events looked at together
_NUMBERED = 10_000
_NUMBERS = [b"%d," % number for number in range(_NUMBERED)]  # made once: to write one takes as long as the rest
_CLOSED = ord("}")
_IS_DONE = -1


class _ItemEvent(msgspec.Struct, gc=False):
    item: Raw = NULL
    output_index: int | None = None


_ITEM = msgspec.json.Decoder(_ItemEvent)


class Passed:
    """Takes the events of items, passes them to `sink`. `items` are those that are done.

    `seal` makes encrypted content where it is wanted. Methods raise `LooplineError` (upstream_garbled) and msgspec's
    errors for what is no event.
    """

    is_cut = False  # a faithful upstream says so itself

    def __init__(self, sink: Sink, seal: Callable[[str], str] | None) -> None:
        self.items: list[Item] = []
        self._sink = sink
        self._seal = seal
        self._open: dict[int, Open] = {}  # items that were added and are not done, by their index
        self._said: list[bytes] = []  # events since the first of them, decoded only if the turn ends without their end
        self._done: list[Raw] = []  # the items as the upstream told them
        self._used: set[int] = set()  # indices that items have
        self._next = 0  # above all of them

    @property
    def call_begun(self) -> bool:
        """Has a call been made or begun?"""
        kinds = [item.kind for item in self.items]
        kinds += [open_.head.type or "" for open_ in self._open.values()]
        return any(kind in CALLS for kind in kinds)

    def emit(self, event: bytes) -> None:
        """An event that is right as it is."""
        self._said.append(event)
        self._sink.emit(event)

    def take_run(self, payloads: Sequence[bytes], start: int) -> int:
        """Pass the events from `start` on that are right as they are; returns how many. Those in an item undecoded."""
        first = payloads[start]
        kind = first[: first.find(b",")]
        head = _HEADS.get(kind)
        if head is None:
            return int(kind in (_ADDED, _DONE) and self._take_item(kind, first))
        right: list[bytes] = []
        # Slices: a call of `startswith` takes twice as long.
        for number, payload in enumerate(payloads[start : start + _TOGETHER], self._sink.sequence):
            told = _NUMBERS[number] if number < _NUMBERED else b"%d," % number
            begin = head + told
            if payload[: len(begin)] != begin:
                head = _HEADS.get(payload[: payload.find(b",")], b"")
                begin = head + told
                if not head or payload[: len(begin)] != begin:
                    break
            if payload[-1] != _CLOSED:
                break
            right.append(payload)
        # Looked at together: the member would move an event to another lane.
        joined = b"".join(right)
        if _LANE in joined or not _is_utf8(joined):
            right = list(takewhile(_is_right, right))
        self._said += right
        self._sink.emit_all(right)
        return len(right)

    def _take_item(self, kind: bytes, payload: bytes) -> bool:
        """Pass an item's first or last event if it is right as it is, and was understood."""
        right = b'%b,"sequence_number":%d,' % (kind, self._sink.sequence)
        if not (payload.startswith(right) and payload[-1] == _CLOSED and _is_right(payload)):
            return False
        try:
            event = _ITEM.decode(payload)
            if event.output_index is None:
                return False
            if kind == _ADDED:
                head = HEAD.decode(event.item)
                self.emit(payload)
                self._begin(event.output_index, event.item, head)
                return True
            item = parse_item(event.item, "output")
            if self._bare(item):
                return False  # it is sealed once, where it is read again
        except (msgspec.DecodeError, RecursionError, LooplineError):
            return False  # whoever reads it again says what is wrong with it
        self.emit(payload)
        self._finish(event.output_index, event.item, item)
        return True

    def take(self, event: Event, payload: bytes) -> None:
        """An event of an item, or one that nobody here knows."""
        if event.type == "response.output_item.added":
            self._item_added(event, payload)
        elif event.type == "response.output_item.done":
            self._item_done(event, payload)
        elif event.type in _DELTAS and not is_null(event.delta) and event.item_id is not None:
            self._delta(event)
        else:
            self._pass(event, payload)

    def end(self, output: Sequence[Raw], *, is_cut: bool) -> None:
        """The answer has ended; `output` are the items that the upstream tells in the end."""
        self._settle(output)
        self._close_open("incomplete" if is_cut else "completed")

    def settle(self) -> None:
        """The answer fails here; what is done was told."""

    def interrupt(self) -> None:
        """The answer ends here, steered: what was said stays, an unfinished thought or call is dropped.

        An event that passed undecoded and is none says nothing; a message that is none is left untold.
        """
        self._said = list(filter(is_event, self._said))
        with suppress(msgspec.DecodeError, RecursionError, LooplineError):
            self._close_open("incomplete")
        self._open, self._said = {}, []

    def _delta(self, event: Event) -> None:
        where = b'"item_id":%b,"output_index":%d' % (string(event.item_id or ""), self._index(event))
        if event.type != "response.function_call_arguments.delta":
            where += b',"content_index":%d' % (event.content_index or 0)
        extra = _DELTAS[event.type]
        if extra and event.logprobs is not NULL and not is_null(event.logprobs):
            extra = b',"logprobs":' + bytes(event.logprobs)
        number = self._sink.sequence
        head = _RIGHT % (event.type.encode(), number)
        self.emit(b'%b%b,"delta":%b%b}' % (head, where, bytes(event.delta), extra))

    def _pass(self, event: Event, payload: bytes) -> None:
        # Right as it is: what is looked for stands at the start, since a nested object may have such a member too.
        right = _RIGHT % (event.type.encode(), self._sink.sequence)
        if payload.startswith(right) and payload.endswith(b"}") and event.stream_id is NULL:
            self.emit(payload)
            return
        place = {name: Raw(b"%d" % value) for name, value in self._place(event).items()}
        made = self._sink.pass_on(event.type, {**place, **MEMBERS.decode(payload)})
        self._said.append(made)

    def _index(self, event: Event) -> int:
        """Items follow one another where there are no indices, so that the latest open one is meant."""
        if event.output_index is not None:
            return event.output_index
        return next(reversed(self._open), self._next)

    def _place(self, event: Event) -> dict[str, int]:
        """Where an event belongs; what it says itself counts more."""
        if event.item_id is None and event.item is NULL:
            return {}
        place = {"output_index": self._index(event)}
        if event.type.startswith(_HAS_PART):
            place["content_index"] = event.content_index or 0
        return place

    def _item_added(self, event: Event, payload: bytes) -> None:
        head = HEAD.decode(event.item)
        if event.output_index is None:
            event.output_index = self._next
        self._pass(event, payload)
        self._begin(event.output_index, event.item, head)

    def _begin(self, index: int, raw: Raw, head: Head) -> None:
        if not self._open:
            self._said = []
        self._open[self._take_index(index)] = Open(raw, head)

    def _item_done(self, event: Event, payload: bytes) -> None:
        item = output_item(event.item)
        sealed = self._sealed(item)
        if sealed is not None:
            item, event.item = sealed, Raw(sealed.raw)
            payload = encode({**MEMBERS.decode(payload), "type": event.type, "item": event.item})
        index = event.output_index = self._index(event)
        self._pass(event, payload)
        self._finish(index, event.item, item)

    def _finish(self, index: int, raw: Raw, item: Item) -> None:
        self._open.pop(index, None)
        if not self._open:
            self._said = []
        self._take_index(index)
        self._done.append(raw)
        self.items.append(item)

    def _bare(self, item: Item) -> str:
        """The text of reasoning that is still to be sealed; empty for nothing."""
        if self._seal is None or item.kind != "reasoning":
            return ""
        members: dict[str, Any] = MEMBERS.decode(item.raw)
        return "" if is_sealed(members.get("encrypted_content", NULL)) else reasoning_text(members)

    def _sealed(self, item: Item) -> Item | None:
        """The item with its reasoning sealed, where it is wanted and was not done."""
        text = self._bare(item)
        if not text or self._seal is None:
            return None
        members: dict[str, Any] = MEMBERS.decode(item.raw)
        return parse_item(encode({**members, "encrypted_content": self._seal(text)}), "output")

    def _take_index(self, index: int) -> int:
        self._used.add(index)
        self._next = max(self._next, index + 1)
        return index

    def _settle(self, output: Sequence[Raw]) -> None:
        """The events that items of the final output still lack: clients read items from their events."""
        if not self._open and [bytes(raw) for raw in output] == [item.raw for item in self.items]:
            return
        items = [output_item(raw) for raw in output]
        told = [(HEAD.decode(raw), _IS_DONE) for raw in self._done]
        told += [(each.head, at) for at, each in self._open.items()]
        said = by_index(self._said) if self._open else {}
        for position, (item, at) in enumerate(zip(items, recognised(output, told), strict=True)):
            item = self._sealed(item) or item
            if at is None:
                index = self._take_index(self._next if position in self._used else position)
                self._tell(item, grown(item, index, self._sink.sequence))
            elif at != _IS_DONE:
                del self._open[at]
                self._tell(item, closed(item, said.get(at, ()), at, self._sink.sequence))

    def _close_open(self, status: str) -> None:
        """Messages that are open are kept as far as they were said; an unfinished thought or call is dropped."""
        said = by_index(self._said) if self._open else {}
        for index, open_ in self._open.items():
            if open_.head.type == "message":
                kept = cut(open_.raw, said.get(index, ()), index, self._sink.sequence, status)
                if kept is not None:
                    self._tell(*kept)
        self._open, self._said = {}, []

    def _tell(self, item: Item, events: Iterable[bytes]) -> None:
        for event in events:
            self.emit(event)
        self.items.append(item)


def _is_right(payload: bytes) -> bool:
    return _LANE not in payload and _is_utf8(payload)


def _is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def reasoning_text(members: Mapping[str, Raw]) -> str:
    """The raw text of a reasoning item."""
    content = members.get("content", NULL)
    if bytes(memoryview(content)[:1]) != b"[":
        return ""
    parts = [MEMBERS.decode(part) for part in RAWS.decode(content)]
    return "".join(text_of(part.get("text", NULL)) for part in parts)
