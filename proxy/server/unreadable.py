"""Requests that the HTTP parser cannot read: they reach no route, and are answered like every other failure."""

from __future__ import annotations

import secrets

from aiohttp import web
from aiohttp.web_protocol import RequestHandler
from aiohttp.web_server import Server

from proxy.errors import Kind, LooplineError
from proxy.server.door import error_response, stay_safe


class Runner(web.AppRunner):
    """aiohttp's, but for the words of its own errors: those are plain text, and quote what was sent."""

    async def _make_server(self) -> Server:
        made = await super()._make_server()
        return _Server(
            made.request_handler,
            request_factory=made.request_factory,
            handler_cancellation=made.handler_cancellation,
            loop=made._loop,
            **made._kwargs,
        )


class _Server(Server):
    def __call__(self) -> RequestHandler:
        return _Handler(self, loop=self._loop, **self._kwargs)


class _Handler(RequestHandler):
    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        super().handle_error(request, status, exc, message)  # logs, and raises where an answer has begun
        kind, words = Kind.INVALID_REQUEST, "The request is not valid HTTP, or its head is too large."
        if status >= 500:
            kind, words = Kind.INTERNAL, "Internal error."
        response = error_response(LooplineError(kind, words), {"x-request-id": "req_" + secrets.token_hex(12)})
        response.set_status(status)
        response.force_close()
        stay_safe(response)
        return response
