"""One WebSocket: a reader that never waits for a turn, lanes with a queue each, one writer."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from proxy.errors import Kind, LooplineError
from proxy.session import steering
from proxy.session.followers import LaneFollower, LaneHolder
from proxy.session.lanes import Lane, Lanes, Request, read_name
from proxy.session.outbox import Outbox, Socket
from proxy.session.registry import Registry
from proxy.session.state import Action, Waiting
from proxy.session.steering import SteerError
from proxy.session.turn import Caller, Services, Turn
from proxy.telemetry.observer import SessionRecord, TurnRecord
from proxy.wire import ids
from proxy.wire.client_events import Create, Limits, parse_create, parse_message
from proxy.wire.codec import Raw, encode
from proxy.wire.error_events import error_event

_RESTART = 1012  # the code after which clients connect again
_TIMING_HEADER = "x-responsesapi-include-timing-metrics"
_KEEPALIVE = b'{"type":"keepalive"}'


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Bounds of one socket. Sizes are bytes, times seconds.

    `stall_s` is what a client may take to make room, `lifetime_s` how long a socket lives (0: for ever) and
    `lifetime_grace_s` what a running turn may take beyond that. A turn silent for `keepalive_s` gets a text event
    (0: never).
    """

    frame_bytes: int = 64 * 1024 * 1024
    queued_turns: int = 64
    queued_bytes: int = 64 * 1024 * 1024
    lanes: int = 32
    running_turns: int = 16
    stall_s: float = 30.0
    lifetime_s: float = 3600.0
    lifetime_grace_s: float = 30.0
    keepalive_s: float = 25.0
    request: Limits = field(default_factory=Limits)


class Session:
    """Serves one socket until it ends. `run` is the whole of it."""

    def __init__(
        self, socket: Socket, caller: Caller, services: Services, registry: Registry, limits: SessionLimits
    ) -> None:
        self._socket = socket
        self._caller = caller
        self._services = services
        self._registry = registry
        self._limits = limits
        self.outbox = Outbox(socket)
        self._waiting = Waiting(limits.queued_turns, limits.queued_bytes)
        self._lanes = Lanes(limits.lanes, limits.running_turns, self._waiting)
        self._answered = False  # did the reader itself write since the last message?
        self._refusing: LooplineError | None = None  # what creates get once the socket is to be closed
        self._resting = asyncio.Event()
        self._resting.set()
        self._keepalive: asyncio.TimerHandle | None = None
        self.tells_timing = caller.headers.get(_TIMING_HEADER, "").lower() == "true"
        self.record = SessionRecord(id="sess_" + secrets.token_hex(8), opened_s=services.clock())

    # --- The socket's life -------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Read until the socket ends; then stop what runs for it."""
        self._services.observer.session_opened(self.record)
        expiry = self._expiry()
        try:
            while True:
                try:
                    data = await self._socket.receive()
                    if data is None:
                        return
                    self._take(data)
                except LooplineError as error:
                    self.reject(error)
                # A client that provokes answers and does not read them must not fill our memory.
                if self._answered and self.congested:
                    await self.drained()
                self._answered = False
        finally:
            if expiry is not None:
                expiry.cancel()
            self._lose()

    def _lose(self) -> None:
        if self._keepalive is not None:
            self._keepalive.cancel()
        for lane in self._lanes:
            if self._lanes.lost(lane) is Action.STOP and lane.running is not None and lane.follower is not None:
                lane.running.unsubscribe(lane.follower)
        self._resting.set()
        self.record.ended_s = self._services.clock()
        self.record.close_code = self._socket.close_code
        self.record.bytes_out = self.outbox.bytes_out
        self._services.observer.session_ended(self.record)

    def _expiry(self) -> asyncio.TimerHandle | None:
        lifetime_s = self._limits.lifetime_s
        if not lifetime_s:
            return None
        # Up to a tenth sooner, so that a fleet that connected as one does not come back as one.
        after_s = lifetime_s * (1 - 0.1 * secrets.randbelow(1000) / 1000)
        return asyncio.get_running_loop().call_later(after_s, self._expire)

    def _expire(self) -> None:
        minutes = self._limits.lifetime_s / 60
        error = LooplineError(
            Kind.CONNECTION_LIMIT,
            f"Responses websocket connection limit reached ({minutes:g} minutes). "
            "Create a new websocket connection to continue.",
        )
        grace_s = self._limits.lifetime_grace_s
        _ = self._registry.tasks.spawn(self._retire(error, grace_s, announce=True), f"retire {self.record.id}")

    async def drain(self, delay_s: float, grace_s: float) -> None:
        """Close for a restart: after `delay_s`, once nothing runs, at the latest after `grace_s`."""
        try:
            async with asyncio.timeout(grace_s):
                await asyncio.sleep(delay_s)
                await self._resting.wait()
        except TimeoutError:
            pass  # what still runs is ended
        await self.shut_down()

    async def shut_down(self) -> None:
        """End what runs with an event, then close so that the client connects elsewhere."""
        await self._retire(LooplineError(Kind.SHUTTING_DOWN, "The server is shutting down."), 0, announce=False)

    async def _retire(self, error: LooplineError, grace_s: float, *, announce: bool) -> None:
        self._refusing = error
        for lane in self._lanes:
            for _ in self._lanes.drop_waiting(lane):
                self.reject(error, lane.key)
        try:
            async with asyncio.timeout(grace_s):
                await self._resting.wait()
        except TimeoutError:
            for running in [lane.running for lane in self._lanes if lane.running is not None]:
                running.cancel(error)
            await self._resting.wait()
        if announce:
            self.outbox.send([error_event(error)])
        await self._socket.close(error.close or _RESTART, error.message)

    # --- What clients send -------------------------------------------------------------------------------------------

    def _take(self, data: bytes) -> None:
        self.record.messages_in += 1
        self.record.bytes_in += len(data)
        if len(data) > self._limits.frame_bytes:
            raise LooplineError(
                Kind.MESSAGE_TOO_LARGE,
                f"The message has {len(data)} bytes, more than the {self._limits.frame_bytes} allowed "
                "(limits.frame_bytes).",
            )
        kind, members = parse_message(data)
        handle = _HANDLERS.get(kind)
        if handle is None:
            raise LooplineError(
                Kind.UNKNOWN_EVENT,
                f"Unsupported event type '{kind[:100]}'; known are {', '.join(_HANDLERS)}.",
                param="type",
            )
        handle(self, members, len(data))

    def reject(self, error: LooplineError, stream_id: str | None = None) -> None:
        """An `error` event, on a named lane or the default one."""
        self.record.errors += 1
        self._answer(error_event(error), stream_id)

    def _answer(self, event: bytes, stream_id: str | None = None) -> None:
        self.outbox.send([event], stream_id)
        self._answered = True

    def _create(self, members: Mapping[str, Raw], size: int) -> None:
        name = read_name(members.get("stream_id"))
        try:
            if self._refusing is not None:
                raise self._refusing
            lane = self._lanes.open(name)
            self._lanes.add(lane, self._request(members, size))
        except LooplineError as error:
            self.reject(error, name)
        self._pump()

    def _request(self, members: Mapping[str, Raw], size: int) -> Request:
        """What is wrong with a create is said in its turn: an error now would seem to end the one that runs."""
        received_s = self._services.clock()
        try:
            return Request(parse_create(members, size, self._limits.request), size, received_s)
        except LooplineError as error:
            return Request(error, size, received_s)

    def _steer(self, members: Mapping[str, Raw], size: int) -> None:
        target = steering.named(members, "previous_response_id")
        lane = next((lane for lane in self._lanes if lane.running is not None and lane.running.id == target), None)
        try:
            steer = steering.read_steer(members, size, self._limits.request)
            if lane is None or lane.turn is None:
                known = any(each.latest is not None and each.latest.id == target for each in self._lanes)
                if known:
                    raise SteerError("response_already_completed", f"Response '{target[:100]}' has already completed.")
                raise SteerError("response_not_found", f"No response '{target[:100]}' runs on this connection.")
            if len(lane.steers) >= steering.MAX_STEERS:
                raise SteerError("too_many_pending_steers", f"More than {steering.MAX_STEERS} steers wait already.")
            if not lane.turn.create.generate:
                raise SteerError("response_not_active", "A warm-up generates nothing that could be steered.")
        except SteerError as error:
            self._answer(steering.failed_event(members, error), lane.key if lane else None)
            return
        lane.steers.append(steer)
        self._answer(steering.accepted_event(steer), lane.key)
        lane.turn.steer()

    def _cancel(self, members: Mapping[str, Raw], _size: int) -> None:
        named = steering.named(members, "response_id")
        lane = self._lanes.find(read_name(members.get("stream_id")))
        if named:
            lane = next((each for each in self._lanes if each.running is not None and each.running.id == named), None)
        if lane is None or lane.running is None:
            raise LooplineError(
                Kind.RESPONSE_NOT_RUNNING,
                f"No response{f' {named[:100]!r}' if named else ''} runs on this connection.",
                param="response_id",
            )
        lane.running.cancel(LooplineError(Kind.CANCELLED, "The response was cancelled."))

    def _inject(self, members: Mapping[str, Raw], _size: int) -> None:
        error = {
            "type": "invalid_request_error",
            "code": "response_not_found",
            "message": "No response here waits for injected input.",
        }
        given = {name: members[name] for name in ("response_id", "input") if name in members}
        self._answer(encode({"type": "response.inject.failed", "sequence_number": 0, "error": error, **given}))

    def _swallow(self, members: Mapping[str, Raw], _size: int) -> None:
        """`response.processed` expects no answer: Codex would take one for its next turn's."""

    # --- Turns -------------------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Start what may start; a loop, since many refusals may wait behind one another."""
        while (taken := self._lanes.take()) is not None:
            lane, request = taken
            try:
                if isinstance(request.what, LooplineError):
                    raise request.what
                self._start(lane, request.what, request)
            except LooplineError as error:
                self.reject(error, lane.key)
                self._lanes.ended(lane)
        if not self._lanes.running:
            self._resting.set()

    def _start(self, lane: Lane, create: Create, request: Request) -> None:
        create = self._with_owed(lane, create)
        response = ids.response_id(create.parent_id)
        record = self._turn_record(response, create, request)
        turn = Turn(self._services, self._caller, create, LaneHolder(self._lanes, lane), record)
        lane.follower = LaneFollower(self, lane, record)
        lane.turn, lane.spoke_s = turn, self._services.clock()
        lane.running = self._registry.start(response, turn.run, lane.follower)
        self._resting.clear()
        self.record.turns += 1
        if self._keepalive is None and self._limits.keepalive_s:
            self._arm_keepalive(self._limits.keepalive_s)

    def _turn_record(self, response: str, create: Create, request: Request) -> TurnRecord:
        return TurnRecord(
            response=response,
            transport="websocket",
            received_s=request.received_s,
            model=create.model or "",
            parent=create.parent_id or "",
            session=self.record.id,
            request_id=self._caller.headers.get("x-request-id", ""),
            items_in=len(create.items),
            bytes_in=request.size,
        )

    def turn_ended(self, lane: Lane) -> None:
        """A lane's turn is over: the next one may start."""
        steered = lane.running.id if lane.running is not None else ""
        create = lane.turn.create if lane.turn is not None else None
        if lane.steers and create is not None:
            self._settle_steers(lane, steered, create)
        self._lanes.ended(lane)
        self._pump()

    def _settle_steers(self, lane: Lane, steered: str, create: Create) -> None:
        """The steered response is over: go on from it, or wait for the outputs of its calls, or give the input back."""
        steers, lane.steers = lane.steers, []
        node = lane.latest
        if node is None or node.id != steered or self._refusing is not None:
            error = SteerError("successor_creation_failed", "The response ended in a way that cannot be continued.")
            self.outbox.send([steering.given_back(steer, error) for steer in steers], lane.key)
        elif node.open_calls:
            lane.owed, lane.owed_by = steers, node.id
            self.outbox.send([steering.pending_event(steer, node) for steer in steers], lane.key)
        else:
            following = steering.successor(create, node, steers)
            lane.queue.appendleft(Request(following, following.size, self._services.clock()))

    def _with_owed(self, lane: Lane, create: Create) -> Create:
        if not lane.owed:
            return create
        steers, lane.owed = lane.owed, []
        if create.parent_id == lane.owed_by:
            return steering.with_owed(create, steers)
        error = SteerError("successor_creation_failed", "The lane went on without answering the response's calls.")
        self.outbox.send([steering.given_back(steer, error) for steer in steers], lane.key)
        return create

    # --- Room and quiet ----------------------------------------------------------------------------------------------

    def now(self) -> float:
        """Monotonic seconds."""
        return self._services.clock()

    @property
    def congested(self) -> bool:
        """Is more unsent than the socket should hold?"""
        return self._socket.congested

    async def drained(self) -> None:
        """Wait for the client to make room; one that takes too long is dropped."""
        try:
            async with asyncio.timeout(self._limits.stall_s):
                await self._socket.drained()
        except TimeoutError:
            self.record.reason = Kind.CLIENT_STALLED.value
            self._socket.abort()

    def _arm_keepalive(self, after_s: float) -> None:
        self._keepalive = asyncio.get_running_loop().call_later(after_s, self._keep_alive)

    def _keep_alive(self) -> None:
        """One timer a socket, armed while anything runs: it speaks for each lane that was silent for too long."""
        self._keepalive = None
        now, every_s = self._services.clock(), self._limits.keepalive_s
        running = [lane for lane in self._lanes if lane.running is not None]
        for lane in running:
            if now - lane.spoke_s >= every_s:
                self.outbox.send([_KEEPALIVE], lane.key)
                lane.spoke_s = now
        if running:
            self._arm_keepalive(every_s - (now - min(lane.spoke_s for lane in running)))


_HANDLERS: Mapping[str, Callable[[Session, Mapping[str, Raw], int], None]] = {
    "response.create": Session._create,
    "response.steer": Session._steer,
    "response.cancel": Session._cancel,
    "response.inject": Session._inject,
    "response.processed": Session._swallow,
}
