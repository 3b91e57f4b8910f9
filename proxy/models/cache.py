"""What each endpoint serves, asked once and kept.

One flight at a time for each endpoint and tenant; a stale answer serves while the upstream cannot be asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple, Protocol

from cachetools import LRUCache

from proxy.errors import LooplineError
from proxy.http_client import HttpClient, HttpRequest, read_all
from proxy.models.catalog import Catalog, questions, read_catalog
from proxy.models.profile import GENERIC, Profile, profiles
from proxy.telemetry.caches import CacheCounts

_MAX_BODY_BYTES = 4 * 1024 * 1024
# An upstream that is down is asked again this often, not once a turn.
_RETRY_S = 5.0
_MAX_KEPT = 1024
_MAX_KEPT_BYTES = 32 * 1024 * 1024
# A turn waits for this, all questions together; a server that takes longer is taken for one that does not say.
_PATIENCE_S = 1.5

_MODELS = "/models"

_Key = tuple[str, str]


class _Kept(NamedTuple):
    """What an endpoint said, until when that counts, and when it was asked; monotonic seconds."""

    catalog: Catalog
    until_s: float
    asked_s: float


class Asked(Protocol):
    """The part of an endpoint that the cache needs."""

    name: str
    url: str
    dialect: str
    profile: str

    @property
    def has_key(self) -> bool: ...

    def request(
        self, method: str, path: str, client_headers: Mapping[str, str], *, root: bool = ...
    ) -> HttpRequest: ...


class CatalogCache:
    """Catalogs by tenant and endpoint, for `ttl_s`. An endpoint with a key of its own shows everybody the same."""

    def __init__(
        self,
        client: HttpClient,
        ttl_s: float,
        clock: Callable[[], float],
        known: Mapping[str, Profile] | None = None,
    ) -> None:
        """`known` are the profiles that endpoints may name; the built-in ones unless given."""
        self._known = profiles() if known is None else known
        self._client = client
        self._ttl_s = ttl_s
        self._clock = clock
        self.counts = CacheCounts()
        self._kept: LRUCache[_Key, _Kept] = LRUCache(_MAX_KEPT_BYTES, getsizeof=_size)
        self._used: dict[_Key, _Kept] = {}  # of these, those used since one changed: every turn asks for one
        self._told: LRUCache[_Key, tuple[Profile, float]] = LRUCache(_MAX_KEPT)
        self._flights: LRUCache[_Key, asyncio.Lock] = LRUCache(_MAX_KEPT)

    async def get(self, endpoint: Asked, tenant: str, client_headers: Mapping[str, str]) -> Catalog:
        """What the endpoint serves, as this tenant may see it. Never fails: an upstream that is down serves unknown."""
        catalog = self.known(endpoint, tenant)
        if catalog is not None:
            return catalog
        key = _key(endpoint, tenant)
        self.counts.misses += 1
        async with self._flights.setdefault(key, asyncio.Lock()):
            return self._fresh(key) or await self._ask(endpoint, key, client_headers)

    def known(self, endpoint: Asked, tenant: str) -> Catalog | None:
        """What `get` would give without asking anybody, if it would."""
        catalog = self._fresh(_key(endpoint, tenant))
        if catalog is not None:
            self.counts.hits += 1
        return catalog

    def doubt(self, endpoint: Asked, tenant: str) -> bool:
        """Something speaks against what is kept: the next `get` asks again, unless it was asked just now.

        False where it was: whoever makes names up asks an upstream once in a while, not once a turn.
        """
        key = _key(endpoint, tenant)
        kept = self._kept.get(key)
        if kept is None or self._clock() - kept.asked_s < _RETRY_S:
            return False
        self._put(key, kept._replace(until_s=self._clock()))
        return True

    def used_bytes(self) -> int:
        """About what the catalogs take."""
        return int(self._kept.currsize)

    def __len__(self) -> int:
        return len(self._kept)

    def _fresh(self, key: _Key) -> Catalog | None:
        kept = self._used.get(key)
        if kept is None and (kept := self._kept.get(key)) is not None:
            self._used[key] = kept
        return kept.catalog if kept is not None and self._clock() < kept.until_s else None

    async def _ask(self, endpoint: Asked, key: _Key, client_headers: Mapping[str, str]) -> Catalog:
        answers: dict[str, bytes | None] = {}
        with suppress(LooplineError, TimeoutError):  # what it did not say is unknown
            async with asyncio.timeout(_PATIENCE_S):
                answers[_MODELS] = await self._get(endpoint.request("GET", _MODELS, client_headers))
                for path in questions():
                    if self._knows(endpoint, key, answers):
                        break
                    answers[path] = await self._get(endpoint.request("GET", path, client_headers, root=True))
        catalog = self._read(endpoint, key, answers)
        answered = answers.get(_MODELS) is not None
        if not answered and key in self._kept:
            catalog = self._kept[key].catalog
        now = self._clock()
        self._keep(key, _Kept(catalog, now + (self._ttl_s if answered else _RETRY_S), now))
        return catalog

    def _keep(self, key: _Key, entry: _Kept) -> None:
        self.counts.old += self._kept.pop(key, None) is not None
        before = len(self._kept)
        self._put(key, entry)
        self.counts.full += before + 1 - len(self._kept)

    def _put(self, key: _Key, entry: _Kept) -> None:
        for used in self._used:
            self._kept.get(used)  # the LRU order hears of it now
        self._used.clear()
        self._kept[key] = entry

    def _knows(self, endpoint: Asked, key: _Key, answers: Mapping[str, bytes | None]) -> bool:
        """Is there nothing more to ask? Servers log a path that they do not have: once in its time is enough."""
        told = self._told.get(key)
        return (
            endpoint.profile in self._known
            or (told is not None and self._clock() < told[1])
            or self._read(endpoint, key, answers).profile.name != GENERIC
        )

    def _read(self, endpoint: Asked, key: _Key, answers: Mapping[str, bytes | None]) -> Catalog:
        """What the answers mean; what earlier ones told of the kind of server stays for its time."""
        catalog = read_catalog(endpoint.url, endpoint.dialect, self._known.get(endpoint.profile), answers)
        if all(path in answers for path in questions()):
            self._told[key] = (catalog.profile, self._clock() + self._ttl_s)
        told = self._told.get(key)
        if catalog.profile.name == GENERIC and told is not None and endpoint.profile not in self._known:
            return read_catalog(endpoint.url, endpoint.dialect, told[0], answers)
        return catalog

    async def _get(self, request: HttpRequest) -> bytes | None:
        async with self._client.open(request) as response:
            return await read_all(response, _MAX_BODY_BYTES) if response.status == 200 else None


def _key(endpoint: Asked, tenant: str) -> _Key:
    return "" if endpoint.has_key else tenant, endpoint.name


def _size(kept: _Kept) -> int:
    return 1000 + sum(len(name) + len(entry) for name, entry in kept.catalog.entries.items())
