"""`deep`: what a short turn costs after a long history, long in bytes or long in turns.

A history comes in one turn, or in turns of at most 8 MB: not every server takes a larger message.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial

from proxy.tools.bench.answers import Wanted
from proxy.tools.bench.contestants import Contestant, Lane, Stopwatch
from proxy.tools.bench.plan import MB, Plan
from proxy.tools.bench.rows import Row, per, row, took
from proxy.tools.bench.turns import BenchError, Item, history, prompt

_SHORT, _MESSAGE_BYTES = 200, 8 * MB


async def deep(who: Contestant, plan: Plan, step: Callable[[int], None]) -> AsyncIterator[Row]:
    """First histories that come as they are, then histories that grew turn by turn. One may fail by itself."""
    short = [prompt("z" * _SHORT, Wanted(deltas=10) if plan.own_upstream else None)]

    async def told(lane: Lane, size: int) -> float:
        parts = [await lane.turn([*items, *short]) for items in _messages(history(size))]
        step(1)
        return sum(took(parts))

    async def grown(lane: Lane, depth: int) -> float:
        first = await lane.turn(short)
        for _ in range(depth - 1):
            await lane.turn(short)
        step(depth)
        return first.took_s

    for case, before in (
        *((f"{size / MB:g} MB", partial(told, size=size)) for size in plan.deep_bytes),
        *((f"{depth} turns deep", partial(grown, depth=depth)) for depth in plan.depths),
    ):
        try:
            async with who.lane() as lane:
                full_s = await before(lane)
                yield await _more(who, plan, lane, step, case, full_s, short)
        except BenchError as error:
            yield Row("deep", case, who.name, failure=str(error))


def _messages(items: list[Item]) -> Iterator[list[Item]]:
    """The items in as few messages as there may be."""
    fit = _MESSAGE_BYTES // max(len(item.responses) for item in items)
    return (items[at : at + fit] for at in range(0, len(items), fit))


async def _more(
    who: Contestant, plan: Plan, lane: Lane, step: Callable[[int], None], case: str, full_s: float, short: list[Item]
) -> Row:
    watch = Stopwatch(who.meter)
    turns = []
    for _ in range(plan.deep_turns):
        turns.append(await lane.turn(short))
        step(1)
    return row(
        "deep", case, who.name, turns, dict.fromkeys(("p50_s", "p99_s"), took(turns)),
        cpu_turn_s=per(watch.cpu_s(), len(turns)), full_turn_s=full_s,
    )  # fmt: skip
