"""`idle`: what a socket costs that is open and quiet, before its first turn, after it, and after a compressed frame."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

from proxy.tools.bench.answers import Wanted
from proxy.tools.bench.contestants import Contestant, Stopwatch
from proxy.tools.bench.plan import Plan
from proxy.tools.bench.rows import Row, row
from proxy.tools.bench.turns import Turn, prompt
from proxy.tools.bench.websocket import Socket, create

from .together import together

_AT_ONCE = 32
_SETTLE_S = 1.0
_COMPRESSED = 1000  # of a second set of sockets: the first is still open


async def idle(who: Contestant, plan: Plan, step: Callable[[int], None]) -> AsyncIterator[Row]:
    """Memory is the growth of the server's resident memory, divided by the sockets."""
    message = create(who.fields.responses(), [prompt("x" * 1000, Wanted() if plan.own_upstream else None)])
    sockets: list[Socket] = []
    compressed: list[Socket] = []
    turns: list[Turn] = []
    figures: dict[str, float | None] = {}
    try:
        before = who.meter.rss_bytes()
        await _open(who, sockets, plan.idle_sockets, step, deflate=False)
        await asyncio.sleep(_SETTLE_S)
        figures["idle_bytes"] = _each(before, who.meter.rss_bytes(), len(sockets))
        watch = Stopwatch(who.meter)
        await asyncio.sleep(plan.idle_s)
        cpu_s = watch.cpu_s()
        figures["idle_cpu"] = None if cpu_s is None else cpu_s / watch.wall_s()
        if plan.idle_turns:
            await _turns(sockets, message, turns, step, compress=False)
            figures["after_turn_bytes"] = _each(before, who.meter.rss_bytes(), len(sockets))
            between = who.meter.rss_bytes()
            await _open(who, compressed, min(_COMPRESSED, plan.idle_sockets), None, deflate=True)
            if all(socket.deflates for socket in compressed):
                await _turns(compressed, message, turns, step, compress=True)
                figures["after_deflate_bytes"] = _each(between, who.meter.rss_bytes(), len(compressed))
        yield row("idle", f"{plan.idle_sockets:,} sockets", who.name, turns, None, **figures)
    finally:
        for socket in (*sockets, *compressed):
            socket.close()
    await asyncio.sleep(_SETTLE_S)  # the server is rid of them before the next scene


async def _open(
    who: Contestant, sockets: list[Socket], count: int, step: Callable[[int], None] | None, *, deflate: bool
) -> None:
    async def some() -> None:
        while len(sockets) + opening[0] < count:
            opening[0] += 1
            try:
                sockets.append(await who.socket(deflate=deflate))
            finally:
                opening[0] -= 1
            if step is not None:
                step(1)

    opening = [0]
    await together(some() for _ in range(_AT_ONCE))


async def _turns(
    sockets: Sequence[Socket], message: bytes, turns: list[Turn], step: Callable[[int], None], *, compress: bool
) -> None:
    left = list(sockets)

    async def some() -> None:
        while left:
            turns.append(await left.pop().turn(message, compress=compress))
            step(1)

    await together(some() for _ in range(_AT_ONCE))
    await asyncio.sleep(_SETTLE_S)


def _each(before: int | None, after: int | None, count: int) -> float | None:
    return None if before is None or after is None else (after - before) / count
