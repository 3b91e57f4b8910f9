"""One client's WebSocket after its upgrade: what stands between its transport and its session.

aiohttp parses what clients send, one message at a time; a socket that says nothing keeps no parser. Frames to the
client are written here, many in one write.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial

from aiohttp import EofStream, WebSocketError, WSMsgType
from aiohttp._websocket.reader import WebSocketDataQueue
from aiohttp.http_websocket import WebSocketReader, WSMessageNoDecodeText

from proxy.access.budget import Held
from proxy.access.gate import Grant
from proxy.errors import Kind, LooplineError
from proxy.server.heartbeat import Heartbeat
from proxy.server.inflating import Inflating, TooFar
from proxy.session.session import Session
from proxy.session.signal import Signal
from proxy.wire.frame_watch import Content, FrameWatch
from proxy.wire.frames import close_frame
from proxy.wire.message_inflater import NotDeflated

_CLOSE_TIMEOUT_S = 5.0
# After so many messages the event loop has its turn: others are not to wait for a flood that is there already.
_MESSAGES_AT_ONCE = 16
_QUEUE_BYTES = 256 * 1024  # of parsed messages that wait; at twice as many no more is read
_ABNORMAL = 1006
_PROTOCOL_ERROR, _INVALID_DATA = 1002, 1007
_PING, _PONG = b"\x89\x00", 0x8A


@dataclass(frozen=True, slots=True)
class SocketRules:
    """What holds for every socket of a server. Sizes are bytes, times seconds.

    A message of more than `frame_hard_bytes` closes its socket, one that is not whole after `receive_s` too. `turns`
    as in `Inflating`.
    """

    frame_bytes: int
    frame_hard_bytes: int
    outbox_bytes: int
    receive_s: float
    heartbeat: Heartbeat
    turns: asyncio.Lock = field(default_factory=asyncio.Lock)


class ClientSocket(asyncio.Protocol):
    """A `Socket` (session/outbox.py), and the protocol of its transport.

    It judges frames, counts what has come of a message and times it before the parser gets it: that tells of a message
    when it is whole, so a client that sends a byte a minute would never be heard of; it lets frames without a mask
    pass, inflates in one go, and closes at a message that is too large without a word.
    """

    __slots__ = (
        *("heard_s", "pinged_s", "watch"),
        *("_at_once", "_deadline", "_ended", "_given_up", "_gone", "_grant", "_held", "_inflating", "_lingers"),
        *("_lost", "_queue"),
        *("_reader", "_reading_paused", "_room", "_rules", "_sent_code", "_session", "_timer", "_told", "_transport"),
        "_waiter",
    )

    def __init__(self, transport: asyncio.Transport, grant: Grant, rules: SocketRules, *, deflate: bool) -> None:
        self._transport = transport
        self._grant = grant
        self._rules = rules
        self._session: Session | None = None
        self.watch = FrameWatch(rules.frame_hard_bytes, deflate=deflate)
        self.heard_s, self.pinged_s = asyncio.get_running_loop().time(), 0.0
        self._sent_code: int | None = None
        self._at_once = 0  # messages since the event loop last had its turn
        self._given_up = False  # are further messages not to be looked at?
        self._lingers = False  # is the client heard out after our close?
        self._ended = False  # does nothing come any more, and nothing leave?
        self._lost = False
        self._reading_paused = False  # because of what waits parsed
        # All of these are there only while somebody needs them.
        self._queue: WebSocketDataQueue | None = None
        self._reader: WebSocketReader | None = None
        self._waiter: asyncio.Future[None] | None = None  # for the first bytes of a message
        self._held: Held | None = None  # for the bytes of a message that is not whole
        self._timer: asyncio.TimerHandle | None = None  # for the rest of that message
        self._inflating: Inflating | None = None
        self._room: Signal | None = None  # while the client does not read
        self._told: Signal | None = None  # why the socket is closed
        self._gone: Signal | None = None
        self._deadline: asyncio.TimerHandle | None = None  # for what is still sent once the session is over

    def begin(self, session: Session, early: bytes) -> None:
        """The session is there; what came before it is taken now."""
        self._session = session
        self._transport.set_protocol(self)
        self._transport.set_write_buffer_limits(high=self._rules.outbox_bytes, low=self._rules.outbox_bytes // 4)
        self._rules.heartbeat.add(self)
        if early:
            self.data_received(early)

    def end(self) -> None:
        """The session is over: close the connection, if it is not."""
        self._stop()
        self._session = None
        if not self._lost and self._deadline is None:
            # A client that does not read what it is still sent would keep it here for ever, one that has closed its
            # side too. What TLS has handed on to its own transport is not told, so that everybody gets a deadline.
            self._deadline = asyncio.get_running_loop().call_later(_CLOSE_TIMEOUT_S, self._transport.abort)
        self._transport.close()

    # --- What comes --------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self.heard_s = asyncio.get_running_loop().time()
        if self.watch.unread:  # its turn comes
            self.watch.unread += data
            self._transport.pause_reading()
        elif not self._ended:
            self._take(data)

    def _take(self, data: bytes) -> None:
        watch = self.watch
        handed = watch.feed(data)
        if watch.unread:
            self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._read_on)
        if watch.begun and not watch.deaf:
            if watch.bytes <= len(data) - len(watch.unread):
                self._quiet()  # it began with this read; the time of the one before it is not its own
            self._count()
        elif self._held is not None:
            self._quiet()
        if handed:
            self._parse(handed)

    def _read_on(self) -> None:
        data, self.watch.unread = self.watch.unread, b""
        if data and not self._ended:
            self._take(data)
        if not self.watch.unread and not self._reading_paused:
            self._read_more()

    def _parse(self, data: bytes) -> None:
        if self._reader is None:
            self._queue = WebSocketDataQueue(self, _QUEUE_BYTES, loop=asyncio.get_running_loop())  # type: ignore[arg-type]
            # At that size it closes; `FrameWatch` comes before it. Of compression it knows nothing.
            size = self._rules.frame_hard_bytes + 1
            self._reader = WebSocketReader(self._queue, size, compress=False, decode_text=False)
        failed, _ = self._reader.feed_data(data)
        if failed:
            self.watch.broken = True
        self._wake()

    def _count(self) -> None:
        if self._held is None:
            self._held = Held(self._grant.account.budget)
            self._timer = asyncio.get_running_loop().call_later(self._rules.receive_s, self._late)
        self._held.set(self.watch.bytes)

    def _quiet(self) -> None:
        if self._held is not None:
            self._held.release()
        if self._timer is not None:
            self._timer.cancel()
        self._held = self._timer = None

    def pause_reading(self) -> None:
        """Too much waits parsed."""
        self._reading_paused = True
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """It no longer does."""
        self._reading_paused = False
        if not self.watch.unread:
            self._read_more()

    def _read_more(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        self._room = Signal()

    def resume_writing(self) -> None:
        room, self._room = self._room, None
        if room is not None:
            room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._stop()
        self.resume_writing()
        if self._gone is not None:
            self._gone.set()

    def _stop(self) -> None:
        """Nothing comes any more, and nothing leaves; the reader is told."""
        self._ended = True
        self.watch.unread = b""
        self._quiet()
        self._rules.heartbeat.remove(self)
        if self._queue is not None:
            self._queue.feed_eof()
        self._queue = self._reader = None  # they know this socket
        if self._inflating is not None:
            self._inflating.given_up = True
        if self._told is not None:
            self._told.set()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # --- Messages ----------------------------------------------------------------------------------------------------

    async def receive(self) -> bytes | None:
        while (message := await self._next()) is not None:
            content = self.watch.contents.pop(0)
            if self._given_up:
                continue
            data = message.data if content is Content.PLAIN else await self._made_out(content, message.data)
            if data is not None and message.type is WSMsgType.BINARY:
                raise LooplineError(Kind.BINARY_FRAME, "Binary messages are not supported; send JSON in text messages.")
            if data is not None:
                return bytes(data)
        return None

    async def _next(self) -> WSMessageNoDecodeText | None:
        """The next message that is no control frame; None once the socket is closed or lost."""
        while (message := await self._frame()) is not None:
            self._at_once += 1
            if self._at_once >= _MESSAGES_AT_ONCE:
                self._at_once = 0
                await asyncio.sleep(0)
            if message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
                return message
            if message.type is WSMsgType.PING:
                self.write(bytes((_PONG, len(message.data))) + message.data)
                await self.drained()  # or a client that reads no pongs would fill our memory
            elif message.type is WSMsgType.CLOSE:
                self._answer_close(message.data)
        return None

    async def _frame(self) -> WSMessageNoDecodeText | None:
        """Whatever comes next; None where nothing does."""
        if self._is_quiet():
            self._queue = self._reader = None
        while self._queue is None and not self._ended:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        try:
            message: WSMessageNoDecodeText | None = await self._queue.read() if self._queue is not None else None
        except EofStream:
            return None
        except WebSocketError as error:
            self._fail(error.code)
            return None
        return None if self._ended else message

    def _is_quiet(self) -> bool:
        """Has everything that came been parsed and taken?"""
        queue = self._queue
        if queue is None or queue._size or queue.exception() is not None or queue._stalled_reader is not None:
            return False
        return not (self.watch.begun or self.watch.unread)

    async def _made_out(self, content: Content, data: bytes) -> bytes | None:
        """A message as it was before it was compressed; None where the socket is to be closed for it."""
        if content is Content.DEFLATED:
            try:
                data = await self._inflated(data)
                return None if self._ended else data
            except NotDeflated:
                self._fail(_INVALID_DATA)
                return None
            except TooFar:
                pass
        if not (self._given_up or self._ended):
            self._given_up, self._told = True, Signal()
            self._refuse()
            await self._told.wait()  # first of all, even if the client's close is the next thing that came
        return None

    async def _inflated(self, data: bytes) -> bytes:
        if self._inflating is None:
            rules, grant = self._rules, self._grant
            frame_bytes = partial(grant.bound, "frame_bytes", rules.frame_bytes)
            self._inflating = Inflating(rules.turns, grant.account.budget, frame_bytes, rules.frame_hard_bytes)
        return await self._inflating.whole(data)

    # --- What leaves -------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        # Nothing may follow a close frame, ours or the answer to the client's.
        if not (self._ended or self._lingers or self._transport.is_closing()):
            self._transport.write(data)

    def ping(self) -> None:
        self.write(_PING)

    @property
    def congested(self) -> bool:
        return self._room is not None

    async def drained(self) -> None:
        if self._room is not None:
            await self._room.wait()

    # --- The end -----------------------------------------------------------------------------------------------------

    def _refuse(self) -> None:
        """A message is larger than what a socket lives through."""
        allowed = f"the {self.watch.max_bytes} bytes after which a socket is closed (limits.frame_hard_bytes)"
        message = f"A message is larger than {allowed}."
        self._dismiss(LooplineError(Kind.MESSAGE_TOO_LARGE, message, limit="limits.frame_hard_bytes"))

    def _late(self) -> None:
        message = f"A message was not there within {self._rules.receive_s:g} s (server.receive_s)."
        self._dismiss(LooplineError(Kind.SLOW_SENDER, message, limit="server.receive_s"))

    def _dismiss(self, error: LooplineError) -> None:
        """The client is told, and nothing of what it still sends is taken."""
        self.watch.deaf = True
        self._quiet()
        assert self._session is not None
        self._session.dismiss(error)

    def _answer_close(self, code: int) -> None:
        if self._lingers:  # ours has left already
            self.end()
        else:
            self._fail(_answer_to(code))

    def _fail(self, code: int) -> None:
        """Close at once: nothing that this client sends is read any more."""
        self._sent_code = self._sent_code or code
        self._given_up = True
        self.write(close_frame(code))
        self.end()

    async def close(self, code: int, reason: str) -> None:
        self._sent_code = self._sent_code or code
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self.drained()
                self.write(close_frame(code, reason))
                if self.watch.deaf:
                    self._linger()
                else:
                    self.end()
                if not self._lost:
                    self._gone = self._gone or Signal()
                    await self._gone.wait()
        except TimeoutError:
            self._transport.abort()  # a client that does not read would hold up whoever closes

    def _linger(self) -> None:
        """Hear the client out: a connection that is closed while it sends is reset, and it might never read why."""
        self._given_up = self._lingers = True
        if self._told is not None:
            self._told.set()

    def abort(self) -> None:
        self._transport.abort()

    @property
    def close_code(self) -> int | None:
        """How the socket was closed; None while it is open."""
        if self._sent_code is None:
            return _ABNORMAL if self._transport.is_closing() else None
        return int(self._sent_code)


def _answer_to(code: int) -> int:
    """The code that answers a client's close: its own, if it gave one that may cross the wire."""
    # The parser refuses the other codes that may not.
    return _PROTOCOL_ERROR if code == _ABNORMAL or code >= 5000 else code or 1000
