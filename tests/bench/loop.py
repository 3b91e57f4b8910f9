"""The agent loop by WebSocket and with full resend, by stage: the tables and pictures of docs/benchmarks.md.

    python -m tests.bench.loop [--quick] docs/benchmarks.md

Once over a link, with a long history, and once on loopback, with a short one, where there is little to save. The same
Loopline takes both ways of sending, so that what differs is the way; and the upstream is asked directly, as without
Loopline. Contestants take turns; of the rounds of a loop the one with the median total is told, stages and all.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import uvloop

from proxy.tools.bench import answers
from proxy.tools.bench.command import machine, now, until_told
from proxy.tools.bench.contestants import DELTAS, RESEND, Contestant
from proxy.tools.bench.drawings import colours, drawings
from proxy.tools.bench.meter import Meter
from proxy.tools.bench.plan import Loop, Plan, quick
from proxy.tools.bench.progress import Quiet
from proxy.tools.bench.rows import Report, Row
from proxy.tools.bench.running import again, play, warm_up
from proxy.tools.bench.servers import Endpoint, loopline, own_upstream
from proxy.tools.bench.turns import Fields
from tests.bench.summary import between

BEGIN, END = "<!-- the agent loop is written from here -->", "<!-- the agent loop ends here -->"
SOCKET, RESENT, DIRECT = "WebSocket, deltas", "HTTP, full history", "HTTP, full history, no Loopline"
ROUNDS = 3
LINK = Plan()
# No round trip, no rate, and no more history than a conversation of minutes has.
LOOPBACK = Plan(
    loop=Loop(history_kb=(4, 24), rtt_ms=0, up_mbit_s=0, down_mbit_s=0), chain_repeats=1, rounds={"chain": 5}
)
_STAGES: Mapping[str, str] = {
    "total_s": "total", "client_s": "client (its tools)", "link_s": "link", "proxy_s": "Loopline",
    "upstream_s": "upstream", "p50_s": "a turn, median",
}  # fmt: skip


@asynccontextmanager
async def contestants(folder: Path) -> AsyncIterator[Sequence[Contestant]]:
    """A Loopline and its upstream, asked in three ways."""
    async with own_upstream(folder) as upstream:
        front = Endpoint(upstream.url, "chat", answers.MODEL, faithful=True)
        async with loopline(folder, front) as running:
            meter, restart = Meter((running.pid,)), partial(again, folder, front)
            through = Contestant(
                SOCKET, running.url, DELTAS, meter, Fields(answers.MODEL), "bench", upstream=upstream.url,
                restart=restart,
            )  # fmt: skip
            direct = Contestant(DIRECT, upstream.url, RESEND, Meter(), Fields(answers.MODEL), "bench")
            yield through, replace(through, name=RESENT, way=RESEND), direct


async def measured(plan: Plan, scenes: Sequence[str], rounds: int, folder: Path, report: Report) -> None:
    """Play the agent loop in rounds, of which the median one counts, and other scenes."""
    async with contestants(folder) as all_:
        report.contestants += [who.name for who in all_]
        players = [(who, plan) for who in all_]
        for who in all_:
            await warm_up(who, plan)
        loops = replace(report, rows=[])
        for _ in range(rounds):
            await play("agent-loop", players, loops, Quiet())
        report.rows += [_median([row for row in loops.rows if row.contestant == who.name]) for who in all_]
        for scene in scenes:
            await play(scene, players, report, Quiet())


def _median(rounds: Sequence[Row]) -> Row:
    """The round whose total is the median one; one that failed counts before all others."""
    failed = [row for row in rounds if row.failure]
    return failed[0] if failed else sorted(rounds, key=lambda row: row.figures["total_s"] or 0.0)[len(rounds) // 2]


def stages(report: Report) -> list[str]:
    """The table of an agent loop: where the time of each way went, and what the WebSocket saves of the others."""
    rows = {row.contestant: row for row in report.rows if row.scene == "agent-loop"}
    figures = {name: row.figures for name, row in rows.items()}
    lines = [f"| | {' | '.join(rows)} |", f"|---{'|---' * len(rows)}|"]
    for figure, label in _STAGES.items():
        lines.append(_line(f"{label}, ms", [figures[name].get(figure) or 0.0 for name in rows], 1e3))
    for figure, label in (("up_bytes", "sent up"), ("down_bytes", "received")):
        lines.append(_line(f"{label}, kB", [figures[name].get(figure) or 0.0 for name in rows], 1e-3))
    return lines


def _line(label: str, values: Sequence[float], factor: float) -> str:
    """A figure of each way, and beside all but the first how much less the first one is."""
    first = values[0]
    cells = [_shown(first * factor)]
    for value in values[1:]:
        less = f" ({round(100 * (first / value - 1)):+d} %)".replace("-", "−") if value * factor >= 1 else ""
        cells.append(_shown(value * factor) + less)
    return f"| {label} | {' | '.join(cells)} |"


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"


def chain(report: Report) -> list[str]:
    """The table of short turns on loopback."""
    rows = {row.contestant: row for row in report.rows if row.scene == "chain"}
    lines = [f"| | {' | '.join(rows)} |", f"|---{'|---' * len(rows)}|"]
    columns = (
        ("p50_first_s", "turns 1-3, median, ms"),
        ("p50_last_s", "last 3, median, ms"),
        ("cpu_turn_s", "Loopline's CPU a turn, ms"),
    )
    for figure, label in columns:
        values = [row.figures.get(figure) for row in rows.values()]
        lines.append(f"| {label} | {' | '.join('–' if value is None else f'{value * 1e3:.2f}' for value in values)} |")
    return lines


def text(link: Report, loopback: Report) -> str:
    """What stands in the document."""
    loop, short = LINK.loop, LOOPBACK.loop
    failed = [f"{row.contestant}, {row.scene}: {row.failure}" for row in (*link.rows, *loopback.rows) if row.failure]
    return "\n".join(
        [
            f"`python -m tests.bench.loop`, {link.started}, {link.machine.get('cpus')} cores "
            f"({link.machine.get('cpu')}). In brackets: what the WebSocket takes less (−) or more (+) than this way.",
            "",
            f"{loop.tool_calls} tool calls, history from {loop.history_kb[0]} to {loop.history_kb[1]:,} kB, "
            f"{loop.rtt_ms:g} ms round trip, {loop.up_mbit_s:g} Mbit/s up, {loop.down_mbit_s:g} down:",
            "",
            *stages(link),
            "",
            "![The agent loop by stage](images/bench-agent-loop.svg)",
            "",
            "![Each turn by WebSocket](images/bench-agent-loop-1.svg)",
            "![Each turn with the full history](images/bench-agent-loop-2.svg)",
            "",
            f"The same loop on loopback, history from {short.history_kb[0]} to {short.history_kb[1]} kB:",
            "",
            *stages(loopback),
            "",
            "Short turns on loopback, a chain of 40 with 4 kB each, answered at once:",
            "",
            *chain(loopback),
            *([f"\nFailed: {'; '.join(failed)}."] if failed else []),
        ]
    )  # fmt: skip


def pictures(link: Report) -> Mapping[str, str]:
    """Files for the document."""
    rows = [row for row in link.rows if row.scene == "agent-loop"]
    made = list(drawings("agent-loop", rows, colours(link)))
    return {
        f"bench-{drawing.name}.svg": drawing.plot.picture(f"{drawing.caption}, {link.started}") for drawing in made[:3]
    }


async def _run(folder: Path, link: Report, loopback: Report, is_quick: bool) -> None:
    for name, plan, scenes, report in (("link", LINK, (), link), ("loopback", LOOPBACK, ("chain",), loopback)):
        print(f"agent loop: {name}", file=sys.stderr, flush=True)
        own = folder / name
        own.mkdir()
        await measured(quick(plan) if is_quick else plan, scenes, 1 if is_quick else ROUNDS, own, report)


def main() -> int:
    """Measure, and write tables and pictures. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.loop", description=__doc__)
    parser.add_argument("document", type=Path, help="the document with the two markers; - prints the tables")
    parser.add_argument("--quick", action="store_true", help="seconds instead of a minute; nothing to quote")
    given = parser.parse_args()
    link, loopback = (Report(now(), machine(), {}) for _ in range(2))
    with tempfile.TemporaryDirectory(prefix="loopline-loop-") as folder:
        uvloop.run(until_told(_run(Path(folder), link, loopback, given.quick)))
    if str(given.document) == "-":
        print(text(link, loopback))
        return 0
    given.document.write_text(between(given.document.read_text(), text(link, loopback), BEGIN, END))
    for name, picture in pictures(link).items():
        (given.document.parent / "images" / name).write_text(picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
