"""Caches of what can be made again: bounded in bytes together, each by a time to live, and counted.

A long request asks for thousands of keys at once: of `get` that is two C calls a key, a fraction of what a call of
cachetools costs, which is written in Python. Pure.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from math import inf
from operator import methodcaller
from typing import Generic, Protocol, TypeVar

import msgspec

from proxy.telemetry.caches import CacheCounts

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

# What an entry costs beside what it holds: its key, its place in the table, its record.
ENTRY_BYTES = 400


class Sheds(Protocol):
    """What a pool makes room in."""

    def shed(self) -> bool:
        """Let go of what was longest unused; False where there is nothing."""
        ...

    def oldest_s(self) -> float:
        """When that was used last, in monotonic seconds; infinity where there is nothing."""
        ...


class Pool:
    """At most `limit` bytes for several caches; those named first lose first."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._parts: list[Sheds] = []

    def join(self, part: Sheds) -> None:
        """One more cache, which loses after all that joined before it."""
        self._parts.append(part)

    def add(self, size: int) -> None:
        """`size` bytes more are held, fewer where it is below 0; whoever adds makes room afterwards."""
        self.used += size

    def make_room(self) -> None:
        """Shed until the limit is kept."""
        for part in self._parts:
            while self.used > self.limit and part.shed():
                pass


class AgedPool(Pool):
    """The same for caches of which none is of use without the others: what was longest unused goes first, whichever
    holds it; of what is as old, those named first lose first.
    """

    def make_room(self) -> None:
        """Shed until the limit is kept."""
        while self.used > self.limit and min(self._parts, key=_OLDEST).shed():
            pass


_OLDEST = methodcaller("oldest_s")


class _Entry(msgspec.Struct, Generic[V], eq=False, gc=False):
    """Of these there are hundreds of thousands, which no collection looks at; nothing that is kept knows its cache."""

    value: V
    size: int
    used_s: float


class Bounded(Generic[K, V]):
    """One cache of a pool, for `ttl_s` seconds since an entry's last use; with 0 it keeps nothing.

    The tenant is a part of the key. `now` is monotonic seconds and never goes back.
    """

    def __init__(self, pool: Pool, ttl_s: float) -> None:
        self.counts = CacheCounts()
        self._bytes = 0
        self.ttl_s = ttl_s
        self._due_s = 0.0  # nothing is too old before
        self._pool = pool
        self._entries: OrderedDict[K, _Entry[V]] = OrderedDict()
        pool.join(self)

    def get(self, keys: Sequence[K], now: float) -> list[V | None]:
        """What is kept under each key, None for nothing; using it makes it young again."""
        self.expire(now)
        entries, move = self._entries, self._entries.move_to_end
        found: list[V | None] = []
        misses = 0
        for key in keys:
            entry = entries.get(key)
            if entry is None:
                misses += 1
                found.append(None)
            else:
                entry.used_s = now
                move(key)
                found.append(entry.value)
        self.counts.misses += misses
        self.counts.hits += len(keys) - misses
        return found

    def one(self, key: K, now: float) -> V | None:
        """The same for one key, at a comparison and two look-ups."""
        if now >= self._due_s:
            self.expire(now)
        entry = self._entries.get(key)
        if entry is None:
            self.counts.misses += 1
            return None
        entry.used_s = now
        self._entries.move_to_end(key)
        self.counts.hits += 1
        return entry.value

    def peek(self, key: K) -> V | None:
        """What is kept, old or not; nothing is counted, and it becomes no younger."""
        entry = self._entries.get(key)
        return None if entry is None else entry.value

    def put(self, key: K, value: V, size: int, now: float) -> None:
        """Keep a value of `size` bytes instead of what was there; what is too large for the whole pool is not kept."""
        self.drop(key)
        size += ENTRY_BYTES
        if self.ttl_s <= 0 or size > self._pool.limit:
            return
        self._entries[key] = _Entry(value, size, now)
        self._count(size)
        self._pool.make_room()

    def expire(self, now: float) -> None:
        """Let go of what was unused for too long; costs what goes."""
        while self._entries:
            key, entry = next(iter(self._entries.items()))
            if now - entry.used_s < self.ttl_s:
                self._due_s = entry.used_s + self.ttl_s
                return
            self.drop(key)
            self.counts.old += 1
        self._due_s = now + self.ttl_s

    def shed(self) -> bool:
        """Let go of the entry that was longest unused."""
        if not self._entries:
            return False
        self.drop(next(iter(self._entries)))
        self.counts.full += 1
        return True

    def oldest_s(self) -> float:
        """When that was used last."""
        return next(iter(self._entries.values())).used_s if self._entries else inf

    def clear(self) -> None:
        """Let go of everything."""
        self._count(-self._bytes)
        self._entries.clear()

    def drop(self, key: K) -> None:
        """Let go of one entry, if there is one."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._count(-entry.size)

    def used_bytes(self) -> int:
        """What the entries take."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._entries)

    def _count(self, size: int) -> None:
        self._bytes += size
        self._pool.add(size)
