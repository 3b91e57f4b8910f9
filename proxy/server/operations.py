"""`/healthz`, `/readyz`, `/metrics`: for whoever runs this."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence

from aiohttp import web

from proxy.errors import Kind, LooplineError
from proxy.server.door import JSON
from proxy.wire.codec import encode


class OperationsRoute:
    """`render_metrics` gives the pieces of the text and its content type for what an `Accept` header asks for, None
    where nothing is counted; `check` raises `LooplineError` for a request that must not see it. `ready` is whether new
    clients are welcome.

    `endpoints` tells what is known of the upstreams (`health` is up, down or unknown); `tells_endpoints` whether
    readiness may show it to those who may see the metrics.

    Whether the process lives and is ready is told to anybody: who asks (a kubelet, a load balancer) does so by an
    address, and learns nothing that a connection would not tell.
    """

    def __init__(
        self,
        render_metrics: Callable[[str], tuple[Iterator[bytes], str]] | None,
        check: Callable[[web.Request], None],
        version: str,
        endpoints: Callable[[], Sequence[Mapping[str, object]]] = tuple,
    ) -> None:
        self._render_metrics = render_metrics
        self._check = check
        self._version = version
        self._endpoints = endpoints
        self.ready = False
        self.tells_endpoints = False

    async def health(self, _request: web.Request) -> web.Response:
        """The process lives."""
        return web.Response(body=encode({"status": "ok", "version": self._version}), content_type=JSON)

    async def readiness(self, request: web.Request) -> web.Response:
        """New clients are welcome: 200, or 503.

        That an upstream is down does not count: it is down for every replica, and to take them all out of service
        would turn an error that tells why into one that does not. With `?upstream=1` it counts, where no endpoint is
        known to be anything else.
        """
        document: dict[str, object] = {"status": "ready" if self.ready else "draining"}
        status = 200 if self.ready else 503
        if self.ready:
            endpoints = self._endpoints()
            if request.query.get("upstream") == "1" and all(each["health"] == "down" for each in endpoints):
                document["status"], status = "upstream_down", 503
            if self._may_see(request):
                document["endpoints"] = endpoints
        return web.Response(status=status, body=encode(document), content_type=JSON)

    def _may_see(self, request: web.Request) -> bool:
        try:
            self._check(request)
        except LooplineError:
            return False
        return self.tells_endpoints

    async def metrics(self, request: web.Request) -> web.Response:
        """Prometheus text, or OpenMetrics for whoever accepts it. Raises `LooplineError` (forbidden, not_found)."""
        self._check(request)
        if self._render_metrics is None:
            return await self.not_counted(request)
        pieces, content_type = self._render_metrics(request.headers.get("Accept", ""))
        body = bytearray()
        for piece in pieces:
            body += piece
            await asyncio.sleep(0)  # streams go on between two families
        return web.Response(body=bytes(body), headers={"Content-Type": content_type})

    async def not_counted(self, _request: web.Request) -> web.Response:
        """What would be shown is not counted. Raises `LooplineError` (not_found)."""
        raise LooplineError(
            Kind.NOT_FOUND, "Nothing is counted here, so there is nothing to show: metrics.enabled is false."
        )
