"""`many`: how many turns a second go through one process when many clients work at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from proxy.tools.bench.answers import Wanted
from proxy.tools.bench.contestants import Contestant, Stopwatch
from proxy.tools.bench.plan import Plan
from proxy.tools.bench.rows import Row, per, row, took
from proxy.tools.bench.turns import Turn, prompt

from .together import together


async def many(who: Contestant, plan: Plan, step: Callable[[int], None]) -> AsyncIterator[Row]:
    """Sessions that start together, each with a chain of turns."""
    wanted = Wanted(deltas=plan.session_tokens) if plan.own_upstream else None
    turns: list[Turn] = []

    async def session() -> None:
        async with who.lane() as lane:
            for _ in range(plan.session_turns):
                turns.append(await lane.turn([prompt("x" * min(1000, plan.text_bytes), wanted)]))
                step(1)

    watch = Stopwatch(who.meter)
    await together([session() for _ in range(plan.sessions)])
    wall_s, cpu_s = watch.wall_s(), watch.cpu_s()
    # A model that answers without a word, a call for example, has no first token.
    firsts = [turn.first_s - turn.started_s for turn in turns if turn.first_s is not None]
    yield row(
        "many",
        f"{plan.sessions} sessions x {plan.session_turns} turns",
        who.name,
        turns,
        {
            **dict.fromkeys(("p50_s", "p99_s"), took(turns)),
            **dict.fromkeys(("first_token_p50_s", "first_token_p99_s"), firsts),
        },
        turns_per_s=len(turns) / wall_s,
        cpu_turn_s=per(cpu_s, len(turns)),
    )
