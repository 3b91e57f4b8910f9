"""What is remembered of whole histories: items read, runs of them translated, and whose prefix they are.

One pool of bytes holds all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from proxy.caching import Pool
from proxy.conversation.known import KnownItems
from proxy.conversation.prefix import PrefixIndex
from proxy.telemetry.caches import Cache
from proxy.translate.fragments import FragmentMemo, Fragments
from proxy.wire.client_events import Create, ReadItems


class Known:
    """The caches that serve requests with their whole history; translations leave first, chains last."""

    def __init__(
        self, memory_bytes: int, unstored_ttl_s: float, stored_ttl_s: float, clock: Callable[[], float]
    ) -> None:
        self.pool = Pool(memory_bytes)
        self.fragments = FragmentMemo(self.pool, unstored_ttl_s, stored_ttl_s, clock)
        self.items = KnownItems(self.pool, unstored_ttl_s, stored_ttl_s, clock)
        self.prefixes = PrefixIndex(self.pool, unstored_ttl_s, stored_ttl_s, clock)

    def reader(self, tenant: str) -> ReadItems:
        """How a tenant's whole histories are read."""
        return partial(self.items.read, tenant)

    def translations(self, tenant: str, create: Create) -> Fragments | None:
        """What there is for a create; None where it is no whole history."""
        if create.parent_id is not None or len(create.items) < _SEVERAL:
            return None
        return self.fragments.of(tenant, stored=create.store)

    def caches(self) -> dict[str, Cache]:
        """Those that report, by name."""
        return {
            "fragments": self.fragments.unstored,
            "fragments_stored": self.fragments.stored,
            "items": self.items.unstored,
            "items_stored": self.items.stored,
            "digests": self.prefixes.digests,
            "places": self.prefixes.places,
            "chains": self.prefixes.chains,
        }


_SEVERAL = 2
