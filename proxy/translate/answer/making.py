"""Items of an answer that are being made: the open one, and what waits for its own to open."""

from __future__ import annotations

from proxy.translate.answer.calls import CallWriter
from proxy.translate.answer.parts import Marks
from proxy.translate.answer.pieced_object import PiecedObject

# Arguments of a function without any. Some servers begin every call with them and send the real ones afterwards.
NO_ARGUMENTS = "{}"


def begins_arguments(piece: str) -> bool:
    """Are these arguments of their own, in place of `NO_ARGUMENTS`?"""
    return piece.lstrip().startswith("{")


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

    def add(self, arguments: str) -> None:
        """One more piece of a call."""
        if self.deltas == [NO_ARGUMENTS] and begins_arguments(arguments):
            self.deltas, self.object = [], PiecedObject()
        if arguments:
            self.deltas.append(arguments)


class Open:
    """The item being written: its id, what was written, and the constant start of its delta events.

    `parts` are a call's arguments, `said` is what anything else says, as JSON strings without their quotes.
    `annotations` counts those told. `is_held` says that a call has `NO_ARGUMENTS`, untold, unless more come.
    """

    __slots__ = (
        "annotations",
        "call_id",
        "head",
        "id",
        "is_held",
        "key",
        "kind",
        "marks",
        "object",
        "parts",
        "said",
        "writer",
    )

    def __init__(self, kind: str, item_id: bytes, head: bytes, key: int = -1) -> None:
        self.kind = kind
        self.id = item_id
        self.head = head
        self.key = key
        self.parts: list[str] = []
        self.said: list[bytes] = []
        self.marks: list[Marks] = []
        self.annotations = 0
        self.is_held = False
        self.object = PiecedObject()
        self.call_id = ""
        self.writer: CallWriter | None = None

    def holds_up(self, latest: str) -> bool:
        """Is this a call whose arguments are not whole, or perhaps not? Nothing may follow it yet.

        `latest` is the kind of what came last: a server that says something else is done with its calls.
        """
        return self.writer is not None and (not self.is_whole or (self.is_held and latest == "call"))

    @property
    def is_whole(self) -> bool:
        """Are a call's arguments a whole object?"""
        return self.is_held or self.object.is_whole(self.parts)
