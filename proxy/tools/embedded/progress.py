"""Telling a person how far a download has come."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, TextIO

_REDRAW_S = 0.1
_LINE_S = 5.0  # between two lines where there is no terminal: a log stays readable
_WIDTH = 30


class Progress(Protocol):
    """Told by `prepare`, from the thread that called it."""

    def note(self, text: str) -> None:
        """Something worth a line has begun or happened."""

    def moved(self, label: str, done_bytes: int, total_bytes: int | None) -> None:
        """`label` has so many bytes now; called several times a second. `total_bytes` is None while unknown."""

    def finished(self, label: str) -> None:
        """Nothing more comes for `label`: it is whole, or it failed and a note or an error follows."""


class Silent:
    """Says nothing."""

    def note(self, text: str) -> None: ...

    def moved(self, label: str, done_bytes: int, total_bytes: int | None) -> None: ...

    def finished(self, label: str) -> None: ...


class Bar:
    """A bar on a terminal, a line every five seconds elsewhere."""

    def __init__(self, stream: TextIO, now: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._now = now
        self._redraws = stream.isatty()
        self._label: str | None = None
        self._began_s = self._said_s = 0.0
        self._last = ""

    def note(self, text: str) -> None:
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def moved(self, label: str, done_bytes: int, total_bytes: int | None) -> None:
        now = self._now()
        if label != self._label:
            # Not said yet: a redraw at once, the first plain line only when it turns out to take long.
            self._label, self._began_s, self._said_s = label, now, now - (_REDRAW_S if self._redraws else 0)
        self._last = line(label, done_bytes, total_bytes, now - self._began_s, bar=self._redraws)
        if now - self._said_s >= (_REDRAW_S if self._redraws else _LINE_S):
            self._said_s = now
            self._write(self._last)

    def finished(self, label: str) -> None:
        if label == self._label:
            self._write(self._last)
            if self._redraws:
                self._stream.write("\n")
                self._stream.flush()
        self._label = None

    def _write(self, text: str) -> None:
        self._stream.write(f"\r\x1b[K{text}" if self._redraws else f"{text}\n")
        self._stream.flush()


def line(label: str, done_bytes: int, total_bytes: int | None, seconds: float, *, bar: bool) -> str:
    """One line: label, bar, megabytes and rate."""
    rate = f"{done_bytes / seconds / 1e6:.1f} MB/s" if seconds > 0 else "starting"
    if not total_bytes:
        return f"{label}  {done_bytes / 1e6:.1f} MB, {rate}"
    share = min(done_bytes / total_bytes, 1.0)
    filled = "#" * round(share * _WIDTH)
    shown = f"[{filled:.<{_WIDTH}}] " if bar else ""
    return f"{label}  {shown}{done_bytes / 1e6:.1f} of {total_bytes / 1e6:.1f} MB ({share:.0%}), {rate}"
