"""The ordinary event of a stream: one string, perhaps a number that counts, and around them the same bytes every time.

The first of them is decoded and shows those bytes; where the next ones have them too, what lies between is a JSON
string already, and goes to the client as it is. An event of any other form is decoded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

# The inside of JSON strings as our own encoder writes them, without control characters and `\u`, whose halves may be in
# two events. With a space between, several are matched like one: nothing that is escaped reaches over a space.
_PLAIN = re.compile(rb'[^"\\\x00-\x1f]*+(?:\\["\\bfnrt][^"\\\x00-\x1f]*+)*+').fullmatch
_COUNTED = b'"sequence_number"'
_COUNTS = re.compile(rb'"sequence_number": ?([0-9]++)(?=[,}])')
# A server whose events are never twice alike is not looked at again and again.
_MOST_LESSONS = 16
_COLONS = (b":", b": ")
_NOWHERE = slice(0)
# Events looked at together.
_TOGETHER = 64


class _Number(NamedTuple):
    """A number that is another one in every event, of so many `digits`.

    `between` is what stands between it and the string, which it leads or follows.
    """

    leads: bool
    between: bytes
    digits: int


class Alike:
    """Takes apart events that are alike. What is learnt holds until it is forgotten or something else is learnt."""

    __slots__ = ("_end", "_lessons", "_number", "_places", "_start", "_text")

    def __init__(self) -> None:
        self._start = self._end = b""  # without a start nothing is known
        self._text = _NOWHERE
        self._number: _Number | None = None
        self._places = _NOWHERE, _NOWHERE  # of the number, and of what stands between it and the string
        self._lessons = 0  # since anything was read

    def learn_from(self, payload: bytes, member: bytes, text: bytes) -> bool:
        """Note what stands around `text`, the JSON string that `member` of `payload` (valid JSON) was decoded from.

        `member` has its quotes. Returns whether that can be told; if not, what was learnt before still holds.
        """
        if self._lessons >= _MOST_LESSONS:
            return False
        self._lessons += 1
        for colon in _COLONS:
            at = payload.find(member + colon + text)
            if at >= 0:
                first = at + len(member) + len(colon) + 1
                break
        else:
            return False
        before, after = payload[:first], payload[first + len(text) - 2 :]
        # Twice the same member, or perhaps one in other letters: which of the two was read is not seen from here.
        if payload.count(member) != 1 or b"\\u" in before or b"\\u" in after:
            return False
        self._start, self._end, self._number = before, after, None
        self._text = slice(len(before), -len(after))
        if _COUNTED in payload:
            self._note_number(before, after)
        return True

    def _note_number(self, before: bytes, after: bytes) -> None:
        if counts := _COUNTS.search(before):
            first, last = counts.span(1)
            self._start = before[:first]
            self._count(_Number(True, before[last:], last - first))
        elif counts := _COUNTS.search(after):
            first, last = counts.span(1)
            self._end = after[last:]
            self._count(_Number(False, after[:first], last - first))

    def _count(self, number: _Number) -> None:
        """Say where things are: from the start of an event up to its string, from its end behind it."""
        self._number = number
        if number.leads:
            first = len(self._start)
            last = first + number.digits
            text = last + len(number.between)
            self._places, self._text = (slice(first, last), slice(last, text)), slice(text, -len(self._end))
        else:
            last = -len(self._end)
            first = last - number.digits
            text = first - len(number.between)
            self._places, self._text = (slice(first, last), slice(text, first)), slice(len(self._start), text)

    def forget(self) -> None:
        """What comes next is to be decoded."""
        self._start = b""

    def read(self, payloads: Sequence[bytes], start: int) -> list[bytes]:
        """The strings of the events from `start` on that are alike, some or all up to the first that is not.

        They are JSON without its quotes, none of them empty, as our own encoder writes them.
        """
        if not self._start:
            return []
        group = payloads[start : start + _TOGETHER]
        texts = self._read(group) if self._number is None else self._read_counted(group, self._number)
        if texts:
            self._lessons = 0
        return texts

    def _read(self, payloads: Sequence[bytes]) -> list[bytes]:
        begin, end, text = self._start, self._end, self._text
        texts: list[bytes] = []
        for payload in payloads:
            if not (payload.startswith(begin) and payload.endswith(end)):
                break
            texts.append(payload[text])
        return _whole(texts)

    def _read_counted(self, payloads: Sequence[bytes], number: _Number) -> list[bytes]:
        texts = self._read_numbered(payloads, number)
        if not texts and payloads[0].startswith(self._start):
            more = number._replace(digits=number.digits + 1)  # after 9 comes 10
            self._count(more)
            texts = self._read_numbered(payloads, more)
            if not texts:
                self._count(number)
        return texts

    def _read_numbered(self, payloads: Sequence[bytes], number: _Number) -> list[bytes]:
        begin, end, text = self._start, self._end, self._text
        middle, (place, between) = number.between, self._places
        texts: list[bytes] = []
        numbers: list[bytes] = []
        for payload in payloads:
            if not (payload.startswith(begin) and payload.endswith(end) and payload[between] == middle):
                break
            texts.append(payload[text])
            numbers.append(payload[place])
        return _whole(texts) if _are_numbers(numbers, number.digits) else []


def _are_numbers(numbers: list[bytes], digits: int) -> bool:
    """Is each of them a number in JSON, with so many digits? Then none starts with 0, unless it is."""
    joined = b"".join(numbers)
    return joined.isdigit() and (digits == 1 or b"0" not in joined[::digits])


def _whole(texts: list[bytes]) -> list[bytes]:
    """Those up to the first that may be no whole string."""
    if not texts:
        return texts
    if all(texts) and _is_plain(b" ".join(texts)):
        return texts
    return list(takewhile(_is_said, texts))


def _is_said(text: bytes) -> bool:
    return bool(text) and _is_plain(text)


def _is_plain(said: bytes) -> bool:
    if _PLAIN(said) is None:
        return False
    if said.isascii():
        return True
    try:
        said.decode()
    except UnicodeDecodeError:
        return False
    return True
