"""What was measured: rows of figures in seconds and bytes, and which of them each scene shows; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import NamedTuple

from proxy.tools.figures import percentile

from .turns import Turn

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Row:
    """One case of one scene for one contestant.

    `figures` are seconds, bytes, counts a second and shares, by the names of `FIGURES`; None is "not available".
    `series` are lists for the plots; `note` is a word beside the case. A row with a `failure` has no figures.
    `samples` are what percentiles were taken of, by the figure's name, until rounds are put together.
    """

    scene: str
    case: str
    contestant: str
    figures: Mapping[str, float | None] = field(default_factory=dict)
    turns: int = 0
    events: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    series: Mapping[str, Sequence[float]] = field(default_factory=dict)
    note: str = ""
    failure: str = ""
    samples: Mapping[str, Sequence[float]] = field(default_factory=dict)


@dataclass(slots=True)
class Report:
    """A run: what ran on what, and the rows so far. `contestants` are in order; ratios are to the first."""

    started: str
    machine: Mapping[str, str | int]
    conditions: Mapping[str, object]
    contestants: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    interrupted: bool = False


class Figure(NamedTuple):
    """How a figure is shown. `unit` is one of `UNITS`."""

    label: str
    unit: str


# What one unit is in seconds, bytes or parts, and how many decimals it is shown with.
UNITS: Mapping[str, tuple[float, int]] = {
    "ms": (1e-3, 2),
    "s": (1, 2),
    "µs": (1e-6, 1),
    "kB": (1e3, 1),
    "/s": (1, 0),
    "%": (0.01, 1),
    "": (1, 0),
}
FIGURES: Mapping[str, Figure] = {
    "p50_first_s": Figure("turns 1-3 p50", "ms"),
    "p50_middle_s": Figure("middle p50", "ms"),
    "p50_last_s": Figure("last 3 p50", "ms"),
    "p50_s": Figure("turn p50", "ms"),
    "p99_s": Figure("turn p99", "ms"),
    "full_turn_s": Figure("first, full turn", "ms"),
    "cpu_turn_s": Figure("CPU a turn", "ms"),
    "more_cpu": Figure("more than off", "%"),
    "cpu_event_s": Figure("CPU an event", "µs"),
    "wall_event_s": Figure("wall an event", "µs"),
    "turns_per_s": Figure("turns", "/s"),
    "first_token_p50_s": Figure("first token p50", "ms"),
    "first_token_p99_s": Figure("first token p99", "ms"),
    "up_per_turn_bytes": Figure("up a turn", "kB"),
    "down_per_turn_bytes": Figure("down a turn", "kB"),
    "idle_bytes": Figure("a socket, idle", "kB"),
    "after_turn_bytes": Figure("after one turn", "kB"),
    "after_deflate_bytes": Figure("after a compressed frame", "kB"),
    "idle_cpu": Figure("CPU while idle", "%"),
    "upstream_tokens_per_s": Figure("tokens sent", "/s"),
    "tokens_per_s": Figure("received", "/s"),
    "lag_p50_s": Figure("behind p50", "ms"),
    "lag_p99_s": Figure("behind p99", "ms"),
    "added_p50_s": Figure("added p50", "ms"),
    "added_p99_s": Figure("added p99", "ms"),
    "client_cpu": Figure("CPU of the client", "%"),
    "cpu": Figure("CPU", "%"),
    "total_s": Figure("total", "s"),
    "client_s": Figure("client", "s"),
    "link_s": Figure("link", "s"),
    "proxy_s": Figure("proxy", "s"),
    "upstream_s": Figure("upstream", "s"),
    "up_bytes": Figure("sent up", "kB"),
    "down_bytes": Figure("received", "kB"),
}


class Shown(NamedTuple):
    """A scene on the screen: its columns, the figure that ratios are of, and whether less of that is better.

    Without a `main` figure contestants are not compared there.
    """

    title: str
    columns: Sequence[str]
    main: str
    less_is_better: bool = True


SHOWN: Mapping[str, Shown] = {
    "chain": Shown(
        "A chain of turns, each continuing the one before",
        ("p50_first_s", "p50_middle_s", "p50_last_s", "p99_s", "cpu_turn_s", "up_per_turn_bytes"),
        "p50_last_s",
    ),
    "deep": Shown(
        "One more short turn after a long history",
        ("p50_s", "cpu_turn_s", "full_turn_s", "up_per_turn_bytes"),
        "p50_s",
    ),
    "stream": Shown("Long answers", ("cpu_event_s", "wall_event_s", "down_per_turn_bytes"), "cpu_event_s"),
    "many": Shown(
        "Many sessions at once",
        ("turns_per_s", "first_token_p50_s", "first_token_p99_s", "cpu_turn_s"),
        "turns_per_s",
        less_is_better=False,
    ),
    "idle": Shown(
        "Sockets that are open and quiet",
        ("idle_bytes", "after_turn_bytes", "after_deflate_bytes", "idle_cpu"),
        "idle_bytes",
    ),
    "rates": Shown(
        "Fast models: one token a millisecond on each stream, one a write",
        (
            "upstream_tokens_per_s", "tokens_per_s", "lag_p50_s", "lag_p99_s", "added_p50_s", "added_p99_s", "cpu",
            "cpu_event_s",
            "client_cpu",
        ),
        "lag_p99_s",
    ),
    "agent-loop": Shown(
        "An agent loop over a link",
        ("total_s", "client_s", "link_s", "proxy_s", "upstream_s", "p50_s", "up_bytes", "down_bytes"),
        "total_s",
    ),
    "observability": Shown(
        "Being looked at, against not",
        ("cpu_turn_s", "more_cpu", "p50_s", "p99_s"),
        "",
    ),
}  # fmt: skip


def row(
    scene: str,
    case: str,
    contestant: str,
    turns: Sequence[Turn],
    samples: Mapping[str, Sequence[float]] | None = None,
    **figures: float | None,
) -> Row:
    """A row whose counts are those of the turns. `samples` are made into the percentiles that their names tell."""
    taken = samples or {}
    up, down = sum(turn.bytes_up for turn in turns), sum(turn.bytes_down for turn in turns)
    each = {"up_per_turn_bytes": up / len(turns), "down_per_turn_bytes": down / len(turns)} if turns else {}
    return Row(
        scene,
        case,
        contestant,
        {**{name: _percentile(name, values) for name, values in taken.items()}, **figures, **each},
        turns=len(turns),
        events=sum(turn.events for turn in turns),
        bytes_up=up,
        bytes_down=down,
        samples=taken,
    )


def took(turns: Iterable[Turn]) -> list[float]:
    """What turns took, in seconds."""
    return [turn.took_s for turn in turns]


def merged(rounds: Sequence[Row]) -> Row:
    """One case, measured several times, as one row without samples.

    Percentiles are those of all rounds together. Of what a round has as one figure (CPU, memory, rates) the median
    counts: a moment in which the machine did something else falls out. Counts are sums. A round that failed stands for
    all.
    """
    for row in rounds:
        if row.failure:
            return row
    names = dict.fromkeys(name for row in rounds for name in row.figures)
    notes = [row.note for row in rounds]
    return replace(
        rounds[0],
        figures={name: _merged_figure(name, rounds) for name in names},
        turns=sum(row.turns for row in rounds),
        events=sum(row.events for row in rounds),
        bytes_up=sum(row.bytes_up for row in rounds),
        bytes_down=sum(row.bytes_down for row in rounds),
        series={name: _medians([row.series[name] for row in rounds]) for name in rounds[0].series},
        note=max(notes, key=notes.count),
        samples={},
    )


def _merged_figure(name: str, rounds: Sequence[Row]) -> float | None:
    if any(name in row.samples for row in rounds):
        return _percentile(name, [value for row in rounds for value in row.samples.get(name, ())])
    values = [value for row in rounds if (value := row.figures.get(name)) is not None]
    return median(values) if values else None


def _medians(lists: Sequence[Sequence[float]]) -> list[float]:
    return [median(values) for values in zip(*lists, strict=True)]


_PERCENT = re.compile(r"(?:^|_)p(\d+)_")


def _percentile(name: str, values: Sequence[float]) -> float | None:
    """The percentile that a figure's name tells: `lag_p99_s`; None of nothing."""
    found = _PERCENT.search(name)
    assert found is not None, f"{name} tells no percentile"
    return percentile(values, float(found[1])) if values else None


def per(total: float | None, count: int) -> float | None:
    """A share of what may not be available."""
    return None if total is None or count == 0 else total / count


def ratio(row: Row, baseline: Row | None) -> float | None:
    """How many times the baseline's main figure this row's is; None where one of them is not there."""
    main = SHOWN[row.scene].main
    own, other = row.figures.get(main), baseline.figures.get(main) if baseline else None
    return own / other if own is not None and other is not None and other > 0 else None
