"""Who may come in, before anything is read of what they want; and every failure as an HTTP answer."""

from __future__ import annotations

import re
import secrets
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from aiohttp import web

from proxy.access.forwarded import FORWARDED_HEADERS, TrustedProxies
from proxy.access.gate import Gate, Grant
from proxy.access.keys import holds_key
from proxy.access.tenants import check_host, check_origin
from proxy.errors import Kind, LooplineError, kind_of
from proxy.session.services import Caller
from proxy.telemetry.observer import Observer
from proxy.wire.error_events import error_body, retry_headers

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
JSON = "application/json"
# It comes back in headers, goes on to upstreams and stands in logs.
_SANE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/+=@-]{0,199}\Z")
_REQUEST_ID, _BEGUN = web.RequestKey("request_id", str), web.RequestKey("begun", bool)
_GRANT = web.RequestKey("loopline.grant", Grant)
_LIMIT = web.ResponseKey("loopline.limit", str)


# By WebSocket a message of ours that is too large is told with a 400.
STATUS_BY_HTTP = {Kind.MESSAGE_TOO_LARGE: 413}


@dataclass(frozen=True, slots=True)
class Door:
    """The rules at the entrance."""

    insecure: bool
    allowed_origins: frozenset[str]
    gate: Gate
    proxies: TrustedProxies = field(default_factory=TrustedProxies)

    def check_page(self, request: web.Request) -> None:
        """A page that asks for no key: whoever comes may see it, but no other site's page. Raises `LooplineError`.

        Keys do not make up for the name of the host here, as they do elsewhere.
        """
        check_host(request.headers.get("Host"), insecure=self.insecure)
        check_origin(request.headers.get("Origin"), self.allowed_origins)

    def admit(self, request: web.Request) -> Caller:
        """The caller, without any key of ours among its headers. Raises `LooplineError` (forbidden, unauthorized)."""
        any_host = self.insecure or self.gate.needs_key
        check_host(request.headers.get("Host"), insecure=any_host)
        check_origin(request.headers.get("Origin"), self.allowed_origins)
        # A socket keeps its headers: of their names, which are the same for thousands, there is one copy.
        headers = {sys.intern(name.lower()): value for name, value in request.headers.items()}
        headers["x-request-id"] = request_id(request)
        peer = peer_of(request)
        address, strangers = peer, FORWARDED_HEADERS
        if self.proxies.trusts(peer):
            said = {name: request.headers.getall(name) for name in FORWARDED_HEADERS & headers.keys()}
            origin = self.proxies.origin(peer, said)
            if origin.host is not None:
                # Beside the Host, not in its place: neither may be another's name.
                check_host(origin.host, insecure=any_host)
            address, strangers = origin.address, frozenset()
        grant = self.gate.grant(headers)
        request[_GRANT] = grant
        kept = {name: value for name, value in headers.items() if name not in strangers}
        return Caller(grant.tenant, self.gate.kept_back(kept), grant, address=address)


def peer_of(request: web.Request) -> str:
    """The address at the other end of the connection."""
    peer = request.transport.get_extra_info("peername") if request.transport is not None else None
    return str(peer[0]) if peer else ""


def error_response(error: LooplineError, extra: Mapping[str, str] | None = None) -> web.Response:
    """An HTTP answer that says what went wrong."""
    headers = {**retry_headers(error), **(extra or {})}
    status = STATUS_BY_HTTP.get(error.kind, error.status)
    response = web.Response(status=status, body=error_body(error), content_type=JSON, headers=headers)
    if error.limit:
        response[_LIMIT] = error.limit
    if error.kind is Kind.WEBSOCKET_OFF:
        response.force_close()  # the client goes elsewhere, some only once the connection has ended
    return response


def go_elsewhere() -> web.Response:
    """The answer while the server shuts down. A connection that is kept would bring the client back here."""
    response = error_response(LooplineError(Kind.SHUTTING_DOWN, "The server is shutting down.", retry_after_s=1))
    response.force_close()
    return response


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Failures become JSON."""
    try:
        return await handler(request)
    except LooplineError as error:
        response = error_response(error)
    except web.HTTPException as error:
        response = error_response(_of_http(error), _allow(error))
        response.set_status(error.status)
    except Exception as error:  # a bug of ours is answered like any failure, unless an answer has begun
        if _BEGUN in request:
            raise
        request.protocol.log_exception("Error handling request", exc_info=error)
        response = error_response(LooplineError(Kind.INTERNAL, "Internal error.", cause=kind_of(error)))
    if "Upgrade" in request.headers or request.method == "CONNECT":
        response.force_close()  # what follows on this connection was meant for another protocol
    return response


# What keeps a browser from guessing, framing, keeping or telling.
SAFE_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


async def make_safe(_request: web.Request, response: web.StreamResponse) -> None:
    """Headers for browsers on every answer of ours; one that is passed on, or that switches, stays as it is."""
    if response.status == 101 or isinstance(response, Untouched):
        return
    for name, value in SAFE_HEADERS.items():
        response.headers.setdefault(name, value)


def telling_limits(observer: Observer) -> Callable[[web.Request, web.StreamResponse], Awaitable[None]]:
    """Tells the observer of every answer that says that something is too much."""

    async def tell(_request: web.Request, response: web.StreamResponse) -> None:
        if (limit := response.get(_LIMIT)) is not None:
            observer.limited(limit)

    return tell


class Untouched(web.StreamResponse):
    """An answer that is not ours to add to, but for the request's name."""


async def name_request(request: web.Request, response: web.StreamResponse) -> None:
    """Every answer names its request, and says what is left of the caller's rates here."""
    request[_BEGUN] = True
    if "x-request-id" not in response.headers:
        response.headers["x-request-id"] = request_id(request)
    grant: Grant | None = request.get(_GRANT)
    if grant is not None and not isinstance(response, Untouched):
        for name, value in grant.rate_headers().items():
            response.headers.setdefault(name, value)


def request_id(request: web.Request) -> str:
    """The client's id of its request where that is a sane one, else one of ours; the same each time."""
    if _REQUEST_ID not in request:
        given = request.headers.get("x-request-id", "")
        sane = _SANE_ID.match(given) and not holds_key(given)
        request[_REQUEST_ID] = given if sane else "req_" + secrets.token_hex(12)
    return request[_REQUEST_ID]


def _of_http(error: web.HTTPException) -> LooplineError:
    if error.status == 413:
        told = error.text if error.text and "limits." in error.text else None
        message = told or "The body is larger than limits.frame_bytes allows."
        limit = "limits.inflate_ratio" if "limits.inflate_ratio" in message else "limits.frame_bytes"
        return LooplineError(Kind.MESSAGE_TOO_LARGE, message, limit=limit)
    if error.status == 404:
        return LooplineError(Kind.NOT_FOUND, "There is nothing at this path; docs/http.md has the routes.")
    return LooplineError(Kind.INVALID_REQUEST, f"{error.status}: {error.reason}.")


def _allow(error: web.HTTPException) -> dict[str, str]:
    return {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
