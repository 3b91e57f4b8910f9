"""Turns that nobody needs to wait for: `background: true`.

Such a turn has a subscriber of its own that stays to its end, so that it outlives the request that began it, but not
the key that began it. While it runs it is found here, afterwards in the store, however it ended. The events of one that
was begun with `stream` are kept, so that a client that has lost its connection can come back for the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from proxy.access.accounts import Lease
from proxy.access.gate import Grant
from proxy.errors import Kind, LooplineError
from proxy.session.registry import Registry, RunningTurn, Subscriber
from proxy.session.replays import Replays
from proxy.session.services import Caller
from proxy.session.turn import Turn

_Key = tuple[str, str]


class Background:
    """One running turn. It reads whatever comes, and so never holds its upstream up.

    `events` are those so far, their sequence numbers counting from 0; None where they are not kept.
    """

    congested = False

    def __init__(self, turn: Turn, grant: Grant, forget: Callable[[], None]) -> None:
        self.turn = turn
        self.grant = grant
        self.events: list[bytes] | None = [] if turn.create.value("stream") else None
        self.running: RunningTurn | None = None
        self._forget = forget

    def deliver(self, events: Sequence[bytes]) -> None:
        """Nobody to tell: who asks gets the response as it is then, or what was kept."""
        if self.events is not None and self.running is not None:
            self.events += events
            self.running.grow(sum(map(len, events)))

    def refused(self, error: LooplineError) -> None:
        """Whoever asked for it is told by a subscription of their own."""

    def ended(self) -> None:
        self._forget()

    async def drained(self) -> None:
        """There is always room."""


class Backgrounds:
    """The background turns that run, by tenant and response id."""

    def __init__(self, registry: Registry, clock: Callable[[], float]) -> None:
        self._registry = registry
        self._clock = clock
        self._replays = Replays()
        self._running: dict[_Key, Background] = {}

    def __len__(self) -> int:
        return len(self._running)

    def start(self, caller: Caller, response: str, turn: Turn, lease: Lease) -> RunningTurn:
        """Run a turn, whose end releases the lease. Raises `LooplineError` (shutting_down)."""
        key = (caller.tenant, response)
        background = Background(turn, caller.grant, lambda: self._forget(key))
        background.running = running = self._registry.start(response, turn.run, background, lease)
        self._running[key] = background
        return running

    def find(self, tenant: str, response: str) -> Background | None:
        """The tenant's turn of that id, if it runs."""
        return self._running.get((tenant, response))

    def follow(self, tenant: str, response: str, subscriber: Subscriber, after: int) -> Callable[[], None] | None:
        """Tell a subscriber the events after that sequence number (-1: all), those to come included.

        Returns what ends that, None where the events are not kept.
        """
        key = (tenant, response)
        background = self._running.get(key)
        events = self._replays.find(key, self._clock()) if background is None else background.events
        if events is None:
            return None
        if missed := events[after + 1 :]:
            subscriber.deliver(missed)
        if background is None or background.running is None:
            subscriber.ended()
            return lambda: None
        running = background.running
        running.subscribe(subscriber)
        return lambda: running.unsubscribe(subscriber)

    def forget(self, tenant: str, response: str) -> None:
        """The response was deleted: its events go too."""
        self._replays.forget((tenant, response))

    async def cancel(self, tenant: str, response: str) -> bool:
        """End a turn and wait for its end; False where none of that id runs."""
        background = self.find(tenant, response)
        if background is None or background.running is None:
            return False
        background.running.cancel(LooplineError(Kind.CANCELLED, "The response was cancelled."))
        await background.running.over()
        return True

    def end_revoked(self) -> None:
        """End those whose key counts no longer; other keys of the tenant find them failed."""
        for background in tuple(self._running.values()):
            try:
                background.grant.check()
            except LooplineError:
                if background.running is not None:
                    background.running.cancel(
                        LooplineError(Kind.UNAUTHORIZED, "The key that began this response was revoked or has expired.")
                    )

    def end_all(self) -> None:
        """The server stops: whoever polls finds them failed."""
        for background in tuple(self._running.values()):
            if background.running is not None:
                background.running.cancel(
                    LooplineError(Kind.SHUTTING_DOWN, "The server shut down before the response was finished.")
                )

    def _forget(self, key: _Key) -> None:
        background = self._running.pop(key, None)
        if background is not None and background.events:
            self._replays.keep(key, background.events, self._clock())
