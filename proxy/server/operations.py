"""`/healthz`, `/readyz`, `/metrics`: for whoever runs this."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from proxy.server.door import JSON
from proxy.wire.codec import encode


class OperationsRoute:
    """`render_metrics` gives the exposition text and its content type; `ready` is whether new clients are welcome."""

    def __init__(self, render_metrics: Callable[[], tuple[bytes, str]], version: str) -> None:
        self._render_metrics = render_metrics
        self._version = version
        self.ready = False

    async def health(self, _request: web.Request) -> web.Response:
        """The process lives."""
        return web.Response(body=encode({"status": "ok", "version": self._version}), content_type=JSON)

    async def readiness(self, _request: web.Request) -> web.Response:
        """New clients are welcome: 200, or 503."""
        status = "ready" if self.ready else "draining"
        return web.Response(status=200 if self.ready else 503, body=encode({"status": status}), content_type=JSON)

    async def metrics(self, _request: web.Request) -> web.Response:
        """Prometheus text."""
        body, content_type = self._render_metrics()
        return web.Response(body=body, headers={"Content-Type": content_type})
