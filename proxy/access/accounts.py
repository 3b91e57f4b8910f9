"""What one key, one tenant, or everybody together uses now, against what they may use. Pure; `now` is monotonic.

Every decision is taken in one step without an await: all limits are looked at first, then all are charged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from proxy.access.budget import Budget, Held
from proxy.access.rates import Rate, duration
from proxy.errors import Kind, LooplineError

_BUSY_RETRY_S = 1.0
_BACKGROUND_RETRY_S = 5.0
_OF_ONE, _OF_ALL = "access.background_turns, or the key's own", "limits.background_turns"
_PRUNE_FROM = 1024


@dataclass(frozen=True, slots=True)
class Quota:
    """Bounds; 0 sets none. `connections` are WebSockets, `turns` those that run at once, by whatever transport,
    `background_turns` those of them that nobody waits for."""

    connections: int = 0
    turns: int = 0
    background_turns: int = 0
    requests_per_minute: int = 0
    tokens_per_minute: int = 0
    memory_bytes: int = 0


class Account:
    """What is used now. `whole` is the account of everybody together."""

    budget: Budget

    def __init__(self, quota: Quota, whole: Account | None = None) -> None:
        self.quota = quota
        self.whole = whole
        self.connections = 0
        self.turns = 0
        self.background_turns = 0
        self.budget = Budget(quota.memory_bytes, whole.budget if whole else None)
        self._requests = _rate(quota.requests_per_minute)
        self._tokens = _rate(quota.tokens_per_minute)

    def change(self, quota: Quota) -> None:
        """Other bounds from now on; a rate that changed starts full."""
        if quota.requests_per_minute != self.quota.requests_per_minute:
            self._requests = _rate(quota.requests_per_minute)
        if quota.tokens_per_minute != self.quota.tokens_per_minute:
            self._tokens = _rate(quota.tokens_per_minute)
        self.budget.limit = quota.memory_bytes
        self.quota = quota

    @contextmanager
    def connection(self) -> Iterator[None]:
        """One more WebSocket while open. Raises as `connect`."""
        self.connect()
        try:
            yield
        finally:
            self.disconnect()

    def connect(self) -> None:
        """One more WebSocket, until `disconnect`. Raises `LooplineError` (overloaded).

        Not rate_limited: an upgrade answered 429 is the end of a Codex session, a plain 503 sends it to HTTP.
        """
        self.budget.admit()
        for account in self._all():
            if account.quota.connections and account.connections >= account.quota.connections:
                raise LooplineError(
                    Kind.OVERLOADED,
                    f"{account.connections} connections are open, the maximum; close one, or use HTTP.",
                    retry_after_s=_BUSY_RETRY_S,
                    limit=account._limit("connections"),
                )
        for account in self._all():
            account.connections += 1

    def disconnect(self) -> None:
        """One WebSocket less."""
        for account in self._all():
            account.connections -= 1

    def begin_turn(self, size: int, now: float, *, background: bool = False) -> Lease:
        """A turn whose request has `size` bytes; its lease is to be released at its end.

        Raises `LooplineError` (rate_limited, overloaded; queue_full for one in the background).
        """
        self.budget.admit(size)
        for account in self._all():
            account._check_turn(now, self)
            if background:
                account._check_background(_OF_ONE if account is self else _OF_ALL)
        for account in self._all():
            account.turns += 1
            account.background_turns += background
            if account._requests is not None:
                account._requests.spend(1, now)
        return Lease(self, size, background=background)

    def spent(self, tokens: int, now: float) -> None:
        """A turn has cost so many tokens; the next one may have to wait for it."""
        for account in self._all():
            if account._tokens is not None:
                account._tokens.spend(tokens, now)

    def headers(self, now: float) -> dict[str, str]:
        """The `x-ratelimit-` headers, of the rates that are bounded."""
        headers: dict[str, str] = {}
        for what, rate in (("requests", self._requests), ("tokens", self._tokens)):
            if rate is not None:
                headers[f"x-ratelimit-limit-{what}"] = str(rate.per_minute)
                headers[f"x-ratelimit-remaining-{what}"] = str(rate.remaining(now))
                headers[f"x-ratelimit-reset-{what}"] = duration(rate.reset_s(now))
        return headers

    def idle(self, now: float) -> bool:
        """Is it as good as new, so that it can be forgotten?"""
        rates = (self._requests, self._tokens)
        used = self.connections or self.turns or self.budget.used
        return not used and not any(rate is not None and rate.reset_s(now) for rate in rates)

    def _all(self) -> tuple[Account, ...]:
        return (self,) if self.whole is None else (self, self.whole)

    def _check_background(self, setting: str) -> None:
        if self.quota.background_turns and self.background_turns >= self.quota.background_turns:
            raise LooplineError(
                Kind.QUEUE_FULL,
                f"{self.background_turns} responses run in the background already ({setting}); "
                "wait for one to end, or leave 'background' out.",
                param="background",
                retry_after_s=_BACKGROUND_RETRY_S,
                limit=setting,
            )

    def _limit(self, name: str) -> str:
        """The setting that bounds it: a key's own bound goes by the name of the general one."""
        return f"{'access' if self.whole is not None else 'limits'}.{name}"

    def _check_turn(self, now: float, asked: Account) -> None:
        if self.quota.turns and self.turns >= self.quota.turns:
            raise LooplineError(
                Kind.RATE_LIMITED,
                f"{self.turns} responses run at once, the maximum; wait for one to end.",
                retry_after_s=_BUSY_RETRY_S,
                headers=asked.headers(now),
                limit=self._limit("turns"),
            )
        for what, rate in (("requests", self._requests), ("tokens", self._tokens)):
            if rate is not None and (wait_s := rate.wait_s(now)):
                raise LooplineError(
                    Kind.RATE_LIMITED,
                    f"Rate limit reached: {rate.per_minute} {what} a minute.",
                    retry_after_s=wait_s,
                    headers=asked.headers(now),
                    limit=self._limit(f"{what}_per_minute"),
                )


class Lease:
    """A turn that runs: it counts as one, and holds the bytes of its request and of its answer until it is released."""

    __slots__ = ("_account", "_background", "_held")

    def __init__(self, account: Account, size: int, *, background: bool = False) -> None:
        self._account: Account | None = account
        self._background = background
        self._held = Held(account.budget)
        self._held.set(size)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def grow(self, size: int) -> None:
        """It holds `size` bytes more."""
        self._held.grow(size)

    def release(self) -> None:
        """The turn is over; a second time changes nothing."""
        account, self._account = self._account, None
        self._held.release()
        if account is not None:
            for each in account._all():
                each.turns -= 1
                each.background_turns -= self._background


class Accounts:
    """The accounts of keys and tenants by id; those that are as good as new are forgotten now and then."""

    def __init__(self, whole: Quota, clock: Callable[[], float]) -> None:
        self.whole = Account(whole)
        self._clock = clock
        self._accounts: dict[str, Account] = {}
        self._prune_at = _PRUNE_FROM

    def __len__(self) -> int:
        return len(self._accounts)

    def of(self, name: str, quota: Quota) -> Account:
        """The account of that name, with these bounds."""
        account = self._accounts.get(name)
        if account is None:
            if len(self._accounts) >= self._prune_at:
                self._prune()
            account = self._accounts[name] = Account(quota, self.whole)
        elif account.quota != quota:
            account.change(quota)
        return account

    def all(self) -> Mapping[str, Account]:
        """Every account that is kept."""
        return self._accounts

    def _prune(self) -> None:
        now = self._clock()
        self._accounts = {name: account for name, account in self._accounts.items() if not account.idle(now)}
        self._prune_at = max(_PRUNE_FROM, 2 * len(self._accounts))


def _rate(per_minute: int) -> Rate | None:
    return Rate(per_minute) if per_minute else None
