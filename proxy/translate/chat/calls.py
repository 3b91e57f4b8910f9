"""Which call a piece of a chunk's `tool_calls` belongs to, where servers number and name them as they like."""

from __future__ import annotations

from collections.abc import Callable

from proxy.translate.chat.chunks import Function, ToolCall

_LEGACY = -1  # the number of the one call that has none


class CallKeys:
    """Gives every call a number of its own. `is_whole` says of one whether it has all of its arguments."""

    __slots__ = ("_is_whole", "_known", "_last", "_made")

    def __init__(self, is_whole: Callable[[int], bool]) -> None:
        self._is_whole = is_whole
        self._known: dict[int, tuple[str, int]] = {}  # upstream's index → its latest id, our number
        self._last = 0  # the index of the latest piece
        self._made = 0

    def of(self, call: ToolCall, position: int, *, alone: bool) -> int:
        """The number of the call; `position` is the piece's place in its chunk, `alone` whether no other is there."""
        name = call.function.name if call.function else None
        index = call.index
        if index is None:
            goes_on = alone and not call.id and not name and self._last in self._known
            index = self._last if goes_on else position
        return self._at(index, call.id or "", name or "", call.function)

    def of_legacy(self, function: Function) -> int:
        """The number of the call that a `function_call` is of."""
        return self._at(_LEGACY, "", function.name or "", function)

    def _at(self, index: int, call_id: str, name: str, function: Function | None) -> int:
        self._last = index
        known = self._known.get(index)
        if known is None or self._is_another(known, call_id, name, function):
            known = self._known[index] = (call_id, self._made)
            self._made += 1
        elif call_id and not known[0]:
            known = self._known[index] = (call_id, known[1])
        return known[1]

    def _is_another(self, known: tuple[str, int], call_id: str, name: str, function: Function | None) -> bool:
        """Some servers number every parallel call 0: another id together with a name is another call.

        So is a name with arguments after the arguments are whole.
        """
        if not name:
            return False
        if call_id and known[0] and call_id != known[0]:
            return True
        # An upstream that repeats name and id in each piece may end with white space.
        return function is not None and bool(function.text.strip()) and self._is_whole(known[1])
