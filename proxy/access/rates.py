"""How many units a minute, with a clock that is handed in. Pure.

Written here because none of the libraries for it fits (limits 5.8, pyrate-limiter 4.5, throttled-py 3.5): their
memory stores read the clock themselves, keep an entry for every unit (half a million a minute, where the units are
tokens) or need a thread to forget them, and none can be charged afterwards for more than is left, as a turn must be
whose tokens are known when it has ended.
"""

from __future__ import annotations

import math

_MINUTE_S = 60.0


class Rate:
    """At most `per_minute` units a minute: a bucket that holds a minute's worth and fills evenly.

    All there is to know of it is one number, the time when it will be full again. `now` is monotonic seconds.
    """

    __slots__ = ("_full_at_s", "per_minute")

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self._full_at_s = -math.inf

    def remaining(self, now: float) -> int:
        """Whole units that are left."""
        missing = self.reset_s(now) / _MINUTE_S * self.per_minute
        return max(0, math.floor(self.per_minute - missing + 1e-6))

    def reset_s(self, now: float) -> float:
        """Seconds until it is full."""
        return max(0.0, self._full_at_s - now)

    def wait_s(self, now: float) -> float:
        """Seconds until one unit is there; 0 where it is there now."""
        unit_s = _MINUTE_S / self.per_minute
        wait_s = self.reset_s(now) + unit_s - _MINUTE_S
        return wait_s if wait_s > 1e-6 else 0.0

    def spend(self, units: float, now: float) -> None:
        """Take units out, more than are there if need be: then it stays empty for so much longer."""
        self._full_at_s = max(self._full_at_s, now) + units * _MINUTE_S / self.per_minute


def duration(seconds: float) -> str:
    """Seconds as OpenAI writes them in its `x-ratelimit-reset-` headers: `0s`, `120ms`, `1.5s`, `6m0s`."""
    milliseconds = math.ceil(seconds * 1000)
    if milliseconds == 0:
        return "0s"
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    whole, rest = divmod(milliseconds, 60_000)
    tail = f"{rest / 1000:g}s"
    return f"{whole}m{tail}" if whole else tail
