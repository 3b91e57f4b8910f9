"""Characters cut in two: servers that stream UTF-16 may put the halves of one surrogate pair into two chunks.

Neither half is valid on its own. This is the rare way, for odd chunks too: it decodes and encodes whole chunks, and the
usual one never comes here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from proxy.translate.chat.odd import straightened

_MEMBERS = ("content", "reasoning_content", "reasoning", "refusal")
_PART_MEMBERS = ("text", "refusal", "thinking")
# A text of an answer: the object that holds it, its member, and what tells it from other texts.
_Text = tuple[dict[str, Any], str, tuple[object, ...]]


class Halves:
    """Keeps the first halves that end texts, and puts them before what follows in the same texts."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[tuple[object, ...], str] = {}

    def __bool__(self) -> bool:
        return bool(self._kept)

    def mend(self, payload: bytes) -> bytes:
        """A chunk with the halves that were kept and without those that are to be. Raises ValueError, RecursionError,
        OverflowError.

        Halves that make no character remain, for the decoder to refuse. Its members get the types that are read.
        """
        chunk = straightened(json.loads(payload.decode(), parse_constant=_refuse))
        for holder, member, key in _texts(chunk):
            text = self._kept.pop(key, "") + holder[member]
            if "\ud800" <= text[-1:] <= "\udbff":
                self._kept[key], text = text[-1], text[:-1]
            holder[member] = text
        return json.dumps(chunk).encode()


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _texts(chunk: Any) -> Iterator[_Text]:
    for choice in _list(chunk, "choices"):
        for place in ("delta", "message"):
            said = choice.get(place) if isinstance(choice, dict) else None
            if not isinstance(said, dict):
                continue
            at = (choice.get("index", 0), place)
            yield from _text(said, _MEMBERS, at)
            for part in _list(said, "content"):
                if isinstance(part, dict):
                    yield from _text(part, _PART_MEMBERS, (*at, part.get("type")))
            if isinstance(said.get("function_call"), dict):
                yield from _text(said["function_call"], ("arguments",), at)
            for position, call in enumerate(_list(said, "tool_calls")):
                if isinstance(call, dict) and isinstance(call.get("function"), dict):
                    index = call.get("index")
                    yield from _text(call["function"], ("arguments",), (*at, position if index is None else index))


def _text(holder: dict[str, Any], members: tuple[str, ...], at: tuple[object, ...]) -> Iterator[_Text]:
    for member in members:
        if isinstance(holder.get(member), str):
            yield holder, member, (*at, member)


def _list(holder: Any, member: str) -> list[Any]:
    found = holder.get(member) if isinstance(holder, dict) else None
    return found if isinstance(found, list) else []
