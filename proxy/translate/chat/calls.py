"""Which call a piece of a chunk's `tool_calls` belongs to, where servers number and name them as they like."""

from __future__ import annotations

from collections.abc import Callable

from proxy.translate.answer.names import Names
from proxy.translate.chat.chunks import Function, ToolCall

_LEGACY = -1  # the index of the one call that has none


class _Known:
    """A call that has begun: our number, and the upstream's index, id and name of it as far as they have come."""

    __slots__ = ("call_id", "has_arguments", "index", "name", "number")

    def __init__(self, number: int, index: int) -> None:
        self.number = number
        self.index = index
        self.call_id = ""
        self.name = ""
        self.has_arguments = False


class CallKeys:
    """Gives every call a number of its own: a piece is known by its id, then by its index, then as the latest's.

    `is_whole` says of a call whether it has all of its arguments, `names` are the functions on offer.
    """

    __slots__ = ("_by_id", "_by_index", "_is_whole", "_last", "_made", "_names")

    def __init__(self, is_whole: Callable[[int], bool], names: Names) -> None:
        self._is_whole = is_whole
        self._names = names
        self._by_id: dict[str, _Known] = {}
        self._by_index: dict[int, _Known] = {}  # the latest of each
        self._last: _Known | None = None
        self._made = 0

    def of(self, call: ToolCall, position: int, *, alone: bool) -> int:
        """The number of the call; `position` is the piece's place in its chunk, `alone` whether no other is there."""
        name = call.function.name if call.function else None
        known = self._found(call, position, goes_on=alone and not call.id and not name)
        index = known.index if known is not None and call.index is None else call.index
        return self._number(known, position if index is None else index, call.id or "", name or "", call.function)

    def of_legacy(self, function: Function) -> int:
        """The number of the call that a `function_call` is of."""
        return self._number(self._by_index.get(_LEGACY), _LEGACY, "", function.name or "", function)

    def _found(self, call: ToolCall, position: int, *, goes_on: bool) -> _Known | None:
        named = self._by_id.get(call.id or "")
        if call.index is None:
            return named or (self._last if goes_on and self._last else self._by_index.get(position))
        numbered = self._by_index.get(call.index)
        # Some servers give all calls one id: then the index tells them apart.
        return named if named is not None and (named.index == call.index or numbered is None) else numbered

    def _number(self, known: _Known | None, index: int, call_id: str, name: str, function: Function | None) -> int:
        text = function.text if function else ""
        if known is None or (name and self._is_another(known, index, call_id, name, text)):
            known = self._by_index[index] = _Known(self._made, index)
            self._made += 1
        if call_id and not known.call_id:
            known.call_id = call_id
            self._by_id[call_id] = known
        known.name = self._names.joined(known.name, name)
        known.has_arguments = known.has_arguments or bool(text)
        self._last = known
        return known.number

    def _is_another(self, known: _Known, index: int, call_id: str, name: str, text: str) -> bool:
        """Does a piece with a name begin another call? Some servers number every parallel call 0."""
        if index != known.index or (call_id and known.call_id and call_id != known.call_id):
            return True
        if known.name and name != known.name and self._names.begins(name):
            return known.has_arguments or not self._names.goes_on(known.name, name)
        if call_id and call_id == known.call_id:
            return False
        # An upstream that repeats the name in each piece may end with white space.
        return bool(text.strip()) and self._is_whole(known.number)
