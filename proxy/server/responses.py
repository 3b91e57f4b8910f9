"""`POST /v1/responses`: the same road by HTTP, as server-sent events or as one JSON document, or in the background."""

from __future__ import annotations

from aiohttp import web

from proxy.access.budget import Held
from proxy.errors import Kind, LooplineError
from proxy.server.body import BodyReader
from proxy.server.door import JSON, Door, error_response, go_elsewhere
from proxy.server.following import Follower, stream
from proxy.server.sending import send_json
from proxy.server.timing import timing_headers
from proxy.session.background import Backgrounds
from proxy.session.joining import join_trace
from proxy.session.receiving import Receiving
from proxy.session.registry import Registry, RunningTurn
from proxy.session.services import Caller, NoHolder, Services
from proxy.session.turn import Turn
from proxy.telemetry.observer import TurnRecord
from proxy.wire import ids
from proxy.wire.client_events import Create, Limits
from proxy.wire.codec import decode_object

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
        create = await self._parsed(body, caller)
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
        join_trace(record, caller.headers, create)
        turn = Turn(self._services, caller, create, NoHolder(), record)
        account = caller.grant.account
        lease = account.begin_turn(create.size, self._services.clock(), background=create.background)
        follower = Follower(Held(account.budget))
        if create.background:
            running = self._backgrounds.start(caller, response, turn, lease)
            running.subscribe(follower)
        else:
            running = self._registry.start(response, turn.run, follower, lease)
        try:
            if create.value("stream"):
                return await stream(request, follower, self._stall_s, self._keepalive_s, lambda: self._times(record))
            if create.background:
                return await self._begun(turn, follower, record)
            return await self._whole(request, caller, running, follower, record)
        finally:
            running.unsubscribe(follower)
            follower.release()

    async def _parsed(self, body: bytes, caller: Caller) -> Create:
        limits = self._limits._replace(tools=caller.grant.bound("tools", self._limits.tools))
        receiving = Receiving(self._services, caller, len(body))
        create = receiving.read(decode_object(body, "The body"), limits, may_wait=True)
        return await receiving.rest(create) if receiving.is_long else create

    def _times(self, record: TurnRecord) -> dict[str, str]:
        return timing_headers(record, self._services.clock())

    async def _begun(self, turn: Turn, follower: Follower, record: TurnRecord) -> web.StreamResponse:
        """The response as it begins; what is wrong with the request is said here, not by polling."""
        await follower.wait()
        shown = turn.show()
        if follower.error is not None or shown is None:
            error = follower.error or LooplineError(Kind.INTERNAL, "The response did not begin.")
            return error_response(error, self._times(record))
        return web.Response(body=shown, content_type=JSON, headers=self._times(record))

    async def _whole(
        self, request: web.Request, caller: Caller, running: RunningTurn, follower: Follower, record: TurnRecord
    ) -> web.StreamResponse:
        while not follower.done:
            follower.take()
            follower.written()
            await follower.wait()
        failure = follower.error or running.failure
        if failure is not None:
            # Nothing was sent, however far the turn came: a client's retries look at the status.
            return error_response(failure, self._times(record))
        document, budget = _response_of(follower.last), caller.grant.account.budget
        return await send_json(request, document, self._stall_s, budget, self._times(record))


def _response_of(terminal: bytes) -> bytes:
    """The response object inside our own terminal event."""
    return terminal[terminal.index(_RESPONSE_MEMBER) + len(_RESPONSE_MEMBER) : -1]
