"""What may happen on a lane, as a table, and the bounds on what may wait. No I/O.

`docs/lanes.md` draws its diagram from `TABLE`; a test compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from proxy.access.budget import Budget
from proxy.errors import Kind, LooplineError


class State(Enum):
    """A lane: nothing to do, waiting for room among the running turns, running one, or its socket is gone."""

    __hash__ = object.__hash__  # that of Enum is a call for each look into the table

    IDLE = "idle"
    READY = "ready"
    BUSY = "busy"
    GONE = "gone"


class Happened(Enum):
    """What happens to a lane. The end of a turn is two events, since what follows depends on the queue."""

    __hash__ = object.__hash__  # that of Enum is a call for each look into the table

    CREATE = "create"
    ROOM = "room for a turn"
    ENDED_MORE_WAITING = "ended, more waiting"
    ENDED_NONE_WAITING = "ended, none waiting"
    SOCKET_LOST = "socket lost"


class Action(Enum):
    """What the session does about it."""

    ENLIST = "enlist"
    QUEUE = "queue"
    START = "start"
    REST = "rest"
    STOP = "stop"


# A missing key is an event that cannot happen in that state: a bug of ours, never a client's doing.
TABLE: Mapping[tuple[State, Happened], tuple[State, Action]] = {
    (State.IDLE, Happened.CREATE): (State.READY, Action.ENLIST),
    (State.READY, Happened.CREATE): (State.READY, Action.QUEUE),
    (State.READY, Happened.ROOM): (State.BUSY, Action.START),
    (State.BUSY, Happened.CREATE): (State.BUSY, Action.QUEUE),
    # Behind the other lanes that wait for room, so that a lane with a long queue takes no more than its share.
    (State.BUSY, Happened.ENDED_MORE_WAITING): (State.READY, Action.ENLIST),
    (State.BUSY, Happened.ENDED_NONE_WAITING): (State.IDLE, Action.REST),
    (State.IDLE, Happened.SOCKET_LOST): (State.GONE, Action.REST),
    (State.READY, Happened.SOCKET_LOST): (State.GONE, Action.STOP),
    (State.BUSY, Happened.SOCKET_LOST): (State.GONE, Action.STOP),
    (State.GONE, Happened.ENDED_MORE_WAITING): (State.GONE, Action.REST),
    (State.GONE, Happened.ENDED_NONE_WAITING): (State.GONE, Action.REST),
    (State.GONE, Happened.SOCKET_LOST): (State.GONE, Action.REST),
}


def diagram() -> str:
    """The table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {State.IDLE.value}"]
    for (state, happened), (after, action) in TABLE.items():
        lines.append(f"    {state.value} --> {after.value}: {happened.value} / {action.value}")
    return "\n".join(lines) + "\n"


class Waiting:
    """The creates of one socket that wait, counted and bounded."""

    __slots__ = ("_budget", "_max_bytes", "_max_turns", "bytes", "turns")

    def __init__(self, max_turns: int, max_bytes: int, budget: Budget | None = None) -> None:
        self._budget = budget or Budget()
        self._max_turns = max_turns
        self._max_bytes = max_bytes
        self.turns = 0
        self.bytes = 0

    def add(self, size: int) -> None:
        """One more waits. Raises `LooplineError` (queue_full, overloaded) where that is too many."""
        if self.turns + 1 > self._max_turns:
            raise LooplineError(
                Kind.QUEUE_FULL,
                f"More than {self._max_turns} requests wait on this connection (limits.queued_turns); "
                "wait for a response to end.",
                retry_after_s=1,
                limit="limits.queued_turns",
            )
        if self.bytes + size > self._max_bytes:
            raise LooplineError(
                Kind.QUEUE_FULL,
                f"The requests that wait on this connection exceed {self._max_bytes} bytes (limits.queued_bytes); "
                "wait for a response to end.",
                retry_after_s=1,
                limit="limits.queued_bytes",
            )
        self._budget.admit(size)
        self._budget.add(size)
        self.turns += 1
        self.bytes += size

    def remove(self, size: int) -> None:
        """One no longer waits."""
        self._budget.add(-size)
        self.turns -= 1
        self.bytes -= size
