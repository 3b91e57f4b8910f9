"""Who a client is, and what it may use: asked at the door, and again with every frame. Pure."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping

from proxy.access.accounts import Account, Accounts, Quota
from proxy.access.keys import Key, KeyStore, holds_key
from proxy.access.tenants import tenant_of
from proxy.errors import Kind, LooplineError

_UNKNOWN = (
    "Incorrect API key provided: it is missing, not known here, revoked or expired. Send it as "
    "'Authorization: Bearer llk_…'."
)


class Grant:
    """What one client may do, as long as it may. `key` is None where no keys are required.

    An account that is forgotten while a grant holds it goes on counting for this grant alone: it is forgotten only
    while nothing is counted in it.
    """

    __slots__ = ("_gate", "account", "key", "tenant")

    def __init__(self, gate: Gate | None, tenant: str, account: Account, key: Key | None = None) -> None:
        self._gate = gate
        self.tenant = tenant
        self.account = account
        self.key = key

    @property
    def id(self) -> str:
        """What logs call the client: its key's id, or nothing."""
        return self.key.id if self.key is not None else ""

    def rate_headers(self) -> dict[str, str]:
        """The `x-ratelimit-` headers of an answer now."""
        return {} if self._gate is None else self.account.headers(self._gate.clock())

    def check(self) -> None:
        """Does the key still count? Raises `LooplineError` (unauthorized)."""
        if self._gate is not None and self.key is not None:
            now = self._gate.renewed(self.key)
            if now is not self.key:
                self.key, self.account = now, self._gate.account_of(now)

    @property
    def is_own_key(self) -> bool:
        """Did it come in with a key that this server gave out? Then an upstream's credential is not its own."""
        return self.key is not None

    def allows(self, model: str) -> bool:
        """May it use a model of this name?"""
        return self.key is None or self.key.allows(model)

    def bound(self, name: str, general: int) -> int:
        """The tighter of the key's limit of that name and the one for everybody."""
        own: int = getattr(self.key.limits, name) if self.key is not None else 0
        return min(own, general) if own else general


def unbounded(tenant: str = "") -> Grant:
    """A grant without limits, for what runs without a gate."""
    return Grant(None, tenant, Account(Quota()))


class Gate:
    """Knows clients by their key, or without keys by their credential.

    `each` bounds every key that sets no bounds of its own and, without keys, every tenant; `whole` everybody together.
    `secret` keys the tenants' hashes. `clock` is monotonic seconds, `wall` seconds since 1970.
    """

    def __init__(
        self,
        secret: bytes,
        keys: KeyStore | None,
        *,
        each: Quota,
        whole: Quota,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self.accounts = Accounts(whole, clock)
        self.clock = clock
        self._secret = secret
        self._keys = keys
        self._each = each
        self._wall = wall

    @property
    def needs_key(self) -> bool:
        """Must clients have a key of ours?"""
        return self._keys is not None

    def grant(self, headers: Mapping[str, str]) -> Grant:
        """`headers` have lower-case names. Raises `LooplineError` (unauthorized)."""
        if self._keys is None:
            tenant = tenant_of(headers, self._secret)
            return Grant(self, tenant, self.accounts.of(tenant, self._each))
        key = self._keys.find(_token(headers.get("authorization", "")))
        if key is None or key.expired(self._wall()):
            raise unauthorized()
        return Grant(self, self._tenant(key), self.account_of(key), key)

    def kept_back(self, headers: Mapping[str, str]) -> dict[str, str]:
        """The headers without our keys, which no upstream may see: not where they belong, nor anywhere else."""
        return {name: value for name, value in headers.items() if self.passes(name, value)}

    def passes(self, name: str, value: str) -> bool:
        """May this header go on to an upstream? `name` is lower-case."""
        return self._keys is None or not (name == "authorization" or holds_key(name) or holds_key(value))

    def check_address(self, address: str) -> None:
        """A key of ours in a path or a query would go on with it. Raises `LooplineError` (invalid_request).

        So would what is percent-encoded so often that nobody can say what it holds.
        """
        if self._keys is not None and holds_key(address):
            raise LooplineError(
                Kind.INVALID_REQUEST,
                "The address holds a key of this server, which belongs in 'Authorization: Bearer llk_…', or is "
                "percent-encoded too many times.",
            )

    def renewed(self, key: Key) -> Key:
        """The key as it is now. Raises `LooplineError` (unauthorized)."""
        assert self._keys is not None
        now = self._keys.get(key.id)
        if now is None or now.hash != key.hash or now.tenant != key.tenant or now.expired(self._wall()):
            raise unauthorized()
        return now

    def account_of(self, key: Key) -> Account:
        """The account of a key, with the bounds that it has now."""
        own, each = key.limits, self._each
        quota = Quota(
            connections=own.connections or each.connections,
            turns=own.turns or each.turns,
            background_turns=own.background_turns or each.background_turns,
            requests_per_minute=own.requests_per_minute or each.requests_per_minute,
            tokens_per_minute=own.tokens_per_minute or each.tokens_per_minute,
            memory_bytes=each.memory_bytes,
        )
        return self.accounts.of(key.id, quota)

    def _tenant(self, key: Key) -> str:
        # Hashed as a credential is, with more zero bytes than any credential has: the two never give one tenant.
        named = f"\0\0\0tenant\0{key.tenant}" if key.tenant else f"\0\0\0key\0{key.id}"
        return hmac.digest(self._secret, named.encode(), "sha256").hex()[:32]


def unauthorized() -> LooplineError:
    """The same for every reason: who has no key learns nothing of those that exist."""
    return LooplineError(Kind.UNAUTHORIZED, _UNKNOWN, headers={"www-authenticate": 'Bearer realm="loopline"'})


def _token(authorization: str) -> str:
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
