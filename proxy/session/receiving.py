"""Reads the items of a create that may have very many of them; see `proxy/session/portions.py`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from proxy.session.services import Caller, Services
from proxy.wire.client_events import Create
from proxy.wire.codec import Raw
from proxy.wire.items import Item
from proxy.wire.portions import MANY


class Receiving:
    """A `ReadItems` for one create of a server that knows whole histories: very many items it leaves to `rest`."""

    def __init__(self, services: Services, caller: Caller) -> None:
        assert services.known is not None
        self._services = services
        self._caller = caller
        self._known = services.known.items
        self._unread: tuple[Sequence[Raw], bool] | None = None
        self._items: tuple[Item, ...] = ()

    def __call__(self, parts: Sequence[Raw], *, stored: bool) -> tuple[Item, ...]:
        if len(parts) > MANY:
            self._unread = parts, stored
            return ()
        return self._known.read(self._caller.tenant, parts, stored=stored)

    async def rest(self, create: Create) -> Create:
        """The create with all its items. Raises `LooplineError` (invalid_request) as reading them at once does."""
        if self._unread is None:
            return create
        grant = self._caller.grant
        with grant.account.budget.hold(create.size):
            await self._services.portions.do(self._reading(*self._unread))
        grant.check()  # a key may have been revoked meanwhile
        return replace(create, items=self._items)

    def _reading(self, parts: Sequence[Raw], stored: bool) -> Iterator[None]:
        self._items = yield from self._known.in_portions(self._caller.tenant, parts, stored=stored)
