"""Terms that clients repeat are parsed once, never shared between tenants, and bounded."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from proxy.errors import LooplineError
from proxy.translate.tools.listed import ToolMemo
from proxy.wire.client_events import Create, Limits, parse_create, parse_terms
from proxy.wire.codec import decode_object
from proxy.wire.terms import Terms, TermsMemo


def create(memo: TermsMemo, tenant: str = "t", **members: Any) -> Create:
    data = json.dumps({"type": "response.create", "input": "x", **members}).encode()
    return parse_create(decode_object(data), len(data), Limits(), partial(memo.find, tenant))


def test_the_same_terms_are_the_same_object_whatever_else_a_turn_says() -> None:
    memo = TermsMemo()
    first = create(memo, model="m", instructions="be brief", tools=[], temperature=1)
    again = create(
        memo, model="m", instructions="be brief", tools=[], temperature=1,
        previous_response_id="resp_1", metadata={"turn": "2"}, client_metadata={"a": 1}, generate=False, event_id="e",
    )  # fmt: skip
    assert again.terms is first.terms
    assert (again.parent_id, again.value("metadata"), again.generate) == ("resp_1", {"turn": "2"}, False)
    assert (first.parent_id, first.value("metadata"), first.generate) == (None, None, True)


@pytest.mark.parametrize("change", [{"model": "n"}, {"temperature": 0.5}, {"tools": [{"type": "x"}]}, {"more": 1}])
def test_other_terms_are_another_object(change: dict[str, Any]) -> None:
    memo = TermsMemo()
    assert create(memo, **{"model": "m", **change}).terms is not create(memo, model="m").terms
    assert (
        create(memo, **{"model": "m", **change}).terms.members == create(memo, **{"model": "m", **change}).terms.members
    )


def test_another_tenant_never_gets_them() -> None:
    memo = TermsMemo()
    assert create(memo, "a", model="m").terms is not create(memo, "b", model="m").terms


def test_one_digest_for_two_does_not_mix_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xxhash.xxh3_128_digest", lambda data: b"same")
    memo = TermsMemo()
    assert create(memo, model="m").model == "m"
    assert create(memo, model="n").model == "n"
    assert create(memo, model="m").model == "m"


def test_what_is_wrong_with_them_is_said_each_time() -> None:
    memo = TermsMemo()
    for _ in range(2):
        with pytest.raises(LooplineError) as raised:
            create(memo, temperature="hot")
        assert raised.value.param == "temperature"


def test_they_pin_no_message_and_stay_within_their_budget() -> None:
    memo = TermsMemo(budget_bytes=100_000)
    for number in range(1000):
        create(memo, instructions=f"{number}" * 100)
    assert 0 < memo.used_bytes() <= 100_000
    large = create(memo, instructions="x" * 200_000)
    assert large.raw("instructions") is not None
    assert create(memo, instructions="x" * 200_000).terms is not large.terms


def test_they_leave_when_nobody_has_asked_for_them_for_a_while() -> None:
    now = 0.0
    memo = TermsMemo(ttl_s=300, clock=lambda: now)
    used, unused = create(memo, model="used").terms, create(memo, model="unused").terms
    now = 299.0
    assert create(memo, model="used").terms is used
    now = 598.0  # 299 s after its last use; the other one was not asked for
    assert create(memo, model="used").terms is used
    assert len(memo) == memo.counts.old == 1
    assert create(memo, model="unused").terms is not unused
    now = 1000.0
    assert create(memo, model="other").model == "other"
    assert (len(memo), memo.counts.hits, memo.counts.misses, memo.counts.old) == (1, 2, 4, 3)


@pytest.mark.parametrize("models", ["aaa", "aba", "aab"])
def test_each_time_that_they_are_asked_for_is_one_hit_or_one_miss(models: str) -> None:
    now = 0.0
    memo = TermsMemo(ttl_s=300, clock=lambda: now)
    for count, model in enumerate(models, 1):
        create(memo, model=model)
        assert memo.counts.hits + memo.counts.misses == 2 * count - 1
        create(memo, model=model)
        now += 300  # all of them are too old
    assert (memo.counts.hits, memo.counts.misses) == (3, 3)


def test_with_no_time_nothing_is_kept() -> None:
    memo = TermsMemo(ttl_s=0)
    assert create(memo, model="m").terms is not create(memo, model="m").terms
    assert memo.used_bytes() == 0


@pytest.mark.parametrize(
    "many",
    [
        lambda number: {f"{number}" + "x" * 200_000: 1},
        lambda number: {f"{number}" + "x" * 200_000 + "😀": 1},
        lambda number: {f"{number}x{place}": 1 for place in range(500)},
        lambda number: {"user": str(number), "text": {str(place): 0 for place in range(512)}},
        lambda number: {"user": str(number), "include": ["a"] * 10_000},
        pytest.param(
            lambda number: {"tools": [{"type": "custom", "name": f"f{number}x{place}"} for place in range(1024)]},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            lambda number: {"tools": [{"type": "function", "name": f"f{number}x{place}"} for place in range(1024)]},
            marks=pytest.mark.slow,
        ),
        lambda number: {
            "tools": [{"type": "namespace", "name": f"n{number}", "tools": [
                {"type": "function", "name": f"f{place}"} for place in range(500)
            ]}]
        },
    ],
    ids=["name", "wide name", "members", "elements", "texts", "custom tools", "functions", "namespaces"],
)  # fmt: skip
def test_no_form_takes_much_more_memory_than_is_counted(many: Callable[[int], dict[str, Any]]) -> None:
    memo, tools = TermsMemo(budget_bytes=1 << 20), ToolMemo(budget_bytes=1)
    tracemalloc.start()
    try:
        for number in range(20):
            made = create(memo, **many(number))
            made.terms.made("tools", (), partial(tools.read, "t", made.raw("tools")))
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < 1.5 * (1 << 20)


def test_what_is_made_of_them_is_made_once_for_the_same_objects() -> None:
    terms, calls = parse_terms({}), []
    tools, others = ("tools",), ("others",)

    def make() -> int:
        calls.append(1)
        return len(calls)

    assert [terms.made("a", (tools,), make), terms.made("a", (tools,), make)] == [1, 1]
    assert terms.made("a", (others,), make) == 2
    assert terms.made("b", (), make) == 3


def test_what_fails_is_not_kept_and_what_is_made_has_a_bound() -> None:
    terms = Terms({}, {})
    with pytest.raises(ZeroDivisionError):
        terms.made("a", (), lambda: 1 // 0)
    assert terms.made("a", (), lambda: 1) == 1
    for number in range(1000):
        terms.made(str(number), (), lambda: 2)
    assert len(terms._made) <= 16
