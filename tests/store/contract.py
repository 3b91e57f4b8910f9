"""What every `Store` must do. A backend's test module subclasses `StoreContract` and says how to open one.

Times are handed in, never waited for. Nodes come back as a store keeps them: equal in content, not the same object.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

import pytest

from proxy.conversation.chain import Node, lineage, link
from proxy.conversation.store import Store
from proxy.wire.ids import input_item_id, response_id, seed
from proxy.wire.items import Item

TTL_S = 100.0
PLENTY = 1 << 30
SIZE = 10_000


def node(parent: Node | None, response: str, *, tenant: str = "t", size: int = 10, said: str = "x") -> Node:
    """A finished turn; its bytes are `size` and some overhead."""
    asked = Item("message", b'{"type":"message","role":"user","content":"%b"}' % (said * size).encode(), "user")
    called = Item("function_call", b'{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}', None, "c")
    return link(
        parent,
        tenant=tenant,
        response=response,
        items=(asked,),
        output=(called,),
        open_calls=frozenset({"c"}),
        stored=True,
        endpoint="e",
        upstream_id="up_" + response,
    )


def named_node(response: str, *names: str) -> Node:
    """A finished turn whose answer's items have these ids."""
    said = b'{"type":"message","id":"%b","role":"assistant","content":[]}'
    output = tuple(Item("message", said % name.encode(), "assistant") for name in names)
    return link(None, tenant="t", response=response, items=(), output=output, open_calls=frozenset(), stored=True)


def chain(*responses: str, tenant: str = "t", size: int = 10) -> list[Node]:
    """One conversation, root first."""
    nodes: list[Node] = []
    for response in responses:
        nodes.append(node(nodes[-1] if nodes else None, response, tenant=tenant, size=size))
    return nodes


def content(found: Node | None) -> list[tuple[object, ...]]:
    """All that a later turn needs of a conversation."""
    return [
        (each.tenant, each.id, each.items, each.output, each.open_calls, each.stored, each.endpoint, each.upstream_id)
        for each in lineage(found)
    ]


class StoreContract(ABC):
    """The contract, one test a sentence."""

    @abstractmethod
    def open(self, budget_bytes: int, ttl_s: float) -> AbstractAsyncContextManager[Store]:
        """A new, empty store."""

    @pytest.fixture
    async def store(self) -> AsyncIterator[Store]:
        """A store with room for everything."""
        async with self.open(PLENTY, TTL_S) as opened:
            yield opened

    # --- finding ---

    async def test_what_was_put_is_found_whole(self, store: Store) -> None:
        nodes = chain("r0", "r1", "r2")
        for each in nodes:
            await store.put(each, 0)
        for each in nodes:
            assert content(await store.get("t", each.id, 1)) == content(each)

    async def test_a_node_brings_ancestors_that_were_never_put(self, store: Store) -> None:
        """A `store:false` turn in the middle of a chain has no id to be found by; its content counts all the same."""
        nodes = chain("r0", "r1", "r2")
        await store.put(nodes[2], 0)
        assert content(await store.get("t", "r2", 1)) == content(nodes[2])
        assert await store.get("t", "r1", 1) is None

    async def test_forks_are_found_each_with_its_own_past(self, store: Store) -> None:
        root = node(None, "root")
        left, right = node(root, "left", said="l"), node(root, "right", said="r")
        for each in (root, left, right):
            await store.put(each, 0)
        assert content(await store.get("t", "left", 1)) == content(left)
        assert content(await store.get("t", "right", 1)) == content(right)

    async def test_an_unknown_id_is_none(self, store: Store) -> None:
        assert await store.get("t", "r0", 0) is None
        assert not await store.delete("t", "r0", 0)

    async def test_putting_twice_is_putting_once(self, store: Store) -> None:
        (only,) = chain("r0")
        await store.put(only, 0)
        used = store.used_bytes()
        await store.put(only, 1)
        assert store.used_bytes() == used
        assert await store.delete("t", "r0", 2)
        assert await store.get("t", "r0", 2) is None
        assert store.used_bytes() == 0

    async def test_an_item_of_an_answer_leads_to_its_response(self, store: Store) -> None:
        """By the upstream's id, by one of ours, and by that of an input item; whatever hides the response hides it."""
        ours = response_id()
        mine = named_node(ours, f"msg_{seed(ours)}0001", "msg_theirs")
        names = ("msg_theirs", f"msg_{seed(ours)}0001", input_item_id("msg", ours, 0))
        await store.put(mine, 0)
        for name in names:
            assert content(await store.holder("t", name, 1)) == content(mine)
            assert await store.holder("another", name, 1) is None
        for name in ("", "msg_unknown", f"msg_{seed(response_id())}0001"):
            assert await store.holder("t", name, 1) is None
        await store.delete("t", ours, 2)
        for name in names:
            assert await store.holder("t", name, 2) is None
        assert store.used_bytes() == 0

    async def test_an_items_id_leads_to_the_last_that_used_it(self, store: Store) -> None:
        first, second = (named_node(name, "msg_1") for name in ("r0", "r1"))
        await store.put(first, 0)
        await store.put(second, 0)
        assert content(await store.holder("t", "msg_1", 1)) == content(second)
        await store.delete("t", "r0", 2)
        assert content(await store.holder("t", "msg_1", 2)) == content(second)
        await store.delete("t", "r1", 2)
        assert await store.holder("t", "msg_1", 2) is None
        assert store.used_bytes() == 0

    # --- tenants ---

    async def test_another_tenants_id_is_as_unknown_as_one_that_never_was(self, store: Store) -> None:
        (mine,) = chain("r0", tenant="mine")
        await store.put(mine, 0)
        for stranger in ("theirs", "", "min", "mine ", "MINE"):
            assert await store.get(stranger, "r0", 1) is None
            assert not await store.delete(stranger, "r0", 1)
        assert content(await store.get("mine", "r0", 1)) == content(mine)

    async def test_two_tenants_may_have_one_id(self, store: Store) -> None:
        mine, theirs = node(None, "r0", tenant="mine", said="m"), node(None, "r0", tenant="theirs", said="t")
        await store.put(mine, 0)
        await store.put(theirs, 0)
        assert content(await store.get("mine", "r0", 1)) == content(mine)
        assert await store.delete("theirs", "r0", 1)
        assert content(await store.get("mine", "r0", 1)) == content(mine)

    async def test_a_strangers_get_keeps_nothing_alive(self, store: Store) -> None:
        (mine,) = chain("r0", tenant="mine")
        await store.put(mine, 0)
        assert await store.get("theirs", "r0", TTL_S - 1) is None
        assert await store.get("mine", "r0", TTL_S + 1) is None

    # --- time ---

    async def test_it_expires_its_time_to_live_after_its_last_use(self, store: Store) -> None:
        (only,) = chain("r0")
        await store.put(only, 1000)
        assert await store.get("t", "r0", 1000 + TTL_S - 1) is not None
        assert await store.get("t", "r0", 1000 + 2 * TTL_S - 2) is not None
        assert await store.get("t", "r0", 1000 + 3 * TTL_S - 2) is None
        assert await store.get("t", "r0", 1000) is None

    async def test_putting_again_counts_as_use(self, store: Store) -> None:
        (only,) = chain("r0")
        await store.put(only, 0)
        await store.put(only, TTL_S - 1)
        assert await store.get("t", "r0", 2 * TTL_S - 2) is not None

    async def test_what_expired_cannot_be_deleted_and_holds_no_bytes(self, store: Store) -> None:
        (only,) = chain("r0")
        await store.put(only, 0)
        assert not await store.delete("t", "r0", TTL_S + 1)
        assert store.used_bytes() == 0

    async def test_an_ancestor_expires_as_an_id_and_stays_as_content(self, store: Store) -> None:
        nodes = chain("r0", "r1")
        await store.put(nodes[0], 0)
        await store.put(nodes[1], TTL_S - 1)
        assert await store.get("t", "r0", TTL_S + 1) is None
        assert content(await store.get("t", "r1", TTL_S + 1)) == content(nodes[1])

    # --- bytes ---

    async def test_ancestors_are_counted_once(self) -> None:
        nodes = chain("r0", "r1", "r2", "r3", size=SIZE)
        async with self.open(PLENTY, TTL_S) as one, self.open(PLENTY, TTL_S) as all_:
            await one.put(nodes[-1], 0)
            for each in nodes:
                await all_.put(each, 0)
            assert one.used_bytes() >= 4 * SIZE
            assert all_.used_bytes() < one.used_bytes() + SIZE

    async def test_the_budget_makes_room_least_recently_used_first(self) -> None:
        nodes = [node(None, f"r{number}", size=SIZE) for number in range(4)]
        async with self.open(3 * nodes[0].total_bytes, TTL_S) as store:
            for second, each in enumerate(nodes[:3]):
                await store.put(each, second)
            assert await store.get("t", "r0", 3) is not None
            await store.put(nodes[3], 4)
            assert [await store.get("t", f"r{n}", 5) is not None for n in range(4)] == [True, False, True, True]
            assert store.used_bytes() <= 3 * nodes[0].total_bytes

    async def test_a_failed_look_up_is_no_use(self) -> None:
        nodes = [node(None, f"r{number}", size=SIZE, tenant="t") for number in range(3)]
        async with self.open(2 * nodes[0].total_bytes, TTL_S) as store:
            await store.put(nodes[0], 0)
            await store.put(nodes[1], 1)
            assert await store.get("other", "r0", 2) is None
            await store.put(nodes[2], 3)
            assert [await store.get("t", f"r{n}", 4) is not None for n in range(3)] == [False, True, True]

    async def test_a_long_conversation_does_not_push_itself_out(self) -> None:
        nodes = chain(*(f"r{number}" for number in range(6)), size=SIZE)
        async with self.open(nodes[-1].total_bytes, TTL_S) as store:
            for each in nodes:
                await store.put(each, 0)
            assert content(await store.get("t", "r5", 1)) == content(nodes[-1])

    async def test_one_that_can_never_fit_pushes_nobody_out(self) -> None:
        small, giant = node(None, "small"), node(None, "giant", size=5 * SIZE)
        async with self.open(SIZE, TTL_S) as store:
            await store.put(small, 0)
            await store.put(giant, 1)
            assert await store.get("t", "giant", 2) is None
            assert content(await store.get("t", "small", 2)) == content(small)
            assert store.used_bytes() <= SIZE

    # --- forgetting ---

    async def test_delete_hides_at_once_and_descendants_keep_the_content(self, store: Store) -> None:
        nodes = chain("r0", "r1", "r2")
        for each in nodes:
            await store.put(each, 0)
        assert await store.delete("t", "r1", 1)
        assert await store.get("t", "r1", 1) is None
        assert not await store.delete("t", "r1", 1)
        assert content(await store.get("t", "r2", 1)) == content(nodes[2])
        assert content(await store.get("t", "r0", 1)) == content(nodes[0])

    async def test_nothing_is_left_when_everything_is_deleted(self, store: Store) -> None:
        root = node(None, "root")
        nodes = [root, node(root, "left"), node(root, "right")]
        for each in nodes:
            await store.put(each, 0)
        for each in nodes:
            assert await store.delete("t", each.id, 1)
        assert store.used_bytes() == 0

    async def test_what_was_deleted_can_be_put_again(self, store: Store) -> None:
        (only,) = chain("r0")
        await store.put(only, 0)
        await store.delete("t", "r0", 1)
        await store.put(only, 2)
        assert content(await store.get("t", "r0", 3)) == content(only)

    async def test_a_closed_store_holds_nothing(self) -> None:
        async with self.open(PLENTY, TTL_S) as store:
            await store.put(chain("r0")[0], 0)
            await store.aclose()
            assert store.used_bytes() == 0

    # --- whole or nothing ---

    @pytest.mark.parametrize("steps", range(6))
    async def test_a_cancelled_put_is_whole_or_nothing(self, store: Store, steps: int) -> None:
        """Cancelled before its first step and after each of some more: never a part, never bytes without an entry."""
        nodes = chain("r0", "r1", "r2")
        await store.put(nodes[0], 0)
        used = store.used_bytes()
        putting = asyncio.create_task(store.put(nodes[2], 1))
        for _ in range(steps):
            await asyncio.sleep(0)
        putting.cancel()
        await asyncio.wait([putting])
        found = await store.get("t", "r2", 2)
        if found is None:
            assert store.used_bytes() == used
        else:
            assert content(found) == content(nodes[2])
        await store.put(nodes[2], 3)
        assert content(await store.get("t", "r2", 4)) == content(nodes[2])

    async def test_many_at_once_are_all_found(self, store: Store) -> None:
        nodes = chain(*(f"r{number}" for number in range(50)))
        await asyncio.gather(*(store.put(each, 0) for each in nodes))
        found = await asyncio.gather(*(store.get("t", each.id, 1) for each in nodes))
        assert [content(each) for each in found] == [content(each) for each in nodes]
