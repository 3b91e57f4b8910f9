"""Items that a client has sent before, in the same bytes: read once, and kept once however often they are sent.

An agent that sends its whole history with every request writes the same items again and again. What is found here is
compared with what came, byte for byte, so that the client's own items are what the conversation is.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

import msgspec
import xxhash

from proxy.caching import Bounded, Pool
from proxy.wire.codec import Raw
from proxy.wire.items import Item, parse_item
from proxy.wire.portions import ITEM_BYTES, portions


class _Read(msgspec.Struct, frozen=True, eq=False, gc=False):
    """An item as it came, and read: a missing type is added."""

    given: bytes
    item: Item


_Key = tuple[str, bytes]


class KnownItems:
    """Items by the hash of their bytes, for every tenant alone; stored ones and others apart, each for its own time."""

    def __init__(self, pool: Pool, unstored_ttl_s: float, stored_ttl_s: float, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.unstored: Bounded[_Key, _Read] = Bounded(pool, unstored_ttl_s)
        self.stored: Bounded[_Key, _Read] = Bounded(pool, stored_ttl_s)

    def read(self, tenant: str, parts: Sequence[Raw], *, stored: bool) -> tuple[Item, ...]:
        """The items of a request's input. Raises `LooplineError` (invalid_request) as `parse_item` does."""
        return tuple(self._read(tenant, parts, 0, stored=stored))

    def in_portions(
        self, tenant: str, parts: Sequence[Raw], *, stored: bool
    ) -> Generator[None, None, tuple[Item, ...]]:
        """The same, a portion after each step."""
        items: list[Item] = []
        for some in portions(parts, _weight):
            yield
            items += self._read(tenant, some, len(items), stored=stored)
        return tuple(items)

    def _read(self, tenant: str, parts: Sequence[Raw], start: int, *, stored: bool) -> list[Item]:
        kept, now = (self.stored if stored else self.unstored), self._clock()
        given = [bytes(part) for part in parts]
        keys = [(tenant, xxhash.xxh3_128_digest(each)) for each in given]
        return [
            read.item if read is not None and read.given == raw else _parse(kept, key, raw, index, now)
            for index, (read, raw, key) in enumerate(zip(kept.get(keys, now), given, keys, strict=True), start)
        ]


def _weight(part: Raw) -> int:
    return memoryview(part).nbytes + ITEM_BYTES


def _parse(kept: Bounded[_Key, _Read], key: _Key, given: bytes, index: int, now: float) -> Item:
    item = parse_item(given, f"input[{index}]")
    is_same = item.raw == given
    read = _Read(item.raw if is_same else given, item)
    kept.put(key, read, len(given) if is_same else len(given) + len(item.raw), now)
    return item
