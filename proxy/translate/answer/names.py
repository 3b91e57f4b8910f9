"""Names of functions that come in pieces: which pieces belong together, and when is a name whole?

Some servers send a name once, some with every piece of a call, some cut in pieces. The functions that were offered
tell these apart.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable


class Names:
    """The names on offer."""

    __slots__ = ("_sorted",)

    def __init__(self, names: Iterable[str]) -> None:
        self._sorted = sorted(names)

    def joined(self, known: str, piece: str) -> str:
        """The name as far as it is known, after one more piece of it; a piece that fits nothing changes nothing."""
        if not known or not piece:
            return known or piece
        for name in (known + piece, piece):
            if name.startswith(known) and self._begin_with(name):
                return name
        return known

    def is_whole(self, name: str) -> bool:
        """Can nothing be added to it? So it is where nothing is offered: then nothing could tell."""
        return not self._sorted or self._begin_with(name) == [name]

    def _begin_with(self, start: str) -> list[str]:
        """At most two of the names that begin so."""
        at = bisect_left(self._sorted, start)
        return [name for name in self._sorted[at : at + 2] if name.startswith(start)]
