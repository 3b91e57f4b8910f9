"""Fakes that stand where a turn waits: a scripted upstream, a subscriber, and a checkpoint at every await."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType

from proxy.access.sealing import Sealer
from proxy.conversation.chain import Node
from proxy.conversation.memory import MemoryStore
from proxy.errors import LooplineError
from proxy.http_client import HttpClient, HttpRequest
from proxy.models.cache import CatalogCache
from proxy.models.catalog import Names
from proxy.session.services import Services
from proxy.telemetry.observer import NoObserver
from proxy.translate.tools.listed import ToolMemo
from proxy.upstream.endpoint import Endpoint
from proxy.wire.terms import TermsMemo

MODELS = b'{"object":"list","data":[{"id":"m","object":"model","owned_by":"vllm"}]}'


def chunk(delta: bytes, finish: bytes = b"null") -> bytes:
    """One chunk of a Chat Completions stream."""
    return b'data: {"id":"c","choices":[{"index":0,"delta":%b,"finish_reason":%b}]}\n\n' % (delta, finish)


ANSWER = (
    chunk(b'{"role":"assistant","content":""}'),
    chunk(b'{"content":"Hello"}'),
    chunk(b'{"content":" there"}') + chunk(b"{}", b'"stop"'),
    b"data: [DONE]\n\n",
)


class Checkpoints:
    """Counts the awaits a turn passes; at number `cancel_at` the turn's task is cancelled while it waits there."""

    def __init__(self, cancel_at: int | None = None) -> None:
        self.passed: list[str] = []
        self._cancel_at = cancel_at
        self.cancel: Callable[[], object] = lambda: None

    async def reach(self, name: str) -> None:
        """A place where the turn waits."""
        self.passed.append(name)
        if len(self.passed) - 1 == self._cancel_at:
            self.cancel()
        await asyncio.sleep(0)


class ScriptedClient:
    """An `HttpClient` whose POST answers are scripted; counts the exchanges that are open."""

    def __init__(
        self, checkpoints: Checkpoints, answer: Sequence[bytes] = ANSWER, status: int = 200, *, is_ready: bool = False
    ) -> None:
        self.open_exchanges = 0
        self.posts: list[HttpRequest] = []
        self._checkpoints = checkpoints
        self._answer = answer
        self._status = status
        self.is_ready = is_ready  # is the answer there with its head?

    def open(self, request: HttpRequest) -> _Exchange:
        if request.method == "GET":
            return _Exchange(self, self._checkpoints, "models", (MODELS,), 200)
        self.posts.append(request)
        return _Exchange(self, self._checkpoints, "answer", self._answer, self._status)


class _Exchange:
    def __init__(
        self, client: ScriptedClient, checkpoints: Checkpoints, name: str, answer: Sequence[bytes], status: int
    ) -> None:
        self.status = status
        self.headers: Mapping[str, str] = {}
        self.attempts = 1
        self.is_ready = client.is_ready
        self._client = client
        self._checkpoints = checkpoints
        self._name = name
        self._left = list(answer)

    async def __aenter__(self) -> _Exchange:
        await self._checkpoints.reach(f"open {self._name}")
        self._client.open_exchanges += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.open_exchanges -= 1

    async def read(self) -> bytes:
        await self._checkpoints.reach(f"read {self._name}")
        return self._left.pop(0) if self._left else b""


class WaitingStore(MemoryStore):
    """A store that, like one across a network, waits before it answers."""

    def __init__(self, checkpoints: Checkpoints) -> None:
        super().__init__(1 << 30, 3600)
        self._checkpoints = checkpoints

    async def get(self, tenant: str, response: str, now: float) -> Node | None:
        await self._checkpoints.reach("store get")
        return await super().get(tenant, response, now)

    async def put(self, node: Node, now: float) -> None:
        await self._checkpoints.reach("store put")
        await super().put(node, now)


@dataclass
class Recorder:
    """A subscriber that keeps what it is told; always congested, so that the turn waits after each delivery."""

    checkpoints: Checkpoints
    events: list[bytes] = field(default_factory=list)
    errors: list[LooplineError] = field(default_factory=list)
    ends: int = 0
    congested: bool = True

    def deliver(self, events: Sequence[bytes]) -> None:
        self.events.extend(events)

    def refused(self, error: LooplineError) -> None:
        self.errors.append(error)

    def ended(self) -> None:
        self.ends += 1

    async def drained(self) -> None:
        await self.checkpoints.reach("drained")


def services(client: HttpClient, store: MemoryStore, dialect: str = "chat") -> Services:
    """What a turn uses, with everything scripted."""
    return Services(
        client=client,
        endpoints=(Endpoint("default", "http://upstream/v1", dialect=dialect),),
        catalogs=CatalogCache(client, 300, lambda: 0.0),
        names=Names({}, "m"),
        store=store,
        tools=ToolMemo(),
        terms=TermsMemo(),
        observer=NoObserver(),
        clock=lambda: 0.0,
        wall=lambda: 1_700_000_000.0,
        early_events_s=60.0,
        history_bytes=1 << 30,
        max_event_bytes=1 << 20,
        max_output_bytes=1 << 24,
        sealer=Sealer({"test": bytes(32)}),
    )
