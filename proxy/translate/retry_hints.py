"""When to try again, as upstreams say it: in headers, or in words alone.

Source: API references of OpenAI (rate limits, `x-ratelimit-*`) and Azure (`retry-after-ms`), RFC 9110 10.2.3.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_MAX_S = 86_400.0
_UNITS = {"milliseconds": 0.001, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = r"(?:\d+(?:\.\d+)?\s*(?:ms|s|m|h)[a-z]*\s*)+"
_PIECE = re.compile(r"(\d+(?:\.\d+)?)\s*(milliseconds|ms|s|m|h)")
_WORDS = re.compile(rf"\b(?:try again|retry)\b(?: your request)? (?:in|after) (?:about )?({_DURATION})", re.IGNORECASE)


def retry_after(headers: Mapping[str, str], message: str) -> float | None:
    """Seconds, or None where neither headers nor message name a time of at most a day.

    `headers` are matched without regard to case. A date in `Retry-After` is not read: that would need a clock.
    """
    for seconds in _hints(headers, message):
        if seconds is not None and 0 <= seconds <= _MAX_S:
            return seconds
    return None


def _hints(headers: Mapping[str, str], message: str) -> Iterator[float | None]:
    yield _scaled(headers.get("retry-after-ms", ""), 0.001)
    yield _scaled(headers.get("retry-after", ""), 1.0)
    if message:  # limits are told with every answer; they are a reason to wait only where one was hit
        yield _reset(headers)
        named = _WORDS.search(message)
        yield _duration(named[1]) if named else None


def _reset(headers: Mapping[str, str]) -> float | None:
    """When the limit that is used up is there again; the later one of both."""
    resets = [
        _duration(headers.get(f"x-ratelimit-reset-{limit}", ""))
        for limit in ("requests", "tokens")
        if headers.get(f"x-ratelimit-remaining-{limit}", "0").strip() == "0"
    ]
    return max((reset for reset in resets if reset is not None), default=None)


def _duration(text: str) -> float | None:
    """`6m0s`, `20ms`, `1.5s`, `20 seconds`, or a bare number of seconds."""
    pieces = _PIECE.findall(text.lower())
    if not pieces:
        return _scaled(text, 1.0)
    return sum(float(number) * _UNITS[unit] for number, unit in pieces)


def _scaled(text: str, scale: float) -> float | None:
    try:
        return float(text) * scale
    except ValueError:
        return None
