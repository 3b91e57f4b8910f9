"""Holds every function of the hot path to its budget, or writes the budgets: `make check-budget`, `make budget`.

    python -m tests.bench.budget check | write

A budget is a multiple of the time of `reference`, so that it means the same on another machine. Both are timed in
turns, in short windows of the thread's own CPU time, and the shortest window of each counts: what else the machine does
makes windows longer, never shorter. A function passes as soon as it is within its budget; only one that stays above it
over all its windows, and over those of a second try at the end, fails. Exit status 1 where one does.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.bench.pieces import PIECES, Timed
from tests.bench.reference import reference

FILE = Path(__file__).with_name("budget.toml")
HEADROOM = 1.6
_WINDOW_S = 0.002
_WINDOWS, _AGAIN = 60, 300
_TRIES = 5  # when written: the median of so many
_HEAD = """\
# Time of each function of the hot path as a multiple of tests/bench/reference.py, as it was measured.
# `make check-budget` fails above 1.6 times of it; `make budget` writes this file anew: say in the commit why.

"""


class Measured(NamedTuple):
    """A function against its budget, both in multiples of the reference."""

    name: str
    ratio: float
    budget: float

    @property
    def within(self) -> bool:
        """Is it no dearer than allowed?"""
        return self.ratio <= self.budget


def _calls(timed: Timed) -> int:
    """How many calls fill a window."""
    calls = 1
    while _window(timed, calls) * calls < _WINDOW_S:
        calls *= 2
    return calls


def _window(timed: Timed, calls: int) -> float:
    """Seconds of CPU a call."""
    began = time.thread_time()
    for _ in range(calls):
        timed()
    return (time.thread_time() - began) / calls


def ratio(timed: Timed, windows: int, good_enough: float = 0.0) -> float:
    """The time of a function as a multiple of the reference's; stops where it is `good_enough`."""
    timed()
    calls, steps = _calls(timed), _calls(reference)
    least = least_reference = float("inf")
    for number in range(windows):
        least_reference = min(least_reference, _window(reference, steps))
        least = min(least, _window(timed, calls))
        if number >= _LEAST_WINDOWS and least / least_reference <= good_enough:
            break
    return least / least_reference


_LEAST_WINDOWS = 5


def budgets() -> dict[str, float]:
    """What was measured when the file was written, by name."""
    found: dict[str, float] = tomllib.loads(FILE.read_text())["ratios"]
    return found


def check(names: Sequence[str], windows: int) -> list[Measured]:
    """Each of these functions against its budget."""
    allowed = {name: HEADROOM * measured for name, measured in budgets().items()}
    return [Measured(name, ratio(PIECES[name](), windows, allowed[name]), allowed[name]) for name in names]


def _check() -> int:
    if list(budgets()) != list(PIECES):
        print(f"{FILE.name} does not list what tests/bench/pieces.py has: make budget")
        return 1
    began_s = time.perf_counter()
    measured = {each.name: each for each in check(list(PIECES), _WINDOWS)}
    slow = [each.name for each in measured.values() if not each.within]
    measured |= {each.name: each for each in check(slow, _AGAIN)}
    print(f"{'':45}   ratio  budget")
    for each in measured.values():
        print(f"{each.name:45}{each.ratio:8.2f}{each.budget:8.2f}{'' if each.within else '  above its budget'}")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, {time.perf_counter() - began_s:.0f} s")
    return int(not all(each.within for each in measured.values()))


def _write() -> int:
    found = {name: [ratio(make(), _WINDOWS) for _ in range(_TRIES)] for name, make in PIECES.items()}
    lines = (f'"{name}" = {statistics.median(tries):.3f}\n' for name, tries in found.items())
    FILE.write_text(f"{_HEAD}[ratios]\n{''.join(lines)}")
    return 0


def main(arguments: Sequence[str]) -> int:
    """Exit status."""
    match arguments:
        case ["check"]:
            return _check()
        case ["write"]:
            return _write()
    print(__doc__)
    return 2


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
