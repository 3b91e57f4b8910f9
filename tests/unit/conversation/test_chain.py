from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from proxy.conversation import chain
from proxy.conversation.chain import Encoder, Node, history, items_bytes, lasting, lineage, link
from proxy.wire.items import Item
from proxy.wire.server_events import Shown

NONE: frozenset[str] = frozenset()


def message(text: str) -> Item:
    return Item("message", text.encode(), "user")


def node(parent: Node | None, response: str, said: str = "", answered: str = "", tenant: str = "t") -> Node:
    items, output = (tuple(message(text) for text in each.split()) for each in (said, answered))
    return link(parent, tenant=tenant, response=response, items=items, output=output, open_calls=NONE, stored=True)


def joined(items: Sequence[Item]) -> bytes:
    return b",".join(item.raw for item in items)


def told(node: Node | None, encode: Encoder = joined, encoding: str = "d") -> bytes:
    """A chain as one text."""
    return b",".join(history(node, encoding, encode))


def test_context_is_every_turns_input_and_output_in_order() -> None:
    turns: Node | None = None
    for number in range(40):
        turns = node(turns, f"r{number}", f"in{number}a in{number}b", f"out{number}")
    assert told(turns) == b",".join(f"in{n}a,in{n}b,out{n}".encode() for n in range(40))


def test_a_fork_shares_everything_before_it() -> None:
    root = node(None, "r0", "a", "b")
    left, right = node(root, "l", "c", "d"), node(root, "r", "e", "f")
    assert told(left) == b"a,b,c,d"
    assert told(right) == b"a,b,e,f"
    assert lineage(left)[0] is lineage(right)[0] is root


def test_no_conversation_is_no_history() -> None:
    assert history(None, "d", joined) == []
    assert lineage(None) == []


def test_a_node_without_content_leaves_no_hole() -> None:
    assert history(node(node(None, "warm"), "r1", "", "b"), "d", joined) == [b"b"]


def test_what_is_kept_is_made_once_and_each_dialect_has_its_own() -> None:
    made: list[bytes] = []

    def encode(items: Sequence[Item]) -> bytes:
        made.append(joined(items))
        return made[-1]

    last = node(node(None, "r0", "a", "b"), "r1", "c", "d")
    for _ in range(3):
        assert told(last, encode, "chat") == b"a,b,c,d"
    assert made == [b"a", b"b", b"c", b"d"]
    history(last, "responses", encode, keep=False)
    history(last, "responses", encode, keep=False)
    assert len(made) == 12


def test_fragments_that_came_with_a_node_are_used_and_counted() -> None:
    bare = node(None, "r0", "a")
    rich = link(
        None, tenant="t", response="r0", items=(message("a"),), output=(), open_calls=NONE, stored=True,
        fragments={"chat": b"x" * 1000},
    )  # fmt: skip
    assert history(rich, "chat", joined) == [b"x" * 1000]
    assert rich.own_bytes == bare.own_bytes + 1000


def test_a_fragment_that_is_the_items_own_bytes_is_held_once_and_never_made_again() -> None:
    def fail(items: Sequence[Item]) -> bytes:
        raise AssertionError("made again")

    bare = node(None, "r0", "a b", "c")
    plain = link(
        None, tenant="t", response="r0", items=bare.items, output=bare.output, open_calls=NONE, stored=True,
        fragments={"chat": b"a,b,c"},
    )  # fmt: skip
    assert plain.own_bytes == bare.own_bytes
    assert told(plain, fail, "chat") == b"a,b,c"
    history(bare, "chat", joined)
    assert told(bare, fail, "chat") == b"a,b,c"
    assert [*plain.fragments.values(), *bare.fragments.values()] == [None, None]


def test_what_lasts_and_is_said_again_is_kept_once_in_its_later_place() -> None:
    tools, other, update = (
        Item(kind, raw)
        for kind, raw in (("additional_tools", b"1"), ("tool_search_output", b"2"), ("configuration_update", b"3"))
    )

    def after(parent: Node | None, *given: Item) -> Node:
        made = link(parent, tenant="t", response="r", items=given, output=(), open_calls=NONE, stored=True)
        assert lasting(parent, given) == made.lasting
        return made

    first = after(None, tools, other, message("a"))
    assert after(first, tools).lasting == (other, tools)
    assert after(first, tools, update, tools).lasting == (other, update, tools)
    assert after(first, message("b")).lasting is first.lasting
    again = first
    for _ in range(100):
        again = after(again, tools)
    assert again.lasting == (other, tools)


def test_sizes_add_up_along_the_chain() -> None:
    nodes = [node(None, "r0", "a" * 500)]
    for number in range(1, 5):
        nodes.append(node(nodes[-1], f"r{number}", "b" * 100, "c" * 50))
    assert nodes[-1].total_bytes == sum(each.own_bytes for each in nodes)
    assert [each.depth for each in nodes] == [1, 2, 3, 4, 5]
    assert nodes[0].own_bytes > 500
    assert items_bytes((message("a" * 500), message("b"))) > 501


def test_a_chain_never_crosses_tenants() -> None:
    with pytest.raises(ValueError, match="tenants"):
        node(node(None, "r0", tenant="one"), "r1", tenant="two")


def test_equal_looking_nodes_are_not_the_same_node() -> None:
    assert node(None, "r0") != node(None, "r0")
    assert len({node(None, "r0"), node(None, "r0")}) == 2


def shown(instructions: bytes, tools: bytes = b"[]") -> Shown:
    """What a finished response shows."""
    return Shown(
        b"completed", False, b'{"output":[', b'],"usage":null', (b',"t":', tools, b',"i":', instructions, b"}")
    )


def shown_node(parent: Node | None, response: str, what: Shown | None) -> Node:
    """A node without items."""
    return link(parent, tenant="t", response=response, items=(), output=(), open_calls=NONE, stored=True, shown=what)


def test_what_is_shown_again_with_every_turn_is_held_and_counted_once() -> None:
    long = b'"' + b"x" * 100_000 + b'"'
    first = shown_node(None, "r1", shown(long))
    second = shown_node(first, "r2", shown(bytes(bytearray(long))))
    third = shown_node(second, "r3", shown(b'"other"'))
    assert first.own_bytes > 100_000 > 2_000 > second.own_bytes
    assert first.shown is not None
    assert second.shown is not None
    assert second.shown.tail[3] is first.shown.tail[3]
    assert third.render() == b'{"output":[],"usage":null,"t":[],"i":"other"}'
    assert second.render() == b'{"output":[],"usage":null,"t":[],"i":' + long + b"}"


def test_a_node_that_shows_nothing_costs_nothing_more() -> None:
    plain = shown_node(None, "r1", None)
    assert plain.render() is None
    assert plain.own_bytes < shown_node(None, "r1", shown(b"null")).own_bytes


@pytest.mark.parametrize(("status", "continues"), [(b"completed", True), (b"incomplete", True), (b"failed", False)])
def test_what_failed_continues_as_nothing(status: bytes, continues: bool) -> None:
    assert shown_node(None, "r1", replace(shown(b"null"), status=status)).continues is continues


def grown(parent: Node | None, number: int) -> Node:
    """The next turn of a chain, with its fragment."""
    text = f"in{number} out{number}".split()
    items, output = ((message(each),) for each in text)
    return link(
        parent, tenant="t", response=f"r{number}", items=items, output=output, open_calls=NONE, stored=True,
        fragments={"d": f"<{number}>".encode()}, before=history(parent, "d", joined),
    )  # fmt: skip


def listed(nodes: Sequence[Node]) -> int:
    """How many pieces they list together."""
    return sum(len(pieces or ()) for each in nodes for pieces in each.flat.values())


def test_a_chain_that_only_grows_is_never_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    tip = grown(None, 0)
    monkeypatch.setattr(chain, "lineage", lambda node: pytest.fail("walked"))
    for number in range(1, 1000):
        assert told(tip) == b",".join(b"<%d>" % each for each in range(number))
        tip = grown(tip, number)


def test_what_is_linked_later_does_not_change_a_history_that_was_given_out() -> None:
    tip = grown(grown(None, 0), 1)
    before = history(tip, "d", joined)
    grown(tip, 2)
    assert before == [b"<0>", b"<1>"]


def test_every_fork_has_its_own_history_whichever_is_continued_first() -> None:
    trunk = grown(grown(None, 0), 1)
    left, right, late = grown(trunk, 2), grown(trunk, 3), grown(trunk, 4)
    for number in range(5, 8):
        left, right = grown(left, number), grown(right, 10 + number)
    assert told(left) == b"<0>,<1>,<2>,<5>,<6>,<7>"
    assert told(right) == b"<0>,<1>,<3>,<15>,<16>,<17>"
    assert told(late) == b"<0>,<1>,<4>"
    assert told(trunk) == b"<0>,<1>"


@pytest.mark.parametrize("forked", [False, True])
def test_a_history_knows_its_size_grown_forked_or_walked(forked: bool) -> None:
    tip = grown(grown(grown(None, 0), 1), 22)
    assert tip.parent is not None
    pieces = history(tip.parent if forked else tip, "d", joined)
    assert pieces.size == sum(map(len, pieces)) > 0
    assert history(tip, "other", joined).size == len(b"in0out0in1out1in22out22")


def test_the_pieces_of_a_chain_are_listed_once_not_once_a_node() -> None:
    tip = grown(None, 0)
    for number in range(1, 200):
        tip = grown(tip, number)
    assert listed(lineage(tip)) == 200


def test_what_is_listed_is_counted() -> None:
    tip = grown(None, 0)
    for number in range(1, 20):
        tip = grown(tip, number)
    assert tip.own_bytes == tip.bare_bytes + len(b"<19>") + 8 * 20


def test_many_answers_to_one_question_do_not_each_list_what_came_before() -> None:
    trunk = grown(None, 0)
    for number in range(1, 200):
        trunk = grown(trunk, number)
    forks = [grown(trunk, number) for number in range(200, 300)]
    assert listed([*lineage(trunk), *forks]) == 201


def test_turns_that_fail_all_along_a_chain_leave_no_list_behind() -> None:
    tip = grown(None, 0)
    for number in range(1, 200):
        tip = grown(tip, number)
    for each in lineage(tip):
        told(each)
    assert listed(lineage(tip)) == 200


def test_a_fork_that_goes_on_is_walked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    trunk = grown(grown(None, 0), 1)
    grown(trunk, 2)
    fork = grown(grown(trunk, 3), 4)
    monkeypatch.setattr(chain, "lineage", lambda node: pytest.fail("walked"))
    for number in range(5, 8):
        fork = grown(fork, number)
    assert told(fork) == b"<0>,<1>,<3>,<4>,<5>,<6>,<7>"


def test_a_chain_that_was_lightened_says_the_same() -> None:
    tip = grown(grown(None, 0), 1)
    before = tip.own_bytes
    for each in lineage(tip):
        each.lighten()
    assert tip.own_bytes == before - len(b"<1>") - 8 * 2
    assert told(tip) == b"in0,out0,in1,out1"


@pytest.mark.slow
def test_a_very_deep_chain_is_let_go_of() -> None:
    tip: Node | None = None
    for number in range(100_000):
        tip = node(tip, f"r{number}", "in", "out")
    del tip  # no recursion, however deep
