"""The longest known prefix of a history that a client sends whole."""

from __future__ import annotations

import gc

import pytest

from proxy.caching import Pool
from proxy.conversation.chain import Node, link
from proxy.conversation.digest import item_digest
from proxy.conversation.prefix import PrefixIndex
from proxy.wire.items import Item, parse_item

NONE: frozenset[str] = frozenset()


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def index(clock: Clock) -> PrefixIndex:
    return PrefixIndex(Pool(1 << 24), 300.0, 3600.0, clock)


def user(text: str) -> Item:
    return parse_item(b'{"role":"user","content":"%b"}' % text.encode())


def answer(text: str) -> Item:
    return parse_item(
        b'{"id":"msg_1","type":"message","role":"assistant","status":"completed",'
        b'"content":[{"type":"output_text","text":"%b","annotations":[]}]}' % text.encode()
    )


def resent(text: str) -> Item:
    """An answer as a client sends it back."""
    return parse_item(b'{"role": "assistant", "content": "%b"}' % text.encode())


def turn(parent: Node | None, number: int, tenant: str = "t", *, stored: bool = False) -> Node:
    return link(
        parent, tenant=tenant, response=f"r{number}", items=(user(f"q{number}"),), output=(answer(f"a{number}"),),
        open_calls=NONE, stored=stored,
    )  # fmt: skip


def chain(index: PrefixIndex, turns: int, tenant: str = "t", *, stored: bool = False) -> Node:
    tip = None
    for number in range(turns):
        tip = turn(tip, number, tenant, stored=stored)
        index.add(tip)
    assert tip is not None
    return tip


def whole(turns: int) -> list[Item]:
    """What a client sends of such a chain."""
    return [made for number in range(turns) for made in (user(f"q{number}"), resent(f"a{number}"))]


def found(index: PrefixIndex, items: list[Item], tenant: str = "t") -> tuple[str, int] | None:
    prefix = index.find(tenant, items)
    return None if prefix is None else (prefix.node.id, prefix.length)


def test_a_client_that_comes_back_with_everything_finds_its_chain(index: PrefixIndex) -> None:
    chain(index, 5)
    assert found(index, [*whole(5), user("next")]) == ("r4", 10)


def test_a_prefix_may_end_in_the_middle_of_a_response(index: PrefixIndex) -> None:
    chain(index, 5)
    assert found(index, [*whole(2), user("q2"), user("otherwise")]) == ("r4", 5)
    assert found(index, [user("otherwise"), *whole(5)]) is None


def test_a_compacted_window_is_another_prefix(index: PrefixIndex) -> None:
    chain(index, 5)
    window = [user("a summary"), *whole(5)[6:]]
    assert found(index, window) is None
    index.add(link(None, tenant="t", response="w", items=tuple(window), output=(), open_calls=NONE, stored=False))
    assert found(index, [*window, user("next")]) == ("w", 5)


def test_another_tenant_finds_nothing(index: PrefixIndex) -> None:
    chain(index, 3)
    assert found(index, whole(3), "other") is None
    assert found(index, whole(3)) == ("r2", 6)


def test_digests_find_and_the_items_decide(clock: Clock) -> None:
    index = PrefixIndex(Pool(1 << 24), 300.0, 3600.0, clock, digest=lambda _: b"the same for all")
    chain(index, 3)
    assert found(index, [user("something"), user("else")]) is None
    assert found(index, [*whole(1), user("else"), user("entirely")]) == ("r2", 2)


def test_the_longest_of_several_forks_is_found(index: PrefixIndex) -> None:
    trunk = chain(index, 2)
    left, right = turn(trunk, 10), turn(trunk, 20)
    for fork in (left, right):
        index.add(fork)
    assert found(index, [*whole(2), user("q10"), resent("a10"), user("next")]) == ("r10", 6)
    assert found(index, [*whole(2), user("q20"), resent("a20"), user("next")]) == ("r20", 6)


def test_what_was_not_stored_is_known_for_its_time_after_its_socket_is_gone(index: PrefixIndex, clock: Clock) -> None:
    chain(index, 3)
    clock.now = 299.0
    assert found(index, whole(3)) == ("r2", 6)
    clock.now = 598.0  # counted from its last use
    assert found(index, whole(3)) == ("r2", 6)
    clock.now = 899.0
    assert found(index, whole(3)) is None
    assert index.chains.used_bytes() == 0


def test_without_time_it_is_known_while_its_socket_holds_it(clock: Clock) -> None:
    index = PrefixIndex(Pool(1 << 24), 0.0, 3600.0, clock)
    held = chain(index, 3)
    assert found(index, whole(3)) == (held.id, 6)
    del held
    gc.collect()
    assert found(index, whole(3)) is None


def test_what_is_stored_lives_as_long_as_its_store_keeps_it(index: PrefixIndex) -> None:
    kept = chain(index, 3, stored=True)
    assert found(index, whole(3)) == (kept.id, 6)
    assert index.chains.used_bytes() == 0
    del kept
    gc.collect()
    assert found(index, whole(3)) is None


def test_a_chain_is_counted_once_however_many_turns_it_has(index: PrefixIndex) -> None:
    tip = chain(index, 100)
    assert len(index.chains) == 1
    assert index.chains.used_bytes() < tip.total_bytes + 1000


def test_nothing_is_read_until_a_whole_history_arrives_and_then_once(index: PrefixIndex) -> None:
    chain(index, 100)
    assert index.read == 0
    for _ in range(3):
        found(index, whole(3))
    assert index.read == 200


def test_digests_make_room_before_chains_do(clock: Clock) -> None:
    pool = Pool(200_000)
    index = PrefixIndex(pool, 300.0, 3600.0, clock)
    chain(index, 20)
    found(index, whole(20))
    before = index.chains.used_bytes()
    for number in range(1000):
        index._digests("t", [user(f"more {number}")], 0.0)
    assert pool.used <= pool.limit
    assert index.digests.counts.full > 0
    assert index.chains.used_bytes() == before


def test_the_digest_of_an_item_is_made_once(clock: Clock) -> None:
    made = 0

    def count(item: Item) -> bytes:
        nonlocal made
        made += 1
        return item_digest(item)

    index = PrefixIndex(Pool(1 << 24), 300.0, 3600.0, clock, digest=count)
    for turns in range(1, 30):
        found(index, whole(turns))
    assert made == len(whole(29))
