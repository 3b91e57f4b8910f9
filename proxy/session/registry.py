"""Running turns, and who follows them.

A turn belongs to the registry, not to a socket: it publishes its events without any transport's framing, sessions and
HTTP requests subscribe and add what their transport wants. A turn that loses its last subscriber is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from operator import attrgetter
from typing import Any, Protocol

from proxy.access.accounts import Lease
from proxy.errors import Kind, LooplineError
from proxy.session.tasks import Tasks

_CONGESTED = attrgetter("congested")


class Subscriber(Protocol):
    """Follows one turn. None of the calls may raise; only `drained` waits."""

    def deliver(self, events: Sequence[bytes]) -> None:
        """Events in order; the last delivery before `ended` holds the terminal one, unless the turn was refused."""
        ...

    def refused(self, error: LooplineError) -> None:
        """The turn failed before its first event."""
        ...

    def ended(self) -> None:
        """Nothing follows."""
        ...

    @property
    def congested(self) -> bool:
        """Should the turn wait before it reads more from its upstream?"""
        ...

    async def drained(self) -> None:
        """Returns when there is room again, or nobody to make room for."""
        ...


class RunningTurn:
    """One turn that runs, as its subscribers see it."""

    def __init__(
        self, response: str, subscriber: Subscriber, forget: Callable[[RunningTurn], None], lease: Lease | None = None
    ) -> None:
        self.id = response
        self.task: asyncio.Task[None] | None = None
        self.cancel_reason: LooplineError | None = None
        self.failure: LooplineError | None = None
        self._lease = lease
        self.events_out = 0
        self.bytes_out = 0
        self._subscribers: list[Subscriber] = [subscriber]
        self._forget = forget
        self._ended = False

    @property
    def congested(self) -> bool:
        """Is any subscriber congested?"""
        return any(map(_CONGESTED, self._subscribers))

    async def drained(self) -> None:
        """Wait for every subscriber to have room."""
        for subscriber in tuple(self._subscribers):
            await subscriber.drained()

    def publish(self, events: Sequence[bytes]) -> None:
        """Hand events to every subscriber."""
        self.events_out += len(events)
        self.bytes_out += sum(map(len, events))
        for subscriber in tuple(self._subscribers):
            subscriber.deliver(events)

    def refuse(self, error: LooplineError) -> None:
        """The turn failed before its first event."""
        for subscriber in tuple(self._subscribers):
            subscriber.refused(error)

    def grow(self, size: int) -> None:
        """The turn holds `size` bytes more until it ends."""
        if self._lease is not None:
            self._lease.grow(size)

    def subscribe(self, subscriber: Subscriber) -> None:
        """One more follows, from the next event on."""
        self._subscribers.append(subscriber)

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """Stop following; the last one to go cancels the turn."""
        if self._ended:
            return
        if subscriber in self._subscribers:
            self._subscribers.remove(subscriber)
        if not self._subscribers and self.task is not None:
            self.task.cancel()

    def cancel(self, reason: LooplineError) -> None:
        """End the turn early; its subscribers are told why."""
        self.cancel_reason = reason
        if self.task is not None:
            self.task.cancel()

    async def over(self) -> None:
        """Wait until its task has ended."""
        if self.task is not None:
            await asyncio.wait([self.task])

    def end(self) -> None:
        """The turn is over; further calls change nothing."""
        if self._ended:
            return
        self._ended = True
        self._forget(self)
        if self._lease is not None:
            self._lease.release()  # before anybody hears of the end: what follows may need the room
        subscribers, self._subscribers = self._subscribers, []
        for subscriber in subscribers:
            subscriber.ended()

    def task_ended(self) -> None:
        """A task cancelled before its first step never ran its own ending."""
        if not self._ended and self.cancel_reason is not None:
            self.refuse(self.cancel_reason)
        self.end()


class Registry:
    """All running turns by response id."""

    def __init__(self, tasks: Tasks) -> None:
        self.tasks = tasks
        self._turns: dict[str, RunningTurn] = {}
        self._closing = False

    def __len__(self) -> int:
        return len(self._turns)

    def start(
        self,
        response: str,
        run: Callable[[RunningTurn], Coroutine[Any, Any, None]],
        subscriber: Subscriber,
        lease: Lease | None = None,
    ) -> RunningTurn:
        """Run a turn; its end releases the lease. Raises `LooplineError` (shutting_down) once closing."""
        if self._closing:
            if lease is not None:
                lease.release()
            raise LooplineError(Kind.SHUTTING_DOWN, "The server is shutting down.")
        turn = RunningTurn(response, subscriber, self._forget, lease)
        self._turns[response] = turn
        turn.task = self.tasks.spawn(run(turn), f"turn {response}", turn.task_ended)
        return turn

    async def rested(self) -> None:
        """Wait until no turn runs."""
        while tasks := [turn.task for turn in self._turns.values() if turn.task is not None]:
            await asyncio.wait(tasks)

    async def aclose(self) -> None:
        """Refuse new turns, end the running ones, and wait for them."""
        self._closing = True
        for turn in tuple(self._turns.values()):
            turn.cancel(LooplineError(Kind.SHUTTING_DOWN, "The server is shutting down."))
        tasks = [turn.task for turn in self._turns.values() if turn.task is not None]
        if tasks:
            await asyncio.wait(tasks)

    def _forget(self, turn: RunningTurn) -> None:
        self._turns.pop(turn.id, None)
