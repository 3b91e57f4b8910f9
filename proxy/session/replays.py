"""The events of background responses that were begun with `stream`, for clients that come back for the rest of them.

Kept in memory while the response runs, where they are counted as its turn's, and for a while afterwards.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

# A client that lost its connection is back within minutes, or polls.
KEPT_S = 300.0
# Of all that have ended; the oldest make room.
KEPT_BYTES = 64 * 1024 * 1024
_EVENT_OVERHEAD_BYTES = 60

_Key = tuple[str, str]


class _Kept(NamedTuple):
    events: tuple[bytes, ...]
    size: int
    until_s: float


class Replays:
    """Events of responses that have ended, by tenant and response id. `now` is monotonic seconds."""

    def __init__(self, max_bytes: int = KEPT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._kept: OrderedDict[_Key, _Kept] = OrderedDict()
        self.size = 0

    def keep(self, key: _Key, events: Sequence[bytes], now: float) -> None:
        """These are all events of the response. What is larger than everything that is kept is not kept."""
        size = sum(map(len, events)) + _EVENT_OVERHEAD_BYTES * len(events)
        if size > self._max_bytes:
            return
        self.forget(key)
        self._kept[key] = _Kept(tuple(events), size, now + KEPT_S)
        self.size += size
        self._make_room(now)

    def find(self, key: _Key, now: float) -> Sequence[bytes] | None:
        """All events of the response, if they are kept."""
        self._make_room(now)
        kept = self._kept.get(key)
        return None if kept is None else kept.events

    def forget(self, key: _Key) -> None:
        """The response is gone."""
        kept = self._kept.pop(key, None)
        if kept is not None:
            self.size -= kept.size

    def _make_room(self, now: float) -> None:
        while self._kept:
            oldest = next(iter(self._kept))  # all are kept equally long
            if self.size <= self._max_bytes and self._kept[oldest].until_s > now:
                return
            self.forget(oldest)
