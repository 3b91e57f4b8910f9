"""Which plots each scene has, made of its rows; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from .plots import COLOURS, Bar, Line, Plot, bars, columns, lines
from .rows import UNITS, Report, Row

_PARTS = (("client", "client_s", 3), ("link", "link_s", 1), ("proxy", "proxy_s", 0), ("upstream", "upstream_s", 2))
Colours = Mapping[str, int]  # of contestants


class Drawing(NamedTuple):
    """A plot, what it shows, and the name of a file for it, without its ending."""

    name: str
    caption: str
    plot: Plot


def colours(report: Report) -> Colours:
    """A colour for each contestant."""
    return {name: number % COLOURS for number, name in enumerate(report.contestants)}


def drawings(scene: str, rows: Sequence[Row], colours: Colours) -> Iterator[Drawing]:
    """The plots of one scene's rows; those without a point are left out."""
    for name, plot, caption in _OF[scene](rows, colours) if scene in _OF else ():
        if plot is not None:
            yield Drawing(name, caption, plot)


def everything(report: Report) -> Iterator[Drawing]:
    """The plots of a whole report."""
    for scene in _OF:
        yield from drawings(scene, [row for row in report.rows if row.scene == scene], colours(report))


def by_case(rows: Sequence[Row]) -> Sequence[Row]:
    """Cases in the order in which they came, contestants below each other."""
    order = list(dict.fromkeys(row.case for row in rows))
    return sorted(rows, key=lambda row: order.index(row.case))


_Drawn = Iterator[tuple[str, Plot | None, str]]


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.3g} ms"


def _chain(rows: Sequence[Row], colours: Colours) -> _Drawn:
    drawn = [
        Line(row.contestant, list(enumerate(row.series["turn_p50_s"], 1)), colours[row.contestant])
        for row in rows
        if "turn_p50_s" in row.series
    ]
    plot = lines(drawn, "turn of the chain", "median time", _ms, log=False)
    yield "chain", plot, "Median time of each turn of the chain"


def _deep(rows: Sequence[Row], colours: Colours) -> _Drawn:
    for unit, short, label in (("MB", "history", "history in MB"), ("turns deep", "depth", "turns before")):
        for figure, what in (("p50_s", "Time"), ("cpu_turn_s", "CPU")):
            plot = _against([row for row in rows if row.case.endswith(unit)], figure, label, what, colours)
            yield f"deep-{short}-{what.lower()}", plot, f"{what} of a turn against {label}"


def _rates(rows: Sequence[Row], colours: Colours) -> _Drawn:
    side_by_side = [row for row in rows if row.case.endswith(("stream", "streams"))]
    plot = _against(side_by_side, "lag_p99_s", "streams", "behind", colours)
    yield "rates", plot, "How far the slowest 1 % of tokens are behind the upstream"


def _against(rows: Sequence[Row], figure: str, label: str, what: str, colours: Colours) -> Plot | None:
    """A line for each contestant; the number that a case begins with is its x."""
    points: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        value = row.figures.get(figure)
        if value is not None:
            points.setdefault(row.contestant, []).append((float(row.case.split()[0]), value))
    drawn = [Line(name, at, colours[name]) for name, at in points.items()]
    return lines(drawn, label, what, _ms, log=True)


def _stream(rows: Sequence[Row], colours: Colours) -> _Drawn:
    size, decimals = UNITS["µs"]
    drawn = [
        Bar(f"{row.contestant} · {row.case}", [(value, colours[row.contestant])], f"{value / size:.{decimals}f} µs")
        for row in by_case(rows)
        if (value := row.figures.get("cpu_event_s")) is not None
    ]
    yield "stream", bars(drawn, "CPU an event"), "CPU an event"


def _observability(rows: Sequence[Row], colours: Colours) -> _Drawn:
    drawn = [
        Bar(f"{row.contestant} · {row.case}", [(value, colours[row.contestant])], _ms(value))
        for row in rows
        if (value := row.figures.get("cpu_turn_s")) is not None
    ]
    yield "observability", bars(drawn, "CPU a turn"), "CPU a turn, being looked at and not"


def _waterfall(rows: Sequence[Row], _: Colours) -> _Drawn:
    whole = [row for row in rows if row.figures.get("total_s")]
    drawn = [
        Bar(
            row.contestant,
            [(row.figures.get(figure) or 0.0, colour) for _, figure, colour in _PARTS],
            f"{row.figures['total_s']:.2f} s",
        )
        for row in whole
    ]
    legend = [(name, colour) for name, _, colour in _PARTS]
    yield "agent-loop", bars(drawn, "time by place", legend), "Where the time of the whole loop goes"
    places = [(name, figure, colour) for name, figure, colour in _PARTS if figure != "client_s"]
    stacks = {
        row.contestant: [
            [(row.series[figure][turn], colour) for _, figure, colour in places]
            for turn in range(len(row.series["link_s"]))
        ]
        for row in whole
        if row.series
    }
    top = max((sum(length for length, _ in parts) for stack in stacks.values() for parts in stack), default=0.0)
    legend = [(name, colour) for name, _, colour in places]
    for number, (name, stack) in enumerate(stacks.items(), 1):
        plot = columns(stack, f"turns of {name}", _ms, top)._replace(legend=legend)
        yield f"agent-loop-{number}", plot, f"{name}: each turn by place"


_OF: Mapping[str, Callable[[Sequence[Row], Colours], _Drawn]] = {
    "chain": _chain,
    "deep": _deep,
    "stream": _stream,
    "rates": _rates,
    "agent-loop": _waterfall,
    "observability": _observability,
}
