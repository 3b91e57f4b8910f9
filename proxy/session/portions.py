"""Requests of very many items are worked on in portions: no other client waits for more than one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator


class Portions:
    """Lets the event loop run between portions: of all such work of a process it does one at a time."""

    def __init__(self) -> None:
        self._turns = asyncio.Lock()

    async def do(self, work: Iterator[None]) -> None:
        """Do `work`, of whose steps each is followed by one portion at most. Raises what it raises."""
        for _ in work:
            async with self._turns:
                await asyncio.sleep(0)
