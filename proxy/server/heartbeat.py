"""Pings to clients that say nothing, and who answers none. One timer for all sockets: of thousands, each needs none."""

from __future__ import annotations

import asyncio
from typing import Protocol

# A client that answers no ping for so many intervals is taken for gone: an agent whose tool blocks its event loop is
# not to be.
_PONG_INTERVALS = 3
# A socket is looked at so many times in an interval; one that would be silent for all of it at the next look is pinged.
_LOOKS = 4
_GROUPS = 16  # looked at one after another, so that thousands are not pinged at once


class Beating(Protocol):
    """A socket. Times are seconds of the event loop's clock."""

    heard_s: float  # when something last came
    pinged_s: float  # when a ping was last sent, 0 for never

    def ping(self) -> None:
        """Send one."""
        ...

    def abort(self) -> None:
        """Drop the connection."""
        ...


class Heartbeat:
    """Pings whoever was silent for about `interval_s`, and drops whoever then stays silent for three times as long."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._groups: list[set[Beating]] = [set() for _ in range(_GROUPS)]
        self._next = 0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, socket: Beating) -> None:
        """Look after it, until `remove`."""
        min(self._groups, key=len).add(socket)
        if self._timer is None:
            self._arm()

    def remove(self, socket: Beating) -> None:
        """It is closed."""
        for group in self._groups:
            group.discard(socket)
        if self._timer is not None and not any(self._groups):
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        after_s = self._interval_s / _LOOKS / _GROUPS
        self._timer = asyncio.get_running_loop().call_later(after_s, self._look)

    def _look(self) -> None:
        self._arm()
        self._next = (self._next + 1) % _GROUPS
        now = asyncio.get_running_loop().time()
        for socket in tuple(self._groups[self._next]):
            self.beat(socket, now)

    def beat(self, socket: Beating, now: float) -> None:
        """Look at one socket."""
        if socket.pinged_s > socket.heard_s:
            if now - socket.pinged_s >= _PONG_INTERVALS * self._interval_s:
                socket.abort()
        elif now - socket.heard_s > self._interval_s * (1 - 1 / _LOOKS):
            socket.pinged_s = now
            socket.ping()
