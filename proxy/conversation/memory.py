"""Stored responses in this process's memory, within a byte budget and a time to live."""

from __future__ import annotations

import math
from collections import OrderedDict

from cachetools import TTLCache

from proxy.conversation.chain import Node
from proxy.conversation.holding import Holding
from proxy.telemetry.caches import CacheCounts
from proxy.wire import ids
from proxy.wire.items import item_id

# A tenant and the random part of a response's id, which an item's id has too.
_Key = tuple[str, str]
_INDEXED_BYTES = 250  # an item's id that is not ours, and its place in the index


class MemoryStore:
    """A `Store` (see store.py) that forgets when the process ends.

    Bytes are counted once for every node that an entry keeps alive, its ancestors included: forgetting the oldest
    response of a conversation frees nothing while a later one still needs it. Ancestors are counted by how many held
    nodes point at them, so that putting and forgetting cost what changed, not the depth of the chain.

    Above the budget, first what can be made again goes, the translated fragments of the chains longest unused; then
    the responses longest unused. `lightened` counts responses that lost their fragments.
    """

    def __init__(self, budget_bytes: int, ttl_s: float) -> None:
        self._budget_bytes = budget_bytes
        self._now = 0.0
        self._entries: TTLCache[_Key, Node] = TTLCache(math.inf, ttl_s, timer=lambda: self._now)
        self._holding = Holding()
        self.counts = CacheCounts()
        self._foreign: dict[tuple[str, str], _Key] = {}
        # The newest response of each chain that has fragments, longest unused first.
        self._rich: OrderedDict[_Key, Node] = OrderedDict()
        self.lightened = 0

    async def put(self, node: Node, now: float) -> None:
        """Keep a node; make room by forgetting the least recently used."""
        self._expire(now)
        if node.total_bytes > self._budget_bytes:
            return  # it could not stay, and making room for it would forget everybody else's
        key = _key(node.tenant, node.id)
        before = self._entries.pop(key, None)
        self._holding.hold(node)
        if before is not None:
            self._forget(before)
        self._entries[key] = node
        self._index(key, node)
        self._enrich(key, node)
        while self.used_bytes() > self._budget_bytes and self._rich:
            self._lighten(self._rich.popitem(last=False)[1])
        while self.used_bytes() > self._budget_bytes and self._entries:
            self._forget(self._entries.popitem()[1])
            self.counts.full += 1

    async def get(self, tenant: str, response: str, now: float) -> Node | None:
        """The tenant's node of that id; using it makes it young again."""
        self._expire(now)
        node = self._entries.get(_key(tenant, response))
        return self._used(None if node is None or node.id != response else node)

    async def holder(self, tenant: str, item: str, now: float) -> Node | None:
        """The tenant's node that an item of that id may be in; using it makes it young again."""
        self._expire(now)
        seed = ids.item_seed(item)
        node = None if seed is None else self._entries.get((tenant, seed))
        if node is None:
            key = self._foreign.get((tenant, item))
            node = None if key is None else self._entries.get(key)
        return self._used(node)

    async def delete(self, tenant: str, response: str, now: float) -> bool:
        """Forget an id; False where it was not known."""
        self._expire(now)
        key = _key(tenant, response)
        node = self._entries.get(key)
        if node is None or node.id != response:
            return False
        del self._entries[key]
        self._forget(node)
        return True

    def used_bytes(self) -> int:
        """Bytes that the entries keep alive, and their index."""
        return self._holding.bytes + _INDEXED_BYTES * len(self._foreign)

    def __len__(self) -> int:
        return len(self._entries)

    async def aclose(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self._holding.clear()
        self._foreign.clear()
        self._rich.clear()

    def _expire(self, now: float) -> None:
        self._now = now
        for _, node in self._entries.expire(now):
            self._forget(node)
            self.counts.old += 1

    def _used(self, node: Node | None) -> Node | None:
        if node is None:
            self.counts.misses += 1
            return None
        self.counts.hits += 1
        key = _key(node.tenant, node.id)
        self._entries[key] = node
        if key in self._rich:
            self._rich.move_to_end(key)
        return node

    def _enrich(self, key: _Key, node: Node) -> None:
        if node.parent is not None:
            self._rich.pop(_key(node.tenant, node.parent.id), None)  # one chain, and it is in use
        if any(node.fragments.values()):
            self._rich[key] = node

    def _lighten(self, node: Node) -> None:
        """Drop the fragments of a chain, as far as nothing else continues from there."""
        each: Node | None = node
        while each is not None and any(each.fragments.values()) and not self._holding.is_shared(each):
            each.lighten()
            self._holding.recount(each)
            self.lightened += 1
            each = each.parent

    def _index(self, key: _Key, node: Node) -> None:
        """Find a node by the ids of its answer's items that are an upstream's; ours tell whose they are."""
        for name in _foreign_ids(node):
            self._foreign[node.tenant, name] = key

    def _forget(self, node: Node) -> None:
        key = _key(node.tenant, node.id)
        for name in _foreign_ids(node):
            if self._foreign.get((node.tenant, name)) == key:
                del self._foreign[node.tenant, name]
        self._rich.pop(key, None)
        self._holding.release(node)


def _key(tenant: str, response: str) -> _Key:
    return tenant, ids.seed(response)


def _foreign_ids(node: Node) -> list[str]:
    named = (item_id(item) for item in node.output)
    return [name for name in named if name and ids.item_seed(name) != ids.seed(node.id)]
