"""`chain`: does a turn take longer the further a conversation has come?"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from proxy.tools.bench.answers import Wanted
from proxy.tools.bench.contestants import Contestant, Stopwatch
from proxy.tools.bench.plan import Plan
from proxy.tools.bench.rows import Row, per, row, took
from proxy.tools.bench.turns import Turn, prompt
from proxy.tools.figures import percentile


async def chain(who: Contestant, plan: Plan, step: Callable[[int], None]) -> AsyncIterator[Row]:
    """Chains of turns, each on a connection of its own; turns of one place in the chain are taken together."""
    wanted = Wanted(deltas=10) if plan.own_upstream else None
    places: list[list[Turn]] = [[] for _ in range(plan.chain_turns)]
    watch = Stopwatch(who.meter)
    for _ in range(plan.chain_repeats):
        async with who.lane() as lane:
            for place in places:
                place.append(await lane.turn([prompt("x" * plan.text_bytes, wanted)]))
                step(1)
    cpu_s = watch.cpu_s()
    middle = plan.chain_turns // 2
    every = [turn for place in places for turn in place]
    measured = row(
        "chain",
        f"{plan.chain_turns} turns",
        who.name,
        every,
        {
            "p50_first_s": _took(places[:3]),
            "p50_middle_s": _took(places[max(0, middle - 3) : middle + 2]),
            "p50_last_s": _took(places[-3:]),
            "p99_s": took(every),
        },
        cpu_turn_s=per(cpu_s, len(every)),
    )
    yield replace(measured, series={"turn_p50_s": [percentile(took(place), 50) for place in places]})


def _took(places: list[list[Turn]]) -> list[float]:
    return [took_s for place in places for took_s in took(place)]
