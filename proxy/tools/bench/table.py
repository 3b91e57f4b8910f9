"""A report as text for a terminal; pure."""

from __future__ import annotations

from collections.abc import Sequence

from proxy.tools.figures import aligned

from .rows import FIGURES, SHOWN, UNITS, Report, Row, ratio

CAVEAT = """\
Compare within this run: each × is the ratio to the first contestant in the same case. Times are those of this machine
at this moment; CPU is the server's own, from the operating system, and moves less with other load."""
MISSING = "n/a"


def render(report: Report) -> str:
    """Plain text without colour; ends without a line break."""
    lines = [*heading(report), ""]
    for scene in SHOWN:
        rows = [row for row in report.rows if row.scene == scene]
        if rows:
            lines += [f"{scene}: {SHOWN[scene].title.lower()}", *scene_table(rows, report.contestants[0]), ""]
    return "\n".join(
        [*lines, *report.notes, *(["Interrupted: what follows was not measured."] * report.interrupted), CAVEAT]
    )


def heading(report: Report) -> list[str]:
    """What ran, when, on what."""
    machine = ", ".join(f"{name} {value}" for name, value in report.machine.items())
    return [f"loopline bench, {report.started}", machine, *(f"{k}: {v}" for k, v in report.conditions.items() if v)]


def scene_table(rows: Sequence[Row], baseline: str) -> list[str]:
    """One scene: a block of rows for each case, contestants below each other."""
    columns = [name for name in SHOWN[rows[0].scene].columns if any(name in row.figures for row in rows)]
    first = {row.case: row for row in rows if row.contestant == baseline}
    head = ("", "", *(FIGURES[name].label for name in columns), "×")
    cells = [head]
    for case in dict.fromkeys(row.case for row in rows if not row.failure):
        for row in (row for row in rows if row.case == case and not row.failure):
            times = ratio(row, first.get(case))
            shown = [cell(row, name) for name in columns]
            cells.append(
                (
                    f"  {case}",
                    row.contestant + (f" ({row.note})" if row.note else ""),
                    *shown,
                    f"{times:.2f}" if times is not None else "",
                )
            )
    lines = aligned(_left(cells)) if len(cells) > 1 else []
    return [
        *lines,
        *(f"  {row.contestant}: {failure(row)}" for row in rows if row.failure),
    ]


def failure(row: Row) -> str:
    """Which case failed, where one did by itself, and why."""
    return f"failed ({row.case}): {row.failure}" if row.case else f"failed: {row.failure}"


def _left(cells: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The second column is text too: to the left."""
    width = max(len(row[1]) for row in cells)
    return [(row[0], row[1].ljust(width), *row[2:]) for row in cells]


def cell(row: Row, name: str) -> str:
    """A figure with its unit; `n/a` for what the operating system did not say."""
    value = row.figures.get(name)
    if value is None:
        return MISSING
    unit = FIGURES[name].unit
    size, decimals = UNITS[unit]
    shown = round(value / size, decimals) + 0.0  # no minus before what is rounded to nothing
    return f"{shown:,.{decimals}f}{' ' if unit not in ('/s', '') else ''}{unit}".rstrip()
