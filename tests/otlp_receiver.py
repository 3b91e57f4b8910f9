"""A collector that keeps what it is sent: OTLP over HTTP, decoded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass(slots=True)
class Received:
    """One span: its ids in hex, its attributes as values."""

    raw: Span
    resource: dict[str, Any]

    @property
    def trace(self) -> str:
        """The trace's id."""
        return self.raw.trace_id.hex()

    @property
    def id(self) -> str:
        """Its own id."""
        return self.raw.span_id.hex()

    @property
    def parent(self) -> str:
        """The parent's id, empty for none."""
        return self.raw.parent_span_id.hex()

    @property
    def links(self) -> list[tuple[str, str]]:
        """Traces and spans that it is linked to."""
        return [(link.trace_id.hex(), link.span_id.hex()) for link in self.raw.links]

    @property
    def attributes(self) -> dict[str, Any]:
        """By name."""
        return _values(self.raw.attributes)

    @property
    def failed(self) -> bool:
        """Is its status an error?"""
        return self.raw.status.code == self.raw.status.STATUS_CODE_ERROR

    @property
    def traceparent(self) -> str:
        """What whoever is called below it should have been told."""
        return f"00-{self.trace}-{self.id}-01"


@dataclass(slots=True)
class Receiver:
    """A running one; it answers with `status`."""

    url: str = ""
    status: int = 200
    spans: list[Received] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    bodies: bytes = b""
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, request: web.Request) -> web.Response:
        """Take what was sent."""
        body = await request.read()
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        self.bodies += body
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource = _values(group.resource.attributes)
            self.spans += [Received(span, resource) for scope in group.scope_spans for span in scope.spans]
        self.arrived.set()
        return web.Response(status=self.status, text="the collector's words")

    def named(self, name: str) -> list[Received]:
        """The spans whose name begins so, by their start."""
        found = [span for span in self.spans if span.raw.name.startswith(name)]
        return sorted(found, key=lambda span: span.raw.start_time_unix_nano)

    def below(self, parent: Received) -> list[Received]:
        """Its children, by their start."""
        found = [span for span in self.spans if span.parent == parent.id]
        return sorted(found, key=lambda span: span.raw.start_time_unix_nano)

    async def until(self, holds: Callable[[Receiver], bool], timeout_s: float = 10.0) -> None:
        """Wait until enough has arrived."""
        async with asyncio.timeout(timeout_s):
            while not holds(self):
                self.arrived.clear()
                await self.arrived.wait()


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


@asynccontextmanager
async def otlp_receiver() -> AsyncIterator[Receiver]:
    """Start one on a free port of loopback."""
    receiver = Receiver()
    app = web.Application()
    app.router.add_post("/v1/traces", receiver.handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        address: tuple[str, int] = runner.addresses[0]
        receiver.url = f"http://127.0.0.1:{address[1]}"
        yield receiver
    finally:
        await runner.cleanup()
