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
        return self._continued(known, piece) or known

    def goes_on(self, known: str, piece: str) -> bool:
        """Is a name, as far as it is known, continued by one more piece, or said once more with more of it?"""
        return bool(self._continued(known, piece))

    def begins(self, piece: str) -> bool:
        """May a name begin so?"""
        return not self._sorted or bool(self._begin_with(piece))

    def is_whole(self, name: str) -> bool:
        """Can nothing be added to it? So it is where nothing is offered: then nothing could tell."""
        return not self._sorted or self._begin_with(name) == [name]

    def _continued(self, known: str, piece: str) -> str:
        for name in (known + piece, piece):
            if name.startswith(known) and self._begin_with(name):
                return name
        return ""

    def _begin_with(self, start: str) -> list[str]:
        """At most two of the names that begin so."""
        at = bisect_left(self._sorted, start)
        return [name for name in self._sorted[at : at + 2] if name.startswith(start)]
