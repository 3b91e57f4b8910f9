"""Reads a create; one that may have very many items in portions, see `proxy/session/portions.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from proxy.errors import LooplineError
from proxy.session.services import Caller, Services
from proxy.wire.client_events import Create, Limits, parse_create
from proxy.wire.codec import Raw
from proxy.wire.items import Item
from proxy.wire.portions import MANY


class Receiving:
    """A create as it is read: `read` first, and where it `is_long`, then `rest`."""

    __slots__ = ("_caller", "_items", "_services", "_size", "_unread")

    def __init__(self, services: Services, caller: Caller, size: int) -> None:
        self._services = services
        self._caller = caller
        self._size = size
        self._unread: tuple[Sequence[Raw], bool] | None = None
        self._items: tuple[Item, ...] = ()

    def read(self, members: Mapping[str, Raw], limits: Limits, *, may_wait: bool = False) -> Create:
        """The create, of very many items without them. Raises as `parse_create` does."""
        find = partial(self._services.terms.find, self._caller.tenant)
        read_items = None if self._services.known is None else self._read_items
        return parse_create(members, self._size, limits, find, may_wait=may_wait, read_items=read_items)

    @property
    def is_long(self) -> bool:
        """Is there a rest?"""
        return self._unread is not None

    async def rest(self, create: Create) -> Create:
        """The create with all its items. Raises `LooplineError` (invalid_request) as reading them at once does."""
        assert self._unread is not None
        grant = self._caller.grant
        with grant.account.budget.hold(self._size):
            await self._services.portions.do(self._reading(*self._unread))
        grant.check()  # a key may have been revoked meanwhile
        return replace(create, items=self._items)

    async def rest_or_error(self, create: Create) -> Create | LooplineError:
        """The same; what is wrong is returned, without frames that would hold it until a collection."""
        try:
            return await self.rest(create)
        except LooplineError as error:
            return error.bare()

    def _read_items(self, parts: Sequence[Raw], *, stored: bool) -> tuple[Item, ...]:
        if len(parts) > MANY:
            self._unread = parts, stored
            return ()
        known = self._services.known
        assert known is not None
        return known.items.read(self._caller.tenant, parts, stored=stored)

    def _reading(self, parts: Sequence[Raw], stored: bool) -> Iterator[None]:
        known = self._services.known
        assert known is not None
        self._items = yield from known.items.in_portions(self._caller.tenant, parts, stored=stored)
