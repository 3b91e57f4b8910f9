"""`stream`: what an event of an answer costs, where many come at once and where each comes by itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from proxy.tools.bench.answers import Wanted
from proxy.tools.bench.contestants import Contestant, Stopwatch
from proxy.tools.bench.plan import Plan
from proxy.tools.bench.rows import Row, per, row
from proxy.tools.bench.turns import prompt

_COUNT = "Count from one to a thousand, in words."


async def stream(who: Contestant, plan: Plan, step: Callable[[int], None]) -> AsyncIterator[Row]:
    """Answers of several lengths; conversations begin anew, so that no history counts."""
    cases = [(tokens, turns, 0) for tokens, turns in plan.batched]
    cases += [(tokens, turns, 1) for tokens, turns in plan.one_a_write]
    for tokens, turns, burst in cases:
        yield await _case(who, plan, step, tokens, turns, burst)


async def _case(who: Contestant, plan: Plan, step: Callable[[int], None], tokens: int, turns: int, burst: int) -> Row:
    text = [prompt("s", Wanted(deltas=tokens, burst=burst))] if plan.own_upstream else [prompt(_COUNT, None)]
    fields = who.fields if plan.own_upstream else who.fields._replace(max_output_tokens=tokens)
    async with who.lane(fields) as lane:
        watch = Stopwatch(who.meter)
        done = []
        for _ in range(turns):
            lane.restart()
            done.append(await lane.turn(text))
            step(1)
        cpu_s = watch.cpu_s()
    events = sum(turn.events for turn in done)
    how = "one a write" if burst else "batched"
    case = f"{tokens:,} deltas, {how}" if plan.own_upstream else f"at most {tokens:,} tokens"
    return row(
        "stream", case, who.name, done,
        cpu_event_s=per(cpu_s, events), wall_event_s=per(sum(turn.took_s for turn in done), events),
    )  # fmt: skip
