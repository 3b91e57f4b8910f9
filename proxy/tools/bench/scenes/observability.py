"""`observability`: what metrics, the line of log for each turn and the status page cost, and traces where they can be.

Two or three Looplines over one upstream, which differ in this alone, take turns: a short chain on one, then on the
next, many times, in an order that changes. What else the machine does then meets all of them alike. Each round is set
against the same round of the Loopline with everything off; the median counts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from importlib.util import find_spec
from statistics import median

from proxy.tools.bench.answers import Wanted
from proxy.tools.bench.contestants import Contestant, Lane
from proxy.tools.bench.meter import Meter
from proxy.tools.bench.plan import Plan
from proxy.tools.bench.rows import Row, row, took
from proxy.tools.bench.turns import Item, Turn, prompt

OFF, ON, TRACED = "everything off", "metrics, log, status", "and every turn traced"
_OFF = {"LOOPLINE_METRICS_ENABLED": "false", "LOOPLINE_LOG_LEVEL": "warning"}


async def observability(who: Contestant, plan: Plan, step: Callable[[int], None]) -> AsyncIterator[Row]:
    """Rounds of chains; every so many of them new processes, since two of the same kind are never quite alike."""
    cases = dict(variants(who.upstream if plan.own_upstream else ""))
    turns: dict[str, list[Turn]] = {case: [] for case in cases}
    cpu_s: dict[str, list[float]] = {case: [] for case in cases}
    for _ in range(plan.observed_starts):
        async with AsyncExitStack() as stack:
            servers = [await _Server.start(stack, who, case, more, plan) for case, more in cases.items()]
            for number in range(plan.observed_rounds):
                first = number % len(servers)
                for server in (*servers[first:], *servers[:first]):
                    await server.play(plan, step)
            for server in servers:
                server.read()
                turns[server.case] += server.turns
                cpu_s[server.case] += server.cpu_s
    for case in cases:
        more = compared(cpu_s[case], cpu_s[OFF])
        measured = row(
            "observability",
            case,
            who.name,
            turns[case],
            dict.fromkeys(("p50_s", "p99_s"), took(turns[case])),
            cpu_turn_s=median(cpu_s[case]) if cpu_s[case] else None,
            more_cpu=median(more) if more and case != OFF else None,
        )
        yield replace(measured, series={"more_cpu": more} if case != OFF else {})


def compared(own: Sequence[float], other: Sequence[float]) -> list[float]:
    """How much more each round took than the other's same round, as a share of that."""
    return [mine / its - 1 for mine, its in zip(own, other, strict=True) if its > 0]


def variants(collector: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    """The cases and their settings. `collector` is an own upstream, which takes traces too; empty for none."""
    yield OFF, _OFF
    yield ON, {}
    if collector and _can_trace():
        yield (
            TRACED,
            {
                "LOOPLINE_TRACING_ENABLED": "true",
                "LOOPLINE_TRACING_ENDPOINT": collector.removesuffix("/v1"),
                "LOOPLINE_TRACING_SAMPLE_RATIO": "1",
            },
        )


def _can_trace() -> bool:
    try:
        return find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:
        return False


class _Server:
    """One Loopline with a client. `cpu_s` is what a turn of each round took, all that the round left to do included."""

    def __init__(self, case: str, meter: Meter, lane: Lane) -> None:
        self.case = case
        self._meter = meter
        self._lane = lane
        self._before_s: float | None = None
        self._played = 0
        self.turns: list[Turn] = []
        self.cpu_s: list[float] = []

    @classmethod
    async def start(
        cls, stack: AsyncExitStack, who: Contestant, case: str, more: Mapping[str, str], plan: Plan
    ) -> _Server:
        """Start it and let it warm up. Raises BenchError."""
        assert who.restart is not None
        running = await stack.enter_async_context(who.restart(who.upstream, more))
        lane = await stack.enter_async_context(who.lane(base_url=running.url))
        server = cls(case, Meter((running.pid,)), lane)
        for _ in range(plan.warm_up):
            await lane.turn([_prompt(plan)])
        return server

    async def play(self, plan: Plan, step: Callable[[int], None]) -> None:
        """One round: a chain of its own. Raises BenchError."""
        self.read()
        self._lane.restart()
        for _ in range(plan.observed_turns):
            self.turns.append(await self._lane.turn([_prompt(plan)]))
            step(1)
        self._played = plan.observed_turns

    def read(self) -> None:
        """Take what the server did since the round before began: lines are written and turns counted after it."""
        now_s = self._meter.cpu_s()
        if self._played and now_s is not None and self._before_s is not None:
            self.cpu_s.append((now_s - self._before_s) / self._played)
        self._before_s = now_s


def _prompt(plan: Plan) -> Item:
    return prompt("x" * plan.text_bytes, Wanted(deltas=10) if plan.own_upstream else None)
