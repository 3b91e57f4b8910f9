"""The simulated upstream as an HTTP server: it listens, routes, checks and keeps the journal."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import signal
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec
from aiohttp import web

from . import chat, model, responses, strict, strict_responses
from .journal import Journal, Request
from .options import Options
from .script import ScriptError, Step
from .sending import NAME, Sending, error_response, failure_response, json_response
from .stream import Stream
from .tokens import PrefixCache, count

_MAX_BODY_BYTES = 512 * 1024 * 1024
_MAX_ONCE = 100_000  # conversations remembered for `once`
_SHUTDOWN_S = 0.2  # requests still open are cut off, as a killed server does
_PAGES = ("/health", "/version", "/v1/models")
# vLLM's words
_TOO_LONG = (
    "This model's maximum context length is {} tokens. However, your request has {} input tokens. "
    "Please reduce the length of the input messages."
)


class Dialect(NamedTuple):
    """The pure functions of one dialect."""

    name: str
    check: Callable[[Mapping[str, Any], bool], None]
    normalise: Callable[[Mapping[str, Any], str], model.Ask]
    stream: Callable[[model.Reply], Stream]
    whole: Callable[[model.Reply], bytes]


DIALECTS: Mapping[str, Dialect] = {
    "/v1/chat/completions": Dialect("chat", strict.check_chat, chat.normalise, chat.stream, chat.whole),
    "/v1/responses": Dialect(
        "responses", strict_responses.check, responses.normalise, responses.stream, responses.whole
    ),
}


class _Server(web.Server):
    """aiohttp's low-level server, counting connections and taking large bodies."""

    def __init__(self, handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], journal: Journal, **k: Any):
        super().__init__(handler, request_factory=self._request, handler_cancellation=True, **k)
        self._journal = journal

    def connection_made(self, handler: Any, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._journal.connections += 1
        self._journal.changed()

    def _request(self, message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
        return web.BaseRequest(
            message, payload, protocol, writer, task, asyncio.get_running_loop(), client_max_size=_MAX_BODY_BYTES
        )


class Simulated:
    """A running simulated upstream. Made by `start`; close it with `aclose` or as an async context manager."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.port = 0
        self.host = ""
        self._journal = Journal()
        self._cache = PrefixCache(options.prefix_cache_blocks)
        self._ids = model.Ids()
        self._once: OrderedDict[bytes, None] = OrderedDict()
        self._started_at = int(time.time())
        self._server = _Server(self._handle, self._journal, access_log=None, keepalive_timeout=options.keepalive_s)
        self._runner = web.ServerRunner(self._server, shutdown_timeout=_SHUTDOWN_S)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    @property
    def url(self) -> str:
        """The base URL for clients, with `/v1`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/v1"

    @property
    def requests(self) -> deque[Request]:
        """The last 1,000 requests to the two model routes, oldest first."""
        return self._journal.requests

    @property
    def open_requests(self) -> int:
        """Model requests in flight."""
        return self._journal.open_requests

    @property
    def connections(self) -> int:
        """Connections accepted since the start."""
        return self._journal.connections

    @property
    def open_connections(self) -> int:
        """Connections open now."""
        return len(self._server.connections)

    async def wait_for(self, predicate: Callable[[Simulated], bool], timeout: float = 5.0) -> None:  # noqa: ASYNC109
        """Return as soon as `predicate(self)` holds; raises `TimeoutError`.

        It is asked again when a connection opens and when a request begins, sends tokens or ends.
        """
        await self._journal.wait_for(lambda: predicate(self), timeout)

    async def listen(self, host: str, port: int) -> None:
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, backlog=4096)  # a load test opens as many at once
        await site.start()
        self.host, self.port = self._runner.addresses[0][:2]

    async def aclose(self) -> None:
        """Stop listening, cut off what is still open."""
        await self._runner.cleanup()

    # ------------------------------------------------------------------------------------------ routes

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path, key = request.path, self.options.api_key
        if key and path.startswith("/v1") and request.headers.get("Authorization") != f"Bearer {key}":
            return json_response({"error": "Unauthorized"}, 401)  # vLLM's own shape, unlike its other errors
        wanted = "POST" if path in DIALECTS else "GET" if path in _PAGES else ""
        if request.method != wanted:
            return json_response({"detail": "Method Not Allowed" if wanted else "Not Found"}, 405 if wanted else 404)
        if wanted == "GET":
            return self._page(path)
        return await self._journalled(request, DIALECTS[path])

    def _page(self, path: str) -> web.Response:
        if path == "/health":
            return web.Response(headers={"Server": NAME})
        if path == "/version":
            return json_response({"version": NAME})
        entry = {"object": "model", "created": self._started_at, "owned_by": NAME, "parent": None}
        size = {"max_model_len": self.options.context_tokens}
        models = [{"id": name, **entry, "root": name, **size} for name in self.options.served]
        return json_response({"object": "list", "data": models})

    async def _journalled(self, request: web.BaseRequest, dialect: Dialect) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        entry = Request(dialect.name, request.path, headers, time.monotonic())
        self._journal.begin(entry)
        try:
            return await self._answer(request, dialect, entry)
        except (asyncio.CancelledError, ConnectionError):
            entry.aborted = True
            raise
        finally:
            self._journal.end(entry, time.monotonic())

    async def _answer(self, request: web.BaseRequest, dialect: Dialect, entry: Request) -> web.StreamResponse:
        try:
            ask = await self._read(request, dialect, entry)
            tokens = self._fitting(ask)
            step = _step(ask, dialect)
        except strict.Unexpected as error:
            return _noted(json_response({"detail": str(error)}, 422), entry)
        except strict.Invalid as error:
            return _noted(error_response(error.status, error.message, error.kind, error.param), entry)
        if step.fail is not None and self._strikes(step.fail.once, ask):
            return _noted(failure_response(step.fail), entry)
        sending = Sending(request, entry, self._journal, self._reply(step, ask, entry.body, tokens))
        if ask.stream and not step.as_json:
            return await sending.stream(dialect.stream)
        return await sending.whole(dialect.whole)

    async def _read(self, request: web.BaseRequest, dialect: Dialect, entry: Request) -> model.Ask:
        if request.content_type != "application/json":
            raise strict.Invalid("Unsupported Media Type: Only 'application/json' is allowed", kind="Bad Request")
        raw = await request.read()
        entry.body_bytes = len(raw)
        entry.body = _decode(raw)
        dialect.check(entry.body, self.options.strict_fields)
        ask = dialect.normalise(entry.body, self.options.model)
        if not self.options.any_model and ask.model not in self.options.served:
            message = f"The model `{ask.model}` does not exist."
            raise strict.Invalid(message, "model", status=404, kind="NotFoundError")
        return ask

    def _fitting(self, ask: model.Ask) -> bytes:
        """The prompt's tokens, if the context holds them."""
        tokens = model.prompt(ask)
        if count(tokens) > self.options.context_tokens:
            raise strict.Invalid(_TOO_LONG.format(self.options.context_tokens, count(tokens)), "input_tokens")
        return tokens

    def _reply(self, step: Step, ask: model.Ask, body: Mapping[str, Any], tokens: bytes) -> model.Reply:
        if step.fault is not None and not self._strikes(step.fault.once, ask):
            step = replace(step, fault=None)
        answer = model.compose(step, ask, self.options.context_tokens - count(tokens))
        admitted = self._cache.admit(tokens, ask.salt)
        self._cache.extend(admitted, model.completion(answer))
        usage = model.usage(count(tokens), admitted.cached_tokens, answer)
        return model.Reply(ask, body, answer, usage, self._ids, int(time.time()), self.options)

    def _strikes(self, once: bool, ask: model.Ask) -> bool:
        """Whether a failure happens: one marked `once` only when this conversation comes for the first time."""
        if not once:
            return True
        key = model.conversation_key(ask)
        if key in self._once:
            return False
        self._once[key] = None
        if len(self._once) > _MAX_ONCE:
            self._once.popitem(last=False)
        return True


def _noted(response: web.Response, entry: Request) -> web.Response:
    entry.status = response.status
    return response


def _decode(raw: bytes) -> dict[str, Any]:
    try:
        body = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise strict.Invalid(f"JSON decode error: {error}", kind="Bad Request") from None
    if not isinstance(body, dict):
        raise strict.Invalid("Input should be a valid dictionary", kind="Bad Request")
    return body


def _step(ask: model.Ask, dialect: Dialect) -> Step:
    try:
        return model.decide(ask)
    except ScriptError as error:
        raise strict.Invalid(str(error), "messages" if dialect.name == "chat" else "input") from None


async def start(options: Options | None = None, host: str = "127.0.0.1", port: int = 0) -> Simulated:
    """Start a simulated upstream on a free port (or `port`). Close it with `aclose`, or use `async with`."""
    server = Simulated(options or Options())
    await server.listen(host, port)
    return server


def run(host: str, port: int, options: Options) -> None:
    """Serve until SIGINT or SIGTERM; prints the address once it listens."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    with contextlib.suppress(ImportError):  # faster, but not needed
        factory = importlib.import_module("uvloop").new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(_serve(host, port, options))


async def _serve(host: str, port: int, options: Options) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with await start(options, host, port) as server:
        print(f"simulated upstream on {server.url}", flush=True)
        await stop.wait()
