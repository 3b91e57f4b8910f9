"""Loopline for as long as you like under clients of every habit: what `make soak` runs.

    python -m tests.soak.run MINUTES [build/soak.json]

Two processes, one for each dialect of the upstream, before one simulated upstream. The same clients come twice: to warm
everything up, a tenth of MINUTES (at least one), after which all leave; then for MINUTES. When all have left again,
sockets, file descriptors, threads, tasks, running turns and counted memory must be exactly what they were after the
warm-up, resident memory at most `RSS_SHARE` above it, the bytes in caches at most `CACHE_SHARE` and `CACHE_BYTES`. No
client may have seen what it must not see. Exit status 1 where a promise is broken, 130 after Ctrl-C.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

from tests.program import Program, loopline
from tests.soak.gauges import Sample, cpu_s, peaks, sample, strayed
from tests.soak.habits import HABITS
from tests.soak.talking import Place, post
from tests.wire_client import user

CLIENTS = 24
MOST_CPU = 0.55  # of one core, everything together: clients, upstream and both processes
RSS_SHARE, CACHE_SHARE, CACHE_BYTES = 0.15, 0.15, 1_000_000
EVERY_S = 5.0
_SETTLE_S = 90.0
_TTL_S = 20  # of both caches of conversations
_MODEL = ("--ttft-s", "0.02", "--tokens-per-s", "400")
# Stored responses and what is remembered of histories leave by age and for want of room many times in a run.
_CONFIG = """
[server]
port = 0
client_stall_s = 5
[[endpoints]]
url = "{upstream}"
dialect = "{dialect}"
[models]
default = "simulated"
[limits]
history_bytes = 16000000
[store]
memory_bytes = 16000000
ttl_s = {ttl_s}
[prefix]
memory_bytes = 8000000
unstored_ttl_s = {ttl_s}
[log]
format = "json"
level = "info"
"""
_TOLD = 20  # findings that are printed as they come
_KEPT_LOG = 100_000  # characters of what each process printed


@dataclass(slots=True)
class Soak:
    """Who is measured, and what has been seen so far."""

    programs: dict[str, Program]
    upstream: Program
    http: aiohttp.ClientSession
    seen: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    pause_s: float = 2.0
    leaving: asyncio.Event = field(default_factory=asyncio.Event)

    def pids(self) -> list[int]:
        """Every process whose CPU counts."""
        return [os.getpid(), self.upstream.pid, *(each.pid for each in self.programs.values())]

    async def look(self) -> dict[str, Sample]:
        """Both processes, now."""
        for program in (*self.programs.values(), self.upstream):
            program.err = program.err[-_KEPT_LOG:]
        return {name: await sample(self.http, each.url, each.pid) for name, each in self.programs.items()}


async def _client(soak: Soak, number: int) -> None:
    """Visits until it is time to leave, each with another habit."""
    dice = random.Random(number)
    urls = [program.url for program in soak.programs.values()]
    while not soak.leaving.is_set():
        habit = dice.choices(list(HABITS), list(HABITS.values()))[0]
        async with aiohttp.ClientSession() as http:
            try:
                async with asyncio.timeout(120):
                    await habit(Place(dice.choice(urls), http, dice, soak.seen))
            except Exception as error:  # whatever a client trips over is a finding, and the run goes on
                soak.broken.append(f"{habit.__name__}: {error!r}"[:400])
                if len(soak.broken) <= _TOLD:
                    print(f"\n{soak.broken[-1]}", flush=True)
        soak.seen[f"visits: {habit.__name__}"] += 1
        await asyncio.sleep(dice.uniform(0.5, 1.5) * soak.pause_s)


async def _visited(soak: Soak, seconds: float, what: str) -> list[dict[str, Sample]]:
    """Clients come, stay for so long, and leave; what was seen of the processes meanwhile."""
    soak.leaving.clear()
    clients = [asyncio.create_task(_client(soak, number)) for number in range(CLIENTS)]
    began_s, taken = time.perf_counter(), list[dict[str, Sample]]()
    try:
        while (past_s := time.perf_counter() - began_s) < seconds and not all(each.done() for each in clients):
            used_s, at_s = sum(map(cpu_s, soak.pids())), time.perf_counter()
            await asyncio.sleep(min(EVERY_S, seconds - past_s))
            taken.append(await soak.look())
            share = (sum(map(cpu_s, soak.pids())) - used_s) / (time.perf_counter() - at_s)
            # Clients rest longer where together they take too much of the machine.
            soak.pause_s = min(max(soak.pause_s * (1.25 if share > MOST_CPU else 0.9), 0.05), 30.0)
            _tell(what, seconds, time.perf_counter() - began_s, taken[-1], share, soak)
        soak.leaving.set()
        await asyncio.gather(*clients)
    finally:
        for each in clients:
            each.cancel()
        await asyncio.wait(clients)
    return taken


def _tell(what: str, seconds: float, past_s: float, now: dict[str, Sample], share: float, soak: Soak) -> None:
    parts = [
        f"{name}: {each.rss_mib:.0f} MiB, {each.sockets} sockets, {each.fds} fds, {each.tasks} tasks, "
        f"{each.cache_bytes / 1e6:.1f} MB cached, {each.turns} turns"
        for name, each in now.items()
    ]
    line = f"{what} {past_s:5.0f} of {seconds:.0f} s  CPU {share:4.0%}  {'; '.join(parts)}; broken {len(soak.broken)}"
    if sys.stdout.isatty():
        print(f"\r\033[K{line}"[: os.get_terminal_size().columns + 4], end="", flush=True)
    elif int(past_s / EVERY_S) % 6 == 1:
        print(line, flush=True)


async def _glance(soak: Soak) -> None:
    """One short visit to each process: what is too old leaves a cache when somebody looks into it."""
    given = [user("[[say 1]]"), user("[[say 1]]")]
    for program in soak.programs.values():
        place = Place(program.url, soak.http, random.Random(0), Counter())
        for store in (True, False):
            await post(place, given, store=store)


async def _rested(soak: Soak, before: dict[str, Sample] | None) -> dict[str, Sample]:
    """Both processes with nobody there: as soon as they are what they were `before`, or after a while.

    Without `before`, when everything has left the caches by its age and two looks see the same.
    """
    began_s, last = time.perf_counter(), dict[str, Sample]()
    while True:
        await asyncio.sleep(EVERY_S)
        await _glance(soak)
        now = await soak.look()
        same = {name: each._replace(lag_s=0, turns=0, rss_mib=0) for name, each in now.items()}
        past_s = time.perf_counter() - began_s
        done = same == last and not any(each.sockets or each.running for each in now.values())
        if past_s > _SETTLE_S or (past_s > _TTL_S + 2 * EVERY_S and (not _strayed(before, now) if before else done)):
            return now
        last = same


def _strayed(before: dict[str, Sample], after: dict[str, Sample]) -> list[str]:
    found = ((name, strayed(before[name], after[name], RSS_SHARE, CACHE_SHARE, CACHE_BYTES)) for name in before)
    return [f"{name}: {what}" for name, many in found for what in many]


@asynccontextmanager
async def _brought_up() -> AsyncIterator[Soak]:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        upstream = await stack.enter_async_context(loopline("simulate", "--port", "0", *_MODEL))
        await upstream.prints("/v1")
        found = re.search(r"http://\S+/v1", upstream.out)
        assert found is not None, upstream.out
        programs = {}
        for dialect in ("chat", "responses"):
            config = folder / f"{dialect}.toml"
            config.write_text(_CONFIG.format(upstream=found[0], dialect=dialect, ttl_s=_TTL_S))
            state = {"XDG_STATE_HOME": str(folder / dialect)}
            programs[dialect] = await stack.enter_async_context(loopline("serve", "--config", str(config), env=state))
            await programs[dialect].prints("upstream")
        http = await stack.enter_async_context(aiohttp.ClientSession())
        yield Soak(programs, upstream, http)


async def _soaked(seconds: float, warm_up_s: float) -> dict[str, Any]:
    """The whole run; what there is to say of it."""
    async with _brought_up() as soak:
        await _glance(soak)
        fresh = await soak.look()
        await _visited(soak, warm_up_s, "warm-up")
        before = await _rested(soak, None)
        soak.seen.clear()
        taken = await _visited(soak, seconds, "soak")
        after = await _rested(soak, before)
        crashed = [line for each in soak.programs.values() for line in each.err.splitlines() if "Traceback" in line]
        return {
            "ended": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": seconds,
            "cores": os.cpu_count(),
            "load": os.getloadavg(),
            "python": sys.version.split()[0],
            "seen": dict(sorted(soak.seen.items())),
            "broken": [*dict.fromkeys(soak.broken + _strayed(before, after) + crashed)],
            "processes": {
                name: {
                    "fresh": fresh[name]._asdict(),
                    "before": before[name]._asdict(),
                    "peak": peaks(each[name] for each in taken)._asdict(),
                    "after": after[name]._asdict(),
                    "samples": [each[name]._asdict() for each in taken],
                }
                for name in before
            },
        }


def _summary(report: dict[str, Any]) -> str:
    shown = ("rss_mib", "fds", "threads", "tasks", "sockets", "budget_bytes", "cache_bytes", "turns")
    lines = ["", f"{'':20}" + "".join(f"{name:>14}" for name in shown)]
    for name, process in report["processes"].items():
        for phase in ("fresh", "before", "peak", "after"):
            lines.append(f"{name:10} {phase:9}" + "".join(f"{process[phase][each]:14}" for each in shown))
    lines.append(", ".join(f"{what} {count}" for what, count in report["seen"].items()))
    lines += ["Broken:", *report["broken"]] if report["broken"] else ["Every promise was kept."]
    return "\n".join(lines)


async def run(minutes: float, out: Path) -> int:
    """The exit status; the report is written to `out`."""
    this = asyncio.current_task()
    assert this is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    report = await _soaked(minutes * 60, max(60.0, minutes * 6))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(report, indent=1))
    print(_summary(report), f"\n{out}", flush=True)
    return int(bool(report["broken"]))


def main(arguments: Sequence[str]) -> int:
    """Exit status."""
    if len(arguments) not in (1, 2):
        print(__doc__)
        return 2
    try:
        return asyncio.run(run(float(arguments[0]), Path(arguments[1] if len(arguments) > 1 else "build/soak.json")))
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("\nStopped.")
        return 130


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
