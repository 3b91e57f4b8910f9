"""Items of an answer that are being made: the open one, and what waits for its own to open."""

from __future__ import annotations

from proxy.translate.answer.calls import CallWriter
from proxy.translate.answer.parts import Marks
from proxy.translate.answer.pieced_object import PiecedObject


class Waiting:
    """What waits for its item to open: pieces of one call, or pieces of one kind that came one after another."""

    __slots__ = ("call_id", "deltas", "has_arguments", "key", "kind", "marks", "name", "object")

    def __init__(self, kind: str, key: int = -1) -> None:
        self.kind = kind
        self.key = key
        self.deltas: list[str] = []
        self.marks: dict[int, Marks] = {}  # by the place of their delta
        self.object = PiecedObject()
        self.has_arguments = False
        self.call_id = ""
        self.name = ""


class Open:
    """The item being written: its id, what was written, and the constant start of its delta events."""

    __slots__ = ("call_id", "head", "id", "key", "kind", "marks", "object", "parts", "writer")

    def __init__(self, kind: str, item_id: bytes, head: bytes, key: int = -1) -> None:
        self.kind = kind
        self.id = item_id
        self.head = head
        self.key = key
        self.parts: list[str] = []
        self.marks: list[Marks] = []
        self.object = PiecedObject()
        self.call_id = ""
        self.writer: CallWriter | None = None

    @property
    def holds_up(self) -> bool:
        """Is this a call whose arguments are not whole? Nothing may follow it yet."""
        return self.writer is not None and not self.is_whole

    @property
    def is_whole(self) -> bool:
        """Are a call's arguments a whole object?"""
        return self.object.is_whole(self.parts)
