"""How many tokens a request that was passed on has cost, as far as its answer tells. Pure."""

from __future__ import annotations

import re

_TOTAL = re.compile(rb'"total_tokens"\s*:\s*(\d{1,12})(?!\d)')
_KEPT_BYTES = 4096  # usage stands at the end of an answer, in some before a list of vectors
_BYTES_PER_TOKEN = 4


class Meter:
    """Is fed an answer as it passes. `textual`: it is JSON or events, so that its length says something of tokens."""

    def __init__(self, *, textual: bool) -> None:
        self._textual = textual
        self._head = b""
        self._tail = b""
        self._size = 0

    def feed(self, data: bytes) -> None:
        """The next piece of the answer."""
        self._size += len(data)
        self._head += data[: _KEPT_BYTES - len(self._head)]
        self._tail = (self._tail + data[-_KEPT_BYTES:])[-_KEPT_BYTES:]

    def tokens(self, bytes_in: int) -> int:
        """What the upstream counted; a token for every four bytes of text, in and out, where it did not."""
        told = _TOTAL.findall(self._tail) or _TOTAL.findall(self._head)
        if told:
            return int(told[-1])
        return (bytes_in + self._size) // _BYTES_PER_TOKEN if self._textual else 0
