"""A custom tool's input out of the JSON that a model wrote around it, as it comes.

Models asked for `{"input": "…"}` mostly write that, sometimes another key, bare text, escapes that JSON does not know
or quotes without any. What they meant is taken: the same, wherever the pieces were cut.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import msgspec

from proxy.translate.tools.kinds import INPUT

# What comes before the input; white space may stand before its brackets, quotes around the key, and colon.
_HEAD = f'{{"{INPUT}":"'
_GAPS = frozenset({0, 1, len(_HEAD) - 2, len(_HEAD) - 1})
_WHITE_SPACE = " \t\n\r"
_RUN = re.compile(r'(?:[^"\\]++|\\(?:u[0-9a-fA-F]{4}|[^u]))++', re.DOTALL)
_UNFINISHED = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")
_ESCAPES = '"/bfnrtu'  # what may follow a backslash, beside another one
_BACKSLASH = "\udcff"  # in place of two: half of a character, which stands in no text
_NO_CHARACTER = "\ufffd"
_HALF = re.compile("[\ud800-\udfff]")
_LENIENT = json.JSONDecoder(strict=False).decode  # raw line ends in strings
# An object's end as it should be, after a quote that stood inside the text without its backslash.
_LATE_END = re.compile(r'"\s*\}\s*\Z')


class RawInput:
    """Takes pieces of arguments, gives pieces of the input; `said` is all that was given."""

    __slots__ = ("_buffer", "_head", "_high", "_kept", "_parts", "_take")

    def __init__(self) -> None:
        # A function and no bound method: nothing here refers to itself.
        self._take: Callable[[RawInput, str], str] = RawInput._begin
        self._head = 0  # how much of `_HEAD` has come
        self._kept: list[str] = []  # what says nothing yet: all of it, or what followed the input
        self._buffer = ""  # an escape that is not whole
        self._high = ""  # the first half of a character
        self._parts: list[str] = []

    @property
    def said(self) -> str:
        """The input so far."""
        return "".join(self._parts)

    def feed(self, arguments: str) -> str:
        """The input that a piece of the arguments adds."""
        return self._say(self._take(self, arguments))

    def end(self) -> str:
        """The input that is still owed, after the last piece."""
        kept, self._kept = "".join(self._kept), []
        take, self._take = self._take, RawInput._nothing
        if take is RawInput._after:
            return self._say(self._unescaped(kept))
        if take is RawInput._inside:
            return self._say(self._flushed())
        return self._say(_meant(kept))

    def _say(self, text: str) -> str:
        if text:
            self._parts.append(text)
        return text

    def _begin(self, arguments: str) -> str:
        for at, character in enumerate(arguments):
            if character == _HEAD[self._head]:
                self._head += 1
                if self._head == len(_HEAD):
                    self._kept, self._take = [], RawInput._inside
                    return self._inside(arguments[at + 1 :])
            elif character not in _WHITE_SPACE or self._head not in _GAPS:
                self._kept.append(arguments)
                if self._head == 0 and character != '"':
                    return self._bare()
                self._take = RawInput._whole
                return ""
        self._kept.append(arguments)
        return ""

    def _bare(self) -> str:
        """No JSON of ours: the text itself."""
        text, self._kept, self._take = "".join(self._kept), [], RawInput._as_it_is
        return text

    def _as_it_is(self, arguments: str) -> str:
        return arguments

    def _nothing(self, arguments: str) -> str:
        return ""

    def _whole(self, arguments: str) -> str:
        """Other JSON than was asked for; only its end tells what is meant."""
        self._kept.append(arguments)
        return ""

    def _after(self, arguments: str) -> str:
        self._kept.append(arguments)
        return ""

    def _inside(self, arguments: str) -> str:
        text, self._buffer = self._buffer + arguments, ""
        made: list[str] = []
        at = 0
        while at < len(text):
            run = _RUN.match(text, at)
            if run is not None:
                made.append(self._characters(run.group()))
                at = run.end()
            elif text[at] == '"':
                made.append(self._flushed())
                self._take = RawInput._after
                self._kept.append(text[at + 1 :])
                break
            elif _UNFINISHED.match(text, at):
                self._buffer = text[at:]
                break
            else:  # \u and no four digits: as it stands
                made.append(self._characters("\\\\"))
                at += 1
        return "".join(made)

    def _flushed(self) -> str:
        """What an end leaves of a character or an escape."""
        rest, self._high, self._buffer = (_NO_CHARACTER if self._high else "") + self._buffer, "", ""
        return rest

    def _characters(self, run: str) -> str:
        """What a run of characters and whole escapes says; half of a character at its end waits for the other."""
        if "\\" not in run and not self._high:
            return run
        text = self._high + _unescape(run)
        if self._high and "\udc00" <= text[1] <= "\udfff":
            text = text[:2].encode("utf-16", "surrogatepass").decode("utf-16") + text[2:]
        self._high = text[-1] if "\ud800" <= text[-1] <= "\udbff" else ""
        return _HALF.sub(_NO_CHARACTER, text[: len(text) - len(self._high)])

    def _unescaped(self, tail: str) -> str:
        """What belongs to the input of what followed its first plain quote: nothing, where that was its end."""
        late = _LATE_END.search(tail)
        if late is None or tail.lstrip(_WHITE_SPACE).startswith("}") or read_json(f'{{"":""{tail}') is not None:
            return ""
        more = RawInput()
        pieces = tail[: late.start()].split('"')
        return '"' + '"'.join(more._inside(piece) + more._flushed() for piece in pieces)


def _unescape(run: str) -> str:
    """A run with its escapes read, at once: one after another they would take seconds. Unknown ones stay."""
    if "\\" not in run:
        return run
    try:
        return str(_LENIENT(f'"{run}"'))
    except ValueError:
        text = run.replace("\\\\", _BACKSLASH).replace("\\", "\\\\")
        for escape in _ESCAPES:
            text = text.replace("\\\\" + escape, "\\" + escape)
        return str(_LENIENT('"' + text.replace(_BACKSLASH, "\\\\") + '"'))


def read_json(text: str) -> Any:
    """Any JSON, raw line ends in its strings allowed; None for what is none."""
    try:
        return msgspec.json.decode(text)
    except RecursionError:
        return None
    except msgspec.DecodeError:
        pass
    try:
        return _LENIENT(text)
    except (ValueError, RecursionError):
        return None


def _meant(whole: str) -> str:
    """The input in arguments that are not as they were asked for."""
    read = read_json(whole)
    if isinstance(read, str):
        return _with_whole_characters(read)
    if isinstance(read, dict):
        if isinstance(read.get(INPUT), str):
            return _with_whole_characters(read[INPUT])
        texts = [value for value in read.values() if isinstance(value, str)]
        if len(read) == len(texts) == 1:
            return _with_whole_characters(texts[0])
        if not read:
            return ""
    return whole


def _with_whole_characters(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
