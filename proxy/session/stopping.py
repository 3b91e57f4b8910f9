"""Parts of a task: one that somebody else may end early, as `asyncio.timeout` does but without a timer; and one
with a timer.

They are classes, not generators: a turn enters each of them once, and that is a tenth of the cost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType


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


class Timer:
    """`with timer:` calls `call(*args)` after `after_s`, unless it was left before."""

    __slots__ = ("_after_s", "_args", "_call", "_handle")

    def __init__(self, after_s: float, call: Callable[..., object], *args: object) -> None:
        self._after_s = after_s
        self._call = call
        self._args = args

    def __enter__(self) -> None:
        self._handle = asyncio.get_running_loop().call_later(self._after_s, self._call, *self._args)

    def __exit__(self, *_: object) -> None:
        self._handle.cancel()
