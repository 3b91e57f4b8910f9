"""Who may come in, before anything is read of what they want; and every failure as an HTTP answer."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from aiohttp import web

from proxy.access.gate import Gate, Grant
from proxy.access.tenants import check_host, check_origin
from proxy.errors import Kind, LooplineError
from proxy.session.services import Caller
from proxy.wire.error_events import error_body, retry_headers

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
JSON = "application/json"
_GRANT = web.RequestKey("loopline.grant", Grant)


@dataclass(frozen=True, slots=True)
class Door:
    """The rules at the entrance."""

    insecure: bool
    allowed_origins: frozenset[str]
    gate: Gate

    def admit(self, request: web.Request) -> Caller:
        """The caller, without any key of ours among its headers. Raises `LooplineError` (forbidden, unauthorized)."""
        check_host(request.headers.get("Host"), insecure=self.insecure or self.gate.needs_key)
        check_origin(request.headers.get("Origin"), self.allowed_origins)
        headers = {name.lower(): value for name, value in request.headers.items()}
        grant = self.gate.grant(headers)
        request[_GRANT] = grant
        return Caller(grant.tenant, self.gate.kept_back(headers), grant)


def error_response(error: LooplineError, extra: Mapping[str, str] | None = None) -> web.Response:
    """An HTTP answer that says what went wrong."""
    headers = {**retry_headers(error), **(extra or {})}
    response = web.Response(status=error.status, body=error_body(error), content_type=JSON, headers=headers)
    if error.kind is Kind.WEBSOCKET_OFF:
        response.force_close()  # the client goes elsewhere, some only once the connection has ended
    return response


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Failures become JSON."""
    try:
        return await handler(request)
    except LooplineError as error:
        return error_response(error)
    except web.HTTPException as error:
        response = error_response(_of_http(error), _allow(error))
        response.set_status(error.status)
        return response


async def name_request(request: web.Request, response: web.StreamResponse) -> None:
    """Every answer names its request, by the caller's id or one of ours, and says what is left of the rates."""
    if "x-request-id" not in response.headers:
        response.headers["x-request-id"] = request.headers.get("x-request-id") or "req_" + secrets.token_hex(12)
    grant: Grant | None = request.get(_GRANT)
    if grant is not None:
        for name, value in grant.rate_headers().items():
            response.headers.setdefault(name, value)


def _of_http(error: web.HTTPException) -> LooplineError:
    if error.status == 413:
        return LooplineError(Kind.MESSAGE_TOO_LARGE, "The body is larger than limits.frame_bytes allows.")
    if error.status == 404:
        return LooplineError(Kind.NOT_FOUND, "There is nothing at this path; see docs for the routes served.")
    return LooplineError(Kind.INVALID_REQUEST, f"{error.status}: {error.reason}.")


def _allow(error: web.HTTPException) -> dict[str, str]:
    return {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
