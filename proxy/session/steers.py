"""The steers of one socket: from the message that brings one until a response has it or its input is given back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from proxy.access.budget import Held
from proxy.errors import LooplineError
from proxy.session import steering
from proxy.session.lanes import Lane, Lanes, Request
from proxy.session.steering import Steer, SteerError
from proxy.wire.client_events import Create, Limits
from proxy.wire.codec import Raw

MAX_STEERS = 16


class Steers:
    """Takes steers, and settles them when the response that they steer ends.

    `send` sends an event on a lane. `max_bytes` bounds what waits on all lanes together.
    """

    __slots__ = ("_held", "_lanes", "_max_bytes", "_send", "limits")

    def __init__(
        self,
        lanes: Lanes,
        send: Callable[[Sequence[bytes], str | None], None],
        limits: Limits,
        max_bytes: int,
        held: Held,
    ) -> None:
        self._lanes = lanes
        self._send = send
        self.limits = limits
        self._max_bytes = max_bytes
        self._held = held

    def take(self, members: Mapping[str, Raw], size: int, refusing: LooplineError | None) -> None:
        """A `response.steer`; `refusing` is what creates get, on a socket that starts nothing any more."""
        target = steering.named(members, "previous_response_id")
        lane = next((lane for lane in self._lanes if lane.running is not None and lane.running.id == target), None)
        try:
            steer = steering.read_steer(members, size, self.limits)
            turn = self._check(lane, steer, refusing).turn
            assert turn is not None
            assert lane is not None
        except SteerError as error:
            self._send([steering.failed_event(members, error)], lane.key if lane else None)
            return
        lane.steers.append(steer)
        self._count()
        self._send([steering.accepted_event(steer)], lane.key)
        turn.steer()

    def _check(self, lane: Lane | None, steer: Steer, refusing: LooplineError | None) -> Lane:
        """The lane, if a response runs there that can be steered now."""
        if lane is None or lane.turn is None:
            name = steer.target[:100]
            if any(each.latest is not None and each.latest.id == steer.target for each in self._lanes):
                raise SteerError("response_already_completed", f"Response '{name}' has already completed.")
            raise SteerError("response_not_found", f"No response '{name}' runs on this connection.")
        if not lane.turn.create.generate:
            raise SteerError("response_not_active", "A warm-up generates nothing that could be steered.")
        if refusing is not None:
            raise SteerError("successor_creation_failed", refusing.message)
        if len(lane.steers) >= MAX_STEERS:
            raise SteerError("too_many_pending_steers", f"More than {MAX_STEERS} steers wait already.")
        if steer.size + self._waiting_bytes() > self._max_bytes:
            raise SteerError(
                "too_many_pending_steers",
                f"The steers that wait on this connection exceed {self._max_bytes} bytes (limits.queued_bytes).",
            )
        return lane

    def _waiting_bytes(self) -> int:
        return sum(each.size for lane in self._lanes for each in (*lane.steers, *lane.owed))

    def _count(self) -> None:
        self._held.set(self._waiting_bytes())

    def settle(self, lane: Lane, refusing: LooplineError | None, now: float) -> None:
        """The lane's turn is over: go on from it, or wait for the outputs of its calls, or give the input back."""
        if not lane.steers or lane.turn is None or lane.running is None:
            return
        steers, lane.steers = tuple(lane.steers), []
        self._count()
        node = lane.latest
        if node is None or node.id != lane.running.id:
            self.give_back(lane, steers, "The response ended in a way that cannot be continued.")
        elif refusing is not None:
            self.give_back(lane, steers, refusing.message)
        elif node.open_calls:
            lane.owed, lane.owed_by = steers, node.id
            self._count()
            self._send([steering.pending_event(steer, node) for steer in steers], lane.key)
        else:
            following = steering.successor(lane.turn.create, node, steers)
            lane.steered = node
            lane.queue.insert(0, Request(following, following.size, now, steers=steers, successor=True))

    def joined(self, lane: Lane, request: Request) -> Request:
        """A request that is about to start, with the steers that waited for it."""
        if not lane.owed or not isinstance(request.what, Create):
            return request
        steers, lane.owed = lane.owed, ()
        self._count()
        if request.what.parent_id != lane.owed_by:
            self.give_back(lane, steers, "The lane went on without answering the response's calls.")
            return request
        return replace(request, what=steering.with_owed(request.what, steers), steers=steers)

    def give_back(self, lane: Lane, steers: Sequence[Steer], message: str) -> None:
        """These steers did not become part of any response."""
        error = SteerError("successor_creation_failed", message)
        if steers:
            self._send([steering.given_back(steer, error) for steer in steers], lane.key)

    def give_up(self, lane: Lane, message: str) -> None:
        """The create that the lane's steers wait for cannot come any more."""
        steers, lane.owed = lane.owed, ()
        self._count()
        self.give_back(lane, steers, message)
