"""How late the event loop is: what every turn on it waits."""

from __future__ import annotations

import asyncio
import time
from collections import deque

from proxy.telemetry.numbers import Histogram

_EVERY_S = 1.0


class LagSampler:
    """Sets a timer once a second and notes how late it fires; `stop` ends it. Start it inside the loop.

    `latest` are the last minute's, in seconds.
    """

    def __init__(self, lag: Histogram) -> None:
        self._lag = lag
        self.latest: deque[float] = deque(maxlen=60)
        self._set()

    def stop(self) -> None:
        """No further sample."""
        self._timer.cancel()

    def _set(self) -> None:
        self._due_s = time.monotonic() + _EVERY_S
        self._timer = asyncio.get_running_loop().call_later(_EVERY_S, self._fired)

    def _fired(self) -> None:
        late_s = max(0.0, time.monotonic() - self._due_s)
        self._lag.observe(late_s)
        self.latest.append(late_s)
        self._set()
