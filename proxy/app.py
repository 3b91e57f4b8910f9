"""The composition root: the only file that knows every class. Builds, starts in order, stops in reverse."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack

import structlog
from aiohttp import web

from proxy import __version__
from proxy.access.sealing import Sealer
from proxy.conversation.memory import MemoryStore
from proxy.models.cache import CatalogCache
from proxy.models.catalog import Names
from proxy.models.chosen import chosen_profiles
from proxy.server.door import Door, answer_errors, name_request
from proxy.server.models import ModelsRoute
from proxy.server.operations import OperationsRoute
from proxy.server.responses import ResponsesRoute
from proxy.server.websocket import WebSocketRoute
from proxy.session.registry import Registry
from proxy.session.services import Services
from proxy.session.session import SessionLimits
from proxy.session.tasks import Tasks
from proxy.settings import Endpoint as EndpointSettings
from proxy.settings import Settings, api_key
from proxy.state_folder import load_secrets
from proxy.telemetry.logging import Log, http_logger
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.observer import Observer, Observers
from proxy.translate.tools.listed import ToolMemo
from proxy.upstream.endpoint import Endpoint
from proxy.upstream.http import AiohttpClient
from proxy.wire.client_events import Limits


class Loopline:
    """A server that runs inside an event loop: `async with Loopline(settings) as server`.

    `url` is where clients point their base URL, `/v1` included. `observers` are told beside metrics and log. Raises
    OSError where a port cannot be had, `BadSetting` where the secrets of the state folder are damaged or the profile of
    the endpoint is none.
    """

    def __init__(self, settings: Settings, observers: Sequence[Observer] = ()) -> None:
        self.settings = settings
        self._observers = tuple(observers)
        self.port = settings.server.port
        self.admin_port = settings.server.admin_port
        self._stack = AsyncExitStack()

    @property
    def url(self) -> str:
        """The base URL for clients."""
        host = self.settings.server.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/v1"

    async def __aenter__(self) -> Loopline:
        async with AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.operations.ready = False
        await self._stack.aclose()

    async def drain(self) -> None:
        """Welcome nobody new, let what runs end within `server.drain_grace_s`; leaving the context follows.

        Idle sockets are closed one after another over the first half of that time, so that their clients do not
        come back elsewhere as one.
        """
        grace_s = self.settings.server.drain_grace_s
        self.operations.ready = False
        self.responses.draining = True
        await asyncio.gather(self.sockets.drain(grace_s), self._rest(grace_s))

    async def _rest(self, grace_s: float) -> None:
        """Wait for what runs by HTTP; what still runs then is ended when the registry closes."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self.registry.rested()

    async def _start(self, stack: AsyncExitStack) -> None:
        settings = self.settings
        self.metrics = Metrics(__version__)
        observer = Observers((self.metrics, Log(), *self._observers))
        secrets = load_secrets(settings, os.environ)
        for warning in secrets.warnings:
            structlog.get_logger().warning(warning)
        self.services = services = _services(settings, observer, Sealer(secrets.keys))
        stack.push_async_callback(services.store.aclose)
        client = services.client
        assert isinstance(client, AiohttpClient)
        stack.push_async_callback(client.aclose)
        self.tasks = Tasks(observer.crashed)
        stack.push_async_callback(self.tasks.aclose)
        self.registry = Registry(self.tasks)
        self.operations = OperationsRoute(self.metrics.render, __version__)
        app = self._routes(services, secrets.tenant)
        runner = web.AppRunner(
            app,
            access_log=None,
            logger=http_logger(),
            handler_cancellation=True,
            max_field_size=settings.limits.header_bytes,
            max_line_size=settings.limits.header_bytes,
            auto_decompress=False,
            keepalive_timeout=settings.server.head_s,  # counts before the first request too, and while a head comes
            shutdown_timeout=5.0,
        )
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        # Before the runner, which would wait for handlers whose turns nobody has ended.
        stack.push_async_callback(self.registry.aclose)
        stack.push_async_callback(self.sockets.aclose)
        self.port = await _listen(stack, runner, settings.server.host, settings.server.port)
        if settings.server.admin_port:
            await self._start_admin(stack)
        self.operations.ready = True

    def _routes(self, services: Services, tenant_secret: bytes) -> web.Application:
        settings = self.settings
        door = Door(
            insecure=settings.server.insecure,
            allowed_origins=frozenset(settings.server.allowed_origins),
            secret=tenant_secret,
        )
        limits = Limits(input_items=settings.limits.input_items, tools=settings.limits.tools)
        self.sockets = WebSocketRoute(
            services,
            self.registry,
            door,
            SessionLimits(
                frame_bytes=settings.limits.frame_bytes,
                queued_turns=settings.limits.queued_turns,
                queued_bytes=settings.limits.queued_bytes,
                lanes=settings.limits.lanes,
                running_turns=settings.limits.running_turns,
                stall_s=settings.server.client_stall_s,
                lifetime_s=settings.server.lifetime_s,
                lifetime_grace_s=settings.server.lifetime_grace_s,
                keepalive_s=settings.server.keepalive_s,
                request=limits,
            ),
            enabled=settings.server.websocket,
            ping_interval_s=settings.server.ping_interval_s,
            frame_hard_bytes=settings.limits.frame_hard_bytes,
            outbox_bytes=settings.limits.outbox_bytes,
        )
        self.responses = ResponsesRoute(
            services,
            self.registry,
            door,
            limits,
            stall_s=settings.server.client_stall_s,
            keepalive_s=settings.server.keepalive_s,
        )
        models = ModelsRoute(services, door)
        app = web.Application(middlewares=[answer_errors], client_max_size=settings.limits.frame_bytes)
        app.on_response_prepare.append(name_request)
        app.router.add_get("/v1/responses", self.sockets.handle, allow_head=False)
        app.router.add_post("/v1/responses", self.responses.handle)
        app.router.add_get("/v1/models", models.handle_list)
        app.router.add_get("/v1/models/{name:.+}", models.handle_one)
        app.router.add_get("/healthz", self.operations.health)
        if not settings.server.admin_port:
            self._add_operations(app)
        return app

    def _add_operations(self, app: web.Application) -> None:
        app.router.add_get("/readyz", self.operations.readiness)
        app.router.add_get("/metrics", self.operations.metrics)

    async def _start_admin(self, stack: AsyncExitStack) -> None:
        app = web.Application()
        app.router.add_get("/healthz", self.operations.health)
        self._add_operations(app)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        self.admin_port = await _listen(stack, runner, self.settings.server.admin_host, self.settings.server.admin_port)


def _services(settings: Settings, observer: Observers, sealer: Sealer) -> Services:
    known = chosen_profiles(settings)
    client = AiohttpClient(keepalive_s=settings.upstream.keepalive_s, connect_s=settings.upstream.connect_timeout_s)
    return Services(
        client=client,
        endpoints=tuple(_endpoint(endpoint, settings) for endpoint in settings.endpoints),
        catalogs=CatalogCache(client, settings.models.cache_ttl_s, time.monotonic, known),
        names=Names(settings.models.aliases, settings.models.default),
        store=MemoryStore(settings.store.memory_bytes, settings.store.ttl_s),
        tools=ToolMemo(),
        observer=observer,
        clock=time.monotonic,
        wall=time.time,
        early_events_s=settings.server.early_events_s,
        history_bytes=settings.limits.history_bytes,
        max_event_bytes=settings.upstream.max_event_bytes,
        max_output_bytes=settings.upstream.max_output_bytes,
        sealer=sealer,
    )


def _endpoint(endpoint: EndpointSettings, settings: Settings) -> Endpoint:
    return Endpoint(
        endpoint.name,
        endpoint.url,
        key=api_key(endpoint, os.environ),
        headers=endpoint.headers,
        query=endpoint.query,
        forward=endpoint.forward_headers,
        ca_bundle=endpoint.ca_bundle,
        proxy=endpoint.proxy,
        dialect=endpoint.dialect,
        profile=endpoint.profile,
        faithful=endpoint.faithful,
        max_output_tokens=endpoint.max_output_tokens,
        context_hint=endpoint.context_hint,
        first_byte_s=settings.upstream.first_byte_timeout_s,
        idle_s=settings.upstream.idle_timeout_s,
    )


async def _listen(stack: AsyncExitStack, runner: web.AppRunner, host: str, port: int) -> int:
    """Listen until the stack unwinds; returns the port, which the system chooses for 0."""
    site = web.TCPSite(runner, host, port)
    await site.start()
    # First of all: a client that is told to connect elsewhere must not find this door open again.
    stack.push_async_callback(site.stop)
    address: tuple[str, int] = runner.addresses[0]
    return address[1]
