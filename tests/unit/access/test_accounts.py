from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.access.accounts import Account, Accounts, Lease, Quota
from proxy.access.budget import Budget, Held
from proxy.errors import Kind, LooplineError


@contextlib.contextmanager
def refused(kind: Kind) -> Iterator[None]:
    with pytest.raises(LooplineError) as caught:
        yield
    assert caught.value.kind is kind
    assert caught.value.retry_after_s


def test_connections_are_counted_and_refused_in_a_way_that_sends_clients_to_http() -> None:
    account = Account(Quota(connections=1))
    with account.connection():
        with refused(Kind.OVERLOADED), account.connection():
            pass
    with account.connection():
        assert account.connections == 1
    assert account.connections == 0


def test_everybody_together_is_bounded_too() -> None:
    whole = Account(Quota(connections=1, turns=1))
    one, other = Account(Quota(), whole), Account(Quota(), whole)
    with one.connection(), refused(Kind.OVERLOADED), other.connection():
        pass
    lease = one.begin_turn(1, 0.0)
    with refused(Kind.RATE_LIMITED):
        other.begin_turn(1, 0.0)
    lease.release()
    lease.release()
    other.begin_turn(1, 0.0).release()
    assert whole.turns == one.turns == other.turns == 0


def test_turns_in_the_background_are_bounded_beside_the_others() -> None:
    whole = Account(Quota(background_turns=2))
    one, other = Account(Quota(background_turns=1, requests_per_minute=10), whole), Account(Quota(), whole)
    first = one.begin_turn(1, 0.0, background=True)
    with refused(Kind.QUEUE_FULL):
        one.begin_turn(1, 0.0, background=True)
    assert one.headers(0.0)["x-ratelimit-remaining-requests"] == "9", "what is refused costs nothing"
    one.begin_turn(1, 0.0).release()
    other.begin_turn(1, 0.0, background=True)
    with refused(Kind.QUEUE_FULL):
        other.begin_turn(1, 0.0, background=True)
    first.release()
    first.release()
    assert (one.background_turns, whole.background_turns, whole.turns) == (0, 1, 1)
    one.begin_turn(1, 0.0, background=True)


def test_a_refused_turn_costs_nothing() -> None:
    whole = Account(Quota(requests_per_minute=1))
    account = Account(Quota(requests_per_minute=10), whole)
    account.begin_turn(1, 0.0).release()
    with refused(Kind.RATE_LIMITED):
        account.begin_turn(1, 0.0)
    assert account.headers(0.0)["x-ratelimit-remaining-requests"] == "9"
    assert account.turns == 0
    assert account.budget.used == 0


def test_tokens_are_charged_afterwards_and_refuse_the_next_turn() -> None:
    account = Account(Quota(tokens_per_minute=600))
    account.begin_turn(1, 0.0).release()
    account.spent(900, 0.0)
    with pytest.raises(LooplineError) as caught:
        account.begin_turn(1, 0.0)
    assert caught.value.retry_after_s == pytest.approx(30.1)
    assert caught.value.headers == {
        "x-ratelimit-limit-tokens": "600",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "1m30s",
    }
    account.begin_turn(1, 30.2).release()


def test_without_rates_there_are_no_headers() -> None:
    assert Account(Quota(turns=1)).headers(0.0) == {}


def test_memory_refuses_new_work_and_lets_what_runs_go_on() -> None:
    account = Account(Quota(memory_bytes=100))
    lease = account.begin_turn(60, 0.0)
    with refused(Kind.OVERLOADED):
        account.begin_turn(41, 0.0)
    lease.grow(1000)
    assert account.budget.used == 1060
    with refused(Kind.OVERLOADED), account.connection():
        pass
    lease.release()
    lease.grow(5)
    assert account.budget.used == 0


def test_one_tenants_memory_leaves_the_others_theirs() -> None:
    accounts = Accounts(Quota(memory_bytes=100), lambda: 0.0)
    greedy, modest = (accounts.of(name, Quota(memory_bytes=50)) for name in ("greedy", "modest"))
    greedy.begin_turn(50, 0.0)
    with refused(Kind.OVERLOADED):
        greedy.begin_turn(1, 0.0)
    modest.begin_turn(50, 0.0).release()


def test_accounts_as_good_as_new_are_forgotten_and_others_are_not() -> None:
    now = 0.0
    accounts = Accounts(Quota(), lambda: now)
    quota = Quota(requests_per_minute=1)
    busy = accounts.of("busy", quota)
    lease = busy.begin_turn(1, now)
    spent = accounts.of("spent", quota)
    spent.begin_turn(1, now).release()
    for number in range(5000):
        accounts.of(f"passing {number}", quota)
    assert len(accounts) < 2000
    assert accounts.of("busy", quota) is busy
    assert accounts.of("spent", quota) is spent
    lease.release()
    now = 61.0
    for number in range(5000):
        accounts.of(f"later {number}", quota)
    assert accounts.of("spent", quota) is not spent


def test_a_limit_that_changes_counts_at_once() -> None:
    accounts = Accounts(Quota(), lambda: 0.0)
    account = accounts.of("a", Quota(turns=1))
    lease = account.begin_turn(1, 0.0)
    assert accounts.of("a", Quota(turns=2, memory_bytes=10)) is account
    account.begin_turn(1, 0.0).release()
    with refused(Kind.OVERLOADED):
        account.begin_turn(10, 0.0)
    lease.release()


sizes = st.integers(0, 1000)


@given(st.lists(st.tuples(st.sampled_from(["begin", "grow", "release", "set", "drop"]), st.integers(0, 3), sizes)))
def test_whatever_is_taken_is_given_back(moves: list[tuple[str, int, int]]) -> None:
    whole = Account(Quota(memory_bytes=2000, turns=3))
    accounts = [Account(Quota(memory_bytes=1000), whole) for _ in range(2)]
    leases: list[Lease] = []
    held: list[Held] = []
    for what, pick, size in moves:
        if what == "begin":
            with contextlib.suppress(LooplineError):
                leases.append(accounts[pick % 2].begin_turn(size, 0.0))
        elif what == "set":
            held.append(Held(accounts[pick % 2].budget))
            held[-1].set(size)
        elif what == "drop" and held:
            held[pick % len(held)].release()
        elif what == "grow" and leases:
            leases[pick % len(leases)].grow(size)
        elif leases:
            leases[pick % len(leases)].release()
        assert whole.budget.used == sum(account.budget.used for account in accounts) >= 0
        assert whole.turns == sum(account.turns for account in accounts) <= 3
    for lease in leases:
        lease.release()
    for each in held:
        each.release()
    assert whole.budget.used == whole.turns == 0


def test_a_hold_ends_with_its_block_however_that_ends() -> None:
    budget = Budget(10)
    with contextlib.suppress(ZeroDivisionError), budget.hold(10):
        assert budget.used == 10
        raise ZeroDivisionError
    assert budget.used == 0
    with refused(Kind.OVERLOADED), budget.hold(11):
        pass
    assert budget.used == 0
