"""A custom tool's input out of the JSON that a model wrote around it, as it comes.

Models asked for `{"input": "…"}` mostly write that, sometimes another key, bare text, or escapes that JSON does not
know. What they meant is taken; nothing they wrote is lost.
"""

from __future__ import annotations

import re

import msgspec

from proxy.translate.tool_kinds import INPUT

_HEAD = '{"%s":"' % INPUT
_START = re.compile(r'\s*\{\s*"%s"\s*:\s*"' % INPUT)
_PIECE = re.compile(r'[^"\\]+|\\(?:u[0-9a-fA-F]{4}|[^u])', re.DOTALL)
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "/": "/"}
_ESCAPE_CHARS = 6


class RawInput:
    """Takes pieces of arguments, gives pieces of the input; `said` is all that was given."""

    __slots__ = ("_buffer", "_high", "_inside", "_over", "_parts", "_whole")

    def __init__(self) -> None:
        self._buffer = ""  # what cannot be decided yet
        self._high = ""  # the first half of a character
        self._inside = self._over = self._whole = False
        self._parts: list[str] = []

    @property
    def said(self) -> str:
        """The input so far."""
        return "".join(self._parts)

    def feed(self, arguments: str) -> str:
        """The input that a piece of the arguments adds."""
        if self._over:
            return ""
        self._buffer += arguments
        if not self._inside and not self._whole:
            self._look_for_start()
        return self._say(self._decoded()) if self._inside else ""

    def end(self) -> str:
        """The input that is still owed, after the last piece."""
        if self._over or self._inside:
            rest = self._buffer + ("�" if self._high else "")
            self._buffer = self._high = ""
            return "" if self._over else self._say(rest)
        whole, self._buffer, self._over = self._buffer, "", True
        return self._say(_meant(whole))

    def _say(self, text: str) -> str:
        if text:
            self._parts.append(text)
        return text

    def _look_for_start(self) -> None:
        start = _START.match(self._buffer)
        if start is not None:
            self._inside, self._buffer = True, self._buffer[start.end() :]
        else:
            self._whole = not _HEAD.startswith("".join(self._buffer.split()))

    def _decoded(self) -> str:
        made: list[str] = []
        at = 0
        for piece in iter(lambda: _PIECE.match(self._buffer, at), None):
            made.append(self._character(piece.group()))
            at = piece.end()
        rest, self._buffer = self._buffer[at:], ""
        if rest.startswith('"'):
            self._over = True
            made.append("�" if self._high else "")
        elif len(rest) >= _ESCAPE_CHARS:  # \u and no four digits: as it stands
            self._buffer = rest[1:]
            made += ["\\", self._decoded()]
        else:
            self._buffer = rest
        return "".join(made)

    def _character(self, piece: str) -> str:
        high, self._high = self._high, ""
        if not piece.startswith("\\"):
            text = piece
        elif piece[1] == "u":
            text = chr(int(piece[2:], 16))
        else:
            text = _ESCAPES.get(piece[1], piece)
        if high and "\udc00" <= text <= "\udfff":
            return (high + text).encode("utf-16", "surrogatepass").decode("utf-16")
        if "\ud800" <= text <= "\udbff":
            self._high, text = text, ""
        elif "\udc00" <= text <= "\udfff":
            text = "�"
        return ("�" if high else "") + text


def _meant(whole: str) -> str:
    """The input in arguments that are not as they were asked for."""
    try:
        read = msgspec.json.decode(whole)
    except (msgspec.DecodeError, RecursionError):
        return whole
    if isinstance(read, str):
        return read
    if isinstance(read, dict):
        if isinstance(read.get(INPUT), str):
            return str(read[INPUT])
        texts = [value for value in read.values() if isinstance(value, str)]
        if len(read) == len(texts) == 1:
            return texts[0]
        if not read:
            return ""
    return whole
