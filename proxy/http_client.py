"""What pure code asks of whoever speaks HTTP; `proxy/upstream/http.py` does it, tests hand in a fake."""

from __future__ import annotations

from collections.abc import AsyncIterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

import msgspec


class SendTimes(Protocol):
    """Filled in while a request is sent: when a new connection was there, None for one that was kept (monotonic), and
    how often it was tried, whatever became of it.
    """

    connected_s: float | None
    attempts: int


class AttemptWatch(Protocol):
    """Told of each attempt: each time that a request is sent."""

    def begun(self) -> Sequence[tuple[str, str]]:
        """It is to be sent: the `TRACE_HEADERS` that go with this attempt. The request itself has none."""
        ...

    def answered(self, status: int) -> None:
        """The answer's head is there."""
        ...

    def failed(self, kind: str) -> None:
        """There was no answer, and it is to be sent once more."""
        ...


TRACE_HEADERS = frozenset({"traceparent", "tracestate"})


class HttpRequest(msgspec.Struct, frozen=True):
    """One request. `body` is sent as its parts joined; `ca_bundle` and `proxy` are empty for the defaults.

    `repeatable` says that sending it twice does no harm, so that a reused connection which turns out dead before any
    byte of an answer is replaced silently. `first_byte_s` bounds the wait for the answer's head, `idle_s` the wait
    between two reads of its body. `times` is told how sending it went, `watch` of each attempt. A Struct, since one is
    made for each turn.
    """

    method: str
    url: str
    headers: Sequence[tuple[str, str]] = ()
    query: Mapping[str, str] = {}
    body: Sequence[bytes] = ()
    ca_bundle: str = ""
    proxy: str = ""
    repeatable: bool = True
    first_byte_s: float = 600.0
    idle_s: float = 120.0
    times: SendTimes | None = None
    watch: AttemptWatch | None = None


@dataclass(frozen=True, slots=True)
class Passed:
    """A client's request, to be passed on. `url` and `headers` are sent as they are; `body` is None without one.

    `first_byte_s` bounds the wait for the answer's head after the last piece of the body, `idle_s` the wait between
    two reads of the answer. `upgrade`: the answer may be the switch to another protocol. `ready`: the body's first
    piece is there already, so that the head need not leave before it.
    """

    method: str
    url: str
    headers: Sequence[tuple[str, str]]
    body: AsyncIterable[bytes] | None
    upgrade: bool = False
    ready: bool = False
    ca_bundle: str = ""
    proxy: str = ""
    first_byte_s: float = 600.0
    idle_s: float = 120.0


class HttpResponse(Protocol):
    """An answer whose head has arrived."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Names are matched without regard to case."""
        ...

    @property
    def attempts(self) -> int:
        """How often the request was sent: 1, or 2 where a dead connection was replaced."""
        ...

    @property
    def is_ready(self) -> bool:
        """Does `read` return at once? It may say no although it would."""
        ...

    async def read(self) -> bytes:
        """What has arrived, at least one byte; empty at the end.

        Raises `LooplineError`: upstream_closed, upstream_timeout, upstream_garbled.
        """
        ...


class HttpClient(Protocol):
    """Sends requests. Leaving the context closes the exchange, and the connection where the answer was not read."""

    def open(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpResponse]:
        """Raises `LooplineError`: upstream_unreachable, upstream_timeout, upstream_closed, upstream_garbled."""
        ...


async def read_all(response: HttpResponse, limit_bytes: int) -> bytes:
    """A whole body, cut at `limit_bytes`."""
    parts: list[bytes] = []
    size = 0
    while size < limit_bytes and (data := await response.read()):
        parts.append(data)
        size += len(data)
    return b"".join(parts)[:limit_bytes]
