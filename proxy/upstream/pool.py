"""Idle connections, by where they lead. Bookkeeping without I/O: no call waits, so none can be half done."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

C = TypeVar("C", bound=Hashable)


class Origin(NamedTuple):
    """Where a connection leads; two requests share connections only where all of it is equal."""

    host: str
    port: int
    tls: bool
    ca_bundle: str = ""


class Pool(Generic[C]):
    """Connections that nobody uses now. Each is kept `keepalive_s`; times are monotonic seconds.

    What is taken belongs to whoever took it, until it is put back.
    """

    def __init__(self, keepalive_s: float) -> None:
        self._keepalive_s = keepalive_s
        # Until when each may be used; in the order in which they were put, so that the first expires first.
        self._idle: dict[Origin, dict[C, float]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._idle.values()))

    def take(self, origin: Origin, now: float) -> C | None:
        """The one that was used last, which the far side is the least likely to have closed; None where none is."""
        idle = self._idle.get(origin)
        if not idle:
            return None
        connection, until = idle.popitem()
        if until > now:
            return connection
        idle[connection] = until  # with all before it, it is `expire`'s
        return None

    def put(self, origin: Origin, connection: C, now: float) -> None:
        """Keep one that has answered."""
        self._idle.setdefault(origin, {})[connection] = now + self._keepalive_s

    def drop(self, origin: Origin, connection: C) -> None:
        """Forget one, if it is here: the far side has closed it."""
        idle = self._idle.get(origin)
        if idle is not None:
            idle.pop(connection, None)
            if not idle:
                del self._idle[origin]

    def expire(self, now: float) -> list[C]:
        """Those that were kept long enough, forgotten here: the caller closes them."""
        expired = []
        for origin, idle in list(self._idle.items()):
            for connection, until in list(idle.items()):
                if until > now:
                    break
                del idle[connection]
                expired.append(connection)
            if not idle:
                del self._idle[origin]
        return expired

    def next_expiry(self) -> float | None:
        """When the first of them expires."""
        return min((next(iter(idle.values())) for idle in self._idle.values() if idle), default=None)
