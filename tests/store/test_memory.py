from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from proxy.conversation.memory import MemoryStore
from proxy.conversation.store import Store
from tests.store.contract import StoreContract


class TestMemoryStore(StoreContract):
    @asynccontextmanager
    async def open(self, budget_bytes: int, ttl_s: float) -> AsyncIterator[Store]:
        store = MemoryStore(budget_bytes, ttl_s)
        try:
            yield store
        finally:
            await store.aclose()
