"""Whether a JSON object that comes in pieces is whole."""

from __future__ import annotations

import re

import msgspec


class PiecedObject:
    """A JSON object that comes in pieces: is it whole? Each piece is looked at once, the object decoded once."""

    __slots__ = ("_closed", "_depth", "_escaped", "_in_string", "_looked_at", "_whole")

    def __init__(self) -> None:
        self._looked_at = 0
        self._depth = 0
        self._in_string = self._escaped = self._closed = self._whole = False

    def is_whole(self, parts: list[str]) -> bool:
        """`parts` are all of the pieces, each time."""
        for part in parts[self._looked_at :]:
            if not self._closed:
                self._closed = self._look(part)
                if self._closed:
                    # A value that has ended is whole now or never: what follows can only be white space.
                    self._whole = _is_json("".join(parts))
                    break
            else:
                self._whole = self._whole and not part.strip(_WHITE_SPACE)
        self._looked_at = len(parts)
        return self._whole

    def _look(self, part: str) -> bool:
        """Is the last bracket closed within `part`?"""
        skipped = 0 if self._escaped else -1
        for match in _MARKS.finditer(part):
            at, mark = match.start(), match.group()
            if at == skipped:
                continue
            if mark == '"':
                self._in_string = not self._in_string
            elif mark == "\\":
                skipped = at + 1
            elif not self._in_string:
                self._depth += 1 if mark in "{[" else -1
                if self._depth <= 0:
                    return True
        self._escaped = skipped == len(part)
        return False


_MARKS = re.compile(r'["\\{}\[\]]')
_WHITE_SPACE = " \t\n\r"


def _is_json(text: str) -> bool:
    if not text.rstrip(_WHITE_SPACE).endswith("}"):
        return False
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
