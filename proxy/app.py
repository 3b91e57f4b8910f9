"""The composition root: the only file that knows every class. Builds, starts in order, stops in reverse."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack

import structlog
from aiohttp import web

from proxy import __version__
from proxy.access.forwarded import TrustedProxies
from proxy.access.gate import Gate
from proxy.access.key_file import KeyFile
from proxy.access.keys import BadKey
from proxy.access.sealing import Sealer
from proxy.models.catalog import Names
from proxy.server.body import BodyReader
from proxy.server.connection import Runner
from proxy.server.door import Door, answer_errors, make_safe, name_request, telling_limits
from proxy.server.models import ModelsRoute
from proxy.server.operations import OperationsRoute
from proxy.server.passthrough import PassthroughRoute
from proxy.server.responses import ResponsesRoute
from proxy.server.status import Sources, StatusRoute
from proxy.server.stored import StoredRoute
from proxy.server.tls import Certificate
from proxy.server.websocket import WebSocketRoute
from proxy.session.background import Backgrounds
from proxy.session.known import Known
from proxy.session.limits import SessionLimits
from proxy.session.registry import Registry
from proxy.session.services import Services
from proxy.session.tasks import Tasks
from proxy.settings import Settings, is_loopback, status_key
from proxy.state_folder import load_secrets
from proxy.telemetry import families
from proxy.telemetry.caches import Cache
from proxy.telemetry.health import Health
from proxy.telemetry.lag import LagSampler
from proxy.telemetry.logging import Log, http_logger
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.numbers import Numbers
from proxy.telemetry.observer import Observer, Observers
from proxy.telemetry.recent import Recent
from proxy.upstream.http import Http1Client
from proxy.upstream.relay import Relay
from proxy.wire.client_events import Limits as RequestLimits
from proxy.wiring import load_keys, make_services, make_tracing, passthrough_rules, quota

_LOOK_AGAIN_S = 1.0
_GATHER_S = 0.1  # how long turns that ended wait to be counted and logged together with others
_BACKLOG = (
    4096  # connections not taken yet: clients come back all at once after a restart; the system may bound it lower
)
_BACKGROUND_PART = 0.9  # of the time to drain


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
        self.certificate: Certificate | None = None
        self._stack = AsyncExitStack()

    @property
    def url(self) -> str:
        """The base URL for clients."""
        host = self.settings.server.host
        scheme = "https" if self.settings.server.tls_cert else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}/v1"

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
        self.responses.draining = self.passthrough.draining = True
        await asyncio.gather(self.sockets.drain(grace_s), self._rest(grace_s))

    async def _rest(self, grace_s: float) -> None:
        """Wait for what runs by HTTP; what still runs then is ended when the registry closes.

        What runs in the background ends a little sooner, so that whoever polls can still read how.
        """
        for part, end in ((_BACKGROUND_PART, self.backgrounds.end_all), (1 - _BACKGROUND_PART, lambda: None)):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_s * part):
                    await self.registry.rested()
                    await self.passthrough.rested()
            end()

    async def _start(self, stack: AsyncExitStack) -> None:
        settings = self.settings
        observer = self._observe(stack)
        secrets = load_secrets(settings, os.environ)
        self.keys = load_keys(settings)
        for warning in secrets.warnings:
            structlog.get_logger().warning(warning)
        self.services = services = make_services(settings, observer, Sealer(secrets.keys))
        stack.push_async_callback(services.store.aclose)
        client = services.client
        assert isinstance(client, Http1Client)
        stack.push_async_callback(client.aclose)
        self.tasks = Tasks(observer.crashed)
        stack.push_async_callback(self.tasks.aclose)
        self.registry = Registry(self.tasks)
        server, upstream = settings.server, settings.upstream
        relay = Relay(
            keepalive_s=upstream.keepalive_s,
            connect_s=upstream.connect_timeout_s,
            header_bytes=settings.limits.header_bytes,
        )
        stack.push_async_callback(relay.aclose)
        if server.tls_cert:
            self.certificate = Certificate(server)
            _ = self.tasks.spawn(self.certificate.watch(), "watch the certificate")
        if services.known is not None:
            _ = self.tasks.spawn(_forget(services.known), "forget histories in time")
        app = self._routes(services, secrets.tenant, relay)
        if self.keys is not None:
            watching = self.tasks.spawn(_follow(self.keys, self.backgrounds), "follow the file of keys")
            stack.callback(watching.cancel)
        if settings.metrics.enabled:
            self._watch(services)
            stack.callback(self.lag.stop)
        runner = Runner(
            app,
            observer,
            logger=http_logger(),
            handler_cancellation=True,
            max_field_size=settings.limits.header_bytes,
            max_line_size=settings.limits.header_bytes,
            max_headers=settings.limits.headers,
            auto_decompress=False,
            keepalive_timeout=settings.server.head_s,  # counts before the first request too, and while a head comes
            shutdown_timeout=5.0,
        )
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        # Before the runner, which would wait for handlers whose turns nobody has ended.
        stack.push_async_callback(self.registry.aclose)
        stack.push_async_callback(self.sockets.aclose)
        self.port = await _listen(stack, runner, server.host, server.port, self.certificate)
        if settings.server.admin_port:
            await self._start_admin(stack, observer)
        self.operations.ready = True

    def _observe(self, stack: AsyncExitStack) -> Observers:
        """Who is told of what happens; what is off is not made. `metrics`, `recent` and `lag` are there if on."""
        log = Log()
        told: list[Observer]
        if self.settings.metrics.enabled:
            self.metrics, self.recent = Metrics(__version__), Recent()
            told = [self.metrics, log, *([] if self.settings.server.status == "off" else [self.recent])]
            self.health = self.metrics.health
        else:
            health = Health(Numbers(families.UPSTREAM_UP))
            told = [health, log]
            self.health = health.health
        loop = asyncio.get_running_loop()
        observer = Observers(
            (*told, *self._traces(stack), *self._observers), lambda settle: loop.call_later(_GATHER_S, settle)
        )
        stack.callback(observer.settle)
        log.before = observer.settle
        if self.settings.metrics.enabled:
            self.metrics.before = self.recent.before = observer.settle
        return observer

    def _caches(self, services: Services) -> dict[str, Cache]:
        """The caches that report, by name."""
        caches = {
            "store": services.store,
            "catalog": services.catalogs,
            "terms": services.terms,
            "tools": services.tools,
            **(services.known.caches() if services.known is not None else {}),
        }
        return {name: cache for name, cache in caches.items() if isinstance(cache, Cache)}

    def _watch(self, services: Services) -> None:
        """What metrics look at when somebody asks for them."""
        budget = self.gate.accounts.whole.budget
        self.metrics.running = lambda: len(self.registry)
        self.lag = LagSampler(self.metrics.loop_lag)
        self.metrics.watch_caches(self._caches(services))
        self.metrics.watch_endpoints(services.endpoints)
        self.metrics.watch(families.TASKS, lambda: len(asyncio.all_tasks()))
        self.metrics.watch(families.MEMORY_USED, lambda: budget.used)
        self.metrics.watch(families.MEMORY_LIMIT, lambda: budget.limit)
        self.metrics.watch(families.LANES_OPEN, self._lanes)

    def _lanes(self) -> int:
        """Lanes of the sockets that are open now."""
        return sum(session.lanes for session in self.sockets.sessions)

    def _status(self, services: Services, door: Door) -> Sequence[web.RouteDef]:
        if not self.settings.metrics.enabled:
            return [web.get(path, self.operations.not_counted) for path in ("/status", "/status.json")]
        sources = Sources(
            __version__,
            services.clock,
            services.wall,
            self.recent,
            sessions=lambda: self.sockets.sessions,
            totals=lambda: {**self.metrics.totals(), "lanes_open": self._lanes()},
            endpoints=self._endpoints,
            caches=self._caches(services),
            budget=self.gate.accounts.whole.budget,
            lag=lambda: self.lag.latest,
        )
        return StatusRoute(sources, door.check_page, status_key(self.settings, os.environ)).routes()

    def _endpoints(self) -> list[dict[str, object]]:
        """What is known of the upstreams."""
        told: list[dict[str, object]] = []
        for endpoint in self.services.endpoints:
            health, kind = self.health(endpoint.name)
            told.append({"name": endpoint.name, "health": health, "error": kind or None, "turns": endpoint.in_flight})
        return told

    def _traces(self, stack: AsyncExitStack) -> Sequence[Observer]:
        tracing = make_tracing(self.settings)
        if tracing is None:
            return ()
        stack.push_async_callback(tracing.aclose)  # first of all, so that it hears of the last turn's end
        return (tracing,)

    def _routes(self, services: Services, tenant_secret: bytes, relay: Relay) -> web.Application:
        settings = self.settings
        self.gate = Gate(
            tenant_secret,
            self.keys,
            each=quota(settings.access),
            whole=quota(settings.limits),
            clock=services.clock,
            wall=services.wall,
        )
        door = Door(
            insecure=settings.server.insecure,
            allowed_origins=frozenset(settings.server.allowed_origins),
            gate=self.gate,
            proxies=TrustedProxies(settings.server.trusted_proxies),
        )
        render = self.metrics.exposition.pieces if settings.metrics.enabled else None
        self.operations = OperationsRoute(render, door.check_page, __version__, self._endpoints)
        limits = RequestLimits(input_items=settings.limits.input_items, tools=settings.limits.tools)
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
            receive_s=settings.server.receive_s,
        )
        bodies = BodyReader(settings.limits.frame_bytes, settings.limits.inflate_ratio, settings.server.receive_s)
        self.backgrounds = Backgrounds(self.registry, services.clock)
        stored = StoredRoute(
            services,
            self.backgrounds,
            door,
            bodies,
            limits,
            stall_s=settings.server.client_stall_s,
            keepalive_s=settings.server.keepalive_s,
        )
        self.responses = ResponsesRoute(
            services,
            self.registry,
            self.backgrounds,
            door,
            bodies,
            limits,
            stall_s=settings.server.client_stall_s,
            keepalive_s=settings.server.keepalive_s,
        )
        models = ModelsRoute(services, door)
        self.passthrough = PassthroughRoute(
            services,
            relay,
            door,
            passthrough_rules(settings),
            Names(settings.models.aliases, ""),
            allowed=lambda caller: caller.grant,
        )
        app = web.Application(
            middlewares=[answer_errors, self.passthrough.take_the_rest], client_max_size=settings.limits.frame_bytes
        )
        app.on_response_prepare.extend((name_request, make_safe, telling_limits(services.observer)))
        for path in ("/v1/responses", "/v1/codex/responses"):  # pi puts the second behind its base URL
            app.router.add_get(path, self.sockets.handle, allow_head=False)
            app.router.add_post(path, self.responses.handle)
        app.router.add_routes(stored.routes())
        app.router.add_get("/v1/models", models.handle_list)
        app.router.add_get("/v1/models/{name:.+}", models.handle_one)
        app.router.add_get("/healthz", self.operations.health)
        self.status_routes = self._status(services, door)
        if not settings.server.admin_port:
            self._add_operations(app)
        return app

    def _add_operations(self, app: web.Application) -> None:
        app.router.add_get("/readyz", self.operations.readiness)
        # Keys guard what clients use. Numbers about everybody's use are not for strangers, who may come to a port that
        # keys alone protect: server.admin_port has them.
        server = self.settings.server
        exposed = bool(server.trusted_proxies) or not (server.insecure or is_loopback(server.host))
        self.operations.tells_endpoints = bool(server.admin_port) or not exposed
        if self.operations.tells_endpoints:
            app.router.add_get("/metrics", self.operations.metrics)
        if server.status == "key" or (server.status == "auto" and self.operations.tells_endpoints):
            app.router.add_routes(self.status_routes)

    async def _start_admin(self, stack: AsyncExitStack, observer: Observer) -> None:
        app = web.Application(middlewares=[answer_errors])
        app.on_response_prepare.extend((name_request, make_safe))
        app.router.add_get("/healthz", self.operations.health)
        self._add_operations(app)
        runner = Runner(app, observer, logger=http_logger(), keepalive_timeout=self.settings.server.head_s)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        self.admin_port = await _listen(stack, runner, self.settings.server.admin_host, self.settings.server.admin_port)


async def _forget(known: Known) -> None:
    """What came with `store: false` is gone after its time, also where no request follows."""
    while True:
        await asyncio.sleep(_LOOK_AGAIN_S)
        known.expire()


async def _follow(keys: KeyFile, backgrounds: Backgrounds) -> None:
    """Look once a second whether the file has changed; a file that cannot be read changes nothing.

    What runs in the background for a key that was revoked, or is over by then, ends here: nobody sends it a message.
    """
    while True:
        await asyncio.sleep(_LOOK_AGAIN_S)
        try:
            if await asyncio.to_thread(keys.refresh):
                structlog.get_logger().info("access.keys_file: read again", keys=len(keys))
        except (OSError, BadKey) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            structlog.get_logger().warning("access.keys_file: cannot be read; the keys stay as they were", cause=reason)
        backgrounds.end_revoked()


async def _listen(
    stack: AsyncExitStack, runner: web.AppRunner, host: str, port: int, certificate: Certificate | None = None
) -> int:
    """Listen until the stack unwinds; returns the port, which the system chooses for 0."""
    site = web.TCPSite(runner, host, port, ssl_context=certificate.context if certificate else None, backlog=_BACKLOG)
    await site.start()
    # First of all: a client that is told to connect elsewhere must not find this door open again.
    stack.push_async_callback(site.stop)
    address: tuple[str, int] = runner.addresses[0]
    return address[1]
