"""`loopline serve`: brings up the upstream that was asked for, serves in front of it, and says how to use it."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import signal
import sys
from contextlib import AsyncExitStack, suppress
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import uvloop

from proxy import __version__
from proxy.app import Loopline
from proxy.errors import LooplineError
from proxy.models.catalog import Catalog
from proxy.models.profile import GENERIC
from proxy.settings import Settings
from proxy.telemetry.logging import configure
from proxy.tools import embedded, simulate
from proxy.tools.snippets import NO_KEY, banner
from proxy.upstream.endpoint import Endpoint

STOPPED, CANNOT_START, INTERRUPTED = 0, 1, 130
_PROBE_EVERY_S = 2.0
_SHOWN_MODELS = 8
# Objects, then rounds: seldom enough for turns, often enough for the cycles that a socket leaves (make flood).
_GC_AFTER = (2_000, 10, 4)
_LARGER = "make run UPSTREAM=http://host:8000/v1 (loopline serve --upstream URL)"


class Behind(StrEnum):
    """What Loopline serves in front of: the configured endpoint, the built-in model, or the simulated one."""

    CONFIGURED = "configured"
    EMBEDDED = "embedded"
    SIMULATED = "simulated"


class _Upstream(NamedTuple):
    """The settings to serve with, what to say of the upstream, and a model's name to show, if it is known."""

    settings: Settings
    notes: tuple[str, ...]
    model: str


class _Probe(NamedTuple):
    """What came of asking for the models: an HTTP status, or why there was none."""

    status: int = 0
    failure: str = ""


def serve(settings: Settings, behind: Behind, cache_dir: Path | None = None) -> int:
    """Serve until SIGINT or SIGTERM. Returns the exit code."""
    configure(settings.log.format, settings.log.level)
    try:
        ready = _prepare(cache_dir) if behind is Behind.EMBEDDED else None
        if behind is Behind.EMBEDDED and ready is None:
            behind = Behind.SIMULATED
        return uvloop.run(_serve(settings, behind, ready))
    except KeyboardInterrupt:
        _say("\nloopline: interrupted")
        return INTERRUPTED


def _prepare(cache_dir: Path | None) -> embedded.Ready | None:
    """The built-in model, fetched on first use; None, with a word about it, where it cannot be had."""
    try:
        return embedded.prepare(cache_dir, embedded.Bar(sys.stderr))
    except embedded.Unavailable as error:
        _say(
            f"loopline: the built-in model cannot be had here: {error}\n"
            "loopline: serving the simulated upstream instead: scripted answers, no model (docs/simulate.md).\n"
            f"loopline: for a real model, try again with a network, or name yours: {_LARGER}"
        )
        return None


async def _serve(settings: Settings, behind: Behind, ready: embedded.Ready | None) -> int:
    signals = _Signals()
    async with AsyncExitStack() as stack:
        try:
            upstream = await _bring_up(stack, settings, behind, ready)
            server = await stack.enter_async_context(Loopline(upstream.settings))
        except embedded.StartFailed as error:
            _say(f"loopline: the built-in model did not start: {error}")
            return CANNOT_START
        except OSError as error:
            _say(_cannot_listen(settings, error))
            return CANNOT_START
        reload = server.certificate.reload if server.certificate is not None else _nothing_to_reload
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)
        _settle_memory()
        _print(f"loopline {__version__} on {server.url}", f"  upstream {upstream.settings.endpoint.url}")
        _print(*(f"  {note}" for note in upstream.notes))
        announcing = server.tasks.spawn(_announce(server, upstream.model), "announce the upstream")
        await signals.asked.wait()
        announcing.cancel()
        if not signals.at_once.is_set():
            await _drain(server, signals.at_once)
        _say("loopline: stopping")
    return STOPPED


def _nothing_to_reload() -> None:
    """Whoever rotates logs or certificates everywhere must not end a process that has none."""


def _settle_memory() -> None:
    """What was made to start lives as long as the process, and turns leave next to no cycles.

    Left alone the garbage collector looks at every item of every conversation every few turns: a tenth of a turn.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_AFTER)


class _Signals:
    """SIGTERM asks to stop once what runs has ended; SIGINT, or a second SIGTERM, to stop at once."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.at_once = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._terminate)
        loop.add_signal_handler(signal.SIGINT, self._interrupt)

    def _terminate(self) -> None:
        if self.asked.is_set():
            self.at_once.set()
        self.asked.set()

    def _interrupt(self) -> None:
        self.at_once.set()
        self.asked.set()


async def _drain(server: Loopline, at_once: asyncio.Event) -> None:
    grace_s = server.settings.server.drain_grace_s
    _say(f"loopline: draining, at most {grace_s:g} s (server.drain_grace_s); a second signal stops at once")
    async with asyncio.TaskGroup() as group:
        draining = group.create_task(server.drain())
        waiting = group.create_task(_until(at_once))
        await asyncio.wait((draining, waiting), return_when=asyncio.FIRST_COMPLETED)
        draining.cancel()
        waiting.cancel()


async def _until(event: asyncio.Event) -> None:
    await event.wait()


async def _bring_up(
    stack: AsyncExitStack, settings: Settings, behind: Behind, ready: embedded.Ready | None
) -> _Upstream:
    if behind is Behind.SIMULATED:
        simulated = await stack.enter_async_context(await simulate.start())
        scripted = ("simulated: scripted answers, no model (docs/simulate.md); any model name is taken",)
        wanted = settings.endpoint.dialect
        dialect = "chat" if wanted == "auto" else wanted
        changed = _in_front_of(settings, simulated.url, "simulated", dialect=dialect)
        return _Upstream(changed, scripted, "simulated")
    if ready is None:
        return _Upstream(settings, (), settings.models.default)
    model = await stack.enter_async_context(embedded.Embedded(ready, on_event=_say_event))
    built_in = (
        f"built in: llama.cpp with SmolLM2-135M-Instruct, {embedded.CONTEXT_TOKENS:,} tokens of context; any model",
        f"name is taken; an answer ends after {embedded.DEFAULT_MAX_OUTPUT_TOKENS} tokens, or max_output_tokens",
    )
    hint = (
        f"This is the small built-in model, with {embedded.CONTEXT_TOKENS:,} tokens of context; serve in front of a "
        f"larger one with {_LARGER}."
    )
    changed = _in_front_of(
        settings,
        model.url,
        embedded.MODEL,
        max_output_tokens=embedded.DEFAULT_MAX_OUTPUT_TOKENS,
        context_hint=hint,
    )
    return _Upstream(changed, built_in, embedded.MODEL)


def _in_front_of(settings: Settings, url: str, model: str, **endpoint: object) -> Settings:
    """The settings with another upstream; what the user set about models stays."""
    changed = settings.endpoint.model_copy(update={"url": url, "dialect": "chat", "profile": "auto", **endpoint})
    models = settings.models.model_copy(update={"default": settings.models.default or model})
    return settings.model_copy(update={"endpoints": (changed,), "models": models})


async def _announce(server: Loopline, model: str) -> None:
    """Say what the upstream serves, once it answers, and what to paste."""
    endpoint = server.services.endpoints[0]
    probe = await _probe(server)
    if probe.failure:
        _print(f"  it does not answer yet ({probe.failure}); clients get an error until it does. Trying on.")
    while probe.failure:
        await asyncio.sleep(_PROBE_EVERY_S)
        probe = await _probe(server)
    catalog = await server.services.catalogs.get(endpoint, "", {})
    _print(f"  it answers: {_recognised(catalog)}", *_trouble(probe.status, endpoint))
    name = model or min(catalog.names or (), default="")
    key = "CLIENT_KEY" if server.settings.access.keys_file else NO_KEY
    wanted = [("the name of a model", "MODEL")] if not name else []
    wanted += [("one of the client keys", key)] if key != NO_KEY else []
    note = "".join(f", with {what} in place of {stand_in}" for what, stand_in in wanted)
    _print(f"\nWhat to paste, by client{note} (Ctrl-C here stops Loopline):\n")
    _print(banner(_from_here(server.url), name or "MODEL", key))


async def _probe(server: Loopline) -> _Probe:
    """Ask for the models: any HTTP answer shows that the upstream is there."""
    request = server.services.endpoints[0].request("GET", "/models", {})
    try:
        async with server.services.client.open(request) as response:
            return _Probe(response.status)
    except LooplineError as error:
        return _Probe(failure=error.message.rstrip("."))


def _recognised(catalog: Catalog) -> str:
    names = sorted(catalog.names or ())
    shown = ", ".join(names[:_SHOWN_MODELS])
    if len(names) > _SHOWN_MODELS:
        shown += f" and {len(names) - _SHOWN_MODELS} more"
    engine = "an unknown server" if catalog.profile.name == GENERIC else catalog.profile.title
    return f"{engine}, asked in the {catalog.dialect} dialect; models: {shown or 'it does not say'}"


def _trouble(status: int, endpoint: Endpoint) -> list[str]:
    """What its status says beside that it is there; nothing for a 200."""
    asked = f"GET {endpoint.url}/models was answered with {status}"
    if status in (401, 403):
        advice = "check its key" if endpoint.has_key else "name its key with --api-key-env, or let clients send theirs"
        return [f"  {asked}: {advice}"]
    if status == 404:
        return [f"  {asked}: if requests fail too, check the URL; it usually ends in /v1"]
    return [f"  {asked}: requests may fail too"] if status >= 400 else []


def _from_here(url: str) -> str:
    """The address for a client on this machine: one cannot connect to "every address"."""
    return url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


def _cannot_listen(settings: Settings, error: OSError) -> str:
    known = error.errno is not None and error.errno > 0  # a name that is not found has another kind of number
    why = os.strerror(error.errno or 0) if known else error.strerror or str(error)
    taken = error.errno in (errno.EADDRINUSE, errno.EACCES)
    advice = "server.port: --port takes another" if taken else "server.host: --host takes another"
    return f"loopline: cannot listen on {settings.server.host}:{settings.server.port}: {why} ({advice})"


def _say_event(event: embedded.Event) -> None:
    """What happens to the built-in model, but for its start and end: those go with ours."""
    if event.kind not in ("started", "stopped"):
        _say(f"loopline: {event.text}")


def _print(*lines: str) -> None:
    """To stdout, while somebody reads it: `loopline serve | head` serves on."""
    with suppress(BrokenPipeError):
        for line in lines:
            print(line, flush=True)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
