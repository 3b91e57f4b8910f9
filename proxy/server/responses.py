"""`POST /v1/responses`: the same road by HTTP, as server-sent events or as one JSON document."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from aiohttp import web

from proxy.access.budget import Budget, Held
from proxy.access.gate import Grant
from proxy.errors import Kind, LooplineError
from proxy.server.door import JSON, Door, error_response
from proxy.session.registry import Registry, RunningTurn
from proxy.session.services import NoHolder, Services
from proxy.session.turn import Turn
from proxy.telemetry.observer import TurnRecord
from proxy.wire import ids
from proxy.wire.client_events import Create, Limits, parse_create
from proxy.wire.codec import decode_object
from proxy.wire.sse import DONE_FRAME, append_frame

_COMMENT = b": keepalive\n\n"
_HIGH_BYTES = 256 * 1024
_RESPONSE_MEMBER = b'"response":'


class ResponsesRoute:
    """Serves creates by HTTP."""

    def __init__(
        self,
        services: Services,
        registry: Registry,
        door: Door,
        limits: Limits,
        *,
        stall_s: float,
        keepalive_s: float,
        receive_s: float,
    ) -> None:
        self._services = services
        self._registry = registry
        self._door = door
        self._limits = limits
        self._stall_s = stall_s
        self._keepalive_s = keepalive_s
        self._receive_s = receive_s
        self.draining = False

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Run one turn for one request; a client that leaves ends it."""
        caller = self._door.admit(request)
        if self.draining:
            return _go_elsewhere()
        received_s = self._services.clock()
        account = caller.grant.account
        create = await self._read(request, caller.grant)
        response = ids.response_id(create.parent_id)
        record = TurnRecord(
            response=response,
            transport="http",
            received_s=received_s,
            request_id=caller.headers.get("x-request-id", ""),
            model=create.model or "",
            parent=create.parent_id or "",
            items_in=len(create.items),
            bytes_in=create.size,
        )
        turn = Turn(self._services, caller, create, NoHolder(), record)
        follower = _Follower(Held(account.budget))
        lease = account.begin_turn(create.size, self._services.clock())
        running = self._registry.start(response, turn.run, follower, lease)
        try:
            if create.values.get("stream"):
                return await self._stream(request, follower)
            return await self._whole(request, running, follower)
        finally:
            running.unsubscribe(follower)
            follower.release()

    async def _read(self, request: web.Request, grant: Grant) -> Create:
        if request.content_type != JSON:
            raise LooplineError(Kind.UNSUPPORTED_MEDIA, f"Content-Type must be {JSON}, not '{request.content_type}'.")
        encoding = request.headers.get("Content-Encoding", "identity").lower()
        if encoding != "identity":
            raise LooplineError(
                Kind.UNSUPPORTED_MEDIA, f"Content-Encoding '{encoding}' is not supported; send the body as it is."
            )
        budget = grant.account.budget
        budget.admit(request.content_length or 0)
        held = Held(budget)
        try:
            async with asyncio.timeout(self._receive_s):
                body = await _body(request, held, budget)
        except TimeoutError:
            raise LooplineError(
                Kind.SLOW_SENDER, f"The body was not there within {self._receive_s:g} s (server.receive_s)."
            ) from None
        finally:
            held.release()
        if len(body) > grant.bound("frame_bytes", len(body)):
            raise LooplineError(Kind.MESSAGE_TOO_LARGE, f"The body has {len(body)} bytes, more than this key may send.")
        limits = self._limits._replace(tools=grant.bound("tools", self._limits.tools))
        return parse_create(decode_object(body, "The body"), len(body), limits)

    async def _stream(self, request: web.Request, follower: _Follower) -> web.StreamResponse:
        await follower.wait()
        if follower.error is not None:
            # Nothing was sent yet: a status is worth more to a client's retries than an event.
            return error_response(follower.error)
        headers = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        with follower.kept_alive(self._keepalive_s):
            while not follower.done:
                await self._write(request, response, follower.take())
                await follower.wait()
        await self._write(request, response, [*follower.take(), DONE_FRAME])
        await response.write_eof()
        return response

    async def _write(
        self, request: web.Request, response: web.StreamResponse, frames: Sequence[bytes | memoryview]
    ) -> None:
        if not frames:
            return
        try:
            async with asyncio.timeout(self._stall_s):
                # Whole frames in one write: some parsers forget a frame that is split over two reads.
                await response.write(b"".join(frames))
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
            raise LooplineError(Kind.CLIENT_STALLED, "The client did not read for too long.") from None

    async def _whole(self, request: web.Request, running: RunningTurn, follower: _Follower) -> web.StreamResponse:
        while not follower.done:
            follower.take()
            await follower.wait()
        failure = follower.error or running.failure
        if failure is not None:
            # Nothing was sent, however far the turn came: a client's retries look at the status.
            return error_response(failure)
        body = memoryview(_response_of(follower.last))
        response = web.StreamResponse(headers={"Content-Type": f"{JSON}; charset=utf-8"})
        response.content_length = len(body)
        await response.prepare(request)
        for start in range(0, len(body), _HIGH_BYTES):
            await self._write(request, response, (body[start : start + _HIGH_BYTES],))
        await response.write_eof()
        return response


async def _body(request: web.Request, held: Held, budget: Budget) -> bytes:
    """The body, counted while it comes. Raises `LooplineError` (overloaded) once there is no room for more of it."""
    body = bytearray()
    async for chunk in request.content.iter_any():
        budget.admit()
        held.grow(len(chunk))
        body += chunk
        if len(body) > request.client_max_size:
            raise web.HTTPRequestEntityTooLarge(request.client_max_size, len(body))
    return bytes(body)


def _go_elsewhere() -> web.Response:
    """A connection that is kept would bring the client back here."""
    response = error_response(LooplineError(Kind.SHUTTING_DOWN, "The server is shutting down.", retry_after_s=1))
    response.force_close()
    return response


class _Follower:
    """The subscriber that keeps a turn's events until the handler has written them."""

    def __init__(self, held: Held) -> None:
        self._held = held
        self.error: LooplineError | None = None
        self.done = False
        self.last = b""
        self._frames: list[bytes] = []
        self._size = 0
        self._spoke_s = 0.0
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    def deliver(self, events: Sequence[bytes]) -> None:
        for event in events:
            append_frame(self._frames, event)
            self._size += len(event)
        self._held.set(self._size)
        self.last = events[-1]
        self._spoke_s = asyncio.get_running_loop().time()
        if self._size > _HIGH_BYTES:
            self._room.clear()
        self._news.set()

    def refused(self, error: LooplineError) -> None:
        self.error = error
        self._news.set()

    def ended(self) -> None:
        self.done = True
        self._news.set()

    @property
    def congested(self) -> bool:
        return not self._room.is_set()

    async def drained(self) -> None:
        await self._room.wait()

    @contextmanager
    def kept_alive(self, every_s: float) -> Iterator[None]:
        """While open, a comment stands in for events that do not come for `every_s` (0: never)."""
        if not every_s:
            yield
            return
        self._spoke_s = asyncio.get_running_loop().time()
        self._look_in(every_s, every_s)
        try:
            yield
        finally:
            self._timer.cancel()

    def _look_in(self, after_s: float, every_s: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(after_s, self._look, every_s)

    def _look(self, every_s: float) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._spoke_s >= every_s:
            self._frames.append(_COMMENT)
            self._news.set()
            self._spoke_s = now
        self._look_in(every_s - (now - self._spoke_s), every_s)

    async def wait(self) -> None:
        """Until there is something to take, or the turn is over."""
        await self._news.wait()
        if not self.done:
            self._news.clear()

    def take(self) -> list[bytes]:
        """What came since the last take, as frames."""
        taken, self._frames, self._size = self._frames, [], 0
        self._held.set(0)
        self._room.set()
        return taken

    def release(self) -> None:
        """Nobody reads any more."""
        self._held.release()


def _response_of(terminal: bytes) -> bytes:
    """The response object inside our own terminal event."""
    return terminal[terminal.index(_RESPONSE_MEMBER) + len(_RESPONSE_MEMBER) : -1]
