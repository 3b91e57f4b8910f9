"""`/healthz`, `/readyz`, `/metrics`: for whoever runs this."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from proxy.server.door import JSON
from proxy.wire.codec import encode


class OperationsRoute:
    """`render_metrics` gives the exposition text and its content type; `check` raises `LooplineError` for a request
    that must not see it. `ready` is whether new clients are welcome.

    Whether the process lives and is ready is told to anybody: who asks (a kubelet, a load balancer) does so by an
    address, and learns nothing that a connection would not tell.
    """

    def __init__(
        self, render_metrics: Callable[[], tuple[bytes, str]], check: Callable[[web.Request], None], version: str
    ) -> None:
        self._render_metrics = render_metrics
        self._check = check
        self._version = version
        self.ready = False

    async def health(self, _request: web.Request) -> web.Response:
        """The process lives."""
        return web.Response(body=encode({"status": "ok", "version": self._version}), content_type=JSON)

    async def readiness(self, _request: web.Request) -> web.Response:
        """New clients are welcome: 200, or 503."""
        status = "ready" if self.ready else "draining"
        return web.Response(status=200 if self.ready else 503, body=encode({"status": status}), content_type=JSON)

    async def metrics(self, request: web.Request) -> web.Response:
        """Prometheus text. Raises `LooplineError` (forbidden)."""
        self._check(request)
        body, content_type = self._render_metrics()
        return web.Response(body=body, headers={"Content-Type": content_type})
