"""Idle connections: who gets which, until when."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from proxy.upstream.pool import Origin, Pool

HERE, THERE = Origin("a", 80, False), Origin("a", 443, True)


def test_the_last_that_was_put_is_taken_first() -> None:
    pool: Pool[str] = Pool(10)
    pool.put(HERE, "old", 0)
    pool.put(HERE, "new", 1)
    assert [pool.take(HERE, 2), pool.take(HERE, 2), pool.take(HERE, 2)] == ["new", "old", None]


def test_only_of_the_same_origin() -> None:
    pool: Pool[str] = Pool(10)
    pool.put(HERE, "plain", 0)
    for other in (THERE, HERE._replace(host="b"), HERE._replace(ca_bundle="own.pem")):
        assert pool.take(other, 1) is None
    assert pool.take(HERE, 1) == "plain"


def test_what_was_kept_long_enough_is_not_taken_but_closed() -> None:
    pool: Pool[str] = Pool(10)
    pool.put(HERE, "old", 0)
    pool.put(THERE, "newer", 5)
    assert pool.next_expiry() == 10
    assert pool.take(HERE, 10) is None
    assert pool.expire(10) == ["old"]
    assert pool.next_expiry() == 15
    assert pool.expire(14) == []
    assert pool.expire(15) == ["newer"]
    assert pool.next_expiry() is None


def test_one_that_the_far_side_closed_is_forgotten() -> None:
    pool: Pool[str] = Pool(10)
    pool.put(HERE, "closed", 0)
    pool.drop(HERE, "closed")
    pool.drop(HERE, "closed")
    pool.drop(THERE, "never here")
    assert pool.take(HERE, 1) is None
    assert len(pool) == 0


class Uses(RuleBasedStateMachine):
    """Each connection is in one hand: the pool's, a user's, or nobody's."""

    def __init__(self) -> None:
        super().__init__()
        self.pool: Pool[int] = Pool(10)
        self.now = 0.0
        self.made = 0
        self.lent: dict[int, Origin] = {}
        self.kept: dict[int, tuple[Origin, float]] = {}

    @rule(origin=st.sampled_from([HERE, THERE]))
    def use(self, origin: Origin) -> None:
        taken = self.pool.take(origin, self.now)
        if taken is None:
            assert not any(of == origin and until > self.now for of, until in self.kept.values())
            self.made += 1
            taken = self.made
        else:
            assert self.kept.pop(taken)[1] > self.now
        self.lent[taken] = origin

    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        if self.lent:
            one = data.draw(st.sampled_from(sorted(self.lent)))
            origin = self.lent.pop(one)
            self.pool.put(origin, one, self.now)
            self.kept[one] = (origin, self.now + 10)

    @rule(data=st.data())
    def closed_by_the_far_side(self, data: st.DataObject) -> None:
        if self.kept:
            one = data.draw(st.sampled_from(sorted(self.kept)))
            self.pool.drop(self.kept.pop(one)[0], one)

    @rule(passed=st.floats(0, 12))
    def time_passes(self, passed: float) -> None:
        self.now += passed

    @rule()
    def expire(self) -> None:
        for one in self.pool.expire(self.now):
            assert self.kept.pop(one)[1] <= self.now
        assert all(until > self.now for _, until in self.kept.values())

    @invariant()
    def all_are_accounted_for(self) -> None:
        assert len(self.pool) == len(self.kept)
        assert self.pool.next_expiry() == min((until for _, until in self.kept.values()), default=None)


TestUses = Uses.TestCase
TestUses.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
