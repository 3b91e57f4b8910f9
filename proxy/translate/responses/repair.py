"""The answer of an upstream that is not faithful, as strictly nested items with every id, index and key.

Items open in the order in which the upstream announced them. While one is open, what comes for others waits; it is
closed early, once what it says can be complete, as soon as another has something to say: some servers end all items
only at the end of the answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache

import msgspec

from proxy.errors import Kind, LooplineError
from proxy.translate.alike import Alike
from proxy.translate.answer.calls import COMPLETED, INCOMPLETE, call_writer
from proxy.translate.responses.calls import CallItem, MappedCall, OtherItem
from proxy.translate.responses.events import HEAD, MEMBERS, Event, output_item, recognised
from proxy.translate.responses.growing import EMPTY, Growing, Making, PartsItem, Source, text_of
from proxy.translate.responses.sink import Sink
from proxy.translate.responses.whole import PARTS, STREAMED
from proxy.translate.tools.listed import Called
from proxy.wire.codec import NULL, Raw, encode, is_null
from proxy.wire.items import CALLS, Item, parse_item

_GROWN = ("message", "reasoning")
_PARTS = "message or reasoning"
# What an event's name tells of the item that it belongs to.
_KIND_OF: Sequence[tuple[str, str]] = (
    ("response.output_text.", "message"),
    ("response.refusal.", "message"),
    ("response.reasoning_text.", "reasoning"),
    ("response.reasoning_summary_", "reasoning"),
    ("response.function_call_arguments.", "function_call"),
    ("response.custom_tool_call_input.", "custom_tool_call"),
    ("response.content_part.", _PARTS),
)
_DELTAS: Mapping[str, str] = {
    "message": "response.output_text.delta",
    "reasoning": "response.reasoning_text.delta",
    "function_call": "response.function_call_arguments.delta",
}
_TEXT_DONE: Mapping[str, tuple[str, str]] = {
    f"{shape.events}.done": (part, shape.member) for part, shape in PARTS.items()
}


class Repaired:
    """Takes the events of items, gives them to `sink` as clients need them. `items` are those that are done.

    `calls` says what a function's name means to the client, `seal` makes encrypted content where it is wanted.
    `allowed` are the functions that may be called, None for all: a call of any other is dropped,
    and its name is in `refused`.
    Methods raise `LooplineError` (upstream_garbled) and msgspec's errors for what is no event.
    """

    def __init__(self, sink: Sink, calls: Mapping[str, Called], seal: Callable[[str], str] | None) -> None:
        self.items: list[Item] = []
        self.allowed: frozenset[str] | None = None
        self.refused: list[str] = []
        self._sink = sink
        self._calls = calls
        self._making = Making(sink, seal, self._passed)
        self._sources: list[Source] = []
        self._by_id: dict[str, Source] = {}
        self._by_index: dict[int, Source] = {}
        self._latest: dict[str, Source] = {}  # by kind
        self._waiting: deque[Source] = deque()
        self._open: Growing | None = None
        self._alike = Alike()  # deltas of the open item; holds while nothing else comes

    @property
    def call_begun(self) -> bool:
        """Has a call been made or begun?"""
        kinds = {item.kind for item in self.items} | {source.kind for source in self._sources}
        return not kinds.isdisjoint(CALLS)

    def take_run(self, payloads: Sequence[bytes], start: int) -> int:
        """Tell the deltas from `start` on that are like the one before them, undecoded; returns how many of them."""
        texts = self._alike.read(payloads, start)
        if texts and self._open is not None:
            self._open.say_on(texts)
        return len(texts)

    def take(self, event: Event, payload: bytes) -> None:
        """An event of an item, or one that nobody here knows."""
        self._alike.forget()
        open_ = self._open
        if (
            open_ is not None
            and event.item_id
            and not self._waiting
            and event.type == _DELTAS.get(open_.source.kind)
            and self._by_id.get(event.item_id) is open_.source
        ):
            open_.take(event, payload)
            self._learn(open_, event, payload)
            return
        if event.type == "response.output_item.added":
            self._added(event)
        elif event.type == "response.output_item.done":
            self._done(event)
        else:
            source = self._source_of(event)
            if source is None:
                self._passed(event, payload, -1, "")
            else:
                self._give(source, event, payload)

    def end(self, output: Sequence[Raw], *, is_cut: bool) -> None:
        """The answer has ended; `output` are the items that the upstream tells in the end."""
        if [bytes(raw) for raw in output] != [source.raw for source in self._sources]:  # not all was told already
            self._take_output(output)
        self._release(ending=True)
        self._close(INCOMPLETE if is_cut else COMPLETED)

    def _take_output(self, output: Sequence[Raw]) -> None:
        told = [(HEAD.decode(encode(source.members)), at) for at, source in enumerate(self._sources)]
        for raw, at in zip(output, recognised(output, told), strict=True):
            item = output_item(raw)
            source = None if at is None else self._sources[at]
            if source is None or source.kind != item.kind:
                source = self._new(item.kind, MEMBERS.decode(raw))
            if not source.is_done:
                self._finish(source, MEMBERS.decode(raw), item.raw)

    def settle(self) -> None:
        """The answer fails here: tell what is done, nothing more."""
        if self._open is not None and self._open.source.is_done:
            self._close_if_valid(COMPLETED)

    def interrupt(self) -> None:
        """The answer ends here, steered: what was said stays, an unfinished thought or call is dropped."""
        self._waiting.clear()
        self.settle()
        if self._open is not None and self._open.source.kind == "message" and self._open.has_text:
            self._close_if_valid(INCOMPLETE)
        self._open = None
        self._alike.forget()

    @property
    def is_cut(self) -> bool:
        """Is any item not whole?"""
        return any(item.unfinished for item in self.items)

    def _new(self, kind: str, members: dict[str, Raw], index: int | None = None) -> Source:
        raw = members.get("id", NULL)
        item_id = text_of(raw) or None
        source = Source(kind, item_id, members)
        self._sources.append(source)
        if item_id:
            self._by_id[item_id] = source
        if index is not None:
            self._by_index[index] = source
        self._latest[kind] = source
        self._waiting.append(source)
        return source

    def _added(self, event: Event) -> None:
        item = output_item(event.item)
        members = MEMBERS.decode(item.raw)
        item_id = text_of(members.get("id", NULL))
        at = event.output_index
        known = self._by_id.get(item_id) if item_id or at is None else self._by_index.get(at)
        if (
            known is None
            or known.is_done
            or known.kind != item.kind
            or (at is not None and self._by_index.get(at, known) is not known)
        ):
            self._new(item.kind, members, at)
        else:  # its events came before it
            known.announce(members)
            if at is not None:
                self._by_index[at] = known
        self._release()

    def _done(self, event: Event) -> None:
        item = output_item(event.item)
        members = MEMBERS.decode(item.raw)
        for source in self._candidates(event, item.kind, text_of(members.get("id", NULL))):
            if source.kind == item.kind and not source.is_done and source.call_id in ("", item.call_id or ""):
                break
            if source.raw == item.raw:
                return  # told twice
        else:
            source = self._new(item.kind, members, event.output_index)
        self._finish(source, members, item.raw)
        self._release()

    def _candidates(self, event: Event, kind: str, item_id: str) -> Iterator[Source]:
        """What an end may speak of: by its index, by its id, or the last of its kind where a server names neither."""
        placed = None if event.output_index is None else self._by_index.get(event.output_index)
        named = self._by_id.get(item_id)
        if placed is not None and (named is None or placed.item_id == item_id):
            yield placed
        if named is not None:
            yield named
        latest = self._latest.get(kind)
        if event.output_index is None and latest is not None:
            yield latest

    def _finish(self, source: Source, members: dict[str, Raw], raw: bytes) -> None:
        source.finish(members, raw)
        if source.is_closed and any(self._is_owed(source, key, raw) for key, raw in enumerate(source.parts())):
            self._again(source)

    def _source_of(self, event: Event) -> Source | None:
        """The item that an event belongs to; one that was never announced begins with it."""
        source = self._by_id.get(event.item_id) if event.item_id else None
        placed = None if event.output_index is None else self._by_index.get(event.output_index)
        if placed is not None and (source is None or placed.item_id == event.item_id):
            source = placed
        kind = _kind_of(event.type)
        if kind == _PARTS:
            kind = _kind_of_part(event.part) or (source.kind if source is not None else "message")
        if kind is None or (source is not None and source.kind == kind):
            return source
        latest = self._latest.get(kind)
        if latest is not None and not latest.is_done:
            return latest
        is_new = event.item_id and event.item_id not in self._by_id
        return self._new(kind, {"id": Raw(encode(event.item_id))} if is_new else {}, event.output_index)

    def _give(self, source: Source, event: Event, payload: bytes) -> None:
        open_ = self._open
        if event.name and not source.name:
            source.name = event.name
        if open_ is not None and open_.source is source:
            open_.take(event, payload)
            if self._waiting:
                self._release()
            else:
                self._learn(open_, event, payload)
            return
        if source.is_closed:
            if source.is_done or source.kind not in _GROWN or not self._adds(source, event):
                return
            self._again(source)
        source.waiting.append((event, payload))
        source.has_output = source.has_output or self._adds(source, event)
        self._release()

    def _learn(self, open_: Growing, event: Event, payload: bytes) -> None:
        """What comes next and is alike goes the same way, since nothing waits: the hot path of every turn."""
        if event.delta is NULL:
            return
        delta = bytes(event.delta)
        if delta.startswith(b'"') and bytes(event.logprobs) in EMPTY and open_.goes_on(event):
            self._alike.learn_from(payload, b'"delta"', delta)

    def _again(self, source: Source) -> None:
        """An item that was closed early goes on, as another one."""
        source.is_closed = False
        self._waiting.append(source)

    def _adds(self, source: Source, event: Event) -> bool:
        """Does an event say something new of its item?"""
        number = event.content_index or 0
        if event.type in _TEXT_DONE:
            kind, member = _TEXT_DONE[event.type]
            return bool(source.owed((number, kind), text_of(getattr(event, member))))
        if event.type.startswith("response.content_part."):
            return self._is_owed(source, number, event.part)
        return not event.type.endswith(".delta") or not is_null(event.delta)

    def _is_owed(self, source: Source, number: int, raw: Raw) -> bool:
        part = {} if is_null(raw) else MEMBERS.decode(raw)
        kind = text_of(part.get("type", NULL))
        shape = PARTS.get(kind)
        if shape is None:
            return bool(part) and (number, kind) not in source.said
        return bool(source.owed((number, kind), text_of(part.get(shape.member, NULL))))

    def _release(self, *, ending: bool = False) -> None:
        """Open what waits, as far as items may follow each other."""
        while self._waiting:
            first = self._waiting[0]
            if not ending and self._is_held_by_open(first):
                return
            if first.kind in STREAMED and not first.name:
                if not ending:
                    return
                raise LooplineError(Kind.UPSTREAM_GARBLED, "The upstream called a function without naming it.")
            self._close(COMPLETED)
            self._waiting.popleft()
            if first.kind == "function_call" and self.allowed is not None and first.name not in self.allowed:
                first.is_closed = True
                self.refused.append(first.name)
                continue
            self._begin(first)

    def _is_held_by_open(self, first: Source) -> bool:
        open_ = self._open
        return open_ is not None and not open_.source.is_done and (open_.holds_up or not first.has_output)

    def _begin(self, source: Source) -> None:
        index = len(self.items)
        self._open = open_ = self._writer(source, index)
        waiting, source.waiting = source.waiting, []
        for event, payload in waiting:
            open_.take(event, payload)

    def _writer(self, source: Source, index: int) -> Growing:
        if source.kind in _GROWN:
            return PartsItem(self._making, source, index)
        called = self._calls.get(source.name) if source.kind == "function_call" else None
        if called is not None and called != Called("function", source.name):
            return MappedCall(self._making, source, index, call_writer(source.name, self._calls))
        return (CallItem if source.kind in STREAMED else OtherItem)(self._making, source, index)

    def _close(self, status: bytes) -> None:
        """`status` counts for an item that the upstream has not said to be cut."""
        open_, self._open = self._open, None
        self._alike.forget()
        if open_ is None:
            return
        open_.source.is_closed = True
        raw = open_.close(INCOMPLETE if open_.source.is_cut() else status)
        if raw is not None:
            self.items.append(parse_item(raw, "output"))

    def _close_if_valid(self, status: bytes) -> None:
        """The same where the answer ends anyhow: an item with parts that are none is left untold."""
        with suppress(msgspec.DecodeError, RecursionError):
            self._close(status)

    def _passed(self, event: Event, payload: bytes, index: int, item_id: str) -> None:
        """An event as it is, but for its number and its place."""
        members = MEMBERS.decode(payload)
        if index >= 0:
            members |= {"output_index": Raw(b"%d" % index), "item_id": Raw(encode(item_id))}
        self._sink.pass_on(event.type, members)


class _Part(msgspec.Struct, gc=False):
    type: Raw = NULL


_PART = msgspec.json.Decoder(_Part)


@lru_cache(256)
def _kind_of(name: str) -> str | None:
    return next((kind for start, kind in _KIND_OF if name.startswith(start)), None)


def _kind_of_part(raw: Raw) -> str | None:
    """The kind of item that has such parts."""
    kind = "" if is_null(raw) else text_of(_PART.decode(raw).type)
    return ("reasoning" if kind == "reasoning_text" else "message") if kind in PARTS else None
