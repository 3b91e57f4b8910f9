"""Ids that clients see.

`resp_` `lp1` WORKER ROOT RANDOM: a version mark that makes ours recognisable without a look-up, 4 characters for the
worker that minted it, 8 that all responses of one chain share, and 128 random bits in hex; 52 characters of the 64
that clients allow. Ids of items are made from their response's random part and a counter: hex digits for the answer's
items, `i` and hex digits for the input's, which get an id only when they are listed.
"""

from __future__ import annotations

import os
import re

_OURS = re.compile(r"resp_lp1[0-9a-z]{4}([0-9a-f]{8})([0-9a-f]{32})\Z")
_ITEM = re.compile(r"[a-z]+_([0-9a-f]{32})i?[0-9a-f]{4,8}\Z")
_MARK = "resp_lp1"
DEFAULT_WORKER = "0000"
_HEX_DIGITS = 32  # 128 bits
_AT_ONCE = 256
_ID = re.compile(f"[0-9a-f]{{{_HEX_DIGITS}}}")


class _Random:
    """Random bits of the operating system, 128 for each id; asking it for those of one id costs most of making one."""

    def __init__(self) -> None:
        self._ready: list[str] = []
        os.register_at_fork(after_in_child=self._ready.clear)  # or two processes would mint the same ids

    def take(self) -> str:
        if not self._ready:
            self._ready += _ID.findall(os.urandom(_AT_ONCE * _HEX_DIGITS // 2).hex())
        return self._ready.pop()


_RANDOM = _Random()


def response_id(parent: str | None = None, worker: str = DEFAULT_WORKER) -> str:
    """A new response id, carrying the root of `parent`'s chain when there is one."""
    random = _RANDOM.take()
    match = _OURS.match(parent) if parent else None
    return f"{_MARK}{worker}{match[1] if match else random[:8]}{random}"


def is_ours(response: str) -> bool:
    """Was this response id minted by a Loopline?"""
    return _OURS.match(response) is not None


def seed(response: str) -> str:
    """The 32 hex digits from which the ids of a response's items are made."""
    return response[-32:]


def item_seed(item: str) -> str | None:
    """The seed of the response that an item's id was made from; None for an id that is not ours."""
    match = _ITEM.match(item)
    return match[1] if match else None


def input_item_id(prefix: str, response: str, number: int) -> str:
    """The id of a response's input item `number` that came without one: always the same."""
    return f"{prefix}_{seed(response)}i{number:04x}"
