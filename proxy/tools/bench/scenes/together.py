"""Clients that work at once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any


async def together(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run coroutines at once; the first that fails ends the others and is raised by itself."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
