"""The memory store's arithmetic, against a model that counts from scratch. What every store does: tests/store."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from proxy.conversation.chain import Node, lineage
from proxy.conversation.memory import MemoryStore
from tests.store.contract import node

TTL_S = 10.0
BUDGET = 30_000
TENANTS = st.sampled_from(["a", "b"])
T = TypeVar("T")


def now(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise AssertionError("the memory store waited")


class Accounting(RuleBasedStateMachine):
    """Puts, gets, deletes and time in any order: the bytes are those of the nodes that entries keep alive."""

    nodes: Bundle[Node] = Bundle("nodes")

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore(BUDGET, TTL_S)
        self.now = 0.0
        self.minted = 0
        self.model: dict[tuple[str, str], tuple[Node, float]] = {}  # oldest use first

    def _mint(self) -> str:
        self.minted += 1
        return f"r{self.minted}"

    def _alive(self) -> set[Node]:
        return {each for kept, _ in self.model.values() for each in lineage(kept)}

    def _touch(self, kept: Node) -> None:
        self.model.pop((kept.tenant, kept.id), None)
        self.model[kept.tenant, kept.id] = (kept, self.now + TTL_S)

    @rule(target=nodes, tenant=TENANTS, size=st.integers(1, 12_000))
    def root(self, tenant: str, size: int) -> Node:
        return node(None, self._mint(), tenant=tenant, size=size)

    @rule(target=nodes, parent=nodes, size=st.integers(1, 6_000))
    def child(self, parent: Node, size: int) -> Node:
        return node(parent, self._mint(), tenant=parent.tenant, size=size)

    @rule(each=nodes)
    def put(self, each: Node) -> None:
        now(self.store.put(each, self.now))
        if each.total_bytes <= BUDGET:
            self._touch(each)
        while sum(alive.own_bytes for alive in self._alive()) > BUDGET:
            del self.model[next(iter(self.model))]

    @rule(each=nodes, tenant=TENANTS)
    def get(self, each: Node, tenant: str) -> None:
        found = now(self.store.get(tenant, each.id, self.now))
        kept = self.model.get((tenant, each.id))
        assert found is (kept[0] if kept else None)
        if kept:
            self._touch(kept[0])

    @rule(each=nodes, tenant=TENANTS)
    def delete(self, each: Node, tenant: str) -> None:
        assert now(self.store.delete(tenant, each.id, self.now)) == (
            self.model.pop((tenant, each.id), None) is not None
        )

    @rule(each=consumes(nodes))
    def lose(self, each: Node) -> None:
        """Nobody holds the node any longer but the store."""

    @rule(seconds=st.sampled_from([0.5, 3.0, TTL_S]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.model = {key: kept for key, kept in self.model.items() if kept[1] > self.now}
        now(self.store.get("nobody", "r", self.now))

    @invariant()
    def bytes_are_those_of_what_is_reachable(self) -> None:
        assert self.store.used_bytes() == sum(alive.own_bytes for alive in self._alive())
        assert self.store.used_bytes() <= BUDGET
        assert len(self.store) == len(self.model)


Accounting.TestCase.settings = settings(deadline=None, max_examples=60, stateful_step_count=40)
TestAccounting = Accounting.TestCase


def test_another_node_under_a_known_id_takes_its_place_and_its_bytes() -> None:
    store = MemoryStore(1 << 20, TTL_S)
    for size in (1000, 10):
        now(store.put(node(None, "r0", size=size), 0))
    assert store.used_bytes() == node(None, "r0", size=10).own_bytes
    assert now(store.delete("t", "r0", 1))
    assert store.used_bytes() == 0


def test_a_very_long_conversation_is_put_and_forgotten_without_recursion() -> None:
    last = None
    for number in range(50_000):
        last = node(last, f"r{number}")
    assert last is not None
    store = MemoryStore(1 << 40, TTL_S)
    asyncio.run(store.put(last, 0))
    assert store.used_bytes() == last.total_bytes
    del last
    assert asyncio.run(store.get("t", "r49999", TTL_S)) is None
    assert store.used_bytes() == 0
