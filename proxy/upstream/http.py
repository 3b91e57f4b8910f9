"""The client of the road that turns travel: HTTP/1.1 over kept connections, an `HttpClient`.

Requests that go by a forward proxy are left to aiohttp, which knows how to ask one.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Coroutine, Iterator
from typing import Any

from proxy.errors import Kind, LooplineError, kind_of
from proxy.http_client import HttpRequest
from proxy.upstream.aiohttp_client import AiohttpClient
from proxy.upstream.aiohttp_client import Exchange as AiohttpExchange
from proxy.upstream.answers import Headers, RawHeaders
from proxy.upstream.connecting import Connector
from proxy.upstream.connection import Connection
from proxy.upstream.pool import Origin, Pool
from proxy.upstream.request_bytes import header_lines, length_line, opening
from proxy.wire.inflate import Inflater, coding_of

_CLOSING_S = 1.0


class Http1Client:
    """An `HttpClient`. Use it inside a running loop, close it with `aclose`.

    `keepalive_s` is how long an idle connection is kept: below the 5 s after which vLLM closes it. `connect_s` bounds
    connecting, TLS included. What is in flight is not bounded here: that is the business of the leases.
    """

    def __init__(self, *, keepalive_s: float, connect_s: float, read_buffer_bytes: int = 256 * 1024) -> None:
        self._keepalive_s = keepalive_s
        self._connect_s = connect_s
        self._read_buffer_bytes = read_buffer_bytes
        self._connector = Connector()
        self._pool: Pool[Connection] = Pool(keepalive_s)
        self._origins: dict[Connection, Origin] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._by_proxy: AiohttpClient | None = None
        self._closed = False
        self._emptied: asyncio.Future[None] | None = None

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._origins)

    def open(self, request: HttpRequest) -> Exchange | AiohttpExchange:
        """Send a request and wait for the answer's head; see `HttpClient.open`."""
        if request.proxy:
            return self._by_proxy_client.open(request)
        return Exchange(self, request)

    async def aclose(self) -> None:
        """Close every connection."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        self._pool.expire(float("inf"))
        if self._origins:
            self._emptied = asyncio.get_running_loop().create_future()
            for connection in self._origins:
                connection.abort()
            await asyncio.wait([self._emptied], timeout=_CLOSING_S)
        if self._by_proxy is not None:
            await self._by_proxy.aclose()

    async def send(self, request: HttpRequest) -> tuple[Connection, int]:
        """A connection on which the answer's head has arrived, and how often the request was sent."""
        body_bytes = sum(map(len, request.body))
        try:
            origin, head = opening(request)
        except ValueError as error:
            raise LooplineError(
                Kind.UPSTREAM_UNREACHABLE, f"The upstream could not be asked: {error}.", cause=kind_of(error)
            ) from error
        watch, times, end = request.watch, request.times, length_line(request.method, body_bytes)
        now = asyncio.get_running_loop().time()
        connection = self._pool.take(origin, now)
        if connection is None:
            return await self._send_fresh(origin, head, end, request, body_bytes), 1
        told = b"" if watch is None else header_lines(watch.begun())
        if times is not None:
            times.attempts += 1
        try:
            await connection.ask(head + told + end, request, body_bytes, now)
        except LooplineError as error:
            # The keep-alive race: the server closed an idle connection while the request was on its way.
            if not request.repeatable or connection.answers.touched or error.kind is not Kind.UPSTREAM_CLOSED:
                raise
            if watch is not None:
                watch.failed(error.kind.value)
        else:
            return connection, 1
        return await self._send_fresh(origin, head, end, request, body_bytes), 2

    def give_back(self, connection: Connection) -> None:
        """The exchange is over; the connection is kept if it can serve again."""
        if self._closed:
            connection.abort()
        elif connection.finish():
            loop = asyncio.get_running_loop()
            self._pool.put(self._origins[connection], connection, loop.time())
            if self._sweep is None:
                self._sweep = loop.call_later(self._keepalive_s, self._expire)

    async def _send_fresh(
        self, origin: Origin, head: bytes, end: bytes, request: HttpRequest, body_bytes: int
    ) -> Connection:
        told = b"" if request.watch is None else header_lines(request.watch.begun())
        if request.times is not None:
            request.times.attempts += 1
        began_s = asyncio.get_running_loop().time()
        limit_s = min(self._connect_s, request.first_byte_s)
        try:
            connection = await self._connector.connect(origin, self._make, limit_s)
        except TimeoutError as error:
            raise _not_connected(request, self._connect_s, limit_s) from error
        if request.times is not None:
            request.times.connected_s = time.monotonic()
        if not connection.is_lost:
            self._origins[connection] = origin
        if self._closed:
            connection.abort()
        await connection.ask(head + told + end, request, body_bytes, began_s)
        return connection

    def _make(self) -> Connection:
        return Connection(self._forget, self._read_buffer_bytes)

    def _forget(self, connection: Connection) -> None:
        origin = self._origins.pop(connection, None)
        if origin is not None:
            self._pool.drop(origin, connection)
        if self._emptied is not None and not self._origins and not self._emptied.done():
            self._emptied.set_result(None)

    def _expire(self) -> None:
        loop = asyncio.get_running_loop()
        for connection in self._pool.expire(loop.time()):
            connection.abort()
        then = self._pool.next_expiry()
        self._sweep = None if then is None else loop.call_at(then, self._expire)

    @property
    def _by_proxy_client(self) -> AiohttpClient:
        if self._by_proxy is None:
            self._by_proxy = AiohttpClient(
                keepalive_s=self._keepalive_s, connect_s=self._connect_s, read_buffer_bytes=self._read_buffer_bytes
            )
        return self._by_proxy


class Exchange:
    """One request and its answer, an `HttpResponse` while it is open; closed on every way out."""

    __slots__ = ("_client", "_connection", "_headers", "_inflating", "_raw", "_request", "attempts", "status")

    def __init__(self, client: Http1Client, request: HttpRequest) -> None:
        self._client = client
        self._request = request
        self._connection: Connection | None = None
        self._inflating: _Inflating | None = None
        self._raw: RawHeaders = []
        self._headers: Headers | None = None
        self.status = 0
        self.attempts = 0

    async def __aenter__(self) -> Exchange:
        self._connection, self.attempts = await self._client.send(self._request)
        answers = self._connection.answers
        self.status = answers.status
        if self._request.watch is not None:
            self._request.watch.answered(self.status)
        self._raw = answers.raw_headers
        coding = answers.coding()
        if coding:
            self._inflating = _inflating(self._connection, coding)
        return self

    async def __aexit__(self, *_: object) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._client.give_back(connection)

    @property
    def headers(self) -> Headers:
        """The answer's headers."""
        if self._headers is None:
            self._headers = Headers(self._raw)
        return self._headers

    @property
    def is_ready(self) -> bool:
        """Does `read` return at once? Of what must be inflated first, nobody knows."""
        return self._inflating is None and self._connection is not None and self._connection.is_ready

    def read(self) -> Coroutine[Any, Any, bytes]:
        """What has arrived; see `HttpResponse.read`."""
        if self._connection is None:
            raise RuntimeError("The exchange is closed.")
        return self._connection.read() if self._inflating is None else self._inflating.read()


class _Inflating:
    """A body that came compressed although it was asked for plain: inflated as it is read, a piece at a time."""

    def __init__(self, connection: Connection, coding: str) -> None:
        self._connection = connection
        # No bound but that of a piece: how much is read is bounded by whoever reads.
        self._inflater = Inflater(coding, sys.maxsize, 0)
        self._pieces: Iterator[bytes] = iter(())
        self._begun = False

    @property
    def is_ready(self) -> bool:
        """What has arrived is not told before it is read."""
        return False

    async def read(self) -> bytes:
        try:
            while not (piece := next(self._pieces, b"")):
                data = await self._connection.read()
                if not data:
                    if self._begun:
                        self._inflater.finish()
                    return b""
                self._begun = True
                self._pieces = self._inflater.feed(data)
            return piece
        except LooplineError as error:
            if error.kind is not Kind.INVALID_REQUEST:
                raise
            raise LooplineError(
                Kind.UPSTREAM_GARBLED,
                "The upstream's answer is not compressed as it says.",
                cause=error.message,
            ) from error


def _inflating(connection: Connection, named: str) -> _Inflating | None:
    """None for what is no coding that is known here: some servers name a character set. It is read as it is."""
    try:
        coding = coding_of([named])
    except LooplineError:
        return None
    return None if coding is None else _Inflating(connection, coding)


def _not_connected(request: HttpRequest, connect_s: float, limit_s: float) -> LooplineError:
    if limit_s < connect_s:
        return LooplineError(
            Kind.UPSTREAM_TIMEOUT,
            f"The upstream did not answer within {request.first_byte_s:g} s (upstream.first_byte_timeout_s).",
        )
    return LooplineError(
        Kind.UPSTREAM_UNREACHABLE,
        f"No connection to the upstream within {connect_s:g} s (upstream.connect_timeout_s).",
    )
