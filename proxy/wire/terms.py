"""The terms of a turn: what clients repeat from turn to turn beside their input, parsed once.

Clients send model, instructions, tools and settings again with every create (Codex: some 80 kB). As long as the bytes
are the same, the same `Terms` stand for them, and what was made of them for an upstream is kept with them, until nobody
has asked for them for a while. A digest finds them; the bytes themselves decide.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import xxhash

from proxy.caching import Bounded, Pool
from proxy.wire.codec import NULL, Raw

T = TypeVar("T")

# What is made of them differs by model and by upstream; nobody asks in many ways with the same terms.
_MOST_MADE = 16
_MOST_LATEST = 1024  # tenants
# Bytes beside those that a client sent: of any terms, of a member, of an element of one that is decoded, of a tool and
# of an object within the tools, which may be a tool in a namespace. A message of many small pieces takes many times its
# own size.
_OVERHEAD_BYTES, _MEMBER_BYTES, _ELEMENT_BYTES, _TOOL_BYTES, _OBJECT_BYTES = 4000, 200, 100, 1000, 400


class Terms:
    """Members as raw JSON and, of those that Loopline acts on, their values. Immutable but for what is made of them.

    `size` is about what they take in memory, in bytes, with what will be made of them.
    """

    __slots__ = ("_made", "members", "size", "values")

    def __init__(self, members: Mapping[str, Raw], values: Mapping[str, Any]) -> None:
        self.members = members
        self.values = values
        self.size = _size(members, values)
        self._made: dict[str, tuple[tuple[object, ...], Any]] = {}

    def made(self, what: str, of: tuple[object, ...], make: Callable[[], T]) -> T:
        """What `make` gives, made once for these terms and these objects; what it raises is not kept.

        They are compared: the very same ones, as they are but for a changed catalog, cost nothing.
        """
        kept = self._made.get(what)
        if kept is not None and kept[0] == of:
            found: T = kept[1]
            return found
        made = make()
        if len(self._made) >= _MOST_MADE:
            self._made.clear()
        self._made[what] = (of, made)
        return made


class TermsMemo:
    """Terms already parsed, by tenant and digest, within a byte budget, for `ttl_s` seconds since their last use."""

    def __init__(
        self, budget_bytes: int = 64 * 1024 * 1024, ttl_s: float = math.inf, clock: Callable[[], float] = lambda: 0.0
    ) -> None:
        self._kept: Bounded[tuple[str, bytes], Terms] = Bounded(Pool(budget_bytes), ttl_s)
        self._latest: dict[str, tuple[str, bytes]] = {}  # by tenant, the key of those that were asked for last
        self._clock = clock
        self.counts = self._kept.counts

    def find(self, tenant: str, members: Mapping[str, Raw], parse: Callable[[Mapping[str, Raw]], Terms]) -> Terms:
        """The terms that these members are; `parse` makes them, from members that pin no message."""
        now = self._clock()
        latest = self._latest.get(tenant)
        is_latest = latest is not None and self._is(latest, members)
        key = latest if latest is not None and is_latest else self._found_by(tenant, members)
        kept = self._kept.one(key, now)
        if kept is not None and (is_latest or kept.members == members):
            return kept
        terms = parse({name: Raw(bytes(raw)) for name, raw in members.items()})
        self._kept.put(key, terms, terms.size, now)
        return terms

    def _found_by(self, tenant: str, members: Mapping[str, Raw]) -> tuple[str, bytes]:
        """The key of those members, from now on the tenant's latest."""
        told: list[bytes | Raw] = []
        for name, raw in members.items():
            told += (name.encode(), raw)
        key = (tenant, xxhash.xxh3_128_digest(b"\0".join(told)))
        if len(self._latest) >= _MOST_LATEST:
            self._latest.clear()
        self._latest[tenant] = key
        return key

    def _is(self, key: tuple[str, bytes], members: Mapping[str, Raw]) -> bool:
        """Are those the members? Most often a client means its last ones: to compare them is less than to hash them."""
        terms = self._kept.peek(key)
        return terms is not None and terms.members == members

    def used_bytes(self) -> int:
        """About what the terms take."""
        return self._kept.used_bytes()

    def __len__(self) -> int:
        return len(self._kept)


def _size(members: Mapping[str, Raw], values: Mapping[str, Any]) -> int:
    sent = sum(memoryview(raw).nbytes for raw in members.values())
    elements = sum(len(value) for value in values.values() if isinstance(value, list | dict))
    return (
        _OVERHEAD_BYTES
        + 4 * sent
        + sum(map(sys.getsizeof, members))
        + _MEMBER_BYTES * len(members)
        + _ELEMENT_BYTES * elements
        + _TOOL_BYTES * len(values.get("tools") or ())
        + _OBJECT_BYTES * bytes(members.get("tools", NULL)).count(b"{")
    )
