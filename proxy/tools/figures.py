"""Numbers for people, shared by the tools: percentiles, sizes, times, aligned columns; pure."""

from __future__ import annotations

import math
from collections.abc import Sequence


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest rank: a value that occurred. Raises ValueError without values."""
    if not values:
        raise ValueError("there is no percentile of nothing")
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        ).rstrip()
        for row in rows
    ]


def rate(mbit_s: float) -> str:
    """A link's rate; 0 has no limit."""
    return f"{mbit_s:g} Mbit/s" if mbit_s else "no limit"


def size(count: float) -> str:
    """Decimal, so that it compares with a link's rate; one unit down a column."""
    return f"{count:.0f} B" if count < 1_000 else f"{count / 1_000:,.1f} kB"


def time(seconds: float) -> str:
    """Milliseconds."""
    millis = 1000 * seconds
    return f"{millis:,.1f} ms" if millis < 100 else f"{millis:,.0f} ms"
