"""The conversations of one socket: lanes by name, who runs, who waits, and in which order. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from proxy.access.budget import Budget, Held
from proxy.conversation.chain import Node
from proxy.conversation.holding import Holding
from proxy.errors import Kind, LooplineError
from proxy.session.registry import RunningTurn, Subscriber
from proxy.session.state import TABLE, Action, Happened, State, Waiting
from proxy.session.steering import Steer
from proxy.session.turn import Turn
from proxy.wire.client_events import Create
from proxy.wire.codec import Raw, is_null

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,256}")
_STRING = msgspec.json.Decoder(str)


class Request(msgspec.Struct, frozen=True, eq=False):
    """Something that came for a lane: a create, or what is wrong with one, to be answered in its turn.

    `waits` says whether it takes room among those that wait. `steers` become part of its response; a `successor` was
    made for them, no client sent it. `received_s` is when it was there in full, `parsed_s` when it had been read.
    """

    what: Create | LooplineError
    size: int
    received_s: float
    waits: bool = False
    steers: tuple[Steer, ...] = ()
    successor: bool = False
    parsed_s: float | None = None


@dataclass(slots=True, eq=False)
class Lane:
    """One `stream_id`; the default lane's key is None.

    `latest` is the response it holds. `steers` are for the turn that runs, `owed` for the create that will answer the
    calls of the response named by `owed_by`. `steered` is the response that was steered last, until nothing waits: what
    waits may continue it. `spoke_s` is when something was last sent for it, `ended_s` when its last turn ended.
    """

    key: str | None
    state: State = State.IDLE
    latest: Node | None = None
    running: RunningTurn | None = None
    turn: Turn | None = None
    follower: Subscriber | None = None
    queue: list[Request] = field(default_factory=list)
    steers: list[Steer] = field(default_factory=list)
    owed: tuple[Steer, ...] = ()
    owed_by: str = ""
    steered: Node | None = None
    spoke_s: float = 0.0
    ended_s: float | None = None

    def moved(self, happened: Happened) -> Action:
        """The lane's next state; returns what is to be done."""
        self.state, action = TABLE[self.state, happened]
        return action

    def give_up_next(self, error: LooplineError) -> bool:
        """What would start next is answered with this error in its turn. False where there is nothing to give up."""
        if not self.queue or isinstance(self.queue[0].what, LooplineError):
            return False
        self.queue[0] = replace(self.queue[0], what=error)
        return True

    def ended(self) -> Happened:
        """How the end of its turn looks from here."""
        return Happened.ENDED_MORE_WAITING if self.queue else Happened.ENDED_NONE_WAITING


def read_name(raw: Raw | None) -> str | None:
    """A create's `stream_id`, None for the default lane. Raises `LooplineError` (invalid_stream_id)."""
    if raw is None or is_null(raw):
        return None
    try:
        name = _STRING.decode(raw)
    except msgspec.DecodeError:
        name = ""
    if _NAME.fullmatch(name):
        return name
    raise LooplineError(
        Kind.INVALID_STREAM_ID,
        "'stream_id' must be 1 to 256 of the characters A-Z, a-z, 0-9, '_', '-' and '.'; leave it out for the default "
        "lane.",
        param="stream_id",
    )


class Lanes:
    """All lanes of a socket. At most `max_running` turns run at once, at most `max_names` names are ever used."""

    __slots__ = ("_held", "_holding", "_lanes", "_max_running", "_ready", "_waiting", "max_names", "running")

    def __init__(self, max_names: int, max_running: int, waiting: Waiting, held: Held | None = None) -> None:
        """`held` counts what the lanes' conversations take."""
        self.max_names = max_names
        self._max_running = max_running
        self._waiting = waiting
        self._lanes: dict[str | None, Lane] = {}
        self._ready: list[Lane] = []
        self._holding = Holding()
        self._held = held or Held(Budget())
        self.running = 0

    def __iter__(self) -> Iterator[Lane]:
        return iter(self._lanes.values())

    def __len__(self) -> int:
        return len(self._lanes)

    def find(self, name: str | None) -> Lane | None:
        """The lane of that name, if it was ever used."""
        return self._lanes.get(name)

    def forks(self, lane: Lane, parent: str | None) -> bool:
        """Would a turn that continues `parent` leave the lane's own conversation, or another lane's, beside it?"""
        if parent is None or (lane.latest is not None and lane.latest.id == parent):
            return False
        return lane.latest is not None or any(each.latest is not None and each.latest.id == parent for each in self)

    def is_running(self, name: str | None) -> bool:
        """Does a turn run on the lane of that name?"""
        lane = self._lanes.get(name)
        return lane is not None and lane.running is not None

    def open(self, name: str | None) -> Lane:
        """The lane of that name. Raises `LooplineError` (stream_limit) for one name too many."""
        lane = self._lanes.get(name)
        if lane is None:
            named = len(self._lanes) - (None in self._lanes)
            if name is not None and named >= self.max_names:
                raise LooplineError(
                    Kind.STREAM_LIMIT,
                    f"This connection has used {self.max_names} distinct values of 'stream_id', the maximum "
                    "(limits.lanes); use one of them, or a new connection.",
                    param="stream_id",
                    limit="limits.lanes",
                )
            lane = self._lanes[name] = Lane(name)
        return lane

    def add(self, lane: Lane, request: Request) -> None:
        """A request for a lane. Raises `LooplineError` (queue_full) where it would have to wait and may not."""
        starts_now = lane.state is State.IDLE and not self._ready and self.running < self._max_running
        if not starts_now:
            self._waiting.add(request.size)
            request = replace(request, waits=True)
        lane.queue.append(request)
        self._enlist(lane, lane.moved(Happened.CREATE))

    def keep(self, lane: Lane, node: Node | None) -> None:
        """The lane holds this response now, or none; a lane whose socket is gone holds nothing any more."""
        before, lane.latest = lane.latest, None if lane.state is State.GONE else node
        if lane.latest is not None:
            self._holding.hold(lane.latest)
        if before is not None:
            self._holding.release(before)
        self._held.set(self._holding.bytes)

    def take(self) -> tuple[Lane, Request] | None:
        """The next lane that may start a turn, with its request; None while there is no room or nobody waits.

        Whoever takes calls `started` or `ended`.
        """
        if self.running >= self._max_running or not self._ready:
            return None
        lane = self._ready.pop(0)
        lane.moved(Happened.ROOM)
        request = lane.queue.pop(0)
        self._release(request)
        self.running += 1
        return lane, request

    def ended(self, lane: Lane) -> None:
        """The lane's turn is over, or its request was refused at once."""
        self.running -= 1
        lane.running, lane.turn, lane.follower = None, None, None  # or a quiet lane would keep its last request
        if not lane.queue:
            lane.steered = None
        self._enlist(lane, lane.moved(lane.ended()))

    def drop_waiting(self, lane: Lane) -> list[Request]:
        """Take what waits on a lane off it, for good; only for a lane that will get nothing more."""
        dropped = list(lane.queue)
        lane.queue.clear()
        for request in dropped:
            self._release(request)
        if lane in self._ready:
            self._ready.remove(lane)
        return dropped

    def lost(self, lane: Lane) -> Action:
        """The socket is gone."""
        self.drop_waiting(lane)
        action = lane.moved(Happened.SOCKET_LOST)
        self.keep(lane, None)
        return action

    def _enlist(self, lane: Lane, action: Action) -> None:
        if action is Action.ENLIST:
            self._ready.append(lane)

    def _release(self, request: Request) -> None:
        if request.waits:
            self._waiting.remove(request.size)
