"""Everything under /v1 that is not served here: passed on as it came, and the answer as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import aiohttp
from aiohttp import web

from proxy.access.accounts import Lease
from proxy.access.costs import Meter
from proxy.access.forms import FormModel, boundary_of
from proxy.access.forwarded import FORWARDED_HEADERS
from proxy.access.passing import Allowed, check_model, check_path, check_query, checked_json, is_plain_json, overrides
from proxy.errors import Kind, LooplineError, kind_of
from proxy.http_client import TRACE_HEADERS
from proxy.models.catalog import Names
from proxy.server.departed import noticing_departure
from proxy.server.door import JSON, Door, Handler, go_elsewhere, peer_of
from proxy.server.relayed import Relayed
from proxy.server.tunnel import tunnel
from proxy.session.joining import join_trace
from proxy.session.services import Caller, Services
from proxy.telemetry.observer import PassedRecord
from proxy.upstream.endpoint import Endpoint
from proxy.upstream.relay import Relay
from proxy.wire.http_headers import RawHeaders, end_to_end, values
from proxy.wire.targets import check_target, plain_path

_PREFIX = "/v1/"
# First segments of what is served here: none of it reaches an upstream by another spelling.
_SERVED_HERE = frozenset({"responses", "models", "codex"})
# The upstream is asked without them: who waits for a 100 has had it from here.
_ANSWERED_HERE = frozenset({b"host", b"expect"})
_FORWARDED = frozenset(name.encode() for name in FORWARDED_HEADERS)
_LENGTH = frozenset({b"content-length"})


@dataclass(frozen=True, slots=True)
class PassthroughRules:
    """`paths` are what a caller without a credential of its own may ask for; `exposed`: strangers may reach the port,
    so that an endpoint's own key opens no more than those. `body_bytes` bounds a body that is read before it is sent,
    `receive_s` how long it may come, or in any other body the time between two pieces.
    """

    enabled: bool
    paths: Sequence[str]
    tunnel: bool
    exposed: bool
    body_bytes: int
    receive_s: float
    stall_s: float


class PassthroughRoute:
    """Serves what no other route does. `names` has the aliases, and no default: an embedding is no chat."""

    def __init__(
        self,
        services: Services,
        relay: Relay,
        door: Door,
        rules: PassthroughRules,
        names: Names,
        allowed: Callable[[Caller], Allowed],
    ) -> None:
        self._services = services
        self._relay = relay
        self._door = door
        self._rules = rules
        self._names = names
        self.allowed = allowed
        self._running = 0
        self._rested = asyncio.Event()
        self._rested.set()
        self.draining = False

    async def rested(self) -> None:
        """Until nothing is being passed on."""
        await self._rested.wait()

    @web.middleware
    async def take_the_rest(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """A middleware before the routes: refuses targets that mean two things, and serves what no route does."""
        check_target(request.method, request.raw_path)
        if self._takes(request):
            return await self.handle(request)
        return await handler(request)

    def _takes(self, request: web.Request) -> bool:
        if not (self._rules.enabled and request.raw_path.startswith(_PREFIX)):
            return False
        if not isinstance(request.match_info.http_exception, web.HTTPNotFound):
            return False
        path = plain_path(request.raw_path)
        return path.startswith(_PREFIX) and path.split("/")[2] not in _SERVED_HERE

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Pass one request on. Raises `LooplineError` as long as nothing of an answer was sent."""
        caller = self._door.admit(request)
        _refuse_other_sites(request)
        self._door.gate.check_address(request.raw_path)
        if self.draining:
            return go_elsewhere()
        services, account = self._services, caller.grant.account
        record = PassedRecord(
            method=request.method,
            path=request.raw_path.partition("?")[0],
            received_s=services.clock(),
            endpoint=services.endpoints[0].name,
            request_id=caller.headers.get("x-request-id", ""),
            client=caller.address,
        )
        join_trace(record, caller.headers)
        services.observer.passing(record)
        self._running += 1
        self._rested.clear()
        try:
            with (
                account.begin_turn(0, services.clock()) as lease,
                account.connection() if _is_upgrade(request) else nullcontext(),
            ):
                return await self._pass(request, caller, services.endpoints[0], record, lease)
        except LooplineError as error:
            record.outcome = "failed" if error.kind.value.startswith("upstream") else "refused"
            record.error, record.status = error.kind.value, error.status
            raise
        finally:
            self._running -= 1
            if not self._running:
                self._rested.set()
            record.ended_s = services.clock()
            services.observer.passed(record)

    async def _pass(
        self, request: web.Request, caller: Caller, endpoint: Endpoint, record: PassedRecord, lease: Lease
    ) -> web.StreamResponse:
        allowed = self.allowed(caller)
        limited = allowed.is_own_key or (self._rules.exposed and endpoint.has_key)
        upgrade = _is_upgrade(request)
        if upgrade and (limited or not self._rules.tunnel or request.method != "GET"):
            raise LooplineError(
                Kind.WEBSOCKET_OFF, "WebSocket is not passed on at this path (passthrough.upgrades); use HTTP."
            )
        less = _ANSWERED_HERE if self._door.proxies.trusts(peer_of(request)) else _ANSWERED_HERE | _FORWARDED
        body: AsyncIterator[bytes] | None
        if limited:
            checked = await self._checked(request, caller, endpoint, allowed, lease)
            caller.grant.check()  # a key may have been revoked while its body came
            body, length = checked.body, checked.length
        else:
            pieces = _in_time(_pieces(request), self._rules.receive_s, each=True)
            body, length = (pieces if request.body_exists else None), None
        raw = end_to_end(request.raw_headers, less if length is None else less | _LENGTH)
        headers = _traced(self._kept(_as_text(raw), caller, limited=limited), record)
        if length is not None:
            headers.append(("Content-Length", str(length)))
        if upgrade:
            headers += [("Connection", "Upgrade"), ("Upgrade", request.headers["Upgrade"])]
        passed = endpoint.passed(
            request.method,
            request.raw_path.removeprefix("/v1"),
            headers,
            None if body is None else _counted(body, record),
            upgrade=upgrade,
            ready=request.content.total_bytes > 0,
            keep_credential=not allowed.is_own_key,
        )
        with endpoint.lease(), noticing_departure(request) if body is not None else nullcontext():
            try:
                answer = await self._relay.send(passed)
            except asyncio.CancelledError:  # who leaves a silent upstream has asked it all the same
                if request.content_type == JSON:
                    caller.grant.account.spent(record.bytes_in // 4, self._services.clock())
                raise
            meter: Meter | None = None
            try:
                if answer.switched and not upgrade:
                    raise LooplineError(Kind.UPSTREAM_GARBLED, "The upstream switched protocols unasked.")
                _note_answer(record, answer.status)
                meter = Meter(textual=_is_text(answer.raw_headers))
                response = Relayed(answer, self._rules.stall_s)
                await response.prepare(request)
                if answer.switched:
                    sent, received = await tunnel(request.protocol, answer.protocol, self._rules.stall_s)
                    record.bytes_in, record.bytes_out = record.bytes_in + sent, received
                    record.outcome = "passed"
                    return response
                try:
                    while data := await answer.read():
                        await response.pass_on(data)
                        record.bytes_out += len(data)
                        meter.feed(data)
                except LooplineError as error:
                    # The answer has begun: an error could only be taken for a part of it.
                    stalled = error.kind is Kind.CLIENT_STALLED
                    record.outcome, record.error = "cancelled" if stalled else "failed", error.kind.value
                    await response.cut(flush=not stalled)
                    return response
                await response.write_eof()
                record.outcome = "passed"
                return response
            finally:
                answer.close()
                if meter is not None and answer.status < 400:
                    # A file that is sent along is many bytes and few tokens.
                    said = record.bytes_in if request.content_type == JSON else 0
                    caller.grant.account.spent(meter.tokens(said), self._services.clock())

    def _kept(self, headers: Sequence[tuple[str, str]], caller: Caller, *, limited: bool) -> list[tuple[str, str]]:
        """The headers to send. What the door has taken away from the caller's stays away."""
        kept = []
        for header in headers:
            name, value = header[0].lower(), header[1]
            # Of a header that is repeated, the caller's headers have the last.
            if name in caller.headers and self._door.gate.passes(name, value) and not (limited and overrides(name)):
                kept.append(header)
        return kept

    async def _checked(
        self, request: web.Request, caller: Caller, endpoint: Endpoint, allowed: Allowed, lease: Lease
    ) -> _Checked:
        """The body, once its model is known to be one that the caller may use. Raises `LooplineError`."""
        if request.method != "POST":
            raise LooplineError(Kind.FORBIDDEN, "With a key of this server only POST is passed on.")
        path, _, query = request.raw_path.partition("?")
        check_path(path.removeprefix(_PREFIX), self._rules.paths)
        check_query(query)
        if any(each.lower() != "identity" for each in request.headers.getall("Content-Encoding", [])):
            raise LooplineError(
                Kind.UNSUPPORTED_MEDIA, "With a key of this server bodies must come without Content-Encoding."
            )
        said = request.headers.get("Content-Type", "")
        if not self._door.gate.passes("content-type", said):
            raise LooplineError(Kind.UNSUPPORTED_MEDIA, "The Content-Type holds a key of this server.")
        catalog = await self._services.catalogs.get(endpoint, caller.tenant, caller.headers)
        pieces = _in_time(_pieces(request), self._rules.receive_s)
        if is_plain_json(said):
            body = await self._whole(request.content_length or 0, pieces, caller, lease)
            made = checked_json(body, allowed, lambda name: self._names.resolve(name, catalog))
            return _Checked(_one(made), len(made))

        def check(name: str) -> None:
            check_model(name, allowed)
            self._names.resolve(name, catalog)  # that it exists; a form is sent with the name that it has

        form = FormModel(boundary_of(said), check)
        first = await self._until_known(pieces, form, caller, lease)
        return _Checked(_rest_of(form, first, pieces, caller.grant.check), None)

    async def _whole(self, length: int, pieces: AsyncIterator[bytes], caller: Caller, lease: Lease) -> bytes:
        parts: list[bytes] = []
        size = 0
        budget = caller.grant.account.budget
        budget.admit(min(length, self._rules.body_bytes))
        async for data in pieces:
            budget.admit()
            size += self._bounded(size, data, caller)
            lease.grow(len(data))
            parts.append(data)
        return b"".join(parts)

    async def _until_known(
        self, pieces: AsyncIterator[bytes], form: FormModel, caller: Caller, lease: Lease
    ) -> list[bytes]:
        """What came of a form until its model was known."""
        held: list[bytes] = []
        size = 0
        async for data in pieces:
            form.feed(data)
            size += self._bounded(size, data, caller)
            lease.grow(len(data))
            held.append(data)
            if form.model_known:
                return held
        raise LooplineError(
            Kind.MISSING_PARAMETER, "Missing required parameter: 'model' (a field of the form).", param="model"
        )

    def _bounded(self, size: int, data: bytes, caller: Caller) -> int:
        limit = caller.grant.bound("frame_bytes", self._rules.body_bytes)
        if size + len(data) > limit:
            raise LooplineError(
                Kind.MESSAGE_TOO_LARGE,
                f"The body is larger than {limit} bytes (limits.frame_bytes, or the key's) before its model is "
                "known; in a form, put the model before the file.",
            )
        return len(data)


@dataclass(frozen=True, slots=True)
class _Checked:
    """A body that may be sent, and its length where that is not as the client's headers say."""

    body: AsyncIterator[bytes]
    length: int | None


def _refuse_other_sites(request: web.Request) -> None:
    """A page of another site may have a browser send a GET without an `Origin`; what it says then is this."""
    if "Origin" not in request.headers and request.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site"):
        raise LooplineError(Kind.FORBIDDEN, "Requests that another site's page makes are not passed on.")


def _is_upgrade(request: web.Request) -> bool:
    """To WebSocket: any other protocol may be declined by answering in this one (RFC 9110 7.8)."""
    wanted = {token.strip().lower() for token in request.headers.get("Upgrade", "").split(",")}
    return "websocket" in wanted


def _traced(headers: list[tuple[str, str]], record: PassedRecord) -> list[tuple[str, str]]:
    """With the trace headers of whoever watches, if anybody does."""
    if record.watch is None:
        return headers
    return [*(header for header in headers if header[0].lower() not in TRACE_HEADERS), *record.watch.begun()]


def _note_answer(record: PassedRecord, status: int) -> None:
    record.status = status
    if record.watch is not None:
        record.watch.answered(status)


def _is_text(headers: RawHeaders) -> bool:
    """An answer of JSON or events, not compressed?"""
    kinds = b"".join(values(headers, b"content-type")).lower()
    return kinds.startswith((b"application/json", b"text/event-stream")) and not values(headers, b"content-encoding")


async def _pieces(request: web.Request) -> AsyncIterator[bytes]:
    """The body as it comes. Raises `LooplineError` (invalid_request) where it ends too soon."""
    try:
        async for data in request.content.iter_any():
            yield data
    except (aiohttp.ClientError, OSError, web.RequestPayloadError) as error:
        raise LooplineError(Kind.INVALID_REQUEST, "The body ended too soon.", cause=kind_of(error)) from error


async def _in_time(pieces: AsyncIterator[bytes], receive_s: float, *, each: bool = False) -> AsyncIterator[bytes]:
    """The pieces, as long as waiting for all of them together, or for `each`, takes no longer than `receive_s`.

    What an upstream takes to read them does not count. Raises `LooplineError` (slow_sender).
    """
    clock = asyncio.get_running_loop().time
    left_s = receive_s
    while True:
        since_s = clock()
        try:
            async with asyncio.timeout(left_s):
                data = await anext(pieces, None)
        except TimeoutError:
            raise LooplineError(
                Kind.SLOW_SENDER,
                f"{'Nothing more of the body' if each else 'The body'} came within {receive_s:g} s (server.receive_s).",
            ) from None
        if data is None:
            return
        left_s -= 0.0 if each else clock() - since_s
        yield data


async def _one(body: bytes) -> AsyncIterator[bytes]:
    yield body


async def _rest_of(
    form: FormModel, first: Sequence[bytes], pieces: AsyncIterator[bytes], check: Callable[[], None]
) -> AsyncIterator[bytes]:
    """A form whose model is known, one piece late: one that turns out to be bad never has an end upstream.

    Nor has one whose key was revoked while it came: `check` raises then.
    """
    *early, last = first
    for data in early:
        yield data
    async for data in pieces:
        form.feed(data)
        yield last
        last = data
    if not form.ended:
        raise LooplineError(Kind.INVALID_REQUEST, "The form has no end: its last boundary is missing.")
    check()
    yield last


async def _counted(body: AsyncIterator[bytes], record: PassedRecord) -> AsyncIterator[bytes]:
    async for data in body:
        record.bytes_in += len(data)
        yield data


def _as_text(headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    """As the HTTP client wants them. Raises `LooplineError` (invalid_request)."""
    try:
        return [(name.decode(), value.decode()) for name, value in headers]
    except UnicodeDecodeError:
        raise LooplineError(Kind.INVALID_REQUEST, "A header holds bytes that are not UTF-8.") from None
