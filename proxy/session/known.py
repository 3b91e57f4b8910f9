"""What is remembered of whole histories: items read, runs of them translated, and which conversation they go on.

Two pools of bytes hold it, so that conversations that are over leave room for translations of those that are not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from proxy.caching import AgedPool, Bounded
from proxy.conversation.chain import Node
from proxy.conversation.known import KnownItems
from proxy.conversation.prefix import PrefixIndex, counted
from proxy.telemetry.caches import Cache
from proxy.translate.fragments import FragmentMemo, Fragments
from proxy.wire.client_events import Create
from proxy.wire.items import CALLS, Item
from proxy.wire.portions import MANY

# The part of the memory that conversations get; their items are counted here once more.
_SHARE = 4


class Previous(NamedTuple):
    """When a turn ended, in monotonic seconds, and whether calls of its answer wait for their outputs."""

    ended_s: float
    is_waiting: bool


class Known:
    """The caches that serve requests with their whole history, in `memory_bytes` together."""

    def __init__(
        self, memory_bytes: int, unstored_ttl_s: float, stored_ttl_s: float, clock: Callable[[], float]
    ) -> None:
        self._clock = clock
        said, conversations = AgedPool(memory_bytes - memory_bytes // _SHARE), AgedPool(memory_bytes // _SHARE)
        self.pools = (said, conversations)
        self.fragments = FragmentMemo(said, unstored_ttl_s, stored_ttl_s, clock)
        self.items = KnownItems(said, unstored_ttl_s, stored_ttl_s, clock)
        self._prefixes = PrefixIndex(conversations, unstored_ttl_s, stored_ttl_s, clock)
        self._ends: Bounded[tuple[str, str], Previous] = Bounded(conversations, stored_ttl_s)

    def translations(self, tenant: str, create: Create) -> Fragments | None:
        """What there is for a create; None where it is no whole history."""
        if create.parent_id is not None or len(create.items) < _SEVERAL:
            return None
        return self.fragments.of(tenant, stored=create.store)

    def reading(self, node: Node) -> Iterator[None]:
        """What `previous` would take long for where its history has very many items, a portion after each step."""
        if node.parent is None and len(node.items) > MANY:
            yield from self._prefixes.reading(node.tenant, counted(node.items))

    def previous(self, node: Node) -> Previous | None:
        """The turn before the one that has just ended with `node`; None where it is not known.

        A history that begins with `node` is found by what it says, and known from now on. Where it holds an answer
        after the last one that is known, the turn before is that one's, which is not known.
        """
        if node.parent is not None:
            return self._ends.peek((node.tenant, node.parent.id))
        items = counted(node.items)
        prefix = self._prefixes.find(node.tenant, items)
        response, new = prefix.response, items[prefix.end :]
        self._prefixes.add(prefix, node)
        return None if response is None or any(map(_is_answer, new)) else self._ends.peek((node.tenant, response))

    def ended(self, node: Node, ended_s: float) -> None:
        """A turn whose next may come from anywhere."""
        now = self._clock()
        self._ends.expire(now)
        self._ends.put((node.tenant, node.id), Previous(ended_s, is_waiting=bool(node.open_calls)), 0, now)

    def leave(self, node: Node, ended_s: float) -> None:
        """A lane whose socket is gone has held this; its client may come back with all of it."""
        if node.parent is not None or self._ends.peek((node.tenant, node.id)) is None:  # else it is known already
            self._prefixes.leave(node)
        self.ended(node, ended_s)

    def expire(self) -> None:
        """Let go of what is too old, also where nobody asks for anything any more."""
        now = self._clock()
        self._prefixes.expire(now)
        for kept in (self.fragments.unstored, self.fragments.stored, self.items.unstored, self.items.stored):
            kept.expire(now)
        self._ends.expire(now)

    def caches(self) -> dict[str, Cache]:
        """Those that report, by name."""
        return {
            "fragments": self.fragments.unstored,
            "fragments_stored": self.fragments.stored,
            "items": self.items.unstored,
            "items_stored": self.items.stored,
            "digests": self._prefixes.digests,
            "places": self._prefixes.places,
            "answers": self._prefixes.answers,
            "left": self._prefixes.left,
            "chains": self._prefixes.unstored,
            "chains_stored": self._prefixes.stored,
            "ends": self._ends,
        }


def _is_answer(item: Item) -> bool:
    """Has a model said it?"""
    return item.role == "assistant" or item.kind in CALLS


_SEVERAL = 2
