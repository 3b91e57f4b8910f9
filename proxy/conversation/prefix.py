"""The longest known prefix of a history that a client sends whole: which chain it begins with, and how far.

Found by digests of canonical forms, confirmed by the forms themselves, inside one tenant. What is found says which
response a request goes on from, later where a cache is warm and what was judged before; it is never what its client
meant to name, and never the history: the client's own items are that.

Reasoning does not count: many clients send an answer back without it.

A turn costs what is new in it: a request that goes on from a known answer is found by that answer, and its places go on
where those of its prefix end. Chains that grew by deltas are known by their last answer once their socket is gone, and
read when a history goes on from it: clients that continue by id pay nothing for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple
from weakref import ReferenceType, ref

import xxhash

from proxy.caching import AgedPool, Bounded
from proxy.conversation.chain import Node, lineage
from proxy.conversation.digest import item_digest, rolled, same
from proxy.wire.items import Item
from proxy.wire.portions import ITEM_BYTES, portions

# JSON values that a request may cause to be read, and to be read again to be compared: 0.1 to 0.3 s each.
_READ_VALUES, _ITEM_VALUES = 1 << 18, 50
_VALUE_BYTES = 100  # of a portion, what reading one costs as much as
# The last prefixes of what is new have a place each, of those before one in so many.
_DENSE, _SPARSE = 256, 16
# Items that may be new after an answer for that answer to be looked for by itself.
_NEW_ITEMS = 16


def counted(items: Sequence[Item]) -> tuple[Item, ...]:
    """Those that count."""
    return tuple([item for item in items if item.kind != "reasoning"])


class KnownChain:
    """A conversation as far as it is known: its items that count, and which response had ended after how many of them,
    in order.

    Its last items from the `sent`th on are an answer; its client has sent the others. `digest` is of all of them, empty
    as long as they are not read.
    """

    __slots__ = ("__weakref__", "digest", "ends", "items", "key", "sent", "size", "stored")

    def __init__(self, node: Node, *, stored: bool, ends: Mapping[int, str]) -> None:
        self.key = (node.tenant, node.id)  # the first of its responses that was seen here
        self.stored = stored
        self.ends = dict(ends)
        self.items: tuple[Item, ...] = ()
        self.size = self.sent = 0
        self.digest = b""

    def grow(self, node: Node, items: tuple[Item, ...], sent: int, size: int) -> None:
        """It ends with this response now, and these are its items, of which the client has sent so many; they take
        `size` bytes.
        """
        self.items, self.sent, self.size = items, sent, size
        self.ends[len(items)] = node.id


class Prefix(NamedTuple):
    """The first `length` items of a request that count are those of `chain`; None and 0 where not even one is known.

    `digests` are those of the request's prefixes, from the one of `length` items on.
    """

    chain: KnownChain | None
    length: int
    digests: Sequence[bytes]

    @property
    def end(self) -> int:
        """After how many items the last response had ended that the prefix holds whole; 0 where it holds none."""
        return 0 if self.chain is None else next((at for at in reversed(self.chain.ends) if at <= self.length), 0)

    @property
    def response(self) -> str | None:
        """The id of that response."""
        return None if self.chain is None else self.chain.ends.get(self.end)


_Digested = tuple[str, bytes]  # a tenant, and the digest of an item's bytes or of a prefix
_Response = tuple[str, str]  # a tenant, and an id


class PrefixIndex:
    """Places in the chains of every tenant, by digest; a chain is known for its time since it was last continued.

    What was longest unused leaves the pool first, a chain about when its places do. Only chains hold what was said.
    """

    def __init__(
        self,
        pool: AgedPool,
        unstored_ttl_s: float,
        stored_ttl_s: float,
        clock: Callable[[], float],
        digest: Callable[[Item], bytes] = item_digest,
    ) -> None:
        self._clock = clock
        self._digest = digest
        self.left: Bounded[_Response, KnownChain] = Bounded(pool, unstored_ttl_s)
        self.digests: Bounded[_Digested, bytes] = Bounded(pool, stored_ttl_s)
        self.places: Bounded[_Digested, ReferenceType[KnownChain]] = Bounded(pool, stored_ttl_s)
        self.answers: Bounded[_Digested, ReferenceType[KnownChain]] = Bounded(pool, stored_ttl_s)
        self.unstored: Bounded[_Response, KnownChain] = Bounded(pool, unstored_ttl_s)
        self.stored: Bounded[_Response, KnownChain] = Bounded(pool, stored_ttl_s)
        self.values = 0  # JSON values of items that were read

    def leave(self, node: Node) -> None:
        """The socket that held this chain is gone: its client may come back with all of it. Reads its last item."""
        now = self._clock()
        self.expire(now)
        chain = KnownChain(node, stored=node.stored, ends={})
        items: list[Item] = []
        nodes = lineage(node)
        sent = 0
        for each in nodes:
            items += counted(each.items)
            sent = len(items)
            items += counted(each.output)
            chain.ends[len(items)] = each.id
        if sent == len(items):
            return  # nothing was answered that could be gone on from
        chain.ends.pop(0, None)  # of a warm-up that said nothing
        chain.grow(node, tuple(items), sent, sum([each.bare_bytes for each in nodes]))
        self.left.put(chain.key, chain, chain.size, now)
        self._answer(chain, self._digests(node.tenant, items[-1:], now), now)

    def reading(self, tenant: str, items: tuple[Item, ...]) -> Iterator[None]:
        """Read what `find` would have to read of very many items that count, a portion after each step.

        It ends early where they hold more values than items do.
        """
        chain, _ = self._answered(tenant, items, self._digests(tenant, items[-_NEW_ITEMS:], self._clock()))
        if chain is None or not chain.digest:
            room = max(_READ_VALUES, _ITEM_VALUES * len(items))
            for some in portions(items, _weight):
                yield
                before = self.values
                self._digests(tenant, some, self._clock())
                room -= self.values - before
                if room < 0:
                    return

    def find(self, tenant: str, items: tuple[Item, ...]) -> Prefix:
        """The longest known prefix of these items, which all count."""
        now = self._clock()
        self.expire(now)
        prefix = self._continued(tenant, items, now)
        if prefix is not None:
            self.places.one((tenant, prefix.digests[0]), now)
        else:
            prefix = self._longest(tenant, items, now)
        if prefix.chain is None:
            self.places.counts.misses += 1
        else:
            self._kept(prefix.chain).one(prefix.chain.key, now)
        return prefix

    def add(self, prefix: Prefix, node: Node) -> None:
        """A request whose prefix was `prefix` has been answered by `node`, which is a chain of its own."""
        if not prefix.digests:
            return  # it said nothing
        now = self._clock()
        self.expire(now)
        chain = prefix.chain
        if chain is None or prefix.length < len(chain.items) or chain.stored is not node.stored:
            ends = {} if chain is None else {at: id_ for at, id_ in chain.ends.items() if at <= prefix.length}
            chain = KnownChain(node, stored=node.stored, ends=ends)
        asked, answer = counted(node.items), counted(node.output)
        chain.grow(node, asked + answer, len(asked), node.bare_bytes)
        said = self._digests(node.tenant, answer, now)
        digests = [*prefix.digests, *rolled(said, prefix.digests[-1])]
        self._place(chain, digests, now)
        self._answer(chain, said[-1:], now)

    def _continued(self, tenant: str, items: tuple[Item, ...], now: float) -> Prefix | None:
        """The chain whose last answer is among the newest items, with all that was before it."""
        newest = self._digests(tenant, items[-_NEW_ITEMS:], now)
        chain, new = self._answered(tenant, items, newest)
        if chain is None:
            return None
        if not chain.digest:
            self.left.drop(chain.key)
            self._place(chain, list(rolled(self._digests(tenant, chain.items, now))), now)
        digests = [chain.digest, *rolled(newest[len(newest) - new :], chain.digest)]
        if any(self._at(tenant, each) for each in digests[1:]):
            return None  # more is known
        return Prefix(chain, len(items) - new, digests)

    def _answered(self, tenant: str, items: tuple[Item, ...], newest: Sequence[bytes]) -> tuple[KnownChain | None, int]:
        """The same, and how many items are new after it; `newest` are the digests of the last items."""
        for new, digest in enumerate(reversed(newest)):
            there = self.answers.peek((tenant, digest))
            chain = None if there is None else there()
            length = len(items) - new
            if chain is not None and len(chain.items) == length:
                is_same = _shared(chain.items, chain.sent, items) == length
                return chain if is_same else None, new  # to compare more than one may cost much
        return None, 0

    def _longest(self, tenant: str, items: tuple[Item, ...], now: float) -> Prefix:
        """The same for any prefix: one pass over all digests, then from the longest down."""
        digests = list(rolled(self._digests(tenant, items, now)))
        for digest in reversed(digests):
            chain = self._at(tenant, digest)
            if chain is not None:
                length = _shared(chain.items, chain.sent, items)
                if length:
                    self.places.one((tenant, digest), now)
                    return Prefix(chain, length, digests[length - 1 :])
                break  # digests that were made to be alike: to compare at every place would cost its square
        return Prefix(None, 0, digests)

    def _at(self, tenant: str, digest: bytes) -> KnownChain | None:
        """The chain with this prefix."""
        there = self.places.peek((tenant, digest))
        return None if there is None else there()

    def _place(self, chain: KnownChain, digests: Sequence[bytes], now: float) -> None:
        """Keep a chain that is read; `digests` are those of its last prefixes.

        A prefix that another chain has, too, stays with that; all of this chain is found by itself. Of very many only
        some have a place: whoever finds one before its own compares on from there.
        """
        tenant, there = chain.key[0], ref(chain)
        chain.digest = digests[-1]
        for digest in (*digests[:-_DENSE:_SPARSE], *digests[-_DENSE:]):
            if digest is chain.digest or self._at(tenant, digest) is None:
                self.places.put((tenant, digest), there, 0, now)
        self._kept(chain).put(chain.key, chain, chain.size, now)

    def _answer(self, chain: KnownChain, last: Sequence[bytes], now: float) -> None:
        """`last` is the digest of its last item, where a model said it."""
        for digest in last:
            self.answers.put((chain.key[0], digest), ref(chain), 0, now)

    def _digests(self, tenant: str, items: Sequence[Item], now: float) -> list[bytes]:
        """Of each item's canonical form, known by what it is made from: its bytes, and whether a cut call was answered.

        The bytes are hashed, not kept: they are what was said, and only chains may hold that. What is too much to be
        read at once counts as it is written.
        """
        room = _READ_VALUES
        keys = [(tenant, _hash(item.raw) + _CUT[item.unfinished]) for item in items]
        found = self.digests.get(keys, now)
        for at, digest in enumerate(found):
            if digest is not None:
                continue
            room -= _values(items[at])
            if room < 0:
                found[at] = keys[at][1]
            else:
                self.values += _values(items[at])
                found[at] = digest = self._digest(items[at])
                self.digests.put(keys[at], digest, 0, now)
        return [digest for digest in found if digest is not None]

    def _kept(self, chain: KnownChain) -> Bounded[_Response, KnownChain]:
        return self.stored if chain.stored else self.unstored

    def expire(self, now: float) -> None:
        """Let go of what is too old."""
        for kept in (self.left, self.digests, self.places, self.answers, self.unstored, self.stored):
            kept.expire(now)


def _weight(item: Item) -> int:
    return len(item.raw) + ITEM_BYTES + _VALUE_BYTES * _values(item)


_hash = xxhash.xxh3_128_digest
_CUT = (b"", b"cut")


def _shared(known: tuple[Item, ...], sent: int, items: tuple[Item, ...]) -> int:
    """How many items two histories begin with alike; the first `sent` of the known one came from its client."""
    both = min(len(known), len(items))
    # What a client sends again is mostly the very same object; an answer it writes in its own words.
    start = sent if items[:sent] == known[:sent] else 0
    room = _READ_VALUES
    for length in range(start, both):
        one, other = known[length], items[length]
        if one != other:
            room -= _values(one) + _values(other)
            if room < 0 or not same(one, other):
                return length
    return both


def _values(item: Item) -> int:
    """About how many JSON values there are in it: what reading it costs."""
    return item.raw.count(b",") + item.raw.count(b"{") + item.raw.count(b"[")
