"""`deep`: what a short turn costs after a long history, long in bytes or long in turns."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from proxy.tools.bench.answers import Wanted
from proxy.tools.bench.contestants import Contestant, Lane, Stopwatch
from proxy.tools.bench.plan import MB, Plan
from proxy.tools.bench.rows import Row, per, row, took
from proxy.tools.bench.turns import Item, Turn, history, prompt

_SHORT = 200


async def deep(who: Contestant, plan: Plan, step: Callable[[int], None]) -> AsyncIterator[Row]:
    """First histories that come in one turn, then histories that grew turn by turn."""
    wanted = Wanted(deltas=10) if plan.own_upstream else None
    short = [prompt("z" * _SHORT, wanted)]
    for size in plan.deep_bytes:
        async with who.lane() as lane:
            first = await lane.turn([*history(size), *short])
            step(1)
            yield await _more(who, plan, lane, step, f"{size / MB:g} MB", first, short)
    for depth in plan.depths:
        async with who.lane() as lane:
            first = await lane.turn(short)
            for _ in range(depth - 1):
                await lane.turn(short)
            step(depth)
            yield await _more(who, plan, lane, step, f"{depth} turns deep", first, short)


async def _more(
    who: Contestant, plan: Plan, lane: Lane, step: Callable[[int], None], case: str, first: Turn, short: list[Item]
) -> Row:
    watch = Stopwatch(who.meter)
    turns = []
    for _ in range(plan.deep_turns):
        turns.append(await lane.turn(short))
        step(1)
    return row(
        "deep", case, who.name, turns, dict.fromkeys(("p50_s", "p99_s"), took(turns)),
        cpu_turn_s=per(watch.cpu_s(), len(turns)), full_turn_s=first.took_s,
    )  # fmt: skip
