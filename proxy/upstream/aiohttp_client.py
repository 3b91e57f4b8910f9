"""HTTP to upstreams on aiohttp: for endpoints behind a forward proxy, and what `relay` builds on.

What aiohttp raises becomes a `LooplineError` that says whose fault it was; nothing of aiohttp leaves this file.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Mapping, Sequence
from types import SimpleNamespace

import aiohttp
from aiohttp.abc import AbstractStreamWriter

from proxy.errors import Kind, LooplineError, kind_of
from proxy.http_client import HttpRequest
from proxy.upstream.request_bytes import PIECE_BYTES


class AiohttpClient:
    """An `HttpClient`. Build it inside a running loop, close it with `aclose`.

    `keepalive_s` is how long an idle connection is kept: below the 5 s after which vLLM closes it. `connect_s` bounds
    connecting, TLS included.
    """

    def __init__(self, *, keepalive_s: float, connect_s: float, read_buffer_bytes: int = 256 * 1024) -> None:
        trace = aiohttp.TraceConfig()
        trace.on_connection_reuseconn.append(_note_reuse)
        trace.on_connection_create_end.append(_note_connection)
        self._connect_s = connect_s
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._session = aiohttp.ClientSession(
            # No limit here: what may be in flight is the business of the leases.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=keepalive_s),
            timeout=aiohttp.ClientTimeout(total=None, connect=None, sock_connect=connect_s, sock_read=None),
            auto_decompress=True,
            cookie_jar=aiohttp.DummyCookieJar(),
            trace_configs=[trace],
            read_bufsize=read_buffer_bytes,
            trust_env=False,
        )

    async def aclose(self) -> None:
        """Close every connection."""
        await self._session.close()

    def open(self, request: HttpRequest) -> Exchange:
        """Send a request and wait for the answer's head; see `HttpClient.open`."""
        return Exchange(self, request)

    async def send(self, request: HttpRequest) -> AiohttpResponse:
        """Send, once more where a kept connection turns out to be dead."""
        reused = SimpleNamespace(connection=False, times=request.times)
        try:
            return AiohttpResponse(await self._send(request, reused), 1, request.idle_s)
        except LooplineError as error:
            # The keep-alive race: the server closed an idle connection while the request was on its way.
            if not (request.repeatable and reused.connection and error.kind is Kind.UPSTREAM_CLOSED):
                raise
            if request.watch is not None:
                request.watch.failed(error.kind.value)
        return AiohttpResponse(await self._send(request, reused), 2, request.idle_s)

    async def _send(self, request: HttpRequest, reused: SimpleNamespace) -> aiohttp.ClientResponse:
        watch = request.watch
        told = () if watch is None else watch.begun()
        if request.times is not None:
            request.times.attempts += 1
        try:
            async with asyncio.timeout(request.first_byte_s):
                answer = await self._session.request(
                    request.method,
                    request.url,
                    params=request.query or None,
                    headers=[*request.headers, *told],
                    data=_payload(request.body),
                    ssl=self._context(request.ca_bundle),
                    proxy=request.proxy or None,
                    allow_redirects=False,
                    trace_request_ctx=reused,
                )
                if watch is not None:
                    watch.answered(answer.status)
                return answer
        except TimeoutError as error:
            raise timed_out(error, request, self._connect_s) from error
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            raise disconnected(error, request) from error
        except aiohttp.ClientResponseError as error:
            raise LooplineError(
                Kind.UPSTREAM_GARBLED, "The upstream's answer was not valid HTTP.", cause=kind_of(error)
            ) from error
        except (aiohttp.ClientError, ValueError) as error:
            raise LooplineError(
                Kind.UPSTREAM_UNREACHABLE, "The upstream could not be asked.", cause=kind_of(error)
            ) from error

    def _context(self, ca_bundle: str) -> ssl.SSLContext | bool:
        if not ca_bundle:
            return True
        context = self._contexts.get(ca_bundle)
        if context is None:
            context = self._contexts[ca_bundle] = ssl.create_default_context(cafile=ca_bundle)
        return context


class Exchange:
    """One request and its answer, closed on every way out."""

    __slots__ = ("_client", "_request", "_response")

    def __init__(self, client: AiohttpClient, request: HttpRequest) -> None:
        self._client = client
        self._request = request

    async def __aenter__(self) -> AiohttpResponse:
        self._response = await self._client.send(self._request)
        return self._response

    async def __aexit__(self, *_: object) -> None:
        self._response.close()


class AiohttpResponse:
    """An `HttpResponse`.

    The idle limit is one timer that looks, when it fires, how long the present read has been waiting: a timer for each
    read would be made and cancelled thousands of times a second.
    """

    __slots__ = ("_answer", "_idle_s", "_loop", "_timer", "_waiting_since", "attempts")

    def __init__(self, answer: aiohttp.ClientResponse, attempts: int, idle_s: float) -> None:
        self._answer = answer
        self._idle_s = idle_s
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._waiting_since: float | None = None
        self.attempts = attempts

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self._answer.status

    @property
    def headers(self) -> Mapping[str, str]:
        """The answer's headers."""
        return self._answer.headers

    @property
    def is_ready(self) -> bool:
        """What has arrived is not told before it is read."""
        return False

    async def read(self) -> bytes:
        """What has arrived; see `HttpResponse.read`."""
        self._waiting_since = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(self._idle_s, self._look)
        try:
            return await self._answer.content.readany()
        except _IdleError as error:
            raise LooplineError(
                Kind.UPSTREAM_TIMEOUT,
                f"The upstream sent nothing for {self._idle_s:g} s (upstream.idle_timeout_s).",
            ) from error
        except aiohttp.ClientPayloadError as error:
            raise LooplineError(
                Kind.UPSTREAM_CLOSED,
                "The upstream closed the connection in the middle of its answer.",
                cause=kind_of(error),
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise LooplineError(
                Kind.UPSTREAM_CLOSED, "The connection to the upstream broke.", cause=kind_of(error)
            ) from error
        finally:
            self._waiting_since = None

    def close(self) -> None:
        """End the exchange: an answer that was not read to its end stops the upstream's work."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._answer.close()

    def _look(self) -> None:
        self._timer = None
        if self._waiting_since is None:
            return
        left_s = self._waiting_since + self._idle_s - self._loop.time()
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._look)
        else:
            self._answer.content.set_exception(_IdleError())


class _IdleError(Exception):
    """The idle limit passed while a read was waiting."""


class _Pieces(aiohttp.Payload):
    """A request body in pieces: aiohttp warns of raw bytes above a megabyte, which would go out in one write."""

    _value: Sequence[bytes]

    def __init__(self, value: Sequence[bytes]) -> None:
        super().__init__(value, content_type="application/json")
        self._size = sum(len(part) for part in value)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return b"".join(self._value).decode(encoding, errors)

    async def as_bytes(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        return b"".join(self._value)

    async def write(self, writer: AbstractStreamWriter) -> None:
        await self.write_with_length(writer, None)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        view = memoryview(b"".join(self._value))
        for start in range(0, len(view), PIECE_BYTES):
            await writer.write(view[start : start + PIECE_BYTES])


def _payload(body: Sequence[bytes]) -> bytes | _Pieces | None:
    if not body:
        return None
    if sum(len(part) for part in body) <= PIECE_BYTES:
        return b"".join(body)
    return _Pieces(body)


async def _note_reuse(_session: object, context: SimpleNamespace, _params: object) -> None:
    context.trace_request_ctx.connection = True


async def _note_connection(_session: object, context: SimpleNamespace, _params: object) -> None:
    times = context.trace_request_ctx.times
    if times is not None:
        times.connected_s = time.monotonic()


def timed_out(error: TimeoutError, request: HttpRequest, connect_s: float) -> LooplineError:
    if isinstance(error, aiohttp.ServerTimeoutError):
        return LooplineError(
            Kind.UPSTREAM_UNREACHABLE, f"No connection to the upstream within {connect_s:g} s.", cause=kind_of(error)
        )
    return LooplineError(
        Kind.UPSTREAM_TIMEOUT,
        f"The upstream did not answer within {request.first_byte_s:g} s (upstream.first_byte_timeout_s).",
    )


def disconnected(error: Exception, request: HttpRequest) -> LooplineError:
    if isinstance(error, aiohttp.ClientConnectorError):
        return LooplineError(Kind.UPSTREAM_UNREACHABLE, _unconnected(error), cause=kind_of(error))
    return LooplineError(
        Kind.UPSTREAM_CLOSED, "The upstream closed the connection before it answered.", cause=kind_of(error)
    )


def _unconnected(error: aiohttp.ClientConnectorError) -> str:
    """Why there is no connection, in words that say what to look at."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "The upstream's host name could not be resolved."
    if isinstance(error, aiohttp.ClientSSLError):
        return "The upstream's certificate was not accepted, or it does not speak TLS."
    if isinstance(error.os_error, ConnectionRefusedError):
        return "The upstream refused the connection."
    return f"The upstream could not be reached ({error.strerror or error.os_error})."
