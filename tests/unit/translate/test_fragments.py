"""Translated items that are found again: the request is the same, whatever is known."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import astuple, replace

from proxy.caching import Pool
from proxy.errors import LooplineError
from proxy.models.profile import profiles
from proxy.translate.base import Brief
from proxy.translate.chat.items import ItemEncoder
from proxy.translate.chat.translator import ChatTranslator
from proxy.translate.fragments import FragmentMemo, Fragments, cuts
from proxy.translate.responses.translator import ResponsesTranslator
from proxy.wire import portions
from proxy.wire.client_events import Create
from proxy.wire.items import Item, pair_calls, revive_cut_calls
from tests.golden import corpus
from tests.unit.translate.histories import TOOLS, histories
from tests.unit.translate.turns import create, items

PROFILES = sorted(profiles())
FOREVER = 1e9


def memo(limit: int = 1 << 24, now: Callable[[], float] = lambda: 0.0) -> FragmentMemo:
    """One that keeps everything for 10 seconds."""
    return FragmentMemo(Pool(limit), 10.0, 10.0, now)


def sent(told: Brief, dialect: str, known: Fragments | None, *, untold: bool = False) -> Any:
    """What is sent upstream and what is left out; or the error. `untold` items are told in portions."""
    told = replace(told, known=known)
    try:
        made = (ChatTranslator if dialect == "chat" else ResponsesTranslator)(told, untold=untold)
        if untold:
            deque(made.tell())
        return b"".join(made.request([]).parts), list(made.left_out)
    except LooplineError as error:
        return error.kind, error.message, error.param


def settled(given_create: Create) -> Create:
    """Its items as a turn takes them; skips what a turn would refuse."""
    settled_items = revive_cut_calls(given_create.items, ())
    try:
        pair_calls(frozenset(), settled_items)
    except LooplineError:
        assume(False)
    return replace(given_create, items=settled_items)


@pytest.fixture(autouse=True)
def _portions_of_some_items(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portions, "PORTION_BYTES", 3 * portions.ITEM_BYTES)


@pytest.mark.parametrize("dialect", corpus.DIALECTS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_the_request_is_the_same_with_what_is_known_and_without(dialect: str, data: st.DataObject) -> None:
    profile = data.draw(st.sampled_from(PROFILES))
    kept, in_portions = memo(), memo()
    trunk = data.draw(histories())
    for _ in range(3):  # the history grows, is compacted, is forked: what is known comes from all before
        head = trunk[data.draw(st.integers(0, len(trunk))) :] if data.draw(st.booleans()) else trunk
        history = head + data.draw(histories())
        made = settled(create(input=history, tools=TOOLS, instructions="do"))
        told = corpus.brief(made, profile)
        expected = sent(told, dialect, None)
        assert sent(told, dialect, kept.of("t", stored=False)) == expected
        assert sent(told, dialect, kept.of("t", stored=False)) == expected
        assert sent(told, dialect, in_portions.of("t", stored=False), untold=True) == expected
        trunk = history


@pytest.mark.parametrize("dialect", corpus.DIALECTS)
@pytest.mark.parametrize("path", corpus.cases("requests"), ids=lambda path: path.stem)
def test_requests_of_real_clients_are_the_same_with_what_is_known(path: Any, dialect: str) -> None:
    made = corpus.create_of(json.loads(path.read_text()))
    kept = memo()
    for profile in PROFILES:
        for end in (len(made.items) // 2, len(made.items)):
            part = replace(made, items=made.items[:end])
            told = corpus.brief(part, profile)
            expected = sent(told, dialect, None)
            assert sent(told, dialect, kept.of("t", stored=True), untold=end == len(made.items)) == expected
            assert sent(told, dialect, kept.of("t", stored=True)) == expected
            assert sent(told, dialect, memo(limit=5000).of("t", stored=True), untold=True) == expected


def loop(rounds: int, *, first: str = "do it") -> list[dict[str, Any]]:
    """An agent's history: one wish, then calls and what came of them."""
    made: list[dict[str, Any]] = [{"role": "user", "content": first}]
    for number in range(rounds):
        call = {"call_id": f"call_{number}", "name": "f", "arguments": "{}"}
        made += [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": f"thought {number}"}]},
            {"type": "function_call", **call},
            {"type": "function_call_output", "call_id": f"call_{number}", "output": f"result {number}"},
        ]
    return made


def translated(kept: FragmentMemo, history: list[dict[str, Any]], tenant: str = "t", **more: Any) -> tuple[int, int]:
    """How many items were found, and how many made."""
    known = kept.of(tenant, stored=False)
    sent(corpus.brief(create(input=history, **more), "vllm"), "chat", known)
    return known.reused, known.made


def test_a_history_that_grows_costs_its_new_part(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = 0
    encode = ItemEncoder.encode

    def count(encoder: ItemEncoder, run: tuple[Item, ...], start: int = 0) -> bytes:
        nonlocal counted
        counted += len(run)
        return encode(encoder, run, start)

    monkeypatch.setattr(ItemEncoder, "encode", count)
    kept = memo()
    for number in range(1, 200):
        counted = 0
        translated(kept, loop(number))
        assert counted == (4 if number == 1 else 3)


def test_a_compacted_window_finds_its_tail() -> None:
    kept = memo()
    translated(kept, loop(50))
    summary = [{"role": "user", "content": "what was said: …"}]
    assert translated(kept, summary + loop(50)[61:]) == (90, 1)


def test_another_tenant_finds_nothing() -> None:
    kept = memo()
    translated(kept, loop(5))
    assert translated(kept, loop(5), tenant="other") == (0, 16)


def test_what_was_stored_and_what_was_not_are_kept_apart() -> None:
    kept = memo()
    translated(kept, loop(5))
    assert len(kept.stored) == 0
    assert len(kept.unstored) == 6


def test_tools_of_other_names_are_another_translation() -> None:
    kept = memo()
    spaced = [{"type": "namespace", "name": "files", "tools": [{"type": "function", "name": "f"}]}]
    translated(kept, loop(5))
    assert translated(kept, loop(5), tools=spaced)[0] == 0
    assert translated(kept, loop(5), tools=[*spaced])[0] == 16


def test_it_is_forgotten_after_its_time_and_with_no_time_at_once() -> None:
    now = 0.0
    kept = memo(now=lambda: now)
    translated(kept, loop(5))
    now = 9.0
    assert translated(kept, loop(5))[0] == 16
    now = 18.0
    assert translated(kept, loop(5))[0] == 16
    now = 29.0
    assert translated(kept, loop(5))[0] == 0
    assert kept.unstored.counts.old == 6
    none = FragmentMemo(Pool(1 << 20), 0.0, 10.0, lambda: now)
    translated(none, loop(5))
    assert none.unstored.used_bytes() == 0


def test_it_stays_within_its_bytes_and_says_so() -> None:
    pool = Pool(20_000)
    kept = FragmentMemo(pool, 10.0, 10.0, lambda: 0.0)
    for number in range(200):
        translated(kept, loop(3, first=f"wish {number}"))
        assert pool.used <= 20_000
    assert kept.unstored.used_bytes() == pool.used
    assert kept.unstored.counts.full > 100


def test_an_error_names_the_item_by_its_place_in_the_whole_request() -> None:
    kept = memo()
    translated(kept, loop(5))
    wrong = corpus.brief(create(input=[*loop(5), {"type": "unheard_of"}]), "vllm")
    for untold in (False, True):
        assert sent(wrong, "chat", kept.of("t", stored=False), untold=untold)[2] == "input[16]"


def test_what_is_found_is_compared_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    class Same(Item, frozen=True):
        """Items that all have one hash."""

        def __hash__(self) -> int:
            return 7

    def same(history: list[dict[str, Any]]) -> Create:
        made = create(input=history)
        return replace(made, items=tuple(Same(*astuple(item)) for item in made.items))

    kept = memo()
    for number in range(20):
        told = corpus.brief(same(loop(3, first=f"wish {number}")), "vllm")
        assert sent(told, "chat", kept.of("t", stored=False)) == sent(told, "chat", None)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=histories(hosted=False))
def test_runs_cover_all_items_once(history: list[dict[str, Any]]) -> None:
    made = items(*history)
    ends = list(cuts(made))
    assert ends[-1] == len(made)
    assert ends == sorted(set(ends))
    assert 0 not in ends
