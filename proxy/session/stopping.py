"""Parts of a task: one that somebody else may end early, as `asyncio.timeout` does but without a timer; and one
with a timer.

They are classes, not generators: a turn enters each of them once, and that is a tenth of the cost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from heapq import heapify, heappop, heappush
from types import TracebackType

# Timers that were left and are still kept, beside those that are open.
_MOST_LEFT = 256


class Stopped(Exception):
    """The part was ended from outside."""


class Stoppable:
    """`with part:` runs until `part.stop()`, which makes it raise `Stopped` where it waits.

    A cancellation of the task meanwhile stays one. Source: `asyncio.Timeout` and `asyncio.Task.uncancel`.
    """

    __slots__ = ("_before", "_stopped", "_task")

    def __init__(self) -> None:
        self._task: asyncio.Task[object] | None = None
        self._before = 0
        self._stopped = False

    def stop(self) -> None:
        """End the part; does nothing where it is not running, or was stopped already."""
        if self._task is not None and not self._stopped:
            self._stopped = True
            self._task.cancel()

    def __enter__(self) -> None:
        self._task = task = asyncio.current_task()
        assert task is not None
        self._before = task.cancelling()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if self._stopped and task is not None and task.uncancel() <= self._before and kind is asyncio.CancelledError:
            raise Stopped from error


class Timers:
    """Timers for very many turns, nearly all of which are left before their time: one of the event loop stands for all.

    A timer of the event loop's own costs a hundredth of a short turn.
    """

    __slots__ = ("_due", "_handle", "_looks_at", "_made", "_open")

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Timer]] = []  # a heap; those that were left stay until then, or for a while
        self._handle: asyncio.TimerHandle | None = None
        self._looks_at = 0.0
        self._made = 0
        self._open = 0

    def __len__(self) -> int:
        """How many are kept, those that were left included."""
        return len(self._due)

    def after(self, after_s: float, call: Callable[..., object], *args: object) -> Timer:
        """`with` it: it calls `call(*args)` after `after_s`, unless it was left before."""
        return Timer(self, after_s, partial(call, *args))

    def begin(self, timer: Timer, after_s: float) -> None:
        """For `Timer`: it is open from now on."""
        loop = asyncio.get_running_loop()
        when = loop.time() + after_s
        self._made += 1
        self._open += 1
        heappush(self._due, (when, self._made, timer))
        if self._handle is None or when < self._looks_at:
            if self._handle is not None:
                self._handle.cancel()
            self._handle, self._looks_at = loop.call_at(when, self._look), when

    def end(self) -> None:
        """For `Timer`: one is over."""
        self._open -= 1
        if len(self._due) > _MOST_LEFT + 2 * self._open:
            self._due = [due for due in self._due if due[2].call is not None]
            heapify(self._due)

    def _look(self) -> None:
        self._handle = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        try:
            while (due := self._due) and (due[0][0] <= now or due[0][2].call is None):
                call = heappop(due)[2].call
                if call is not None:
                    call()
        finally:  # whatever one of them raises, the others are still called
            if self._due and self._handle is None:
                self._looks_at = self._due[0][0]
                self._handle = loop.call_at(self._looks_at, self._look)


class Timer:
    """One of `Timers`."""

    __slots__ = ("_after_s", "_timers", "call")

    def __init__(self, timers: Timers, after_s: float, call: Callable[[], object]) -> None:
        self._timers = timers
        self._after_s = after_s
        self.call: Callable[[], object] | None = call

    def __enter__(self) -> None:
        self._timers.begin(self, self._after_s)

    def __exit__(self, *_: object) -> None:
        self.call = None
        self._timers.end()
