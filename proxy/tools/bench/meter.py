"""What the operating system says of a process and its children: CPU time and resident memory.

On Linux CPU time is that of the process's own clock (clock_getcpuclockid(3)): nanoseconds of all its threads, those
that have ended included. Elsewhere there is nothing as exact that needs no privilege, so nothing is said.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
_CPUCLOCK_SCHED = 2  # linux/include/linux/posix-timers.h: the id of a process's clock is ~PID and these three bits


class Meter:
    """The processes with these ids and all their children; `available` tells whether there is anything to read."""

    def __init__(self, pids: Sequence[int] = ()) -> None:
        self._pids = pids
        self.available = bool(pids) and sys.platform == "linux"

    def cpu_s(self) -> float | None:
        """CPU time so far, of all processes that live; None where it is not available."""
        return sum(map(_cpu_s, self._tree())) if self.available else None

    def rss_bytes(self) -> int | None:
        """Resident memory; None where it is not available."""
        return sum(map(_rss_bytes, self._tree())) if self.available else None

    def _tree(self) -> Iterator[int]:
        children: dict[int, list[int]] = {}
        for entry in os.scandir(_PROC):
            if entry.name.isdigit():
                with suppress(OSError):  # it has ended meanwhile
                    parent = int(_after_name(Path(entry.path, "stat"))[1])
                    children.setdefault(parent, []).append(int(entry.name))
        left = list(self._pids)
        while left:
            pid = left.pop()
            left += children.get(pid, [])
            yield pid


def _cpu_s(pid: int) -> float:
    with suppress(OSError):  # it has ended
        return time.clock_gettime_ns((~pid << 3) | _CPUCLOCK_SCHED) / 1e9
    return 0.0


def _after_name(stat: Path) -> list[str]:
    """The fields of a `stat` file behind the name, which may hold anything."""
    return stat.read_text().rpartition(")")[2].split()


def _rss_bytes(pid: int) -> int:
    with suppress(OSError):
        for line in (_PROC / str(pid) / "status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    return 0
