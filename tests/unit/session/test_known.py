"""Which turn a turn followed, as it is remembered."""

from __future__ import annotations

from collections.abc import Sequence

from proxy.conversation.chain import Node, link
from proxy.session.known import Known
from proxy.translate.left_out import LeftOut
from proxy.wire.codec import Raw
from proxy.wire.items import Item
from tests.unit.conversation.test_prefix import NONE, Clock, answer, resent, user
from tests.unit.translate.turns import create


def whole(response: str, items: list[Item]) -> Node:
    """A turn that was sent its whole history."""
    return link(
        None, tenant="t", response=response, items=tuple(items), output=(answer(response),), open_calls=NONE,
        stored=False,
    )  # fmt: skip


def followed(known: Known, clock: Clock, node: Node) -> float | None:
    """When the turn before ended; this one ends now."""
    previous = known.previous(node)
    known.ended(node, clock.now)
    return None if previous is None else previous.ended_s


def test_many_turns_that_nothing_follows_do_not_crowd_out_those_that_are_followed() -> None:
    clock = Clock()
    known = Known(1_000_000, 300.0, 3600.0, clock)
    for number in range(1000):
        clock.now += 0.1
        began_s = clock.now
        assert followed(known, clock, whole(f"a{number}", [user(f"q{number}")])) is None
        clock.now += 0.1
        items = [user(f"q{number}"), resent(f"a{number}"), user("next")]
        assert followed(known, clock, whole(f"b{number}", items)) == began_s
    assert sum(pool.used for pool in known.pools) <= 250_000


def test_translations_of_what_is_asked_now_stay_however_many_items_were_read_before() -> None:
    clock = Clock()
    known = Known(500_000, 300.0, 3600.0, clock)
    translated: list[Item] = []

    class Translated:
        left_out: list[LeftOut] = []  # noqa: RUF012

        def encode(self, items: Sequence[Item], start: int = 0) -> bytes:
            translated.extend(items)
            return b",".join(item.raw for item in items)

    for number in range(100):
        clock.now += 1.0
        made = create(input=[{"role": "user", "content": f"{number} {item}"} for item in range(20)])
        items = known.items.read("t", [Raw(item.raw) for item in made.items], stored=True)
        for _ in range(2):
            fragments = known.translations("t", made)
            assert fragments is not None
            fragments.encoded(items, "d", {}, Translated())
    assert known.items.stored.counts.full > 0
    assert len(translated) == 100 * 20


def test_a_history_with_an_answer_that_is_not_known_follows_no_turn_before_it() -> None:
    clock = Clock()
    known = Known(1_000_000, 300.0, 3600.0, clock)
    begun = [user("q")]
    followed(known, clock, whole("a", begun))
    clock.now = 1.0
    begun = [*begun, resent("a"), user("next")]
    assert followed(known, clock, whole("b", [*begun, resent("changed"), user("and then")])) is None
    assert followed(known, clock, whole("c", begun)) == 0.0
    assert followed(known, clock, whole("d", begun)) == 0.0
