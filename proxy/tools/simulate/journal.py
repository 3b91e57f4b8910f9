"""What a simulated upstream was asked: for the tests and benchmarks that look at it from outside."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_REQUESTS = 1_000  # older ones are forgotten, so that a long benchmark does not fill the memory


@dataclass(slots=True)
class Request:
    """One request, from its head to its last byte. Times are monotonic seconds; `finished` is None while it runs."""

    dialect: str
    path: str
    headers: Mapping[str, str]  # names in lower case
    started: float
    body: Any = None
    body_bytes: int = 0
    status: int = 0  # 0: no answer, as when the script drops the connection before it
    tokens_sent: int = 0
    aborted: bool = False  # the client left before the end
    finished: float | None = None


@dataclass(slots=True)
class Journal:
    """The last requests, how many are in flight, how many connections were opened."""

    requests: deque[Request] = field(default_factory=lambda: deque(maxlen=MAX_REQUESTS))
    open_requests: int = 0
    connections: int = 0
    _waiters: set[asyncio.Future[None]] = field(default_factory=set)

    def begin(self, request: Request) -> None:
        self.requests.append(request)
        self.open_requests += 1
        self.changed()

    def end(self, request: Request, now: float) -> None:
        request.finished = now
        self.open_requests -= 1
        self.changed()

    def changed(self) -> None:
        """Wake whoever waits; costs nothing when nobody does."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait_for(self, holds: Callable[[], bool], timeout_s: float) -> None:
        """Return as soon as `holds()`; raises `TimeoutError`."""
        async with asyncio.timeout(timeout_s):
            while not holds():
                waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiters.add(waiter)
                try:
                    await waiter
                finally:
                    self._waiters.discard(waiter)
