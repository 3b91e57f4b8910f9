"""Turns that nobody needs to wait for: `background: true`.

Such a turn has a subscriber of its own that stays to its end, so that it outlives the request that began it. While it
runs it is found here, afterwards in the store, however it ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from proxy.access.accounts import Lease
from proxy.errors import Kind, LooplineError
from proxy.session.registry import Registry, RunningTurn
from proxy.session.turn import Turn

_Key = tuple[str, str]


class Background:
    """One running turn. It reads whatever comes, and so never holds its upstream up."""

    congested = False

    def __init__(self, turn: Turn, forget: Callable[[], None]) -> None:
        self.turn = turn
        self.running: RunningTurn | None = None
        self._forget = forget

    def deliver(self, events: Sequence[bytes]) -> None:
        """Nobody to tell: who asks gets the response as it is then."""

    def refused(self, error: LooplineError) -> None:
        """Whoever asked for it is told by a subscription of their own."""

    def ended(self) -> None:
        self._forget()

    async def drained(self) -> None:
        """There is always room."""


class Backgrounds:
    """The background turns that run, by tenant and response id; at most `limit`."""

    def __init__(self, registry: Registry, limit: int) -> None:
        self._registry = registry
        self._limit = limit
        self._running: dict[_Key, Background] = {}

    def __len__(self) -> int:
        return len(self._running)

    def start(self, tenant: str, response: str, turn: Turn, lease: Lease) -> RunningTurn:
        """Run a turn, whose end releases the lease.

        Raises `LooplineError`: queue_full where too many run, shutting_down.
        """
        if len(self._running) >= self._limit:
            lease.release()
            raise LooplineError(
                Kind.QUEUE_FULL,
                f"{self._limit} responses run in the background already (limits.background_turns); "
                "wait for one to end, or leave 'background' out.",
                param="background",
                retry_after_s=5,
                limit="limits.background_turns",
            )
        key = (tenant, response)
        background = Background(turn, lambda: self._forget(key))
        background.running = running = self._registry.start(response, turn.run, background, lease)
        self._running[key] = background
        return running

    def find(self, tenant: str, response: str) -> Background | None:
        """The tenant's turn of that id, if it runs."""
        return self._running.get((tenant, response))

    async def cancel(self, tenant: str, response: str) -> bool:
        """End a turn and wait for its end; False where none of that id runs."""
        background = self.find(tenant, response)
        if background is None or background.running is None:
            return False
        background.running.cancel(LooplineError(Kind.CANCELLED, "The response was cancelled."))
        await background.running.over()
        return True

    def end_all(self) -> None:
        """The server stops: whoever polls finds them failed."""
        for background in tuple(self._running.values()):
            if background.running is not None:
                background.running.cancel(
                    LooplineError(Kind.SHUTTING_DOWN, "The server shut down before the response was finished.")
                )

    def _forget(self, key: _Key) -> None:
        self._running.pop(key, None)
