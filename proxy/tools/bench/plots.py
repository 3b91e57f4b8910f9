"""Plots as SVG: lines, bars, bars in parts; pure.

In a page colours are the page's, by class, so that it can be dark. A picture, a file of its own, has a light ground
and its own colours, so that it can be read wherever it is shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT = 720, 300
# Of c0 to c5 on a light ground.
LIGHT = ("#2563eb", "#d97706", "#0d9488", "#9333ea", "#be123c", "#64748b")
COLOURS = len(LIGHT)
_FORE, _DIM, _RULE, _BACK = "#1c2024", "#666677", "#d9dde3", "#ffffff"
_TITLE, _LEGEND_LINE, _CHARACTER = 34, 22, 6.6
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 12, 44
_BAR = 22


class Plot(NamedTuple):
    """What was drawn, and the legend below it: names with the numbers of their colours."""

    body: str
    height: float
    label: str
    legend: Sequence[tuple[str, int]]

    def inline(self) -> str:
        """For a page that has a style."""
        return _svg(self.body, self.height, self.label) + _legend(self.legend)

    def picture(self, title: str) -> str:
        """A file of its own."""
        keys, lines = _keys(self.legend, _TITLE + self.height)
        height = _TITLE + self.height + _LEGEND_LINE * lines + 10
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:g}" '
            f'viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(title)}">'
            f'<title>{escape(title)}</title><style>{_PICTURE_STYLE}</style><rect class="back" width="100%" '
            f'height="100%" rx="6"/><text class="title" x="14" y="23">{escape(title)}</text>'
            f'<g transform="translate(0 {_TITLE})">{self.body}</g>{keys}</svg>\n'
        )


class Line(NamedTuple):
    """A line through points; `colour` is a number below `COLOURS`."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: int


class Bar(NamedTuple):
    """A horizontal bar. `parts` are lengths one after the other, each with its colour."""

    name: str
    parts: Sequence[tuple[float, int]]
    shown: str


def lines(
    drawn: Sequence[Line], x_label: str, y_label: str, shown: Callable[[float], str], *, log: bool
) -> Plot | None:
    """A line plot from zero upwards; `log` spaces x by its logarithm. None without points."""
    xs = [x for line in drawn for x, _ in line.points]
    ys = [y for line in drawn for _, y in line.points]
    if not xs or max(ys) <= 0:
        return None
    place: Callable[[float], float] = math.log10 if log else float
    low, high = place(min(xs)), place(max(xs))
    top = _rounded_up(max(ys))

    def x_at(x: float) -> float:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * ((place(x) - low) / (high - low) if high > low else 0.5)

    def y_at(y: float) -> float:
        return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * y / top

    body = [_y_axis(top, y_at, shown), *(_tick(x_at(x), f"{x:,g}") for x in _spread(sorted(set(xs))))]
    for line in drawn:
        path = " ".join(f"{x_at(x):.1f},{y_at(y):.1f}" for x, y in sorted(line.points))
        body.append(f'<polyline class="line c{line.colour}" points="{path}"/>')
        if len(line.points) <= 12:
            body += [
                f'<circle class="dot c{line.colour}" cx="{x_at(x):.1f}" cy="{y_at(y):.1f}" r="4">'
                f"<title>{escape(line.name)}: {escape(shown(y))}</title></circle>"
                for x, y in line.points
            ]
    body.append(f'<text class="label" x="{(_LEFT + WIDTH) / 2}" y="{HEIGHT - 6}">{escape(x_label)}</text>')
    return Plot("".join(body), HEIGHT, f"{y_label} against {x_label}", [(line.name, line.colour) for line in drawn])


def bars(drawn: Sequence[Bar], label: str, legend: Sequence[tuple[str, int]] = ()) -> Plot | None:
    """Horizontal bars from zero, each with its name to the left and its value behind it. None without bars."""
    longest = max((sum(length for length, _ in bar.parts) for bar in drawn), default=0)
    if longest <= 0:
        return None
    left, right = 310, 80
    body = []
    for number, bar in enumerate(drawn):
        y = _TOP + number * (_BAR + 10)
        body.append(f'<text class="name" x="{left - 8}" y="{y + 15}">{escape(bar.name)}</text>')
        at = float(left)
        for length, colour in bar.parts:
            width = (WIDTH - left - right) * length / longest
            body.append(
                f'<rect class="bar c{colour}" x="{at:.1f}" y="{y}" width="{max(width - 1, 0):.1f}" height="{_BAR}"/>'
            )
            at += width
        body.append(f'<text class="value" x="{at + 6:.1f}" y="{y + 15}">{escape(bar.shown)}</text>')
    return Plot("".join(body), 2 * _TOP + len(drawn) * (_BAR + 10), label, legend)


def columns(
    drawn: Sequence[Sequence[tuple[float, int]]], label: str, shown: Callable[[float], str], top: float
) -> Plot:
    """Thin columns side by side, one for each turn, in parts; `top` is shared by plots that are compared."""
    height = 180
    top = _rounded_up(top)

    def y_at(y: float) -> float:
        return height - _BOTTOM - (height - _TOP - _BOTTOM) * y / top

    step = (WIDTH - _LEFT - _RIGHT) / max(1, len(drawn))
    body = [_y_axis(top, y_at, shown)]
    for number, parts in enumerate(drawn):
        base = 0.0
        for length, colour in parts:
            body.append(
                f'<rect class="bar c{colour}" x="{_LEFT + number * step + 1:.1f}" y="{y_at(base + length):.1f}" '
                f'width="{max(step - 2, 1):.1f}" height="{max(y_at(base) - y_at(base + length), 0):.1f}"/>'
            )
            base += length
    body.append(f'<text class="label" x="{(_LEFT + WIDTH) / 2}" y="{height - 8}">turn 1 to {len(drawn)}</text>')
    return Plot("".join(body), height, label, ())


def _svg(body: str, height: float, label: str) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(label)}">{body}</svg>'


def _y_axis(top: float, y_at: Callable[[float], float], shown: Callable[[float], str]) -> str:
    marks = []
    for quarter in range(5):
        value = top * quarter / 4
        y = y_at(value)
        marks.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        marks.append(f'<text class="tick-y" x="{_LEFT - 6}" y="{y + 4:.1f}">{escape(shown(value))}</text>')
    return "".join(marks)


def _tick(x: float, text: str) -> str:
    return f'<text class="tick-x" x="{x:.1f}" y="{HEIGHT - _BOTTOM + 16}">{text}</text>'


def _spread(values: Sequence[float]) -> Sequence[float]:
    """Those that have room: all of ten, nine of more, the first and the last among them."""
    if len(values) <= 10:
        return values
    return [values[round(number * (len(values) - 1) / 8)] for number in range(9)]


def _rounded_up(value: float) -> float:
    """The next of 1, 2, 4, 6, 8 and 10 times a power of ten."""
    power: float = 10 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(power * step for step in (1, 2, 4, 6, 8, 10) if power * step >= value * 0.9999)


def _legend(names: Sequence[tuple[str, int]]) -> str:
    keys = "".join(f'<span><i class="key c{colour}"></i>{escape(name)}</span>' for name, colour in names)
    return f'<p class="legend">{keys}</p>' if names else ""


def _keys(names: Sequence[tuple[str, int]], top: float) -> tuple[str, int]:
    """A picture's legend, and how many lines it takes."""
    x, line, keys = 14.0, 0, []
    for name, colour in names:
        width = 18 + _CHARACTER * len(name) + 18
        if x + width > WIDTH and x > 14:
            x, line = 14.0, line + 1
        y = top + _LEGEND_LINE * line + 6
        keys.append(f'<rect class="bar c{colour}" x="{x:.1f}" y="{y:.1f}" width="11" height="11" rx="2"/>')
        keys.append(f'<text x="{x + 17:.1f}" y="{y + 10:.1f}">{escape(name)}</text>')
        x += width
    return "".join(keys), line + 1 if keys else 0


_PICTURE_STYLE = (
    f"text{{font:12px system-ui,sans-serif;fill:{_FORE}}}.title{{font-size:14px;font-weight:600}}"
    f".back{{fill:{_BACK};stroke:{_RULE}}}.grid{{stroke:{_RULE}}}.tick-y,.name{{text-anchor:end}}"
    f".tick-x,.label{{text-anchor:middle}}.tick-x,.tick-y,.label{{fill:{_DIM}}}.line{{fill:none;stroke-width:2}}"
    + "".join(f".bar.c{n},.dot.c{n}{{fill:{c}}}.line.c{n}{{stroke:{c}}}" for n, c in enumerate(LIGHT))
)
