"""Who is measured: a server with its process, and how a client of it opens a conversation."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from .meter import Meter
from .resend import FullResend
from .servers import Running
from .turns import Fields, Item, Turn
from .websocket import Address, Deltas, Socket

DELTAS, RESEND = "deltas", "resend"


class Lane(Protocol):
    """One client with one conversation and one connection."""

    connect_s: float

    def restart(self) -> None:
        """The next turn begins a new conversation, on the same connection."""
        ...

    async def turn(self, new: Sequence[Item], *, watch: bool = False) -> Turn:
        """Send the new items and wait for the answer's end. Raises BenchError."""
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...


class Restart(Protocol):
    """Starts a server once more, in front of `upstream` and with `more` settings, as environment variables."""

    def __call__(
        self, upstream: str, more: Mapping[str, str] | None = None
    ) -> AbstractAsyncContextManager[Running]: ...


@dataclass(frozen=True, slots=True)
class Contestant:
    """A server under test.

    `way` is `deltas` (a WebSocket, what is new) or `resend` (HTTP, everything each time, `dialect` of the upstream).
    `meter` reads its processes; one without any says "not available". `restart` starts the same server once more, in
    front of its `upstream` or another; None for a server that is not ours to start.
    """

    name: str
    base_url: str
    way: str
    meter: Meter
    fields: Fields
    key: str = ""
    dialect: str = "responses"
    upstream: str = ""
    restart: Restart | None = None

    @asynccontextmanager
    async def lane(self, fields: Fields | None = None, base_url: str | None = None) -> AsyncIterator[Lane]:
        """A conversation, closed at the end. Raises BenchError where the server takes none."""
        url, chosen = base_url or self.base_url, fields or self.fields
        lane: Lane
        if self.way == DELTAS:
            lane = await Deltas.open(Address.of(url), self.key, chosen)
        else:
            lane = FullResend(url, self.key, chosen, self.dialect)
        try:
            yield lane
        finally:
            await lane.close()

    async def socket(self, *, deflate: bool = False) -> Socket:
        """A WebSocket by itself. Raises BenchError."""
        return await Socket.open(Address.of(self.base_url), self.key, deflate=deflate)


class Stopwatch:
    """Wall time and a server's CPU time from the moment this is made."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._cpu_s = meter.cpu_s()
        self._started_s = time.monotonic()

    def wall_s(self) -> float:
        """Seconds so far."""
        return time.monotonic() - self._started_s

    def cpu_s(self) -> float | None:
        """CPU seconds so far; None where the operating system does not say."""
        now = self._meter.cpu_s()
        return None if now is None or self._cpu_s is None else now - self._cpu_s
