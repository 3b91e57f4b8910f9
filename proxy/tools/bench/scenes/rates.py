"""`rates`: fast models. How much later a token comes than it left the upstream, and at what rate that ends.

The upstream writes the moment into each token, on the clock that all processes of a machine share. What is added
between two tokens is the time between their arrivals less the time between their departures. The first case is one
stream alone, four times as fast.
"""

from __future__ import annotations

import re
import time
from array import array
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from itertools import pairwise

from proxy.tools.bench.answers import Wanted
from proxy.tools.bench.contestants import Contestant, Stopwatch
from proxy.tools.bench.plan import Plan
from proxy.tools.bench.rows import Row, per, row
from proxy.tools.bench.turns import Turn, prompt

from .together import together

_GAP_US, _BURST_GAP_US = 1000, 250
_STAMP = re.compile(rb'"(\d{19})"')
# A stream is behind for good when so much of its rate is missing.
_KEPT_UP = 0.95


async def rates(who: Contestant, plan: Plan, step: Callable[[int], None]) -> AsyncIterator[Row]:
    """A burst; then more and more streams, until the server, or the upstream itself, no longer keeps up."""
    if plan.burst_s:
        yield await _case(who, step, f"1 stream, {1_000_000 // _BURST_GAP_US:,}/s", 1, _BURST_GAP_US, plan.burst_s)
    for streams in plan.rate_streams:
        case = "1 stream" if streams == 1 else f"{streams} streams"
        row = await _case(who, step, case, streams, _GAP_US, plan.rate_s)
        yield row
        if row.note:
            return


async def _case(
    who: Contestant, step: Callable[[int], None], case: str, streams: int, gap_us: int, seconds: float
) -> Row:
    tokens = int(seconds * 1_000_000 / gap_us)
    text = [prompt("s", Wanted(deltas=tokens, gap_us=gap_us, burst=1, stamp=1))]
    turns: list[Turn] = []

    async def stream() -> None:
        async with who.lane() as lane:
            turns.append(await lane.turn(text, watch=True))
            step(1)

    watch, own_s = Stopwatch(who.meter), time.process_time()
    await together(stream() for _ in range(streams))
    cpu_s, wall_s = watch.cpu_s(), watch.wall_s()
    left_per_s, came_per_s, samples = spread(turns, 1_000_000 / gap_us)
    made = row(
        "rates", case, who.name, turns, samples,
        upstream_tokens_per_s=left_per_s, tokens_per_s=came_per_s,
        cpu=None if cpu_s is None else cpu_s / wall_s,
        cpu_event_s=per(cpu_s, sum(turn.events for turn in turns)),
        client_cpu=(time.process_time() - own_s) / wall_s,
    )  # fmt: skip
    wanted = _KEPT_UP * streams * 1_000_000 / gap_us
    return replace(made, note="upstream saturated" if left_per_s < wanted else "saturated" * (came_per_s < wanted))


def spread(turns: Sequence[Turn], per_s: float) -> tuple[float, float, dict[str, Sequence[float]]]:
    """How tokens left and came: the rate of all streams together at which they did, and delays in seconds.

    No stream counts for more than its `per_s`: one that was held up and then comes at once has not kept up the better.
    For the same reason a stream's tokens come from the moment on at which the first one left.
    """
    lags, added = array("d"), array("d")  # of a long run there are millions
    left_per_s = came_per_s = 0.0
    for turn in turns:
        pairs = [(came, int(found[1]) / 1e9) for came, event in turn.tokens if (found := _STAMP.search(event))]
        lags.extend(came - left for came, left in pairs)
        added.extend(
            (came - came_before) - (left - left_before) for (came_before, left_before), (came, left) in pairwise(pairs)
        )
        steps, (last_came, last_left), first_left = len(pairs) - 1, pairs[-1], pairs[0][1]
        came_per_s += steps / max(last_came - first_left, steps / per_s)
        left_per_s += steps / max(last_left - first_left, steps / per_s)
    return left_per_s, came_per_s, {"lag_p50_s": lags, "lag_p99_s": lags, "added_p50_s": added, "added_p99_s": added}
