"""`rates`: fast models. How much later a token comes than it left the upstream, and at what rate that ends.

The upstream writes the moment into each token, on the clock that all processes of a machine share. What is added
between two tokens is the time between their arrivals less the time between their departures.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from itertools import pairwise

from proxy.tools.bench.answers import Wanted
from proxy.tools.bench.contestants import Contestant, Stopwatch
from proxy.tools.bench.plan import Plan
from proxy.tools.bench.rows import Row, per, row
from proxy.tools.bench.turns import Turn, prompt
from proxy.tools.figures import percentile

from .together import together

_GAP_US = 1000
_STAMP = re.compile(rb'"(\d{19})"')
# A stream is behind for good when so much of its rate is missing.
_KEPT_UP = 0.95


async def rates(who: Contestant, plan: Plan, step: Callable[[int], None]) -> AsyncIterator[Row]:
    """More and more streams, until the server, or the upstream itself, no longer keeps up."""
    tokens = int(plan.rate_s * 1_000_000 / _GAP_US)
    text = [prompt("s", Wanted(deltas=tokens, gap_us=_GAP_US, burst=1, stamp=1))]
    for streams in plan.rate_streams:
        turns: list[Turn] = []

        async def stream(turns: list[Turn] = turns) -> None:
            async with who.lane() as lane:
                turns.append(await lane.turn(text, watch=True))
                step(1)

        watch, own_s = Stopwatch(who.meter), time.process_time()
        await together(stream() for _ in range(streams))
        cpu_s, wall_s = watch.cpu_s(), watch.wall_s()
        measured = {**spread(turns), "client_cpu": (time.process_time() - own_s) / wall_s}
        yield _row(who, streams, turns, cpu_s, wall_s, measured)
        if measured["tokens_per_s"] < _KEPT_UP * streams * 1_000_000 / _GAP_US:
            return


def _row(
    who: Contestant, streams: int, turns: Sequence[Turn], cpu_s: float | None, wall_s: float, measured: dict[str, float]
) -> Row:
    events = sum(turn.events for turn in turns)
    wanted = streams * 1_000_000 / _GAP_US
    kept = [measured[name] >= _KEPT_UP * wanted for name in ("upstream_tokens_per_s", "tokens_per_s")]
    note = "" if all(kept) else "saturated" if kept[0] else "upstream saturated"
    figures = {"cpu": None if cpu_s is None else cpu_s / wall_s, "cpu_event_s": per(cpu_s, events)}
    return replace(row("rates", f"{streams} streams", who.name, turns, **measured, **figures), note=note)


def spread(turns: Sequence[Turn]) -> dict[str, float]:
    """How tokens left and came: rates of all streams together, and delays in seconds."""
    lags: list[float] = []
    added: list[float] = []
    left_per_s = came_per_s = 0.0
    for turn in turns:
        pairs = [(came, int(found[1]) / 1e9) for came, event in turn.tokens if (found := _STAMP.search(event))]
        lags += [came - left for came, left in pairs]
        added += [
            (came - came_before) - (left - left_before) for (came_before, left_before), (came, left) in pairwise(pairs)
        ]
        came_per_s += (len(pairs) - 1) / (pairs[-1][0] - pairs[0][0])
        left_per_s += (len(pairs) - 1) / (pairs[-1][1] - pairs[0][1])
    return {
        "upstream_tokens_per_s": left_per_s,
        "tokens_per_s": came_per_s,
        "lag_p50_s": percentile(lags, 50),
        "lag_p99_s": percentile(lags, 99),
        "added_p50_s": percentile(added, 50),
        "added_p99_s": percentile(added, 99),
    }
