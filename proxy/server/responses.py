"""`POST /v1/responses`: the same road by HTTP, as server-sent events or as one JSON document, or in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from aiohttp import web

from proxy.access.budget import Held
from proxy.errors import Kind, LooplineError
from proxy.server.body import BodyReader
from proxy.server.door import JSON, Door, error_response, go_elsewhere
from proxy.server.sending import HIGH_BYTES, send_json, write
from proxy.server.timing import timing_headers
from proxy.session.background import Backgrounds
from proxy.session.registry import Registry, RunningTurn
from proxy.session.services import Caller, NoHolder, Services
from proxy.session.turn import Turn
from proxy.telemetry.observer import TurnRecord
from proxy.wire import ids
from proxy.wire.client_events import Create, Limits, parse_create
from proxy.wire.codec import decode_object
from proxy.wire.sse import DONE_FRAME, append_frame

_COMMENT = b": keepalive\n\n"
_RESPONSE_MEMBER = b'"response":'


class ResponsesRoute:
    """Serves creates by HTTP."""

    def __init__(
        self,
        services: Services,
        registry: Registry,
        backgrounds: Backgrounds,
        door: Door,
        bodies: BodyReader,
        limits: Limits,
        *,
        stall_s: float,
        keepalive_s: float,
    ) -> None:
        self._services = services
        self._registry = registry
        self._backgrounds = backgrounds
        self._door = door
        self._bodies = bodies
        self._limits = limits
        self._stall_s = stall_s
        self._keepalive_s = keepalive_s
        self.draining = False

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Run one turn for one request; a client that leaves ends it, unless it is to run in the background."""
        caller = self._door.admit(request)
        if self.draining:
            return go_elsewhere()
        body = await self._bodies.json(request, caller.grant)
        received_s = self._services.clock()
        create = self._parsed(body, caller)
        response = ids.response_id(create.parent_id)
        record = TurnRecord(
            response=response,
            transport="http",
            received_s=received_s,
            request_id=caller.headers.get("x-request-id", ""),
            client=caller.address,
            model=create.model or "",
            parent=create.parent_id or "",
            items_in=len(create.items),
            bytes_in=create.size,
            parsed_s=self._services.clock(),
        )
        turn = Turn(self._services, caller, create, NoHolder(), record)
        lease = caller.grant.account.begin_turn(create.size, self._services.clock())
        follower = _Follower(Held(caller.grant.account.budget))
        if create.background:
            running = self._backgrounds.start(caller.tenant, response, turn, lease)
            running.subscribe(follower)
        else:
            running = self._registry.start(response, turn.run, follower, lease)
        try:
            if create.value("stream"):
                return await self._stream(request, follower, record)
            if create.background:
                return await self._begun(turn, follower, record)
            return await self._whole(request, running, follower, record)
        finally:
            running.unsubscribe(follower)
            follower.release()

    def _parsed(self, body: bytes, caller: Caller) -> Create:
        limits = self._limits._replace(tools=caller.grant.bound("tools", self._limits.tools))
        find = partial(self._services.terms.find, caller.tenant)
        return parse_create(decode_object(body, "The body"), len(body), limits, find, may_wait=True)

    def _times(self, record: TurnRecord) -> dict[str, str]:
        return timing_headers(record, self._services.clock())

    async def _begun(self, turn: Turn, follower: _Follower, record: TurnRecord) -> web.StreamResponse:
        """The response as it begins; what is wrong with the request is said here, not by polling."""
        await follower.wait()
        shown = turn.show()
        if follower.error is not None or shown is None:
            error = follower.error or LooplineError(Kind.INTERNAL, "The response did not begin.")
            return error_response(error, self._times(record))
        return web.Response(body=shown, content_type=JSON, headers=self._times(record))

    async def _stream(self, request: web.Request, follower: _Follower, record: TurnRecord) -> web.StreamResponse:
        await follower.wait()
        if follower.error is not None:
            # Nothing was sent yet: a status is worth more to a client's retries than an event.
            return error_response(follower.error, self._times(record))
        headers = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
        headers |= self._times(record)
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        with follower.kept_alive(self._keepalive_s):
            while not follower.done:
                await write(request, response, follower.take(), self._stall_s)
                await follower.wait()
        await write(request, response, [*follower.take(), DONE_FRAME], self._stall_s)
        await response.write_eof()
        return response

    async def _whole(
        self, request: web.Request, running: RunningTurn, follower: _Follower, record: TurnRecord
    ) -> web.StreamResponse:
        while not follower.done:
            follower.take()
            await follower.wait()
        failure = follower.error or running.failure
        if failure is not None:
            # Nothing was sent, however far the turn came: a client's retries look at the status.
            return error_response(failure, self._times(record))
        return await send_json(request, _response_of(follower.last), self._stall_s, self._times(record))


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
        if self._size > HIGH_BYTES:
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
