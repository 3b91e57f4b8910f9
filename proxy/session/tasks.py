"""The only place where tasks are made: each has a name and an owner that waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Tasks:
    """Owns tasks until they end. `crashed` is told of a task that raised."""

    def __init__(self, crashed: Callable[[str, BaseException], None]) -> None:
        self._crashed = crashed
        self._tasks: dict[asyncio.Task[None], Callable[[], None] | None] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(
        self, coroutine: Coroutine[Any, Any, None], name: str, ended: Callable[[], None] | None = None
    ) -> asyncio.Task[None]:
        """Run a coroutine as a task of this owner; `ended` is called once it is over, however it ended."""
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks[task] = ended
        task.add_done_callback(self._ended)
        return task

    async def aclose(self) -> None:
        """Cancel every task and wait until each has ended."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _ended(self, task: asyncio.Task[None]) -> None:
        ended = self._tasks.pop(task)
        if ended is not None:
            ended()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._crashed(task.get_name(), error)
