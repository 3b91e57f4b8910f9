"""Calls, and items of kinds that nobody here acts on, of an upstream that is not faithful."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proxy.translate.answer.calls import COMPLETED, CallWriter
from proxy.translate.answer.pieced_object import PiecedObject
from proxy.translate.responses.events import Event
from proxy.translate.responses.growing import WHOLE, Making, Source, encode_delta, kept, text_of
from proxy.translate.responses.whole import STREAMED
from proxy.wire.codec import NULL, Raw, decode_text, encode


class CallItem:
    """A call that streams one text, in the upstream's own words."""

    def __init__(self, making: Making, source: Source, index: int) -> None:
        self.source = source
        self._making = making
        self._sink = making.sink
        wanted, prefix, members = kept(source)
        self._id = self._sink.own_id(wanted, prefix)
        self._member, self._events = STREAMED[source.kind]
        self._index = index
        self._object = PiecedObject()
        self._named = {"id": self._id, "call_id": self._sink.own_call_id(source.call_id), "name": source.name}
        self._head = b'{"type":"%b.delta","item_id":%b,"output_index":%d,"sequence_number":' % (
            self._events.encode(),
            encode(self._id),
            index,
        )
        opened = {**members, **self._named, self._member: "", "status": "in_progress"}
        self._sink.say("response.output_item.added", b'"output_index":%d,"item":%b' % (index, encode(opened)))

    @property
    def _said(self) -> list[str]:
        return self.source.said.setdefault(WHOLE, [])

    @property
    def holds_up(self) -> bool:
        return self.source.kind != "function_call" or not self._object.is_whole(self._said)

    @property
    def has_text(self) -> bool:
        return bool(self._said)

    def take(self, event: Event, payload: bytes) -> None:
        if event.type == f"{self._events}.delta":
            self._text(text_of(event.delta))
        elif event.type == f"{self._events}.done":
            self._text(self.source.owed(WHOLE, text_of(getattr(event, self._member))))
        else:
            self._making.passed(event, payload, self._index, self._id)

    def _text(self, text: str) -> None:
        if text:
            self._said.append(text)
            self._sink.emit(b"%b%d,%b}" % (self._head, self._sink.sequence, encode_delta(text)))

    def goes_on(self, event: Event) -> bool:
        return event.type == f"{self._events}.delta"

    def say_on(self, texts: Sequence[bytes]) -> None:
        self._said.append(decode_text(b"".join(texts)))
        self._sink.emit_deltas(self._head, b"", texts)

    def close(self, status: bytes) -> bytes | None:
        self._text(self.source.owed(WHOLE, text_of(self.source.members.get(self._member, NULL))))
        if self.source.kind == "function_call":
            if status == COMPLETED and not self._said:
                self._text("{}")  # a function without parameters; clients parse what they get
            if self._object.is_whole(self._said):
                status = COMPLETED
        whole = encode("".join(self._said))
        name = b'"name":%b,' % encode(self.source.name) if self._member == "arguments" else b""
        at = b'"item_id":%b,"output_index":%d,%b"%b":%b'
        done = at % (encode(self._id), self._index, name, self._member.encode(), whole)
        self._sink.say(f"{self._events}.done", done)
        item = {**kept(self.source)[2], **self._named, self._member: Raw(whole), "status": status.decode()}
        told = encode(item)
        self._sink.say("response.output_item.done", b'"output_index":%d,"item":%b' % (self._index, told))
        return told


class MappedCall:
    """A function call that means another kind of item to the client."""

    def __init__(self, making: Making, source: Source, index: int, writer: CallWriter) -> None:
        self.source = source
        self._sink = making.sink
        self._writer = writer
        self._index = index
        self._object = PiecedObject()
        # An upstream's id says what kind of item it is: `fc_` would be wrong here.
        wanted = source.item_id if writer.kind == source.kind else None
        self._id = self._sink.own_id(wanted, writer.prefix).encode()
        self._call_id = self._sink.own_call_id(source.call_id)
        self._at = b'"item_id":"%b","output_index":%d' % (self._id, index)
        if writer.streams:
            self._added(writer.added(self._id, self._call_id))

    @property
    def _said(self) -> list[str]:
        return self.source.said.setdefault(WHOLE, [])

    @property
    def holds_up(self) -> bool:
        return not self._object.is_whole(self._said)

    @property
    def has_text(self) -> bool:
        return bool(self._said)

    def take(self, event: Event, payload: bytes) -> None:
        if event.type == "response.function_call_arguments.delta":
            self._text(text_of(event.delta))
        elif event.type == "response.function_call_arguments.done":
            self._text(self.source.owed(WHOLE, text_of(event.arguments)))

    def goes_on(self, event: Event) -> bool:
        return event.type == "response.function_call_arguments.delta"

    def say_on(self, texts: Sequence[bytes]) -> None:
        for text in texts:
            self._text(decode_text(text))

    def _added(self, item: bytes) -> None:
        self._sink.say("response.output_item.added", b'"output_index":%d,"item":%b' % (self._index, item))

    def _text(self, text: str) -> None:
        if text:
            self._said.append(text)
            self._delta(self._writer.delta(text))

    def _delta(self, text: str) -> None:
        if text:
            self._sink.say(f"{self._writer.streams.decode()}.delta", b"%b,%b" % (self._at, encode_delta(text)))

    def close(self, status: bytes) -> bytes | None:
        self._text(self.source.owed(WHOLE, text_of(self.source.members.get("arguments", NULL))))
        if status == COMPLETED and not self._said:
            self._text("{}")
        if self._object.is_whole(self._said):
            status = COMPLETED
        if status == COMPLETED:  # a piece of what was cut is no input
            self._delta(self._writer.rest())
        ended = self._writer.ended(self._id, self._call_id, "".join(self._said), status)
        if ended is None:
            return None
        if self._writer.streams:
            self._sink.say(f"{self._writer.streams.decode()}.done", b"%b,%b" % (self._at, ended.done))
        else:
            self._added(ended.added)
        self._sink.say("response.output_item.done", b'"output_index":%d,"item":%b' % (self._index, ended.item))
        return ended.item


class OtherItem:
    """An item of a kind that is told as the upstream tells it."""

    def __init__(self, making: Making, source: Source, index: int) -> None:
        self.source = source
        self._making = making
        self._sink = making.sink
        self._index = index
        self._id = self._sink.own_id(source.item_id, b"item")
        self._tell("added", self._item("in_progress"))

    @property
    def holds_up(self) -> bool:
        return True

    @property
    def has_text(self) -> bool:
        return False

    def take(self, event: Event, payload: bytes) -> None:
        self._making.passed(event, payload, self._index, self._id)

    def goes_on(self, event: Event) -> bool:
        return False

    def say_on(self, texts: Sequence[bytes]) -> None:
        """Nothing of it grows."""

    def _item(self, status: str) -> bytes:
        members: dict[str, Any] = {**self.source.members, "type": self.source.kind, "id": self._id}
        if "status" in members and (status == "in_progress" or not self.source.is_done):
            members["status"] = status
        return encode(members)

    def _tell(self, verb: str, item: bytes) -> None:
        self._sink.say(f"response.output_item.{verb}", b'"output_index":%d,"item":%b' % (self._index, item))

    def close(self, status: bytes) -> bytes | None:
        item = self._item(status.decode())
        self._tell("done", item)
        return item
