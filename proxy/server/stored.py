"""What clients do with a response that they know by its id, and the count of tokens: `/v1/responses/…` but for creates.

A response that is not the caller's, was not stored, was deleted or never was: all the same 404.
"""

from __future__ import annotations

import asyncio

from aiohttp import web

from proxy.access.budget import Held
from proxy.conversation.chain import Node
from proxy.conversation.listing import Context, context_of, paging
from proxy.errors import Kind, LooplineError
from proxy.server.body import BodyReader
from proxy.server.door import JSON, Door
from proxy.server.following import Follower, stream
from proxy.server.sending import send_json
from proxy.session.background import Backgrounds
from proxy.session.counting import count_tokens
from proxy.session.replays import KEPT_S
from proxy.session.services import Caller, Services
from proxy.wire import ids
from proxy.wire.client_events import Limits, parse_create
from proxy.wire.codec import decode_object, encode

_ONE = "/v1/responses/{id:[^/]+}"
_MAX_PAGE = 100
_DEFAULT_PAGE = 20
_MAX_DIGITS = 15
_TRUE = frozenset({"true", "1", "True"})


class StoredRoute:
    """Serves stored and running responses by id."""

    def __init__(
        self,
        services: Services,
        backgrounds: Backgrounds,
        door: Door,
        bodies: BodyReader,
        limits: Limits,
        *,
        stall_s: float,
        keepalive_s: float,
    ) -> None:
        self._services = services
        self._backgrounds = backgrounds
        self._door = door
        self._bodies = bodies
        self._limits = limits
        self._stall_s = stall_s
        self._keepalive_s = keepalive_s

    def routes(self) -> list[web.RouteDef]:
        """What to add to an application."""
        return [
            web.post("/v1/responses/input_tokens", self.input_tokens),
            web.get(_ONE, self.retrieve),
            web.delete(_ONE, self.delete),
            web.post(_ONE + "/cancel", self.cancel),
            web.get(_ONE + "/input_items", self.input_items),
        ]

    async def retrieve(self, request: web.Request) -> web.StreamResponse:
        """The response object: what its terminal event held, or what there is of one that runs in the background.

        With `stream` the events of one that runs in the background, or did a while ago.
        """
        caller, response = self._door.admit(request), request.match_info["id"]
        shown = await self._shown(caller.tenant, response)
        if request.query.get("stream") in _TRUE and request.method != "HEAD":
            return await self._stream(request, caller, response)
        if "starting_after" in request.query:
            raise LooplineError(
                Kind.UNSUPPORTED_PARAMETER, "'starting_after' is for streams: add stream=true.", param="starting_after"
            )
        return await self._send(request, caller, shown)

    async def _stream(self, request: web.Request, caller: Caller, response: str) -> web.StreamResponse:
        after = _starting_after(request.query.get("starting_after"))
        budget = caller.grant.account.budget
        budget.admit()
        follower = Follower(Held(budget))
        leave = self._backgrounds.follow(caller.tenant, response, follower, after)
        if leave is None:
            raise LooplineError(
                Kind.UNSUPPORTED_PARAMETER,
                "The events of this response are not kept: only those of one that was begun with 'background' and "
                f"'stream' are, until {KEPT_S:g} s after its end. Leave 'stream' out and poll.",
                param="stream",
            )
        try:
            return await stream(request, follower, self._stall_s, self._keepalive_s)
        finally:
            leave()
            follower.release()

    async def delete(self, request: web.Request) -> web.Response:
        """Hide a response at once; what continues it keeps its content. One that runs is cancelled first."""
        tenant, response = self._door.admit(request).tenant, request.match_info["id"]
        await self._backgrounds.cancel(tenant, response)
        if not (ids.is_ours(response) and await self._services.store.delete(tenant, response, self._services.clock())):
            raise _not_found(response)
        self._backgrounds.forget(tenant, response)
        body = {"id": response, "object": "response.deleted", "deleted": True}
        return web.Response(body=encode(body), content_type=JSON)

    async def cancel(self, request: web.Request) -> web.StreamResponse:
        """End a background response; one that has ended is shown as it is."""
        caller, response = self._door.admit(request), request.match_info["id"]
        await self._backgrounds.cancel(caller.tenant, response)
        node = await self._find(caller.tenant, response)
        if node.shown is None or not node.shown.background:
            raise LooplineError(
                Kind.INVALID_REQUEST, "Cannot cancel a synchronous response: it was not created with 'background'."
            )
        return await self._send(request, caller, node.render() or b"")

    async def input_items(self, request: web.Request) -> web.StreamResponse:
        """The items that the response was made from, page by page."""
        caller, response = self._door.admit(request), request.match_info["id"]
        context = await self._context(caller.tenant, response)
        for listed in paging(
            context,
            after=request.query.get("after"),
            limit=_limit(request.query.get("limit")),
            newest_first=_newest_first(request.query.get("order", "desc")),
        ):
            if listed is not None:
                break
            await asyncio.sleep(0)
        assert listed is not None
        return await self._send(request, caller, listed.render())

    async def input_tokens(self, request: web.Request) -> web.Response:
        """How many tokens a create would be; nothing is generated and nothing kept. The limits count it as a turn."""
        caller = self._door.admit(request)
        body = await self._bodies.json(request, caller.grant)
        members = decode_object(body, "The body")
        limits = self._limits._replace(tools=caller.grant.bound("tools", self._limits.tools))
        create = parse_create(members, len(body), limits, may_wait=True, needs_input=False)
        with caller.grant.account.begin_turn(create.size, self._services.clock()):
            count = await count_tokens(self._services, caller, create)
        headers = {"x-loopline-estimated": "true"} if count.estimated else None
        answer = {"object": "response.input_tokens", "input_tokens": count.tokens}
        return web.Response(body=encode(answer), content_type=JSON, headers=headers)

    async def _send(self, request: web.Request, caller: Caller, document: bytes) -> web.StreamResponse:
        """Raises `LooplineError` (overloaded): who reads nothing must not fill our memory by asking again."""
        budget = caller.grant.account.budget
        budget.admit(len(document))
        return await send_json(request, document, self._stall_s, budget)

    async def _shown(self, tenant: str, response: str) -> bytes:
        background = self._backgrounds.find(tenant, response)
        shown = background.turn.show() if background is not None else None
        return shown or (await self._find(tenant, response)).render() or b""

    async def _context(self, tenant: str, response: str) -> Context:
        background = self._backgrounds.find(tenant, response)
        if background is not None and background.turn.show() is not None:
            return background.turn.context
        return context_of(await self._find(tenant, response))

    async def _find(self, tenant: str, response: str) -> Node:
        node = None
        if ids.is_ours(response):
            node = await self._services.store.get(tenant, response, self._services.clock())
        if node is None or node.shown is None:
            raise _not_found(response)
        return node


def _not_found(response: str) -> LooplineError:
    return LooplineError(Kind.NOT_FOUND, f"Response with id '{response[:100]}' not found.", param="response_id")


def _limit(given: str | None) -> int:
    if given is None:
        return _DEFAULT_PAGE
    if not (given.isascii() and given.isdecimal() and len(given) <= len(str(_MAX_PAGE))):
        raise LooplineError(Kind.INVALID_REQUEST, f"'limit' must be a number from 1 to {_MAX_PAGE}.", param="limit")
    limit = int(given)
    if not 1 <= limit <= _MAX_PAGE:
        raise LooplineError(Kind.INVALID_REQUEST, f"'limit' must be a number from 1 to {_MAX_PAGE}.", param="limit")
    return limit


def _starting_after(given: str | None) -> int:
    """The sequence number of the last event that the client has; -1 for none."""
    if given is None:
        return -1
    if not (given.isascii() and given.isdecimal() and len(given) <= _MAX_DIGITS):
        raise LooplineError(
            Kind.INVALID_REQUEST, "'starting_after' must be the sequence_number of an event.", param="starting_after"
        )
    return int(given)


def _newest_first(order: str) -> bool:
    if order not in ("asc", "desc"):
        raise LooplineError(Kind.INVALID_REQUEST, "'order' must be 'asc' or 'desc'.", param="order")
    return order == "desc"
