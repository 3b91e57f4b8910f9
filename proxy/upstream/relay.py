"""Requests that are passed on as they came: exact target, headers and bytes, nothing decoded, nothing followed."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Sequence

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.client_proto import ResponseHandler
from yarl import URL

from proxy.errors import Kind, LooplineError, kind_of
from proxy.http_client import HttpRequest, Passed
from proxy.upstream.aiohttp_client import AiohttpResponse, disconnected, timed_out
from proxy.wire.http_headers import splits

# aiohttp adds these where a request has none; here a request is the client's.
_NOT_OURS = ("Accept", "Accept-Encoding", "User-Agent", "Content-Type")
_MAX_HEADERS = 512
_SWITCHED = 101


class Relay:
    """Passes requests on. Build it inside a running loop, close it with `aclose`."""

    def __init__(self, *, keepalive_s: float, connect_s: float, header_bytes: int) -> None:
        self._connect_s = connect_s
        self._header_bytes = header_bytes
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=keepalive_s),
            timeout=aiohttp.ClientTimeout(total=None, connect=None, sock_connect=connect_s, sock_read=None),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=_NOT_OURS,
            trust_env=False,
        )

    async def aclose(self) -> None:
        """Close every connection."""
        await self._session.close()

    async def send(self, passed: Passed) -> RelayedAnswer:
        """Send, and wait for the answer's head. The caller closes the answer.

        Raises `LooplineError`: upstream_unreachable, upstream_timeout, upstream_closed, upstream_garbled; and whatever
        the body raises.
        """
        request = HttpRequest(passed.method, passed.url, first_byte_s=passed.first_byte_s)
        sending = _Sending()
        try:
            async with asyncio.timeout(passed.first_byte_s) as limit:
                body = None
                if passed.body is not None:
                    body = _Stream(sending.watch(passed.body, limit, passed.first_byte_s), ready=passed.ready)
                answer = await self._session.request(
                    passed.method,
                    _exact(passed.url),
                    headers=_spelled_alike(passed.headers),
                    data=body,
                    ssl=self._context(passed.ca_bundle),
                    proxy=passed.proxy or None,
                    allow_redirects=False,
                    read_until_eof=not passed.upgrade,
                    max_line_size=self._header_bytes,
                    max_field_size=self._header_bytes,
                    max_headers=_MAX_HEADERS,
                )
        except TimeoutError as error:
            raise timed_out(error, request, self._connect_s) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # What ended the body is why the upstream got no more of it.
            raise (sending.error or _named(error, request)) from error
        finally:
            sending.awaited = False
        if splits(answer.raw_headers) or splits([(b"", (answer.reason or "").encode(errors="replace"))]):
            answer.close()
            raise LooplineError(Kind.UPSTREAM_GARBLED, "The upstream's answer was not valid HTTP.", cause="headers")
        return RelayedAnswer(answer, passed.idle_s)

    def _context(self, ca_bundle: str) -> ssl.SSLContext | bool:
        if not ca_bundle:
            return True
        if ca_bundle not in self._contexts:
            self._contexts[ca_bundle] = ssl.create_default_context(cafile=ca_bundle)
        return self._contexts[ca_bundle]


class RelayedAnswer(AiohttpResponse):
    """An answer whose head has arrived: `read` gives its body as it was sent."""

    __slots__ = ()

    def __init__(self, answer: aiohttp.ClientResponse, idle_s: float) -> None:
        super().__init__(answer, 1, idle_s)

    @property
    def reason(self) -> str:
        """The words after the status."""
        return self._answer.reason or ""

    @property
    def raw_headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """Names and values as they came."""
        return self._answer.raw_headers

    @property
    def ready(self) -> bool:
        """Is there something of the body already, or its end?"""
        return self._answer.content.total_bytes > 0 or self._answer.content.is_eof()

    @property
    def switched(self) -> bool:
        """Has the upstream left HTTP on this connection (101)?"""
        return self._answer.status == _SWITCHED

    @property
    def protocol(self) -> ResponseHandler:
        """The connection, where `switched`."""
        connection = self._answer.connection
        if connection is None or connection.protocol is None:
            raise LooplineError(Kind.UPSTREAM_CLOSED, "The upstream closed the connection after it had switched.")
        return connection.protocol


class _Sending:
    """The body on its way: while the answer's head is awaited, the time for it starts anew with each piece."""

    def __init__(self) -> None:
        self.awaited = True
        self.error: LooplineError | None = None

    async def watch(
        self, body: AsyncIterable[bytes], limit: asyncio.Timeout, patience_s: float
    ) -> AsyncIterator[bytes]:
        """`body`; what it raises is kept in `error`."""
        loop = asyncio.get_running_loop()
        try:
            async for data in body:
                if self.awaited and not limit.expired():
                    limit.reschedule(loop.time() + patience_s)
                yield data
        except LooplineError as error:
            self.error = error
            raise


class _Stream(aiohttp.Payload):
    """A body that comes in pieces. The head of the request waits for the first only where that is `ready`."""

    _value: AsyncIterator[bytes]

    def __init__(self, value: AsyncIterator[bytes], *, ready: bool) -> None:
        super().__init__(value)
        self._size = None
        self._ready = ready

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        raise TypeError("A stream has no text.")

    async def write(self, writer: AbstractStreamWriter) -> None:
        await self.write_with_length(writer, None)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        self._consumed = True  # what has been read cannot be sent again on another connection
        if not self._ready:
            writer.send_headers()
        async for data in self._value:
            await writer.write(data)


def _spelled_alike(headers: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Repeated names as the first of them is spelled: of others aiohttp would keep the last one alone."""
    spelled: dict[str, str] = {}
    return [(spelled.setdefault(name.lower(), name), value) for name, value in headers]


def _exact(url: str) -> URL:
    exact = URL(url, encoded=True)
    if url.endswith("?"):
        # An empty query is a target of its own, which the library would write without its mark.
        exact._cache["raw_path_qs"] = exact.raw_path_qs + "?"
    return exact


def _named(error: Exception, request: HttpRequest) -> LooplineError:
    if isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError):
        return disconnected(error, request)
    if isinstance(error, aiohttp.ClientResponseError):
        return LooplineError(Kind.UPSTREAM_GARBLED, "The upstream's answer was not valid HTTP.", cause=error.message)
    return LooplineError(Kind.UPSTREAM_UNREACHABLE, "The upstream could not be asked.", cause=kind_of(error))
