"""A flag that can be waited for. asyncio.Event makes a queue of waiters at once, which a quiet socket never needs."""

from __future__ import annotations

import asyncio


class Signal:
    """As `asyncio.Event`, for a socket of thousands: it takes memory only while somebody waits."""

    __slots__ = ("_is_set", "_waiters")

    def __init__(self, *, is_set: bool = False) -> None:
        self._is_set = is_set
        self._waiters: list[asyncio.Future[None]] | None = None

    def is_set(self) -> bool:
        """Has it been set, and not cleared since?"""
        return self._is_set

    def set(self) -> None:
        """Wake everybody who waits."""
        self._is_set = True
        waiters, self._waiters = self._waiters, None
        for waiter in waiters or ():
            if not waiter.done():
                waiter.set_result(None)

    def clear(self) -> None:
        """Whoever waits from now on waits for the next `set`."""
        self._is_set = False

    async def wait(self) -> None:
        """Until it is set; at once where it is."""
        if self._is_set:
            return
        waiter = asyncio.get_running_loop().create_future()
        if self._waiters is None:
            self._waiters = []
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            if self._waiters is not None and waiter in self._waiters:
                self._waiters.remove(waiter)
