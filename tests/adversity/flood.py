"""Floods for as long as you like, against a process: what `make flood` runs.

    python -m tests.adversity.flood SECONDS      sockets for SECONDS, slow senders and bombs for a third of it each

Twenty clients that behave take turns all the while. Before each flood there is a calm of a sixth of SECONDS, which the
flood is measured against. Promised, and the exit status (1 where one is broken): the process lives; no turn of theirs
fails; the median and the 99th percentile of their turns stay below twice those of the calm before; every session of
the flood ends and the memory comes back to within `MARGIN_MIB` of what it was.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from tests.adversity import floods
from tests.conformance.schema import TERMINAL
from tests.program import Program, environment, loopline, served
from tests.wire_client import WireClient, open_socket, user

CLIENTS = 20
MARGIN_MIB = 64
MOST_TIMES = 2.0
_SETTLE_S = 10.0
_BETWEEN_S = 0.002  # one attacker after another: about as fast as one core opens sockets
# A model that answers 20 tokens in about half a second: what a turn costs besides is Loopline's and the flood's.
_MODEL = ("--ttft-s", "0.3", "--tokens-per-s", "100")
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Flood:
    """`share` of the whole time, `at_once` attackers in one process of their own."""

    name: str
    attacks: Sequence[floods.Attack]
    at_once: int
    share: float


FLOODS = {
    flood.name: flood
    for flood in (
        Flood("sockets", floods.SOCKETS, 20, 1),
        Flood("slow senders", (floods.trickle,), 3000, 1 / 3),
        Flood("bombs", (floods.explode,), 4, 1 / 3),
    )
}


@dataclass(slots=True)
class Phase:
    """What a phase was like for those who behave, and for the process."""

    turns_s: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    cpu: float = 0.0  # of one core
    peak_mib: float = 0.0

    def at(self, percentile: int) -> float:
        return statistics.quantiles(self.turns_s, n=100)[percentile - 1] if len(self.turns_s) > 1 else float("inf")


class Server:
    """The process, as /proc sees it."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.url = program.url

    def rss_mib(self) -> float:
        found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{self._program.pid}/status").read_text())
        return int(found[1]) / 1024 if found else 0.0

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self._program.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    async def sessions(self) -> int:
        async with aiohttp.ClientSession() as http, http.get(self.url.removesuffix("/v1") + "/metrics") as response:
            found = re.search(r"^loopline_session_open (\S+)", await response.text(), re.MULTILINE)
            return int(float(found[1])) if found else -1


async def _behave(client: WireClient, phase: list[Phase]) -> None:
    """Turn after turn; each counts for the phase in which it began."""
    parent: str | None = None
    for number in itertools.count(1):
        now, began_s = phase[-1], time.perf_counter()
        try:
            await client.create([user("[[say 20]]")], previous_response_id=parent if number % 10 else None)
            event = await client.event()
            while event["type"] not in TERMINAL:
                event = await client.event()
        except (OSError, TimeoutError, RuntimeError) as error:
            now.failed.append(repr(error))
            return
        now.turns_s.append(time.perf_counter() - began_s)
        if event["type"] != "response.completed":
            now.failed.append(str(event)[:200])
            return
        parent = event["response"]["id"]


async def _last(server: Server, phase: Phase, seconds: float) -> None:
    began_s, cpu_s = time.perf_counter(), server.cpu_s()
    while (past_s := time.perf_counter() - began_s) < seconds:
        phase.peak_mib = max(phase.peak_mib, server.rss_mib())
        await asyncio.sleep(0.1)
    phase.cpu = (server.cpu_s() - cpu_s) / past_s


@asynccontextmanager
async def _attacked(server: Server, flood: Flood, seconds: float, counts: list[str]) -> AsyncIterator[None]:
    attacker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.adversity.flood", "attack", flood.name, server.url, str(seconds)),
        env=environment(),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield
    finally:
        out, _ = await attacker.communicate()
        counts.append(out.decode().strip())


async def _attack(flood: Flood, url: str, seconds: float) -> None:
    """What the attacker's process does."""
    floods.bomb(256 * floods.MIB)
    done: Counter[str] = Counter()
    until_s = time.perf_counter() + seconds
    tasks = []
    for _ in range(flood.at_once):
        tasks.append(asyncio.create_task(floods.repeat(itertools.cycle(flood.attacks), url, done)))
        await asyncio.sleep(_BETWEEN_S)
    await asyncio.sleep(until_s - time.perf_counter())
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks, timeout=5)
    print(", ".join(f"{name} {count}" for name, count in sorted(done.items())))


async def _settled(server: Server, before_mib: float) -> tuple[float, int]:
    """Memory and sessions, as soon as they are back or after a while."""
    until_s = time.perf_counter() + _SETTLE_S
    while True:
        now = server.rss_mib(), await server.sessions()
        if (now[0] <= before_mib + MARGIN_MIB and now[1] == CLIENTS) or time.perf_counter() > until_s:
            return now
        await asyncio.sleep(0.25)


async def _one(server: Server, flood: Flood, phases: list[Phase], whole_s: float) -> list[str]:
    """One flood and the calm before it; which promises it broke."""
    calm, loud, counts = Phase(), Phase(), list[str]()
    phases.append(calm)
    await _last(server, calm, whole_s / 6)
    before_mib = server.rss_mib()
    phases.append(loud)
    async with _attacked(server, flood, whole_s * flood.share, counts):
        await _last(server, loud, whole_s * flood.share)
    phases.append(Phase())
    after_mib, sessions = await _settled(server, before_mib)
    ratios = [loud.at(percentile) / calm.at(percentile) for percentile in (50, 99)]
    print(f"\n{flood.name}: {counts[0]}")
    print(f"  load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; sessions left {sessions - CLIENTS}")
    print("  phase    turns   p50 s   p99 s   CPU")
    for name, phase in (("calm", calm), ("flood", loud)):
        print(f"  {name:5} {len(phase.turns_s):8} {phase.at(50):7.3f} {phase.at(99):7.3f} {phase.cpu:5.0%}")
    print(f"  times              {ratios[0]:4.2f}    {ratios[1]:4.2f}")
    print(f"  RSS MiB: before {before_mib:.0f}, peak {loud.peak_mib:.0f}, after {after_mib:.0f}", flush=True)
    broken = {
        f"turns failed: {(calm.failed + loud.failed)[:3]}": bool(calm.failed or loud.failed),
        f"latency {max(ratios):.2f} times": max(ratios) >= MOST_TIMES,
        f"{sessions - CLIENTS} sessions left": sessions != CLIENTS,
        f"memory {after_mib - before_mib:.0f} MiB above": after_mib > before_mib + MARGIN_MIB,
    }
    return [f"{flood.name}: {what}" for what, is_so in broken.items() if is_so]


async def run(whole_s: float, names: Sequence[str]) -> int:
    """All floods; the exit status."""
    broken: list[str] = []
    async with loopline("simulate", "--port", "0", *_MODEL) as upstream:
        await upstream.prints("/v1")
        found = re.search(r"http://\S+/v1", upstream.out)
        assert found is not None, upstream.out
        with tempfile.TemporaryDirectory() as folder:
            os.environ["XDG_STATE_HOME"] = folder
            async with served(found[0], Path(folder), {}) as program:
                server, phases = Server(program), [Phase()]
                async with _clients(server.url, phases):
                    await asyncio.sleep(2)  # everything has been used once
                    for name in names:
                        broken += await _one(server, FLOODS[name], phases, whole_s)
    print("\nBroken:", *broken, sep="\n  ") if broken else print("\nEvery promise was kept.")
    return int(bool(broken))


@asynccontextmanager
async def _clients(url: str, phases: list[Phase]) -> AsyncIterator[None]:
    sockets = [open_socket(url) for _ in range(CLIENTS)]
    clients = [await each.__aenter__() for each in sockets]
    tasks = [asyncio.create_task(_behave(client, phases)) for client in clients]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for each in sockets:
            await each.__aexit__(None, None, None)


def main(arguments: Sequence[str]) -> int:
    """Exit status."""
    match arguments:
        case ["attack", name, url, seconds]:
            asyncio.run(_attack(FLOODS[name], url, float(seconds)))
            return 0
        case [seconds, *names] if all(name in FLOODS for name in names):
            return asyncio.run(run(float(seconds), names or tuple(FLOODS)))
    print(__doc__)
    return 2


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
