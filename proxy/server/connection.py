"""Requests that cannot be read at all: aiohttp's connections, but for what they answer then.

aiohttp answers in plain text and quotes what it could not read. Such a request reaches no route and no middleware; one
whose body turns out to be malformed later has reached a route, which aiohttp does not tell.
"""

from __future__ import annotations

import asyncio
import re
from functools import partial
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong
from aiohttp.web_protocol import RequestHandler, _ErrInfo
from aiohttp.web_request import BaseRequest

from proxy.errors import Kind, LooplineError
from proxy.server.door import SAFE_HEADERS, answer_errors, error_response, request_id
from proxy.telemetry.observer import Observer

_MALFORMED = "The request is malformed"
_TOO_LARGE = "The request line or a header is larger than limits.header_bytes, or they are more than limits.headers."
# What the parser found, before it quotes it. Anything else may be the client's.
_REASON = re.compile(
    r"(?P<before>[A-Z][A-Za-z`' /-]{1,80}):\n\n  b['\"]"
    r"|(?P<whole>Missing 'Host' header in request|Duplicate '[A-Za-z-]{1,40}' header found)\.\Z"
)
_TOO_MANY = "Too many headers received"


def unreadable(error: BaseException) -> tuple[LooplineError, int]:
    """What the sender of an unreadable request is told, and the status: 400, or 431 for a head that is too large."""
    said = error.message if isinstance(error, HttpProcessingError) else ""
    if isinstance(error, LineTooLong) or said == _TOO_MANY:
        return LooplineError(Kind.INVALID_REQUEST, _TOO_LARGE), 431
    reason = _REASON.match(said)
    why = f": {reason['before'] or reason['whole']}" if reason else ""
    return LooplineError(Kind.INVALID_REQUEST, f"{_MALFORMED}{why}."), 400


class Connection(RequestHandler):
    """One connection of a client."""

    __slots__ = ("_observer",)

    def __init__(self, observer: Observer, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._observer = observer

    def let_go(self) -> tuple[asyncio.Transport, bytes]:
        """The transport, which is another protocol's from now on, and what has come for that. Raises ConnectionError
        where the client is gone.

        aiohttp ends its handler and forgets this connection, as if it were closed.
        """
        transport, self.transport = self.transport, None
        if transport is None or self._manager is None:
            raise ConnectionResetError("Connection lost")
        early, self._message_tail = self._message_tail, b""
        self.keep_alive(False)
        self._manager.connection_lost(self)
        self._parser = None  # which knows this connection: neither is to wait for the collector
        if self._buffer_paused:
            transport.resume_reading()
        return transport, early

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._messages and isinstance(self._messages[-1][0], _ErrInfo):
            self._break_off(self._messages[-1][0].exc)

    def _break_off(self, found: BaseException) -> None:
        """Requests whose bodies cannot be read on hear of it. aiohttp would answer the next request, which there is
        none, and leave whoever reads a body waiting.
        """
        bodies = [payload for _, payload in self._messages]
        if self._current_request is not None:
            bodies.append(self._current_request.content)
        cut = [body for body in bodies if not body.is_eof()]
        if not cut:
            return
        error, _ = unreadable(found)
        self._messages.pop()
        self._observer.unreadable("malformed")
        for body in cut:
            body.set_exception(error)
        self.close()

    def handle_error(
        self, request: BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """The answer to a request that could not be read, or whose handler failed: the connection ends with it.

        Raises ConnectionError where an answer has begun.
        """
        if isinstance(exc, HttpProcessingError):
            error, status = unreadable(exc)
            self._observer.unreadable("too_large" if status == 431 else "malformed")
        else:
            error = LooplineError(Kind.INTERNAL, "Internal error.")
            self.log_exception("Error handling request", exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun")
        assert isinstance(request, web.Request)
        response = error_response(error, {"x-request-id": request_id(request), **SAFE_HEADERS})
        response.set_status(status)
        response.force_close()
        return response


class _Server(web.Server):
    """Makes connections."""

    observer: Observer

    def __call__(self) -> RequestHandler:
        return Connection(self.observer, self, loop=self._loop, **self._kwargs)


class Runner(web.AppRunner):
    """aiohttp's, with connections of ours."""

    def __init__(self, app: web.Application, observer: Observer, **options: Any) -> None:
        super().__init__(app, access_log=None, **options)
        self._observer = observer

    async def _make_server(self) -> web.Server:
        made = await super()._make_server()
        server = _Server(
            # Around the application too: what a request expects is looked at before its middlewares.
            partial(answer_errors, handler=made.request_handler),
            request_factory=made.request_factory,
            handler_cancellation=made.handler_cancellation,
            loop=made._loop,
            **made._kwargs,
        )
        server.observer = self._observer
        return server
