"""The memory store's arithmetic, against a model that counts from scratch. What every store does: tests/store."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule
from msgspec.structs import replace

from proxy.conversation.chain import Node, history, lineage, link
from proxy.conversation.memory import MemoryStore
from proxy.models.profile import profiles
from proxy.session.known import Known
from proxy.translate.responses.items import ItemShaper
from proxy.translate.tools.listed import EMPTY
from proxy.wire.codec import Raw
from proxy.wire.items import Item
from tests.store.contract import node
from tests.unit.translate.turns import create

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


def test_what_a_chain_lists_is_counted_once() -> None:
    store = MemoryStore(1 << 30, TTL_S)
    tip: Node | None = None
    for number in range(30):
        item, before = Item("message", b"x", "user"), history(tip, "d", lambda items: b"")
        tip = link(
            tip, tenant="t", response=f"resp_lp1000001234567{number:032d}", items=(item,), output=(),
            open_calls=frozenset(), stored=True, fragments={"d": b"y"}, before=before,
        )  # fmt: skip
        now(store.put(tip, 0))
        assert store.used_bytes() == sum(each.own_bytes for each in lineage(tip))
    assert tip is not None
    assert store.used_bytes() == tip.total_bytes + 8 * 30


def told(parent: Node | None, number: int, size: int = 1000, tenant: str = "t") -> Node:
    """A response with a fragment as large as itself."""
    item = Item("message", b"x" * size, "user")
    return link(
        parent, tenant=tenant, response=f"resp_lp1000001234567{number:032d}", items=(item,), output=(),
        open_calls=frozenset(), stored=True, fragments={"d": b"y" * size},
    )  # fmt: skip


def test_when_memory_is_short_fragments_go_before_responses_do() -> None:
    store = MemoryStore(64_000, TTL_S)
    first: Node | None = None
    for number in range(10):
        first = told(first, number)
        now(store.put(first, 0))
    second: Node | None = None
    for number in range(10, 26):
        second = told(second, number)
        now(store.put(second, 0))
        assert store.used_bytes() <= 64_000
    assert first is not None
    assert second is not None
    assert len(store) == 26
    assert store.lightened == 10
    assert not any(each.fragments for each in lineage(first))
    assert all(each.fragments for each in lineage(second))
    assert store.used_bytes() == sum(each.own_bytes for tip in (first, second) for each in lineage(tip))


def test_a_trunk_that_other_conversations_continue_keeps_its_fragments() -> None:
    store = MemoryStore(29_000, TTL_S)
    trunk = told(None, 0)
    for each in (trunk, told(trunk, 1), told(trunk, 2)):
        now(store.put(each, 0))
    other = None
    for number in range(3, 11):
        other = told(other, number)
        now(store.put(other, 0))
    assert store.lightened == 2
    assert trunk.fragments


@pytest.mark.slow
def test_memory_stays_flat_over_ten_thousand_turns() -> None:
    """Accounted bytes of every cache: chains that grow, whole histories that repeat, sockets that come and go."""
    clock = 0.0
    budget = 1_000_000
    store, known = MemoryStore(budget, 100.0), Known(budget, 30.0, 100.0, lambda: clock)
    tips: dict[int, Node] = {}
    peak = 0
    for turn in range(10_000):
        clock += 0.1
        lane = turn % 37
        depth = turn // 37 % 100
        tip = told(tips.get(lane) if depth else None, turn, 300, f"t{lane % 5}")
        tips[lane] = tip
        now(store.put(tip, clock))
        if turn % 3 == 0:
            known.leave(tip, clock)
        if turn % 10 == 0:
            made = create(input=[{"role": "user", "content": f"{turn % 50} {n}"} for n in range(20)])
            parts = [Raw(item.raw) for item in made.items]
            items = known.items.read(tip.tenant, parts, stored=bool(turn % 20))
            whole = replace(node(None, f"h{turn}", tenant=tip.tenant), items=items, stored=bool(turn % 20))
            known.previous(whole)
            known.ended(whole, clock)
            fragments = known.translations(tip.tenant, made)
            assert fragments is not None
            fragments.encoded(items, "d", {}, ItemShaper(EMPTY, profiles()["openai"].responses, lambda _: None))
        assert sum(pool.used for pool in known.pools) <= budget
        assert store.used_bytes() <= budget
        if turn == 5_000:
            peak = sum(pool.used for pool in known.pools) + store.used_bytes()
    used = sum(pool.used for pool in known.pools)
    assert used + store.used_bytes() <= 1.2 * peak
    assert used == sum(cache.used_bytes() for cache in known.caches().values())
    assert all(cache.counts.hits for name, cache in known.caches().items() if name in ("items", "fragments_stored"))
    clock += 1000.0
    now(store.get("t", "none", clock))
    for tenant in ("t0", "t1"):
        known.items.read(tenant, [], stored=True)
    assert store.used_bytes() == 0
