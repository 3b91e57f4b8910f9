"""Plots as inline SVG: lines, bars, bars in parts; pure. Colours are the page's, by class, so that it can be dark."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT = 720, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 12, 44
_BAR = 22
COLOURS = 6  # classes c0 to c5 in the page's style


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


def lines(drawn: Sequence[Line], x_label: str, y_label: str, shown: Callable[[float], str], *, log: bool) -> str:
    """A line plot from zero upwards; `log` spaces x by its logarithm. Empty without points."""
    xs = [x for line in drawn for x, _ in line.points]
    ys = [y for line in drawn for _, y in line.points]
    if not xs or max(ys) <= 0:
        return ""
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
    return _svg(body, HEIGHT, f"{y_label} against {x_label}") + _legend([(line.name, line.colour) for line in drawn])


def bars(drawn: Sequence[Bar], label: str, legend: Sequence[tuple[str, int]] = ()) -> str:
    """Horizontal bars from zero, each with its name to the left and its value behind it. Empty without bars."""
    longest = max((sum(length for length, _ in bar.parts) for bar in drawn), default=0)
    if longest <= 0:
        return ""
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
    return _svg(body, 2 * _TOP + len(drawn) * (_BAR + 10), label) + _legend(legend)


def columns(drawn: Sequence[Sequence[tuple[float, int]]], label: str, shown: Callable[[float], str], top: float) -> str:
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
    return _svg(body, height, label)


def _svg(body: Sequence[str], height: float, label: str) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(label)}">{"".join(body)}</svg>'


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
