"""`agent-loop`: a coding agent's turns over a link, and where their time goes.

    client ── link ── server ── tap ── upstream         deltas, by WebSocket
    client ── link ── upstream                          the whole history, by HTTP

The link has a round trip and two rates; the tap has neither and only watches. Both run here, and their clocks are the
client's, so that any server can be measured from outside. Where no tap can stand (a server that somebody else started,
or an upstream with TLS) server and upstream are told together, as the server's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

from proxy.tools.bench.answers import Wanted
from proxy.tools.bench.contestants import RESEND, Contestant, Lane
from proxy.tools.bench.plan import Loop, Plan
from proxy.tools.bench.rows import Row, row, took
from proxy.tools.bench.turns import BenchError, Fields, Item, Turn, prompt, result
from proxy.tools.demo.accounting import Stages, Timed, account
from proxy.tools.demo.agent import INSTRUCTIONS, TOOLS, tool_output
from proxy.tools.link import HOST, Direction, Link

_GAP_US = 1000
_FREE = 0.0


async def agent_loop(who: Contestant, plan: Plan, step: Callable[[int], None]) -> AsyncIterator[Row]:
    """The loop, once; a short turn on a connection of its own comes first, so that nobody pays for what is new."""
    fields = Fields(who.fields.model, who.fields.max_output_tokens, INSTRUCTIONS, TOOLS if plan.own_upstream else ())
    async with AsyncExitStack() as stack:
        over = await _Over.build(stack, who, plan.loop)
        async with who.lane(fields, over.url) as lane:
            await lane.turn([prompt("Say that you are ready.", Wanted(deltas=3) if plan.own_upstream else None)])
        up, down = over.up.bytes, over.down.bytes
        started_s = time.monotonic()
        async with who.lane(fields, over.url) as lane:
            turns, stages = await _loop(lane, over, plan, step)
            total_s = time.monotonic() - started_s
            parts = account(
                [_timed(turn, number) for number, turn in enumerate(turns)], stages, lane.connect_s, total_s
            )
    loop = plan.loop
    case = f"{loop.tool_calls} calls, {loop.history_kb[0]} to {loop.history_kb[1]} kB, {loop.rtt_ms:g} ms"
    measured = row(
        "agent-loop", case, who.name, turns, dict.fromkeys(("p50_s", "p99_s"), took(turns)), total_s=total_s,
        up_bytes=over.up.bytes - up, down_bytes=over.down.bytes - down, **parts._asdict(),
    )  # fmt: skip
    yield replace(measured, note=over.note, series=_series(turns, stages))


class _Over(NamedTuple):
    """The way to a server. `tap` is what passes between it and its upstream, None where that cannot be seen."""

    url: str
    up: Direction
    down: Direction
    tap: tuple[Direction, Direction] | None
    direct: bool

    @property
    def note(self) -> str:
        return "" if self.tap or self.direct else "server and upstream together"

    @classmethod
    async def build(cls, stack: AsyncExitStack, who: Contestant, loop: Loop) -> _Over:
        """The link to the server and, if it can be, a tap behind it. Raises BenchError."""
        url, tap = who.base_url, None
        if who.restart is not None and who.upstream.startswith("http://"):
            tap = Direction(_FREE, 0), Direction(_FREE, 0)
            tapped = await _relay(stack, who.upstream, *tap, rtt_s=0)
            url = (await stack.enter_async_context(who.restart(tapped))).url
        up = Direction(loop.up_mbit_s * 125_000, loop.rtt_ms / 2000)
        down = Direction(loop.down_mbit_s * 125_000, loop.rtt_ms / 2000)
        linked = await _relay(stack, url, up, down, rtt_s=loop.rtt_ms / 1000)
        return cls(linked, up, down, tap, who.way == RESEND)

    def stages(self) -> Stages:
        """Where the turn that has just ended was, and when."""
        arrived_s, left_s = self.up.arrived_s, self.down.entered_s
        if self.tap:
            return Stages(arrived_s, self.tap[0].arrived_s, self.tap[1].entered_s, left_s)
        return Stages(arrived_s, arrived_s, left_s if self.direct else arrived_s, left_s)


async def _relay(stack: AsyncExitStack, url: str, up: Direction, down: Direction, *, rtt_s: float) -> str:
    """A relay in front of `url`, and the URL that leads through it."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "ws") or not parts.hostname:
        raise BenchError(f"the link cannot carry {url}: it changes the address, so it speaks plain HTTP alone")

    def crashed(where: str, error: BaseException) -> None:
        raise error

    link = Link(parts.port or 80, up, down, rtt_s, crashed=crashed, target_host=parts.hostname)
    opened = await stack.enter_async_context(link)
    return urlunsplit(parts._replace(netloc=f"{HOST}:{opened.port}"))


async def _loop(
    lane: Lane, over: _Over, plan: Plan, step: Callable[[int], None]
) -> tuple[list[Turn], dict[str, Stages]]:
    loop = plan.loop
    turns: list[Turn] = []
    stages: dict[str, Stages] = {}
    for number in range(loop.tool_calls + 1):
        new = _new(plan, number, turns[-1].call if turns else "")
        turn = await lane.turn(new)
        stages[str(number)] = over.stages()
        turns.append(turn)
        step(1)
        if number < loop.tool_calls:
            await asyncio.sleep(loop.tool_ms / 1000)
    return turns, stages


def _new(plan: Plan, number: int, call: str) -> list[Item]:
    """The new items of a turn: what came before, at first; then a result, for a model without tools as a message."""
    loop = plan.loop
    wanted = Wanted(
        deltas=loop.answer_tokens, gap_us=_GAP_US, burst=1, ttft_ms=loop.ttft_ms, call=int(number < loop.tool_calls)
    )
    if number == 0:
        return [prompt(tool_output(0, 1000 * loop.history_kb[0]), wanted if plan.own_upstream else None)]
    text = tool_output(number, loop.result_bytes)
    if not call:
        return [prompt(f"Result of step {number}:\n{text}", wanted if plan.own_upstream else None)]
    return [result(call, f"{text} {wanted.marker}")]


def _timed(turn: Turn, number: int) -> Timed:
    return Timed(str(number), turn.started_s, turn.ended_s)


def _series(turns: Sequence[Turn], stages: dict[str, Stages]) -> dict[str, list[float]]:
    """Each turn's time by place, for the waterfall."""
    parts = [
        account([_timed(turn, number)], stages, 0.0, turn.took_s) for number, turn in enumerate(turns)
    ]  # nothing of a turn is the client's
    return {
        "link_s": [part.link_s for part in parts],
        "proxy_s": [part.proxy_s for part in parts],
        "upstream_s": [part.upstream_s for part in parts],
    }
