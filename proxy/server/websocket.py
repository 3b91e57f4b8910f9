"""`GET /v1/responses` with an upgrade: the socket, on aiohttp.

aiohttp parses what clients send, answers their pings and sends ours; frames to the client are written here, many in
one write.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial

from aiohttp import WebSocketError, WSMsgType, web
from aiohttp.http_websocket import WSMessageNoDecodeText
from aiohttp.web_protocol import RequestHandler

from proxy.access.budget import Held
from proxy.errors import Kind, LooplineError
from proxy.server.door import Door
from proxy.server.handshake import agreed_compression, refused_handshake
from proxy.server.inflating import Inflating, TooFar
from proxy.session.registry import Registry
from proxy.session.services import Caller, Services
from proxy.session.session import Session, SessionLimits
from proxy.session.signal import Signal
from proxy.wire.frame_watch import Content, FrameWatch
from proxy.wire.frames import close_frame
from proxy.wire.message_inflater import NotDeflated

_CLOSE_TIMEOUT_S = 5.0
# A client that answers no ping for so many intervals is taken for gone.
_PONG_INTERVALS = 3
# After so many messages the event loop has its turn: others are not to wait for a flood that is there already.
_MESSAGES_AT_ONCE = 16
_ABNORMAL = 1006
_PROTOCOL_ERROR, _INVALID_DATA = 1002, 1007


class WebSocketRoute:
    """Serves upgrades; `sessions` are those that live."""

    def __init__(
        self,
        services: Services,
        registry: Registry,
        door: Door,
        limits: SessionLimits,
        *,
        enabled: bool,
        ping_interval_s: float,
        frame_hard_bytes: int,
        outbox_bytes: int,
        receive_s: float,
    ) -> None:
        self._services = services
        self._registry = registry
        self._door = door
        self._limits = limits
        self._enabled = enabled
        self._ping_interval_s = ping_interval_s
        self._frame_hard_bytes = frame_hard_bytes
        self._outbox_bytes = outbox_bytes
        self._receive_s = receive_s
        self._inflating = asyncio.Lock()
        self._draining = False
        self.sessions: set[Session] = set()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Upgrade and serve the socket until it ends."""
        caller = self._door.admit(request)
        wanted = {token.strip().lower() for token in request.headers.get("Upgrade", "").split(",")}
        if "websocket" not in wanted:
            raise LooplineError(Kind.WEBSOCKET_OFF, "GET on this path is for a WebSocket upgrade; use POST for HTTP.")
        if (refused := refused_handshake(request)) is not None:
            return refused
        if not self._enabled:
            # 426 sends Codex and pi to HTTP at once; any other status costs them seconds of retries.
            raise LooplineError(Kind.WEBSOCKET_OFF, "WebSocket is switched off here (server.websocket); use POST.")
        if self._draining:
            raise LooplineError(Kind.SHUTTING_DOWN, "The server is shutting down.", retry_after_s=1)
        with caller.grant.account.connection():
            return await self._serve(request, caller)

    async def _serve(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        compression = agreed_compression(request)
        socket: web.WebSocketResponse[bool] = web.WebSocketResponse(
            heartbeat=self._ping_interval_s,
            max_msg_size=self._frame_hard_bytes + 1,  # at which aiohttp closes; `FrameWatch` comes before it
            compress=False,  # as far as aiohttp knows
            decode_text=False,
            autoclose=False,
            autoping=False,  # it would answer as many pings as there are without a break
            timeout=_CLOSE_TIMEOUT_S,
        )
        socket.headers.update(compression)
        # aiohttp gives a pong half an interval: less than an agent whose tool blocks its event loop may need.
        socket._pong_heartbeat = _PONG_INTERVALS * self._ping_interval_s
        assert request.transport is not None
        watch = FrameWatch(self._frame_hard_bytes, deflate=bool(compression))
        held = Held(caller.grant.account.budget)
        watched = _Watched(request.transport, request.protocol, watch, held, self._receive_s)
        try:
            await socket.prepare(request)
            await self._run(request, socket, caller, watched)
        finally:
            watched.close()
        return socket

    async def _run(
        self, request: web.Request, socket: web.WebSocketResponse[bool], caller: Caller, watched: _Watched
    ) -> None:
        assert request.transport is not None
        request.transport.set_write_buffer_limits(high=self._outbox_bytes, low=self._outbox_bytes // 4)
        grant = caller.grant
        frame_bytes = partial(grant.bound, "frame_bytes", self._limits.frame_bytes)
        inflating = Inflating(self._inflating, grant.account.budget, frame_bytes, self._frame_hard_bytes)
        session = Session(
            _AiohttpSocket(socket, request, watched, inflating), caller, self._services, self._registry, self._limits
        )
        self.sessions.add(session)
        try:
            watched.begin(session.dismiss)
            await session.run()
        finally:
            self.sessions.discard(session)

    async def drain(self, grace_s: float) -> None:
        """Take no more sockets, and end those that live, idle ones spread over half of `grace_s`."""
        self._draining = True
        idle_first = sorted(self.sessions, key=lambda session: not session.idle)
        spread_s = grace_s / 2 / max(1, sum(session.idle for session in idle_first))
        await asyncio.gather(*(session.drain(spread_s * number, grace_s) for number, session in enumerate(idle_first)))

    async def aclose(self) -> None:
        """End every session."""
        await asyncio.gather(*(session.shut_down() for session in tuple(self.sessions)))


class _Watched(asyncio.Protocol):
    """Stands between a transport and aiohttp's protocol: judges frames, counts what has come of a message and times it.

    aiohttp tells of a message when it is whole; a client that sends a byte a minute would never be heard of. It lets
    frames without a mask pass, inflates in one go, and closes at a message that is too large without a word. The
    session is told to dismiss a client whose message takes longer than `receive_s`.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        protocol: RequestHandler,
        watch: FrameWatch,
        held: Held,
        receive_s: float,
    ) -> None:
        self.watch = watch
        self._dismiss: Callable[[LooplineError], None] | None = None
        self._transport = transport
        self._protocol = protocol
        self._held = held
        self._receive_s = receive_s
        self._timer: asyncio.TimerHandle | None = None
        # What came with the handshake waits with aiohttp for the parser, which it would reach unwatched.
        self._early, protocol._message_tail = protocol._message_tail, b""
        transport.set_protocol(self)

    def begin(self, dismiss: Callable[[LooplineError], None]) -> None:
        """The session is there; what came before it is taken now."""
        self._dismiss = dismiss
        early, self._early = self._early, b""
        if early:
            self.data_received(early)

    def data_received(self, data: bytes) -> None:
        if self._dismiss is None:
            self._early += data
            return
        if self.watch.unread:  # its turn comes
            self.watch.unread += data
            self._transport.pause_reading()
            return
        self._take(data)

    def _take(self, data: bytes) -> None:
        handed = self.watch.feed(data)
        if self.watch.unread:
            self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._read_on)
        if self.watch.begun and not self.watch.deaf:
            self._held.set(self.watch.bytes)
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(self._receive_s, self._late)
        else:
            self._quiet()
        if handed:
            self._protocol.data_received(handed)

    def _read_on(self) -> None:
        data, self.watch.unread = self.watch.unread, b""
        if data:
            self._take(data)
        if not self.watch.unread and not self._protocol._reading_paused:
            self._transport.resume_reading()

    def refuse(self) -> None:
        """A message is larger than what a socket lives through."""
        allowed = f"the {self.watch.max_bytes} bytes after which a socket is closed (limits.frame_hard_bytes)"
        message = f"A message is larger than {allowed}."
        self._end(LooplineError(Kind.MESSAGE_TOO_LARGE, message, limit="limits.frame_hard_bytes"))

    def eof_received(self) -> bool | None:
        self._protocol.eof_received()
        return None

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self.close()
        self._protocol.connection_lost(exc)

    def close(self) -> None:
        """The socket is aiohttp's alone again."""
        self._transport.set_protocol(self._protocol)
        self.watch.unread = b""  # nobody is left who could be told of it
        self._quiet()
        self._held.release()

    def _quiet(self) -> None:
        self._held.set(0)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        message = f"A message was not there within {self._receive_s:g} s (server.receive_s)."
        self._end(LooplineError(Kind.SLOW_SENDER, message, limit="server.receive_s"))

    def _end(self, error: LooplineError) -> None:
        """The client is told, and nothing of what it still sends is taken."""
        self.watch.deaf = True
        self._quiet()
        assert self._dismiss is not None
        self._dismiss(error)


class _AiohttpSocket:
    """A `Socket` (session/outbox.py)."""

    def __init__(
        self, socket: web.WebSocketResponse[bool], request: web.Request, watched: _Watched, inflating: Inflating
    ) -> None:
        assert request.transport is not None
        self._socket = socket
        self._protocol = request.protocol
        self._transport = request.transport
        self._watched = watched
        self._inflating = inflating
        self._sent_code: int | None = None
        self._at_once = 0  # messages since the event loop last had its turn
        self._given_up = False  # are further messages not to be looked at?
        self._told = Signal()  # why the socket is closed
        self._lingering: asyncio.Event | None = None  # set once the client has closed its side

    async def receive(self) -> bytes | None:
        while True:
            message = await self._next()
            if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                break
            content = self._watched.watch.contents.popleft()
            if self._given_up:
                continue
            data = message.data if content is Content.PLAIN else await self._made_out(content, message.data)
            if data is not None and message.type is WSMsgType.BINARY:
                raise LooplineError(Kind.BINARY_FRAME, "Binary messages are not supported; send JSON in text messages.")
            if data is not None:
                return bytes(data)
        if message.type is WSMsgType.ERROR and isinstance(message.data, WebSocketError):
            self._sent_code = self._sent_code or message.data.code  # aiohttp would say 1006
        if message.type is WSMsgType.CLOSE and self._lingering is None:
            self._sent_code = self._sent_code or _answer_to(message.data)
            await self._socket.close(code=_answer_to(message.data), drain=False)
        elif self._lingering is not None:
            self._transport.close()  # or aiohttp would send a close of its own
            self._lingering.set()
        return None

    async def _next(self) -> WSMessageNoDecodeText:
        """What comes next that is no ping and no pong."""
        while True:
            message = await self._socket.receive()
            self._at_once += 1
            if self._at_once >= _MESSAGES_AT_ONCE:
                self._at_once = 0
                await asyncio.sleep(0)
            if message.type is WSMsgType.PING:
                with contextlib.suppress(ConnectionError):  # that the connection is lost is what comes next
                    await self._socket.pong(message.data)
            elif message.type is not WSMsgType.PONG:
                return message

    async def _made_out(self, content: Content, data: bytes) -> bytes | None:
        """A message as it was before it was compressed; None where the socket is to be closed for it."""
        if content is Content.DEFLATED:
            try:
                return await self._inflating.whole(data)
            except NotDeflated:
                self._fail(_INVALID_DATA)
                return None
            except TooFar:
                pass
        self._given_up = True
        self._watched.refuse()
        await self._told.wait()  # first of all, even if the client's close is the next thing that came
        return None

    def _fail(self, code: int) -> None:
        """Close at once: nothing that this client sends can be read any more."""
        self._given_up = True
        self._sent_code = self._sent_code or code
        self.write(close_frame(code))
        self._transport.close()

    def write(self, data: bytes) -> None:
        # Nothing may follow a close frame, ours or the answer to the client's.
        if not (self._socket.closed or self._lingering is not None or self._transport.is_closing()):
            self._transport.write(data)

    @property
    def congested(self) -> bool:
        return self._protocol.writing_paused

    async def drained(self) -> None:
        # As aiohttp's own `_drain_helper`, but shielded: all who wait share one future, and a turn that is cancelled
        # while it waits would cancel it for every other waiter and for every later one.
        protocol = self._protocol
        if not protocol.writing_paused or protocol.transport is None:
            return
        waiter = protocol._drain_waiter
        if waiter is None or waiter.done():
            waiter = protocol._drain_waiter = asyncio.get_running_loop().create_future()
        with contextlib.suppress(ConnectionError):  # a lost connection has nobody left to make room for
            await asyncio.shield(waiter)

    async def close(self, code: int, reason: str) -> None:
        self._sent_code = self._sent_code or code
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self.drained()
                if self._watched.watch.deaf:
                    await self._linger(close_frame(code, reason))
                else:
                    await self._socket.close(code=code, message=reason.encode(), drain=False)
        except TimeoutError:
            self._transport.abort()  # a client that does not read would hold up whoever closes

    async def _linger(self, frame: bytes) -> None:
        """Close, and hear the client out: a connection that is closed while it still sends is reset, and it might never
        read why.
        """
        self.write(frame)
        self._given_up = True
        self._lingering = asyncio.Event()
        self._told.set()
        await self._lingering.wait()

    def abort(self) -> None:
        self._transport.abort()

    @property
    def close_code(self) -> int | None:
        # Where the server closes, aiohttp would say 1000: the reader is woken before the client has answered.
        code = self._socket.close_code if self._sent_code is None else self._sent_code
        if code is None:
            return _ABNORMAL if self._transport.is_closing() else None
        return int(code)


def _answer_to(code: int) -> int:
    """The code that answers a client's close: its own, if it gave one that may cross the wire."""
    # aiohttp refuses the other codes that may not, and would answer any with 1000.
    return _PROTOCOL_ERROR if code == _ABNORMAL or code >= 5000 else code or 1000
