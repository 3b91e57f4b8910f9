"""What a soak reads of its processes: numbers from /metrics and /proc."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import aiohttp

_TICKS = os.sysconf("SC_CLK_TCK")
_SAMPLE = re.compile(r"^(loopline_\w+?)(?:\{[^}]*\})? (\S+)$", re.MULTILINE)


class Sample(NamedTuple):
    """One process at one moment. `cache_bytes` and `turns` are sums over their labels."""

    rss_mib: float
    fds: int
    threads: int
    tasks: int
    sockets: int
    running: int
    in_flight: int
    budget_bytes: int
    cache_bytes: int
    cache_entries: int
    turns: int
    crashes: int
    lag_s: float  # sum of how late the loop's timer fired, one firing a second


_FAMILIES = {
    "tasks": "loopline_process_tasks",
    "sockets": "loopline_session_open",
    "running": "loopline_turn_running",
    "in_flight": "loopline_upstream_in_flight",
    "budget_bytes": "loopline_memory_used_bytes",
    "cache_bytes": "loopline_cache_bytes",
    "cache_entries": "loopline_cache_entries",
    "turns": "loopline_turn_ended_total",
    "crashes": "loopline_process_crashes_total",
}
# What must be again exactly what it was, once all clients have left.
EXACT = ("fds", "threads", "tasks", "sockets", "running", "in_flight", "budget_bytes")


def cpu_s(pid: int) -> float:
    """CPU that a process has used, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _status(pid: int, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None, name
    return int(found[1])


def read(pid: int, exposition: str) -> Sample:
    """A sample from what /metrics said of this process, and from /proc now."""
    sums: dict[str, float] = {}
    for name, value in _SAMPLE.findall(exposition):
        sums[name] = sums.get(name, 0.0) + float(value)
    return Sample(
        rss_mib=round(_status(pid, "VmRSS") / 1024, 1),
        fds=len(os.listdir(f"/proc/{pid}/fd")),
        threads=_status(pid, "Threads"),
        lag_s=round(sums.get("loopline_process_loop_lag_seconds_sum", 0.0), 3),
        **{field: int(sums.get(family, 0)) for field, family in _FAMILIES.items()},
    )


async def sample(http: aiohttp.ClientSession, url: str, pid: int) -> Sample:
    """One process, whose base URL is `url`, now. Raises aiohttp.ClientError, OSError where it is gone."""
    async with http.get(url.removesuffix("/v1") + "/metrics") as response:
        response.raise_for_status()
        return read(pid, await response.text())


def strayed(before: Sample, after: Sample, rss_share: float, cache_share: float, cache_bytes: int) -> list[str]:
    """What did not come back to where it was, each in words.

    `rss_share` and `cache_share` are by how much memory and caches may be above what they were. `cache_bytes` is
    allowed besides: what clients repeat is kept for as long as there is room for it.
    """
    found = [
        f"{name} {getattr(after, name)}, was {getattr(before, name)}"
        for name in EXACT
        if getattr(after, name) != getattr(before, name)
    ]
    if after.rss_mib > before.rss_mib * (1 + rss_share):
        found.append(f"rss_mib {after.rss_mib}, was {before.rss_mib}")
    if after.cache_bytes > before.cache_bytes * (1 + cache_share) + cache_bytes:
        found.append(f"cache_bytes {after.cache_bytes}, was {before.cache_bytes}")
    if after.crashes:
        found.append(f"{after.crashes} errors of Loopline itself")
    return found


def peaks(samples: Iterable[Sample]) -> Sample:
    """The greatest of each number."""
    return Sample(*(max(column) for column in zip(*samples, strict=True)))
