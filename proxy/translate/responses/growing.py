"""Items of an upstream that is not faithful, written as clients need them: opened, filled and closed.

What the upstream says at the end of a part or an item (its whole text, annotations, status) is only noted when it
comes, and told when the item closes: then all that the upstream will ever say of it is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from proxy.translate.answer.calls import COMPLETED
from proxy.translate.responses.events import MEMBERS, Event
from proxy.translate.responses.logprobs import in_event, in_item
from proxy.translate.responses.sink import Sink
from proxy.translate.responses.whole import PART_OF_EVENTS, PARTS
from proxy.wire.codec import NULL, Raw, decode_text, encode, is_null

# Item type → what its id starts with, and the members that it always has.
_MINTED: Mapping[str, tuple[bytes, Mapping[str, Any]]] = {
    "message": (b"msg", {"role": "assistant"}),
    "reasoning": (b"rs", {"summary": []}),
    "function_call": (b"fc", {"name": "", "arguments": ""}),
    "custom_tool_call": (b"ctc", {"name": "", "input": ""}),
}
# Which part of an item: its number upstream, and its type, since some servers number parts of each type alone.
Key = tuple[int, str]
WHOLE: Key = (-1, "")  # a call's text
EMPTY = (b"null", b"[]")
# Event → the type of part that it is of, and the member that holds its text.
_PARTS_OF: Mapping[str, tuple[str, str]] = {
    f"{shape.events}.{verb}": (part, shape.member) for part, shape in PARTS.items() for verb in ("delta", "done")
}
_TEXT = msgspec.json.Decoder(str)
RAWS = msgspec.json.Decoder(list[Raw])


def text_of(raw: Raw) -> str:
    """A text; some servers send arguments as the object itself."""
    if is_null(raw):
        return ""
    return _TEXT.decode(raw) if bytes(memoryview(raw)[:1]) == b'"' else bytes(raw).decode()


class Source:
    """An item as the upstream tells of it.

    `members` are what it said last of the whole item, `said` the text so far of each part (`WHOLE`: of a call).
    `waiting` are its events that could not be told yet, `has_output` says whether any of them adds something.
    """

    __slots__ = ("call_id", "has_output", "is_closed", "is_done", "item_id", "kind", "members", "name", "raw",
                 "said", "waiting")  # fmt: skip

    def __init__(self, kind: str, item_id: str | None, members: dict[str, Raw]) -> None:
        self.kind = kind
        self.item_id = item_id
        self.members = members
        self.name = _plain(members.get("name"))
        self.call_id = _plain(members.get("call_id"))
        self.raw = b""
        self.said: dict[Key, list[str]] = {}
        self.waiting: list[tuple[Event, bytes]] = []
        self.has_output = self.is_done = self.is_closed = False

    def announce(self, members: dict[str, Raw]) -> None:
        """What the upstream says of the whole item, before or after its first events."""
        self.members = {**self.members, **members}
        self.name = self.name or _plain(members.get("name"))
        self.call_id = self.call_id or _plain(members.get("call_id"))

    def finish(self, members: dict[str, Raw], raw: bytes) -> None:
        """The item, as the upstream says in the end that it is."""
        self.raw = raw
        self.announce(members)
        self.is_done = self.has_output = True

    def owed(self, key: Key, text: str) -> str:
        """What of a whole text was not said; what was said cannot be taken back."""
        said = "".join(self.said.get(key, ()))
        return text[len(said) :] if text.startswith(said) else ""

    def parts(self) -> list[Raw]:
        """The parts of its content, as far as they are known."""
        content = self.members.get("content", NULL)
        first = bytes(memoryview(content)[:1])
        if first == b'"':
            return [Raw(encode({"type": "output_text", "text": content}))]
        return RAWS.decode(content) if first == b"[" else []

    def is_cut(self) -> bool:
        """Does the upstream itself say that the item is not whole?"""
        return bytes(self.members.get("status", NULL)) == b'"incomplete"'


def _plain(raw: Raw | None) -> str:
    return "" if raw is None or bytes(memoryview(raw)[:1]) != b'"' else _TEXT.decode(raw)


class Growing(Protocol):
    """The item that is open."""

    source: Source

    @property
    def holds_up(self) -> bool:
        """Must it be done before the next item opens?"""
        ...

    @property
    def has_text(self) -> bool:
        """Was anything of it said?"""
        ...

    def take(self, event: Event, payload: bytes) -> None:
        """Its next event."""
        ...

    def goes_on(self, event: Event) -> bool:
        """Is `event`, which it took last, a delta of a text that is still open?"""
        ...

    def say_on(self, texts: Sequence[bytes]) -> None:
        """More deltas of that text, the insides of JSON strings as our encoder writes them, none of them empty."""
        ...

    def close(self, status: bytes) -> bytes | None:
        """Tell the rest of it; the item, or None where nobody could use it."""
        ...


class Making(NamedTuple):
    """What the items of one answer have in common."""

    sink: Sink
    seal: Callable[[str], str] | None
    passed: Callable[[Event, bytes, int, str], None]


def kept(source: Source) -> tuple[str, bytes, dict[str, Any]]:
    """Id, prefix and members of an item, without those that say nothing."""
    prefix, always = _MINTED.get(source.kind, (b"item", {}))
    told = {name: value for name, value in source.members.items() if not _says_nothing(name, value)}
    made = {"type": source.kind, "id": "", **always, **told}
    if source.kind == "message":
        made["role"] = "assistant"
    return source.item_id or "", prefix, made


def _says_nothing(name: str, value: Raw) -> bool:
    return is_null(value) or (bytes(value) == b"[]" and name not in ("summary", "content"))


class _Part:
    """The part that is open."""

    __slots__ = ("annotations", "events", "head", "key", "kind", "known", "logprobs", "member", "said")

    def __init__(self, key: Key, known: dict[str, Raw], head: bytes) -> None:
        self.key = key
        self.kind = key[1]
        shape = PARTS[self.kind]
        self.known = known
        self.head = head
        self.events, self.member = shape.events, shape.member
        self.said: list[str] = []
        self.annotations: list[Raw] = []
        self.logprobs: list[dict[str, Any]] = []  # as deltas told them

    def know(self, members: Mapping[str, Raw]) -> None:
        """What the upstream says of the whole part; what says nothing takes nothing back."""
        told = {name: value for name, value in members.items() if bytes(value) not in EMPTY or name not in self.known}
        self.known = {**self.known, **told}

    def whole(self) -> dict[str, Any]:
        """The part as it ends."""
        shape = PARTS[self.kind]
        known = {name: value for name, value in self.known.items() if not is_null(value)}
        if self.annotations and bytes(known.get("annotations", NULL)) in EMPTY:
            known["annotations"] = Raw(encode(self.annotations))
        if self.logprobs and bytes(known.get("logprobs", NULL)) in EMPTY:
            known["logprobs"] = Raw(encode(self.logprobs))
        return {**shape.empty, **known, "type": self.kind, self.member: "".join(self.said)}


class PartsItem:
    """A message or reasoning: parts that grow one after another."""

    def __init__(self, making: Making, source: Source, index: int) -> None:
        self.source = source
        self._making = making
        self._sink = making.sink
        wanted, prefix, members = kept(source)
        self._id = self._sink.own_id(wanted, prefix)
        self._index = index
        self._at = b'"item_id":%b,"output_index":%d' % (encode(self._id), index)
        self._parts: list[dict[str, Any]] = []
        self._open: _Part | None = None
        self._summary: dict[int, list[str]] = {}
        self._told = False
        self._whole_part: tuple[int, bytes] | None = None  # told last of all: nothing is new in it
        for name in ("encrypted_content", "content", "status"):
            members.pop(name, None)
        opened = {**members, "id": self._id, "status": "in_progress", "content": []}
        if source.kind == "reasoning":
            opened["summary"] = []
        self._sink.say("response.output_item.added", b'"output_index":%d,"item":%b' % (index, encode(opened)))

    @property
    def holds_up(self) -> bool:
        return False

    @property
    def has_text(self) -> bool:
        return self._told

    def take(self, event: Event, payload: bytes) -> None:
        self._whole_part = None
        handle = _PART_HANDLERS.get(event.type)
        if handle is not None:
            handle(self, event)
        elif event.type in ("response.content_part.added", "response.content_part.done"):
            self._part(event)
        else:
            if event.type == "response.output_text.annotation.added" and self._open is not None:
                self._open.annotations.append(event.annotation)
            if event.type == "response.reasoning_summary_text.delta":
                self._summary.setdefault(event.summary_index or 0, []).append(text_of(event.delta))
                self._told = True
            self._making.passed(event, payload, self._index, self._id)

    def text_delta(self, event: Event) -> None:
        kind, _ = _PARTS_OF[event.type]
        logprobs = b"" if is_null(event.logprobs) else bytes(event.logprobs)
        self._text((event.content_index or 0, kind), text_of(event.delta), logprobs)

    def text_done(self, event: Event) -> None:
        kind, member = _PARTS_OF[event.type]
        logprobs = in_item(event.logprobs)
        known = {"logprobs": Raw(encode(logprobs))} if logprobs else {}
        self._whole((event.content_index or 0, kind), getattr(event, member), known)

    def _part(self, event: Event) -> None:
        members = {} if is_null(event.part) else MEMBERS.decode(event.part)
        number, is_done = event.content_index or 0, event.type.endswith("done")
        self._is_part(number, members, is_done=is_done)
        if is_done and members:
            self._whole_part = number, bytes(event.part)

    def _is_part(self, number: int, members: dict[str, Raw], *, is_done: bool) -> None:
        kind = _plain(members.get("type"))
        key = (number, kind)
        if kind in PARTS:
            text = members.get(PARTS[kind].member, NULL)
            if is_done or text_of(text):
                self._whole(key, text, members)
            else:
                self._opened(key).know(members)
        elif is_done and kind and key not in self.source.said:
            self._foreign(key, members)

    def _foreign(self, key: Key, members: dict[str, Raw]) -> None:
        """A part of a type that does not grow."""
        self._close_part()
        self.source.said[key] = []
        self._told = True
        at = b'%b,"content_index":%d,"part":%b' % (self._at, len(self._parts), encode(members))
        self._sink.say("response.content_part.added", at)
        self._sink.say("response.content_part.done", at)
        self._parts.append(members)

    def _text(self, key: Key, text: str, logprobs: bytes = b"") -> None:
        if not text and not logprobs:
            return
        part = self._opened(key)
        if logprobs:
            part.logprobs += in_item(Raw(logprobs))
        part.said.append(text)
        self.source.said[key].append(text)
        self._told = True
        extra = b',"logprobs":%b' % (logprobs or b"[]") if part.kind == "output_text" else b""
        self._sink.emit(b"%b%d%b,%b}" % (part.head, self._sink.sequence, extra, encode_delta(text)))

    def goes_on(self, event: Event) -> bool:
        part = self._open
        return part is not None and event.type == f"{part.events}.delta" and part.key[0] == (event.content_index or 0)

    def say_on(self, texts: Sequence[bytes]) -> None:
        self._whole_part = None
        part = self._open
        if part is None:
            return
        said = decode_text(b"".join(texts))
        part.said.append(said)
        self.source.said[part.key].append(said)
        self._told = True
        self._sink.emit_deltas(part.head, b',"logprobs":[]' if part.kind == "output_text" else b"", texts)

    def _place(self) -> bytes:
        return b'%b,"content_index":%d' % (self._at, len(self._parts))

    def _whole(self, key: Key, text: Raw, known: dict[str, Raw]) -> None:
        whole = text_of(text)
        if key not in self.source.said:
            self._opened(key)
        # Those of the whole part stand where its text does; of a rest nobody knows which are its own.
        is_first = not self.source.said[key]
        owed = self.source.owed(key, whole)
        logprobs = in_event(known.get("logprobs", NULL)) if owed and is_first else []
        self._text(key, owed, encode(logprobs) if logprobs else b"")
        if self._open is not None and self._open.key == key:
            self._open.know(known)

    def _opened(self, key: Key) -> _Part:
        """The part `key`; one that it comes back to goes on as another."""
        if self._open is not None and self._open.key == key:
            return self._open
        self._close_part()
        self.source.said.setdefault(key, [])
        shape = PARTS[key[1]]
        empty = {"type": key[1], **shape.empty, shape.member: ""}
        self._sink.say("response.content_part.added", b'%b,"part":%b' % (self._place(), encode(empty)))
        head = b'{"type":"%b.delta",%b,"sequence_number":' % (shape.events.encode(), self._place())
        self._open = _Part(key, {}, head)
        return self._open

    def _close_part(self) -> None:
        part, self._open = self._open, None
        if part is None:
            return
        whole = part.whole()
        self._tell_annotations(part, whole.get("annotations"))
        extra = b""
        if part.kind == "output_text":
            logprobs = encode(whole["logprobs"])
            extra = b',"logprobs":%b' % (logprobs if logprobs == b"[]" else encode(in_event(Raw(logprobs))))
        told = b'%b,"%b":%b%b' % (self._place(), part.member.encode(), encode(whole[part.member]), extra)
        self._sink.say(f"{part.events}.done", told)
        self._sink.say("response.content_part.done", b'%b,"part":%b' % (self._place(), encode(whole)))
        self._parts.append(whole)

    def _tell_annotations(self, part: _Part, annotations: Any) -> None:
        """Those that the upstream showed only in the whole part."""
        shown = RAWS.decode(annotations) if isinstance(annotations, Raw) else annotations or []
        for number, annotation in enumerate(shown[len(part.annotations) :], len(part.annotations)):
            at = b'%b,"annotation_index":%d,"annotation":%b' % (self._place(), number, bytes(annotation))
            self._sink.say(f"{part.events}.annotation.added", at)

    def close(self, status: bytes) -> bytes | None:
        for key, raw in enumerate(self.source.parts()):
            if (key, bytes(raw)) != self._whole_part:
                self._is_part(key, MEMBERS.decode(raw), is_done=True)
        self._close_part()
        _, _, members = kept(self.source)
        members["id"] = self._id
        if self._parts or self.source.kind == "message" or "content" in members:
            members["content"] = self._parts
        if self.source.kind == "message" or "status" in members or status != COMPLETED:
            members["status"] = status.decode()
        if self.source.kind == "reasoning":
            self._finish_reasoning(members)
        item = encode(members)
        self._sink.say("response.output_item.done", b'"output_index":%d,"item":%b' % (self._index, item))
        return item

    def _finish_reasoning(self, members: dict[str, Any]) -> None:
        if isinstance(members["summary"], Raw) and not _is_of_objects(members["summary"]):
            members["summary"] = []  # clients read its parts, and would not take it back
        if self._summary and bytes(encode(members["summary"])) == b"[]":
            texts = ("".join(self._summary[key]) for key in sorted(self._summary))
            members["summary"] = [{"type": "summary_text", "text": text} for text in texts]
        thought = "".join(part["text"] for part in self._parts if part.get("type") == "reasoning_text")
        if _plain(members.get("encrypted_content")) == "":
            members.pop("encrypted_content", None)  # it is no text, which would not be taken back
        if self._making.seal is not None and thought and not is_sealed(members.get("encrypted_content", NULL)):
            members["encrypted_content"] = self._making.seal(thought)


def _is_of_objects(raw: Raw) -> bool:
    if bytes(memoryview(raw)[:1]) != b"[":
        return False
    return all(bytes(memoryview(each)[:1]) == b"{" for each in RAWS.decode(raw))


def is_sealed(raw: Raw) -> bool:
    """Is this encrypted content?"""
    return bytes(raw) not in (b"null", b'""')


def encode_delta(text: str) -> bytes:
    """The member of a delta event that counts."""
    return b'"delta":%b' % encode(text)


_PART_HANDLERS: Mapping[str, Callable[[PartsItem, Event], None]] = {
    **{f"{events}.delta": PartsItem.text_delta for events in PART_OF_EVENTS},
    **{f"{events}.done": PartsItem.text_done for events in PART_OF_EVENTS},
}
