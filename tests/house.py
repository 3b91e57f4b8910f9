"""A Loopline before a simulated upstream, both in this process, with an observer that tests can wait on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from proxy.app import Loopline
from proxy.settings import Settings, load
from proxy.telemetry.observer import NoObserver, PassedRecord, SessionRecord, TurnRecord
from proxy.tools.simulate import Options, Simulated, start
from proxy.tools.simulate.journal import Request
from tests.wire_client import WireClient, open_socket

DIALECTS = ("chat", "responses")
BEARER = {"Authorization": "Bearer test"}


def settings_for(url: str, dialect: str, extra: Mapping[str, object] | None = None) -> Settings:
    """Settings for a server on a free port before `url`."""
    flags: dict[str, object] = {
        "server.port": 0,
        "endpoints[0].url": url,
        "endpoints[0].dialect": dialect,
        "models.default": "simulated",
        **(extra or {}),
    }
    return load(None, flags, {})


class Watcher(NoObserver):
    """An observer that keeps what it is told; `wait_for` returns as soon as something holds."""

    def __init__(self) -> None:
        self.turns: list[TurnRecord] = []
        self.sessions: list[SessionRecord] = []
        self.passed_on: list[PassedRecord] = []
        self.crashes: list[BaseException] = []
        self._waiters: set[asyncio.Event] = set()

    def turn_started(self, record: TurnRecord) -> None:
        self._changed()

    def turn_ended(self, record: TurnRecord) -> None:
        self.turns.append(record)
        self._changed()

    def session_opened(self, record: SessionRecord) -> None:
        self._changed()

    def session_ended(self, record: SessionRecord) -> None:
        self.sessions.append(record)
        self._changed()

    def passed(self, record: PassedRecord) -> None:
        self.passed_on.append(record)
        self._changed()

    def crashed(self, where: str, error: BaseException) -> None:
        self.crashes.append(error)

    async def wait_for(self, holds: Callable[[], bool], timeout_s: float = 5.0) -> None:
        """Wait until `holds()`, which is asked after each turn and session."""
        changed = asyncio.Event()
        self._waiters.add(changed)
        try:
            async with asyncio.timeout(timeout_s):
                while not holds():
                    changed.clear()
                    await changed.wait()
        finally:
            self._waiters.discard(changed)

    def _changed(self) -> None:
        for waiter in self._waiters:
            waiter.set()


@dataclass(slots=True)
class House:
    """A running server, its upstream (None where a test brings its own) and its watcher."""

    server: Loopline
    dialect: str
    watcher: Watcher
    http: aiohttp.ClientSession
    simulated: Simulated | None = None
    expected_crashes: int = field(default=0)

    @property
    def upstream(self) -> Simulated:
        """The simulated upstream."""
        assert self.simulated is not None
        return self.simulated

    @property
    def url(self) -> str:
        """The base URL for clients, `/v1` included."""
        return self.server.url

    @property
    def root(self) -> str:
        """The same without `/v1`."""
        return self.server.url.removesuffix("/v1")

    def connect(self, token: str | None = "test", **options: Any) -> AbstractAsyncContextManager[WireClient]:
        """A socket of a client with this bearer."""
        return open_socket(self.url, token, **options)

    def post(self, body: Mapping[str, Any], **options: Any) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """`POST /v1/responses`."""
        options.setdefault("headers", BEARER)
        return self.http.post(f"{self.url}/responses", json={"model": "simulated", **body}, **options)

    def asked(self, number: int = -1) -> list[dict[str, Any]]:
        """The conversation in an upstream request: messages or input items."""
        body = self.upstream.requests[number].body
        conversation: list[dict[str, Any]] = body["messages" if self.dialect == "chat" else "input"]
        return conversation

    def said(self, number: int = -1) -> list[str]:
        """The texts in an upstream request, in order: content, arguments and outputs, instructions first."""
        request = self.upstream.requests[number]
        first = [request.body["instructions"]] if request.body.get("instructions") else []
        return first + [text for entry in self.asked(number) for text in _texts(entry)]

    async def aborted(self, timeout_s: float = 1.0) -> Request:
        """Wait until the upstream has noticed that its last request was given up."""
        await self.upstream.wait_for(lambda u: bool(u.requests) and u.requests[-1].aborted, timeout_s)
        return self.upstream.requests[-1]

    async def empty(self, timeout_s: float = 1.0) -> None:
        """Wait until no turn, no lease and no session is left."""
        await self.watcher.wait_for(lambda: not any(self.left()), timeout_s)

    def left(self) -> tuple[int, int, int]:
        """Turns, leases and sessions that exist now."""
        server = self.server
        return len(server.registry), server.services.endpoints[0].in_flight, len(server.sockets.sessions)


def _texts(entry: Mapping[str, Any]) -> list[str]:
    content = entry.get("content") or []
    texts = [content] if isinstance(content, str) else [part.get("text", "") for part in content]
    texts += [call["function"]["arguments"] for call in entry.get("tool_calls") or ()]
    texts += [entry[name] for name in ("arguments", "output") if name in entry]
    return [text for text in texts if text]


@asynccontextmanager
async def house_before(
    url: str, dialect: str, extra: Mapping[str, object] | None = None, simulated: Simulated | None = None
) -> AsyncIterator[House]:
    """A server before the upstream at `url`; at the end nothing may be left of any turn."""
    watcher = Watcher()
    async with Loopline(settings_for(url, dialect, extra), (watcher,)) as server, aiohttp.ClientSession() as http:
        house = House(server, dialect, watcher, http, simulated)
        yield house
        await house.empty()
        assert len(watcher.crashes) == house.expected_crashes, watcher.crashes


@asynccontextmanager
async def open_house(
    dialect: str, extra: Mapping[str, object] | None = None, options: Options | None = None
) -> AsyncIterator[House]:
    """A server before a simulated upstream."""
    async with await start(options or Options()) as upstream, house_before(upstream.url, dialect, extra, upstream) as h:
        yield h
