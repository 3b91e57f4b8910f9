"""One WebSocket: a reader that never waits for a turn, lanes with a queue each, one writer."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from proxy.conversation.chain import Node
from proxy.errors import Kind, LooplineError
from proxy.session.outbox import Outbox, Socket
from proxy.session.registry import Registry, RunningTurn, Subscriber
from proxy.session.state import TABLE, Action, Happened, State, Waiting
from proxy.session.turn import Caller, Services, Turn
from proxy.telemetry.observer import SessionRecord, TurnRecord
from proxy.wire import ids
from proxy.wire.client_events import Create, Limits, parse_create, parse_message
from proxy.wire.codec import Raw, encode
from proxy.wire.error_events import error_event

_GOING_AWAY = 1012  # service restart: the code after which clients connect again


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Bounds of one socket. Sizes are bytes, `stall_s` seconds that a client may take to make room."""

    frame_bytes: int
    queued_turns: int
    queued_bytes: int
    stall_s: float
    request: Limits


# A request that came for a lane: to be run, or already known to be wrong and to be answered in its turn.
_Request = tuple[Create | LooplineError, int, float]


@dataclass(slots=True)
class Lane:
    """One `stream_id`; the default lane's key is None. `latest` is the response it holds."""

    key: str | None
    state: State = State.IDLE
    latest: Node | None = None
    running: RunningTurn | None = None
    follower: Subscriber | None = None
    queue: deque[_Request] = field(default_factory=deque)


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
        self._outbox = Outbox(socket)
        self._lanes: dict[str | None, Lane] = {}
        self._open_lane(None)
        self._answered = False  # did the reader itself write since the last message?
        self._waiting = Waiting(limits.queued_turns, limits.queued_bytes)
        self.record = SessionRecord(id="sess_" + secrets.token_hex(8), opened_s=services.clock())

    async def run(self) -> None:
        """Read until the socket ends; then stop what runs for it."""
        self._services.observer.session_opened(self.record)
        try:
            while True:
                try:
                    data = await self._socket.receive()
                    if data is None:
                        return
                    self._take(data)
                except LooplineError as error:
                    self._reject(error)
                # A client that provokes answers and does not read them must not fill our memory.
                if self._answered and self._socket.congested:
                    await self.drained()
                self._answered = False
        finally:
            for lane in self._lanes.values():
                self._happened(lane, Happened.SOCKET_LOST)
            self.record.ended_s = self._services.clock()
            self.record.close_code = self._socket.close_code
            self.record.bytes_out = self._outbox.bytes_out
            self._services.observer.session_ended(self.record)

    async def shut_down(self) -> None:
        """End what runs with an error event, then close so that the client connects elsewhere."""
        reason = LooplineError(Kind.SHUTTING_DOWN, "The server is shutting down.")
        for lane in self._lanes.values():
            while lane.queue:
                self._waiting.remove(lane.queue.popleft()[1])
                self._reject(reason, lane.key)
            if lane.running is not None:
                lane.running.cancel(reason)
                await _over(lane.running)
        await self._socket.close(_GOING_AWAY, "server is shutting down")

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

    def _reject(self, error: LooplineError, stream_id: str | None = None) -> None:
        self.record.errors += 1
        self._answered = True
        self._outbox.send([error_event(error)], stream_id)

    def _create(self, members: Mapping[str, Raw], size: int) -> None:
        lane = self._lane(members)
        request: Create | LooplineError
        try:
            request = parse_create(members, size, self._limits.request)
        except LooplineError as error:
            request = error
        if lane.state is State.BUSY:
            self._waiting.add(size)
        lane.queue.append((request, size, self._services.clock()))
        self._happened(lane, Happened.CREATE)

    def _steer(self, members: Mapping[str, Raw], _size: int) -> None:
        error = {
            "type": "invalid_request_error",
            "code": "steering_not_supported",
            "message": "Steering is not supported.",
        }
        steer = {name: members[name] for name in ("previous_response_id", "input") if name in members}
        event = {"type": "response.steer.failed", "sequence_number": 0, "error": error, "steer": steer}
        self._outbox.send([encode(event)])
        self._answered = True

    def _swallow(self, members: Mapping[str, Raw], _size: int) -> None:
        """`response.processed` expects no answer: Codex would take one for its next turn's."""

    def _lane(self, members: Mapping[str, Raw]) -> Lane:
        stream_id = members.get("stream_id")
        if stream_id is not None and bytes(stream_id) != b"null":
            raise LooplineError(
                Kind.INVALID_STREAM_ID, "Named lanes are not served yet; leave 'stream_id' out.", param="stream_id"
            )
        return self._lanes[None]

    def _open_lane(self, key: str | None) -> Lane:
        lane = self._lanes[key] = Lane(key)
        lane.follower = _Follower(self, lane)
        return lane

    def _happened(self, lane: Lane, happened: Happened) -> None:
        action = self._moved(lane, happened)
        # A request that is refused at once ends as it starts; a loop, since many such may wait behind one another.
        while action in (Action.START, Action.START_NEXT) and not self._start(lane, action):
            action = self._moved(lane, _ended(lane))
        if action is Action.STOP:
            lane.queue.clear()
            if lane.running is not None and lane.follower is not None:
                lane.running.unsubscribe(lane.follower)

    def _moved(self, lane: Lane, happened: Happened) -> Action:
        lane.state, action = TABLE[lane.state, happened]
        return action

    def turn_ended(self, lane: Lane) -> None:
        """A lane's turn is over: the next one may start."""
        lane.running = None
        self._happened(lane, _ended(lane))

    def _start(self, lane: Lane, action: Action) -> bool:
        """Start the lane's next request; False where it was refused at once."""
        request, size, received_s = lane.queue.popleft()
        if action is Action.START_NEXT:
            self._waiting.remove(size)
        try:
            if isinstance(request, LooplineError):
                raise request
            self._run(lane, request, size, received_s)
        except LooplineError as error:
            self._reject(error, lane.key)
            return False
        return True

    def _run(self, lane: Lane, create: Create, size: int, received_s: float) -> None:
        record = self._turn_record(ids.response_id(create.parent_id), received_s, size)
        record.model, record.parent = create.model or "", create.parent_id or ""
        record.items_in = len(create.items)
        turn = Turn(self._services, self._caller, create, _LaneHolder(self._lanes, lane), record)
        assert lane.follower is not None
        lane.running = self._registry.start(record.response, turn.run, lane.follower)
        self.record.turns += 1

    def _turn_record(self, response: str, received_s: float, size: int) -> TurnRecord:
        return TurnRecord(
            response=response,
            transport="websocket",
            received_s=received_s,
            session=self.record.id,
            request_id=self._caller.headers.get("x-request-id", ""),
            bytes_in=size,
        )

    async def drained(self) -> None:
        """Wait for the client to make room; one that takes too long is dropped."""
        try:
            async with asyncio.timeout(self._limits.stall_s):
                await self._socket.drained()
        except TimeoutError:
            self.record.reason = Kind.CLIENT_STALLED.value
            self._socket.abort()


_HANDLERS: Mapping[str, Callable[[Session, Mapping[str, Raw], int], None]] = {
    "response.create": Session._create,
    "response.steer": Session._steer,
    "response.processed": Session._swallow,
}


class _Follower:
    """The subscriber that carries one lane's turn to the socket."""

    __slots__ = ("_lane", "_session")

    def __init__(self, session: Session, lane: Lane) -> None:
        self._session = session
        self._lane = lane

    def deliver(self, events: Sequence[bytes]) -> None:
        self._session._outbox.send(events, self._lane.key)

    def refused(self, error: LooplineError) -> None:
        self._session._reject(error, self._lane.key)

    def ended(self) -> None:
        self._session.turn_ended(self._lane)

    @property
    def congested(self) -> bool:
        return self._session._socket.congested

    async def drained(self) -> None:
        await self._session.drained()


class _LaneHolder:
    """A lane as a turn sees it: it reads from every lane of the socket and writes to its own."""

    __slots__ = ("_lane", "_lanes")

    def __init__(self, lanes: Mapping[str | None, Lane], lane: Lane) -> None:
        self._lanes = lanes
        self._lane = lane

    def find(self, response: str) -> Node | None:
        for lane in self._lanes.values():
            if lane.latest is not None and lane.latest.id == response:
                return lane.latest
        return None

    def advance(self, node: Node) -> None:
        self._lane.latest = node

    def evict(self, node: Node) -> None:
        if self._lane.latest is node:
            self._lane.latest = None


def _ended(lane: Lane) -> Happened:
    return Happened.ENDED_MORE_WAITING if lane.queue else Happened.ENDED_NONE_WAITING


async def _over(turn: RunningTurn) -> None:
    if turn.task is not None:
        await asyncio.wait([turn.task])
