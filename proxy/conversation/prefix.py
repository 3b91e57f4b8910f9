"""The longest known prefix of a history that a client sends whole: which response's chain it is, and how far.

Found by digests of canonical forms, confirmed by the forms themselves, inside one tenant. What is found says where a
cache may be warm and what was judged before; it is never an id, and never the history: the client's own items are that.

Nodes are read when a whole history arrives, newest first and bounded, not when they are made: clients that continue by
id pay for a reference and its place in a queue.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple
from weakref import ReferenceType, ref

from proxy.caching import Bounded, Pool
from proxy.conversation.chain import Node, lineage
from proxy.conversation.digest import item_digest, rolled, same
from proxy.wire.items import Item

# Of one tenant's newest responses; a chain of which one is newer stands for all before it.
_WAITING_NODES = 64
_WAITING_TENANTS = 10_000
# Items that one request may cause to be read of earlier conversations: some 10 ms.
_READ_ITEMS = 5_000


class Prefix(NamedTuple):
    """The first `length` items of a request are those of the chain that ends with `node`."""

    node: Node
    length: int


class _Place(NamedTuple):
    node: ReferenceType[Node]
    position: int


_Waiting = deque[ReferenceType[Node]]
_Digested = tuple[str, bytes]  # a tenant, and an item's bytes or a prefix's digest


class PrefixIndex:
    """Places in the chains of every tenant, by digest. A chain that was not stored is kept alive for its time.

    Digests leave the pool before chains do. A stored chain lives as long as its store keeps it.
    """

    def __init__(
        self,
        pool: Pool,
        unstored_ttl_s: float,
        stored_ttl_s: float,
        clock: Callable[[], float],
        digest: Callable[[Item], bytes] = item_digest,
    ) -> None:
        self._clock = clock
        self._digest = digest
        self._waiting: OrderedDict[str, _Waiting] = OrderedDict()
        self.digests: Bounded[_Digested, bytes] = Bounded(pool, stored_ttl_s)
        self.places: Bounded[_Digested, _Place] = Bounded(pool, stored_ttl_s)
        self.chains: Bounded[tuple[str, str], Node] = Bounded(pool, unstored_ttl_s)
        self.read = 0  # items of nodes that were read so far

    def add(self, node: Node) -> None:
        """A response has ended. Costs the same however long its chain is."""
        tenant, now = node.tenant, self._clock()
        self.chains.expire(now)
        if node.parent is not None:
            self.chains.drop((tenant, node.parent.id))
        if not node.stored:
            self.chains.put((tenant, node.id), node, node.total_bytes, now)
        waiting = self._waiting.get(tenant)
        if waiting is None:
            waiting = self._waiting[tenant] = deque(maxlen=_WAITING_NODES)
            if len(self._waiting) > _WAITING_TENANTS:
                self._waiting.popitem(last=False)
        waiting.append(ref(node))

    def find(self, tenant: str, items: Sequence[Item]) -> Prefix | None:
        """The longest known prefix of these items; None where not even the first is known."""
        now = self._clock()
        self.chains.expire(now)
        self._read_waiting(tenant, now)
        prefixes = [(tenant, digest) for digest in rolled(self._digests(tenant, items, now))]
        for place in reversed(self.places.get(prefixes, now)):
            node = None if place is None else place.node()
            if place is not None and node is not None:
                length = _shared(_items(node), items)
                if length:
                    self.chains.get([(tenant, node.id)], now)
                    return Prefix(node, length)
        return None

    def _digests(self, tenant: str, items: Sequence[Item], now: float) -> list[bytes]:
        keys = [(tenant, item.raw) for item in items]
        found = self.digests.get(keys, now)
        made = []
        for key, item, known in zip(keys, items, found, strict=True):
            # Whether a cut call was answered does not stand in its bytes.
            if known is None or item.unfinished or b'"incomplete"' in item.raw:
                known = self._digest(item)
                self.digests.put(key, known, len(item.raw), now)
            made.append(known)
        return made

    def _read_waiting(self, tenant: str, now: float) -> None:
        waiting = self._waiting.pop(tenant, ())
        covered: set[Node] = set()
        left = _READ_ITEMS
        for node in filter(None, (each() for each in reversed(waiting))):
            if node in covered or left <= 0:
                continue
            chain = lineage(node)
            covered.update(chain)
            items = list(_items(node))[:left]
            left -= len(items)
            self.read += len(items)
            prefixes = rolled(self._digests(tenant, items, now))
            place = ref(node)
            for position, digest in enumerate(prefixes, 1):
                self.places.put((tenant, digest), _Place(place, position), 0, now)


def _items(node: Node) -> Iterator[Item]:
    for each in lineage(node):
        yield from each.items
        yield from each.output


def _shared(known: Iterator[Item], items: Sequence[Item]) -> int:
    """How many items they begin with alike."""
    length = 0
    for one, other in zip(known, items, strict=False):
        if not same(one, other):
            break
        length += 1
    return length
