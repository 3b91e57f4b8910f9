"""The longest known prefix of a history that a client sends whole."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.caching import AgedPool
from proxy.conversation.chain import Node, link
from proxy.conversation.digest import canonical, item_digest
from proxy.conversation.prefix import PrefixIndex, counted
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
    return PrefixIndex(AgedPool(1 << 24), 300.0, 3600.0, clock)


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


def left(index: PrefixIndex, turns: int, tenant: str = "t", *, stored: bool = False) -> Node:
    """A conversation by deltas whose socket is gone."""
    tip = None
    for number in range(turns):
        tip = turn(tip, number, tenant, stored=stored)
    assert tip is not None
    index.leave(tip)
    return tip


def whole(turns: int) -> list[Item]:
    """What a client sends of such a conversation."""
    return [made for number in range(turns) for made in (user(f"q{number}"), resent(f"a{number}"))]


def found(index: PrefixIndex, items: list[Item], tenant: str = "t") -> tuple[str | None, int]:
    prefix = index.find(tenant, tuple(items))
    return prefix.response, prefix.length


def said(index: PrefixIndex, items: list[Item], word: str, *, stored: bool = False) -> list[Item]:
    """A whole history is sent and answered by `word`, which names the response too; what its client sends next."""
    node = link(
        None, tenant="t", response=word, items=tuple(items), output=(answer(word),), open_calls=NONE, stored=stored
    )  # fmt: skip
    index.add(index.find("t", node.items), node)
    return [*items, resent(word)]


def begun(index: PrefixIndex, turns: int) -> None:
    """The same conversation as `whole` has, sent whole each time."""
    items: list[Item] = []
    for number in range(turns):
        node = link(
            None, tenant="t", response=f"r{number}", items=(*items, user(f"q{number}")), output=(answer(f"a{number}"),),
            open_calls=NONE, stored=False,
        )  # fmt: skip
        index.add(index.find("t", node.items), node)
        items = whole(number + 1)


# --- found ---


def test_a_client_that_sends_everything_each_time_goes_on_from_its_last_answer(index: PrefixIndex) -> None:
    items: list[Item] = []
    for number in range(30):
        items = said(index, [*items, user(f"q{number}")], f"a{number}")
        assert found(index, [*items, user("next")]) == (f"a{number}", len(items))
    assert len(index.unstored) == 1


def test_a_client_that_comes_back_with_everything_finds_its_conversation(index: PrefixIndex) -> None:
    left(index, 5)
    assert found(index, [*whole(5), user("next")]) == ("r4", 10)


def test_a_prefix_may_end_anywhere(index: PrefixIndex) -> None:
    begun(index, 5)
    assert found(index, [*whole(2), user("otherwise")]) == ("r1", 4)
    assert found(index, [*whole(2), user("q2"), user("otherwise")]) == ("r1", 5)
    assert found(index, [user("otherwise"), *whole(5)]) == (None, 0)
    said(index, [*whole(2), user("q2"), user("otherwise")], "a")
    assert found(index, [*whole(2), user("q2"), user("other")]) == ("r1", 5)


def test_a_request_that_is_made_again_goes_on_from_the_same_answer(index: PrefixIndex) -> None:
    items = [*said(index, [user("q")], "a"), user("next")]
    for word in ("one", "two"):
        assert found(index, items)[0] == "a"
        said(index, items, word)


def test_a_compacted_window_is_another_prefix(index: PrefixIndex) -> None:
    left(index, 5)
    window = [user("a summary"), *whole(5)[6:]]
    assert found(index, window) == (None, 0)
    after = said(index, window, "w")
    assert found(index, [*after, user("next")]) == ("w", 6)


def test_forks_of_one_conversation_are_each_found_and_so_is_where_they_part(index: PrefixIndex) -> None:
    trunk = said(index, [user("q")], "trunk")
    forks = {word: said(index, [*trunk, user(f"to {word}")], word) for word in ("one", "two", "three")}
    for word, items in forks.items():
        assert found(index, [*items, user("next")]) == (word, 4)
    assert found(index, [*trunk, user("to four")]) == ("trunk", 2)
    assert found(index, [*trunk, user("to two"), user("besides")]) == ("trunk", 3)


def test_answers_in_the_same_words_lead_to_their_own_conversations(index: PrefixIndex) -> None:
    for number in range(5):
        node = link(
            None, tenant="t", response=f"r{number}", items=(user(f"q{number}"),), output=(answer("Done."),),
            open_calls=NONE, stored=False,
        )  # fmt: skip
        index.add(index.find("t", node.items), node)
    for number in range(5):
        assert found(index, [user(f"q{number}"), resent("Done."), user("next")]) == (f"r{number}", 2)


def test_an_answer_far_back_is_found_too(index: PrefixIndex) -> None:
    items = said(index, [user("q")], "a")
    assert found(index, [*items, *(user(f"more {number}") for number in range(100))]) == ("a", 2)


def test_another_tenant_finds_nothing(index: PrefixIndex) -> None:
    left(index, 3)
    items = said(index, [user("q")], "a")
    for history in (whole(3), [*items, user("next")]):
        assert found(index, history, "other") == (None, 0)
        assert found(index, history)[1] >= 2


def test_digests_find_and_the_items_decide(clock: Clock) -> None:
    index = PrefixIndex(AgedPool(1 << 24), 300.0, 3600.0, clock, digest=lambda _: b"the same for all")
    begun(index, 3)
    assert found(index, [user("something"), user("else")]) == (None, 0)
    assert found(index, [*whole(1), user("else"), user("entirely")]) == ("r0", 2)


def test_what_was_made_to_have_the_digest_of_something_else_is_compared_once(clock: Clock) -> None:
    index = PrefixIndex(AgedPool(1 << 24), 300.0, 3600.0, clock, digest=lambda _: b"the same for all")
    said(index, [user("one")], "a")
    said(index, [user("other"), user("more")], "b")
    assert found(index, [user("one"), user("more")]) == (None, 1)
    assert found(index, [user("one"), user("more"), user("and more")]) == (None, 0)


def test_a_cut_call_that_was_answered_is_another_item(index: PrefixIndex) -> None:
    raw = b'{"type":"function_call","call_id":"c","name":"f","arguments":"{}","status":"incomplete"}'
    cut = parse_item(raw)
    said(index, [user("q"), cut], "a")
    assert found(index, [user("q"), cut, user("next")]) == (None, 2)
    assert found(index, [user("q"), replace(cut, unfinished=False), user("next")]) == (None, 1)


def test_what_says_nothing_new_and_gets_no_answer_is_known_all_the_same(index: PrefixIndex) -> None:
    items = said(index, [user("q")], "a")
    node = link(None, tenant="t", response="none", items=tuple(items), output=(), open_calls=NONE, stored=False)
    index.add(index.find("t", node.items), node)
    assert found(index, [*items, user("next")]) == ("none", 2)


def test_a_warm_up_that_says_nothing_is_no_history(index: PrefixIndex) -> None:
    left(index, 2)
    warm = link(None, tenant="t", response="warm", items=(), output=(), open_calls=NONE, stored=False)
    index.leave(warm)
    assert found(index, []) == (None, 0)
    index.add(index.find("t", ()), warm)
    assert found(index, whole(2)) == ("r1", 4)


THOUGHT = parse_item(b'{"type":"reasoning","id":"rs_1","summary":[]}')
WORDS = st.sampled_from([user("a"), user("b"), resent("x"), resent("y"), THOUGHT])
ANSWERS = st.lists(st.sampled_from([answer("x"), answer("y"), THOUGHT]), max_size=2)


@given(st.lists(st.tuples(st.lists(WORDS, min_size=1, max_size=6), ANSWERS, st.booleans()), max_size=12))
def test_the_longest_known_prefix_is_found_whatever_was_said(turns: list[tuple[list[Item], list[Item], bool]]) -> None:
    index = PrefixIndex(AgedPool(1 << 24), 300.0, 3600.0, Clock())
    told: list[tuple[list[bytes], str]] = []
    before: list[Item] = []
    for number, (new, output, goes_on) in enumerate(turns):
        items = tuple([*before, *new] if goes_on else new)
        means = [canonical(item) for item in counted(items)]
        known = max((common(means, other) for other, _ in told), default=0)
        prefix = index.find("t", counted(items))
        assert prefix.length == known
        ends = {response for other, response in told if len(other) == known and other == means[:known]}
        whole_in_it = [response for other, response in told if other == means[:known][: len(other)]]
        assert prefix.response in (ends or [None, *whole_in_it])
        node = link(
            None, tenant="t", response=f"r{number}", items=items, output=tuple(output), open_calls=NONE, stored=False
        )  # fmt: skip
        index.add(prefix, node)
        before = [*items, *output]
        if means:  # else nothing was asked that counts
            told.append(([canonical(item) for item in counted(before)], node.id))


def common(one: list[bytes], other: list[bytes]) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


# --- for how long, and at what cost ---


def test_what_was_not_stored_is_known_for_its_time_since_it_was_found(index: PrefixIndex, clock: Clock) -> None:
    left(index, 3)
    clock.now = 299.0
    assert found(index, whole(3)) == ("r2", 6)
    clock.now = 598.0
    assert found(index, whole(3)) == ("r2", 6)
    clock.now = 899.0
    assert found(index, whole(3)) == (None, 0)
    assert index.unstored.used_bytes() == 0


def test_without_time_nothing_that_was_not_stored_is_known(clock: Clock) -> None:
    index = PrefixIndex(AgedPool(1 << 24), 0.0, 3600.0, clock)
    left(index, 3)
    said(index, [user("q")], "a")
    assert found(index, whole(3)) == found(index, [user("q"), resent("a")]) == (None, 0)
    assert found(index, said(index, [user("q")], "b", stored=True)) == ("b", 2)


def test_what_is_stored_and_what_is_not_live_apart(index: PrefixIndex, clock: Clock) -> None:
    items = said(index, [user("q")], "stored", stored=True)
    more = said(index, [*items, user("next")], "not")
    clock.now = 1000.0
    assert found(index, [*more, user("next")]) == ("stored", 2)
    assert index.unstored.used_bytes() == 0


def test_a_conversation_is_held_once_however_many_turns_it_has(index: PrefixIndex) -> None:
    items: list[Item] = []
    for number in range(100):
        items = said(index, [*items, user(f"q{number}")], f"a{number}")
    assert len(index.unstored) == 1
    assert index.unstored.used_bytes() < sum(len(item.raw) + 200 for item in items) + 2000


def test_what_a_socket_has_left_is_read_when_a_history_goes_on_from_it_and_once(clock: Clock) -> None:
    digested: list[Item] = []

    def count(item: Item) -> bytes:
        digested.append(item)
        return item_digest(item)

    index = PrefixIndex(AgedPool(1 << 24), 300.0, 3600.0, clock, digest=count)
    for tenant in ("t", "other"):
        left(index, 100, tenant)
    assert len(digested) == 2  # the last answers
    found(index, [user("another"), resent("history"), user("that is no longer")])
    assert len(digested) == 5
    assert len(index.left) == 2
    assert found(index, [*whole(100), user("next")]) == ("r99", 200)
    read = len(digested)
    assert read > 200
    assert len(index.left) == 1
    assert found(index, [*whole(100), user("next")]) == ("r99", 200)
    assert found(index, [*whole(60), user("elsewhere")])[0] == "r59"
    assert len(digested) <= read + 100  # the answers in the words of their client


def test_who_has_left_takes_no_room_beside_what_was_left(clock: Clock) -> None:
    index = PrefixIndex(AgedPool(20_000), 300.0, 3600.0, clock)
    tracemalloc.start()
    try:
        for number in range(2_000):
            left(index, 1, f"tenant {number}")
        used_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used_bytes < 100_000


def test_of_what_is_as_old_digests_make_room_before_conversations_do(clock: Clock) -> None:
    pool = AgedPool(200_000)
    index = PrefixIndex(pool, 300.0, 3600.0, clock)
    left(index, 20)
    found(index, whole(20))
    before = index.unstored.used_bytes()
    for number in range(1000):
        found(index, [user(f"more {number}")])
    assert pool.used <= pool.limit
    assert index.digests.counts.full > 0
    assert index.unstored.used_bytes() == before


def test_of_more_conversations_than_there_is_room_for_the_newest_are_found(clock: Clock) -> None:
    pool = AgedPool(200_000)
    index = PrefixIndex(pool, 300.0, 3600.0, clock)
    begun = []
    for number in range(500):
        clock.now += 0.1
        begun.append(said(index, [user(f"q{number}")], f"a{number}"))
    assert pool.used <= pool.limit
    assert len(index.unstored) > 20
    assert [found(index, [*items, user("next")]) for items in begun[-20:]] == [
        (f"a{number}", 2) for number in range(480, 500)
    ]


def test_a_place_that_is_used_stays(index: PrefixIndex, clock: Clock) -> None:
    trunk = said(index, [user("q")], "trunk", stored=True)
    for number in range(4):
        clock.now += 1800.0
        said(index, [*trunk, user(f"to {number}")], f"a{number}", stored=True)
        assert found(index, [*trunk, user("besides")]) == ("trunk", 2)


def test_what_is_made_to_be_slow_is_not_read(clock: Clock) -> None:
    digested: list[Item] = []

    def count(item: Item) -> bytes:
        digested.append(item)
        return item_digest(item)

    index = PrefixIndex(AgedPool(1 << 26), 300.0, 3600.0, clock, digest=count)
    dense = b",".join([b"{}"] * 150_000)
    slow = [parse_item(b'{"type":"%d","all":{"of":[%b]}}' % (number, dense)) for number in range(3)]
    items = said(index, [user("q"), *slow], "a")
    assert not set(slow) & set(digested)
    assert found(index, [*items, user("next")]) == ("a", 5)
    rewritten = [replace(item, raw=item.raw.replace(b'"all":', b'"all": ')) for item in slow]
    assert found(index, [user("q"), *rewritten, resent("a")]) == (None, 1)
    index.leave(
        link(None, tenant="t", response="r", items=(user("q"),), output=(slow[0],), open_calls=NONE, stored=False)
    )
    assert not set(slow) & set(digested)


def test_a_conversation_that_outgrows_its_room_is_let_go(clock: Clock) -> None:
    index = PrefixIndex(AgedPool(100_000), 300.0, 3600.0, clock)
    items = said(index, [user("q")], "a")
    items = said(index, [*items, user("x" * 100_000)], "b")
    assert index.unstored.used_bytes() == 0
    assert found(index, items) == (None, 0)


def test_a_turn_costs_what_is_new_in_it(clock: Clock) -> None:
    digested: list[Item] = []

    def count(item: Item) -> bytes:
        digested.append(item)
        return item_digest(item)

    index = PrefixIndex(AgedPool(1 << 24), 300.0, 3600.0, clock, digest=count)
    items: list[Item] = []
    placed = 0
    for number in range(50):
        items = said(index, [*items, user(f"q{number}")], f"a{number}")
        if number > 1:
            assert len(index.places) == placed + 2  # what was asked and what was answered
        placed = len(index.places)
    # Each wish once; each answer as it was made, and as its client wrote it.
    assert len(digested) == 50 + 50 + 49


# --- very many items ---


def test_very_many_items_are_read_in_portions_and_only_what_is_new(clock: Clock) -> None:
    digested = 0

    def count(item: Item) -> bytes:
        nonlocal digested
        digested += 1
        return item_digest(item)

    index = PrefixIndex(AgedPool(1 << 24), 300.0, 3600.0, clock, digest=count)
    items = tuple(user(f"q{number}") for number in range(2_000))
    before, most = 0, 0
    for _ in index.reading("t", items):
        most, before = max(most, digested - before), digested
    assert digested == 2_000
    assert most < 200
    after = said(index, list(items), "a")
    assert digested == 2_001  # and what was answered
    for _ in index.reading("t", (*after, user("next"))):
        raise AssertionError("it goes on from a known answer")
    assert found(index, [*after, user("next")]) == ("a", 2_001)


@pytest.mark.parametrize("at", [1, 500, 777, 1_999])
def test_where_a_long_history_parts_is_found_exactly(index: PrefixIndex, at: int) -> None:
    items = [user(f"q{number}") for number in range(2_000)]
    said(index, items, "a")
    assert len(index.places) < 400
    assert found(index, [*items[:at], user("otherwise")]) == (None, at)


def test_very_many_items_that_are_made_to_be_slow_are_not_all_read(clock: Clock) -> None:
    digested: list[Item] = []

    def count(item: Item) -> bytes:
        digested.append(item)
        return item_digest(item)

    index = PrefixIndex(AgedPool(1 << 26), 300.0, 3600.0, clock, digest=count)
    dense = b",".join([b"{}"] * 5_000)
    slow = tuple(parse_item(b'{"role":"user","content":"%d","all":[%b]}' % (number, dense)) for number in range(300))
    reading = index.reading("t", slow)
    next(reading)  # the newest are looked at first
    for read in (1, 2):  # each is a portion
        next(reading)
        assert len(digested) == 16 + read
    for _ in reading:
        pass
    found(index, list(slow))
    assert 10_000 * len(digested) < 3 * (1 << 18)


@pytest.mark.parametrize("at", [100, 1_999, 2_001])
def test_a_prefix_that_ends_between_its_places_is_found_once_and_missed_never(index: PrefixIndex, at: int) -> None:
    items = said(index, [user(f"q{number}") for number in range(2_000)], "a")
    counts = index.places.counts
    before = counts.hits, counts.misses
    assert found(index, [*items[:at], user("otherwise")])[1] == at
    assert (counts.hits - before[0], counts.misses - before[1]) == (1, 0)


def test_an_answer_that_comes_back_without_its_reasoning_is_known(index: PrefixIndex) -> None:
    node = link(
        None, tenant="t", response="r", items=(user("q"),), output=(THOUGHT, answer("a")), open_calls=NONE, stored=False
    )  # fmt: skip
    index.add(index.find("t", node.items), node)
    assert found(index, [user("q"), resent("a"), user("next")]) == ("r", 2)
    index.leave(turn(node, 1))
    assert found(index, [user("q"), resent("a"), user("q1"), resent("a1"), user("next")]) == ("r1", 4)
