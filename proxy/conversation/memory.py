"""Stored responses in this process's memory, within a byte budget and a time to live."""

from __future__ import annotations

import math

from cachetools import TTLCache

from proxy.conversation.chain import Node
from proxy.conversation.holding import Holding

_Key = tuple[str, str]


class MemoryStore:
    """A `Store` (see store.py) that forgets when the process ends.

    Bytes are counted once for every node that an entry keeps alive, its ancestors included: forgetting the oldest
    response of a conversation frees nothing while a later one still needs it. Ancestors are counted by how many held
    nodes point at them, so that putting and forgetting cost what changed, not the depth of the chain.
    """

    def __init__(self, budget_bytes: int, ttl_s: float) -> None:
        self._budget_bytes = budget_bytes
        self._now = 0.0
        self._entries: TTLCache[_Key, Node] = TTLCache(math.inf, ttl_s, timer=lambda: self._now)
        self._holding = Holding()

    async def put(self, node: Node, now: float) -> None:
        """Keep a node; make room by forgetting the least recently used."""
        self._expire(now)
        if node.total_bytes > self._budget_bytes:
            return  # it could not stay, and making room for it would forget everybody else's
        key = (node.tenant, node.id)
        before = self._entries.get(key)
        self._holding.hold(node)
        self._entries[key] = node
        if before is not None:
            self._holding.release(before)
        while self._holding.bytes > self._budget_bytes and self._entries:
            self._holding.release(self._entries.popitem()[1])

    async def get(self, tenant: str, response: str, now: float) -> Node | None:
        """The tenant's node of that id; using it makes it young again."""
        self._expire(now)
        key = (tenant, response)
        node = self._entries.get(key)
        if node is not None:
            self._entries[key] = node
        return node

    async def delete(self, tenant: str, response: str, now: float) -> bool:
        """Forget an id; False where it was not known."""
        self._expire(now)
        node = self._entries.pop((tenant, response), None)
        if node is None:
            return False
        self._holding.release(node)
        return True

    def used_bytes(self) -> int:
        """Bytes that the entries keep alive."""
        return self._holding.bytes

    def __len__(self) -> int:
        return len(self._entries)

    async def aclose(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self._holding.clear()

    def _expire(self, now: float) -> None:
        self._now = now
        for _, node in self._entries.expire(now):
            self._holding.release(node)
