"""Starts everything in this process, and runs the agent loop in both ways."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import aiohttp
import msgspec

from proxy.app import Loopline
from proxy.settings import Settings, load
from proxy.tools import simulate
from proxy.tools.link import HOST, Direction, Link
from proxy.wire.codec import encode

from .accounting import Report, Run, StageObserver, Timed, account
from .agent import Agent, fields, user
from .client import DemoError, Sender, over_http, over_websocket
from .options import Options

Progress = Callable[[str, int, int], None]  # what runs, turns done, turns in all
_Open = Callable[[str, Mapping[str, Any]], AbstractAsyncContextManager[Sender]]

SIMULATED, _UNNAMED = "simulated", "default"
WAYS: Mapping[str, _Open] = {"HTTP": over_http, "WebSocket": over_websocket}
# No conversation of a demonstration is too long for the simulated model.
_CONTEXT_TOKENS = 1_000_000_000
# Both runs fit: the second must not pay for throwing the first one out.
_CACHE_BLOCKS = 1 << 24
# A record may come after the terminal event it tells of: Loopline first reads what follows an upstream's last event.
_RECORD_S = 5.0


async def run(options: Options, progress: Progress | None = None) -> Report:
    """Run both loops and compare them; `progress` is called after each turn.

    Raises `DemoError` where the upstream cannot be used, `BadSetting` for an option that Loopline does not take,
    OSError where a port cannot be had.
    """
    async with _upstream(options) as url, _setup(options, url) as setup:
        model = options.model or await setup.first_model()
        sent = fields(options, model)
        for name, way in WAYS.items():
            await setup.warm_up(name, way, sent)
        runs: list[Run] = []
        for name, way in WAYS.items():
            before = len(runs) * options.steps
            runs.append(await setup.run(name, way, sent, _Counted(progress, name, before, 2 * options.steps)))
        return Report(options, model, *runs)


@asynccontextmanager
async def _upstream(options: Options) -> AsyncIterator[str]:
    """The base URL of the upstream; the simulated one lives as long as this."""
    if options.upstream is not None:
        yield options.upstream
        return
    simulated = simulate.Options(
        ttft_s=options.ttft_ms / 1000,
        tokens_per_s=options.tokens_per_s,
        model=SIMULATED,
        context_tokens=_CONTEXT_TOKENS,
        prefix_cache_blocks=_CACHE_BLOCKS,
    )
    async with await simulate.start(simulated) as upstream:
        yield upstream.url


@asynccontextmanager
async def _setup(options: Options, url: str) -> AsyncIterator[_Setup]:
    up = Direction(options.up_bytes_per_s, options.rtt_s / 2)
    down = Direction(options.down_bytes_per_s, options.rtt_s / 2)
    observer = StageObserver(lambda: up.arrived_s)
    async with (
        Loopline(_settings(options, url), (observer,)) as server,
        Link(server.port, up, down, options.rtt_s, crashed=observer.crashed) as link,
    ):
        yield _Setup(options, url, server, link, observer)


def _settings(options: Options, url: str) -> Settings:
    flags: dict[str, object] = {
        "server.port": 0,
        "endpoints[0].url": url,
        "endpoints[0].dialect": options.dialect,
        "models.default": options.model or (SIMULATED if options.upstream is None else ""),
    }
    names = (options.api_key_env, f"{options.api_key_env}_FILE") if options.api_key_env else ()
    if names:
        flags["endpoints[0].api_key_env"] = options.api_key_env
    # Of the environment only the key counts: a demonstration is the same wherever it runs.
    return load(None, flags, {name: os.environ[name] for name in names if name in os.environ})


class _Counted:
    """Reports one run's part of the progress."""

    def __init__(self, progress: Progress | None, name: str, before: int, total: int) -> None:
        self._progress, self._name, self._done, self._total = progress, name, before, total

    def __call__(self) -> None:
        self._done += 1
        if self._progress is not None:
            self._progress(self._name, self._done, self._total)


class _Setup:
    """What is started, and what is done on it."""

    def __init__(self, options: Options, url: str, server: Loopline, link: Link, observer: StageObserver) -> None:
        self._options = options
        self._upstream = url
        self._server = server
        self._link = link
        self._observer = observer
        self._url = f"http://{HOST}:{link.port}/v1"

    async def first_model(self) -> str:
        """The model that the upstream names first; one that names none may take any name, or will say what is wrong."""
        async with aiohttp.ClientSession(trust_env=False) as http, http.get(f"{self._server.url}/models") as response:
            models = msgspec.json.decode(await response.read()).get("data")
        return str(models[0]["id"]) if models else _UNNAMED

    async def warm_up(self, name: str, way: _Open, sent: Mapping[str, Any]) -> None:
        """One turn in a conversation and on a connection of its own: nobody pays for the first use of anything."""
        items = [user(f"[warm-up {name}] Say that you are ready. [[say 3]]")]
        try:
            async with way(self._url, sent) as sender:
                await sender.turn(items, items)
        except DemoError as error:
            raise DemoError(f"{self._upstream}: {error}") from error

    async def run(self, name: str, way: _Open, sent: Mapping[str, Any], report: Callable[[], None]) -> Run:
        """The agent loop, once."""
        agent = Agent(self._options, f"run {name}")
        up, down = self._link.up.bytes, self._link.down.bytes
        started_s = time.monotonic()
        async with way(self._url, sent) as sender:
            turns = [turn async for turn in self._loop(sender, agent, name, report)]
            total_s, connect_s = time.monotonic() - started_s, sender.connect_s
        await self._recorded([turn.response for turn in turns])
        return Run(
            bytes_up=self._link.up.bytes - up,
            bytes_down=self._link.down.bytes - down,
            history_bytes=len(encode(agent.history)),
            called=agent.called,
            turns_s=[turn.took_s for turn in turns],
            total_s=total_s,
            parts=account(turns, self._observer.stages, connect_s, total_s),
        )

    async def _loop(self, sender: Sender, agent: Agent, name: str, report: Callable[[], None]) -> AsyncIterator[Timed]:
        new = list(agent.history)
        for number in range(1, self._options.steps + 1):
            try:
                answer = await sender.turn(agent.history, new)
            except DemoError as error:
                raise DemoError(self._at(name, number, error)) from error
            yield answer.timed
            agent.take(answer.output)
            report()
            if number < self._options.steps:
                await asyncio.sleep(self._options.tool_ms / 1000)
                new = agent.use_tool(number)

    def _at(self, name: str, number: int, error: DemoError) -> str:
        hint = " (a shorter loop or smaller results may fit)" if "context" in str(error) else ""
        return f"{self._upstream}: turn {number} of {self._options.steps} by {name}: {error}{hint}"

    async def _recorded(self, responses: list[str]) -> None:
        """Wait until Loopline has reported every one of these turns."""
        give_up_s = time.monotonic() + _RECORD_S
        while not self._observer.stages.keys() >= set(responses):
            if self._observer.crashes or time.monotonic() > give_up_s:
                raise DemoError(f"Loopline did not report every turn. {'; '.join(self._observer.crashes)}".rstrip())
            await asyncio.sleep(0.01)
