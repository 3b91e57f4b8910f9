from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.access.rates import Rate, duration


def test_a_minutes_worth_may_come_at_once_and_then_one_at_a_time() -> None:
    rate = Rate(60)
    for left in reversed(range(60)):
        assert rate.wait_s(100.0) == 0
        rate.spend(1, 100.0)
        assert rate.remaining(100.0) == left
    assert rate.wait_s(100.0) == pytest.approx(1.0)
    assert rate.wait_s(101.0) == 0
    assert rate.remaining(101.0) == 1
    assert rate.reset_s(101.0) == pytest.approx(59.0)


def test_what_was_spent_beyond_the_limit_is_waited_for() -> None:
    rate = Rate(1000)
    rate.spend(3000, 0.0)
    assert rate.remaining(0.0) == 0
    assert rate.wait_s(119.0) > 0
    assert rate.wait_s(120.06) == 0


@given(
    per_minute=st.integers(1, 100_000),
    steps=st.lists(st.floats(0, 20, allow_nan=False), min_size=1, max_size=200),
)
def test_no_minute_holds_more_than_twice_the_limit_and_the_long_run_no_more_than_it(
    per_minute: int, steps: list[float]
) -> None:
    rate, now, granted = Rate(per_minute), 0.0, 0
    for step in steps:
        now += step
        if rate.wait_s(now) == 0:
            rate.spend(1, now)
            granted += 1
        assert 0 <= rate.remaining(now) <= per_minute
    assert granted <= per_minute * (1 + now / 60) + 1


@given(per_minute=st.integers(1, 10_000), spent=st.integers(1, 50_000))
def test_after_the_wait_that_was_named_there_is_room(per_minute: int, spent: int) -> None:
    rate = Rate(per_minute)
    rate.spend(spent, 7.0)
    wait_s = rate.wait_s(7.0)
    assert rate.wait_s(7.0 + wait_s + 1e-3) == 0
    if wait_s > 0.1:
        assert rate.wait_s(7.0 + wait_s - 0.05) > 0


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (0.12, "120ms"), (1, "1s"), (1.5, "1.5s"), (360, "6m0s"), (61.25, "1m1.25s")]
)
def test_durations_are_written_as_openai_writes_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text
