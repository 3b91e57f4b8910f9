"""One WebSocket: a reader that never waits for a turn, lanes with a queue each, one writer."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable, Mapping

from msgspec.structs import replace

from proxy.access.budget import Held
from proxy.errors import Kind, LooplineError
from proxy.session import lifetime, steering
from proxy.session.followers import LaneFollower, LaneHolder
from proxy.session.joining import join_trace
from proxy.session.lanes import Lane, Lanes, Request, read_name
from proxy.session.limits import SessionLimits
from proxy.session.outbox import Outbox, Socket
from proxy.session.receiving import Receiving
from proxy.session.registry import Registry
from proxy.session.services import Caller, Services
from proxy.session.signal import Signal
from proxy.session.state import Action, Waiting
from proxy.session.steers import Steers
from proxy.session.turn import Turn
from proxy.telemetry.observer import SessionRecord, TurnRecord
from proxy.wire import ids
from proxy.wire.client_events import Create, parse_message
from proxy.wire.codec import Raw, encode
from proxy.wire.error_events import error_event

_RESTART = 1012  # the code after which clients connect again
_TIMING_HEADER = "x-responsesapi-include-timing-metrics"
_FLUSH_S = 2.0  # how long a socket that is to be closed may take for what was written to it
_KEEPALIVE = b'{"type":"keepalive"}'


class Session:
    """Serves one socket until it ends. `run` is the whole of it."""

    # Thousands of sockets are quiet: what each holds is counted (tests/integration/test_idle_sockets.py).
    __slots__ = (
        *("outbox", "record", "tells_timing"),
        *("_answered", "_caller", "_general", "_held", "_keepalive", "_key", "_lanes", "_leaving", "_limits"),
        *("_receiving", "_received_s", "_refusing", "_registry", "_rested", "_resting", "_services"),
        *("_socket", "_steers", "_waiting"),
    )

    def __init__(
        self, socket: Socket, caller: Caller, services: Services, registry: Registry, limits: SessionLimits
    ) -> None:
        self._socket = socket
        self._caller = caller
        self._services = services
        self._registry = registry
        self._general, self._key = limits, caller.grant.key
        self._limits = limits = limits.of(caller.grant)
        budget = caller.grant.account.budget
        self._held = outbox, nodes, steers = Held(budget), Held(budget), Held(budget)
        self.outbox = Outbox(socket, self._make_room, registry.tasks.spawn, outbox)
        self._waiting = Waiting(limits.queued_turns, limits.queued_bytes, budget)
        self._lanes = Lanes(limits.lanes, limits.running_turns, self._waiting, nodes)
        self._steers = Steers(self._lanes, self.outbox.send, limits.request, limits.queued_bytes, steers)
        self._received_s = 0.0  # when the latest message was there
        self._receiving = False  # is a create here that is still read?
        self._answered = False  # did the reader itself write since the last message?
        self._refusing: LooplineError | None = None  # what creates get once the socket is to be closed
        self._leaving: LooplineError | None = None  # what they will get from the moment on when nothing runs
        self._resting = Signal(is_set=True)  # while nothing runs
        self._rested = Signal()  # set once something has run and been the last
        self._keepalive: asyncio.TimerHandle | None = None
        self.tells_timing = caller.headers.get(_TIMING_HEADER, "").lower() == "true"
        self.record = SessionRecord(id="sess_" + secrets.token_hex(8), opened_s=services.clock(), client=caller.address)
        join_trace(self.record, caller.headers)

    # --- The socket's life -------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Read until the socket ends; then stop what runs for it."""
        self._services.observer.session_opened(self.record)
        expiry = self._expiry()
        try:
            while True:
                try:
                    if not await self._take_next():
                        return
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

    async def _take_next(self) -> bool:
        """One message; a function of its own, so that an idle socket does not hold on to its last one."""
        data = await self._socket.receive()
        if data is not None and (rest := self._take(data)) is not None:
            await rest  # before the next message: what came first is first in its lane
        return data is not None

    def _lose(self) -> None:
        if self._keepalive is not None:
            self._keepalive.cancel()
        left = [(lane.latest, lane.ended_s) for lane in self._lanes if lane.latest is not None]
        for lane in self._lanes:
            if self._lanes.lost(lane) is Action.STOP and lane.running is not None and lane.follower is not None:
                lane.running.unsubscribe(lane.follower)
        self._resting.set()
        self.outbox.close()
        for held in self._held:
            held.release()
        self.record.ended_s = now = self._services.clock()
        self.record.close_code = self._socket.close_code
        self.record.bytes_out = self.outbox.bytes_out
        self._services.observer.session_ended(self.record)
        if self._services.known is not None:
            for node, ended_s in left:  # when all is done, whatever comes of it
                self._services.known.leave(node, ended_s or now)

    def _expiry(self) -> asyncio.TimerHandle | None:
        if not self._limits.lifetime_s:
            return None
        after_s = lifetime.expires_after(self._limits.lifetime_s, secrets.randbelow(1000) / 1000)
        return asyncio.get_running_loop().call_later(after_s, self._expire)

    def _expire(self) -> None:
        error, grace_s = lifetime.expired(self._limits.lifetime_s), self._limits.lifetime_grace_s
        _ = self._registry.tasks.spawn(self._retire(error, grace_s, announce=True), f"retire {self.record.id}")

    async def drain(self, delay_s: float, grace_s: float) -> None:
        """Close for a restart: a busy socket as soon as nothing runs, an idle one after `delay_s`, any after `grace_s`.

        What comes meanwhile is still served, in the second half of `grace_s` refused: what runs shall have an end.
        """
        self._leaving = lifetime.restarting()
        no_more = asyncio.get_running_loop().call_later(grace_s / 2, self._leave)
        try:
            async with asyncio.timeout(grace_s):
                if self.idle:
                    await self._left_alone(delay_s)
                await self._resting.wait()
        except TimeoutError:
            pass  # what still runs is ended
        finally:
            no_more.cancel()
        await self.shut_down()

    @property
    def lanes(self) -> int:
        """How many names of lanes are in use."""
        return len(self._lanes)

    @property
    def lanes_used(self) -> tuple[Lane, ...]:
        """Its lanes, in the order in which they were first used; to be looked at, not touched."""
        return tuple(self._lanes)

    @property
    def idle(self) -> bool:
        """Does nothing run?"""
        return self._resting.is_set()

    async def _left_alone(self, delay_s: float) -> None:
        """Wait, at most until a create has come and was served."""
        self._rested.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self._rested.wait()

    def _leave(self) -> None:
        self._refusing = self._refusing or self._leaving

    async def shut_down(self) -> None:
        """End what runs with an event, then close so that the client connects elsewhere."""
        await self._retire(lifetime.restarting(), 0, announce=False)

    async def _retire(self, error: LooplineError, grace_s: float, *, announce: bool) -> None:
        self._refusing = error
        for lane in self._lanes:
            self._steers.give_up(lane, error.message)
            for request in self._lanes.drop_waiting(lane):
                self._refuse_waiting(lane, request, error)
        try:
            async with asyncio.timeout(grace_s):
                await self._resting.wait()
        except TimeoutError:
            for running in [lane.running for lane in self._lanes if lane.running is not None]:
                running.cancel(error)
            await self._resting.wait()
        if announce:
            self.outbox.send([error_event(error)])
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_S):
                await self.drained()
        await self._socket.close(error.close or _RESTART, error.message)

    # --- What clients send -------------------------------------------------------------------------------------------

    def _take(self, data: bytes) -> Awaitable[None] | None:
        """Returns what is left to do of a message that takes long."""
        self._received_s = self._services.clock()
        self.record.messages_in += 1
        self.record.bytes_in += len(data)
        try:
            self._caller.grant.check()
        except LooplineError as error:
            self.dismiss(error)
            return None
        if self._caller.grant.key is not self._key:
            self._rebind()
        if len(data) > self._limits.frame_bytes:
            raise LooplineError(
                Kind.MESSAGE_TOO_LARGE,
                f"The message has {len(data)} bytes, more than the {self._limits.frame_bytes} allowed "
                "(limits.frame_bytes).",
                limit="limits.frame_bytes",
            )
        kind, members = parse_message(data)
        handle = _HANDLERS.get(kind)
        if handle is None:
            raise LooplineError(
                Kind.UNKNOWN_EVENT,
                f"Unsupported event type '{kind[:100]}'; known are {', '.join(_HANDLERS)}.",
                param="type",
            )
        return handle(self, members, len(data))

    def _rebind(self) -> None:
        """The key has other limits than before."""
        self._key = self._caller.grant.key
        self._limits = limits = self._general.of(self._caller.grant)
        self._lanes.max_names, self._steers.limits = limits.lanes, limits.request

    def dismiss(self, error: LooplineError) -> None:
        """This client is served no longer: what runs ends with an event, then the socket is closed."""
        if self._refusing is None or self._refusing.kind is not error.kind:
            retiring = self._retire(error, 0, announce=True)
            _ = self._registry.tasks.spawn(retiring, f"dismiss {self.record.id}")
            self._refusing = error
            if error.limit:
                self._services.observer.limited(error.limit)

    def reject(self, error: LooplineError, stream_id: str | None = None) -> None:
        """An `error` event, on a named lane or the default one."""
        self.record.errors += 1
        if error.limit:
            self._services.observer.limited(error.limit)
        self._answer(error_event(error), stream_id)

    def refuse(self, lane: Lane, request: Request, error: LooplineError) -> None:
        """A request gets no response: whoever sent it is told, and the steers that it carried are given back."""
        if not request.successor:
            self.reject(error, lane.key)
        self._steers.give_back(lane, request.steers, error.message)

    def _refuse_waiting(self, lane: Lane, request: Request, error: LooplineError) -> None:
        """Refuse a create that waited: in its turn, or the error would seem to end the one that runs."""
        if lane.running is None:
            self.refuse(lane, request, error)
        else:
            lane.queue.append(replace(request, what=error, waits=False))

    def _answer(self, event: bytes, stream_id: str | None = None) -> None:
        self.outbox.send([event], stream_id)
        self._answered = True

    def _create(self, members: Mapping[str, Raw], size: int) -> Awaitable[None] | None:
        name, receiving = read_name(members.get("stream_id")), Receiving(self._services, self._caller, size)
        request = self._request(members, size, receiving)
        if receiving.is_long and isinstance(request.what, Create):
            return self._receive(name, request, request.what, receiving)
        self._enqueue(name, request)
        return None

    async def _receive(self, name: str | None, request: Request, create: Create, receiving: Receiving) -> None:
        self._receiving = True
        self._resting.clear()
        try:
            what = await receiving.rest_or_error(create)
        finally:
            self._receiving = False
        self._enqueue(name, replace(request, what=self._refusing or what, parsed_s=self._services.clock()))

    def _enqueue(self, name: str | None, request: Request) -> None:
        try:
            if self._refusing is not None and not self._lanes.is_running(name):
                raise self._refusing
            self._lanes.add(self._lanes.open(name), request)
        except LooplineError as error:
            self.reject(error, name)
        self._pump()

    def _request(self, members: Mapping[str, Raw], size: int, receiving: Receiving) -> Request:
        """What is wrong with a create is said in its turn: an error now would seem to end the one that runs."""
        received_s = self._received_s
        try:
            if self._refusing is not None:
                raise self._refusing
            create = receiving.read(members, self._limits.request)
            return Request(create, size, received_s, parsed_s=self._services.clock())
        except LooplineError as error:
            return Request(error.bare(), size, received_s)

    def _steer(self, members: Mapping[str, Raw], size: int) -> None:
        self._steers.take(members, size, self._refusing)
        self._answered = True

    def _cancel(self, members: Mapping[str, Raw], _size: int) -> None:
        named, name = steering.named(members, "response_id"), read_name(members.get("stream_id"))
        lane = self._lanes.find(name)
        if named:
            lane = next((each for each in self._lanes if each.running is not None and each.running.id == named), None)
        error = LooplineError(Kind.CANCELLED, "The response was cancelled.")
        if lane is not None and lane.running is not None:
            lane.running.cancel(error)
        elif lane is None or not lane.give_up_next(error):
            which = f" {named[:100]!r}" if named else ""
            error = LooplineError(
                Kind.RESPONSE_NOT_RUNNING, f"No response{which} runs on this connection.", param="response_id"
            )
            self.reject(error, name)

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
            lane, request = taken[0], self._steers.joined(*taken)
            if isinstance(request.what, LooplineError):
                self._decline(lane, request, request.what)  # raised here it would hold itself, and its request
                continue
            try:
                self._start(lane, request.what, request)
            except LooplineError as error:
                self._decline(lane, request, error)
        if not (self._lanes.running or self._receiving):
            self._resting.set()
            self._rested.set()
            self._leave()

    def _decline(self, lane: Lane, request: Request, error: LooplineError) -> None:
        self.refuse(lane, request, error)
        self._lanes.ended(lane)

    def _start(self, lane: Lane, create: Create, request: Request) -> None:
        grant = self._caller.grant
        grant.check()  # what waited was sent before
        lease = grant.account.begin_turn(request.size, self._services.clock())
        response = ids.response_id(create.parent_id)
        record = self._turn_record(response, create, request, lane)
        join_trace(record, self._caller.headers, create)
        holder = LaneHolder(self._lanes, lane, successor=request.successor)
        turn = Turn(self._services, self._caller, create, holder, record)
        lane.follower = LaneFollower(self, lane, request, record)
        lane.turn, lane.spoke_s = turn, self._services.clock()
        lane.running = self._registry.start(response, turn.run, lane.follower, lease)
        self._resting.clear()
        self.record.turns += 1
        if self._keepalive is None and self._limits.keepalive_s:
            self._arm_keepalive(self._limits.keepalive_s)

    def _turn_record(self, response: str, create: Create, request: Request, lane: Lane) -> TurnRecord:
        return TurnRecord(
            response=response,
            transport="websocket",
            received_s=request.received_s,
            model=create.model or "",
            parent=create.parent_id or "",
            session=self.record.id,
            request_id=self._caller.headers.get("x-request-id", ""),
            client=self._caller.address,
            items_in=len(create.items),
            bytes_in=request.size,
            parsed_s=request.parsed_s,
            previous_end_s=lane.ended_s,
            forked=self._lanes.forks(lane, create.parent_id),
        )

    def turn_ended(self, lane: Lane) -> None:
        """A lane's turn is over: the next one may start."""
        self._steers.settle(lane, self._refusing, self._services.clock())
        self._lanes.ended(lane)
        self._pump()

    # --- Room and quiet ----------------------------------------------------------------------------------------------

    def now(self) -> float:
        """Monotonic seconds."""
        return self._services.clock()

    @property
    def congested(self) -> bool:
        """Is more unsent than the socket should hold?"""
        return self.outbox.congested

    async def drained(self) -> None:
        """Wait for the client to make room; one that takes too long is dropped."""
        await self.outbox.drained()

    async def _make_room(self) -> None:
        try:
            async with asyncio.timeout(self._limits.stall_s):
                await self._socket.drained()
        except TimeoutError:
            self.record.reason = Kind.CLIENT_STALLED.value
            self.outbox.close()
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


_HANDLERS: Mapping[str, Callable[[Session, Mapping[str, Raw], int], Awaitable[None] | None]] = {
    "response.create": Session._create,
    "response.steer": Session._steer,
    "response.cancel": Session._cancel,
    "response.inject": Session._inject,
    "response.processed": Session._swallow,
}
