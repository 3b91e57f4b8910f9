"""The table of `make bench-peers` as Markdown, and its place in a document; pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from proxy.tools.bench.rows import Report, Row

BEGIN, END = "<!-- make bench-peers writes from here -->", "<!-- to here -->"
MISSING = "–"
_FLOOR = "bare relay"


class Column(NamedTuple):
    """A column: figures of the cases whose names begin with these words, in one unit; `factor` makes it of seconds."""

    head: str
    scene: str
    parts: Sequence[tuple[str, str]]  # case, figure
    factor: float
    decimals: int


_SIZES = ("0.01 MB", "1 MB", "4 MB", "16 MB")
_BURST, _STREAMS = "1 stream,", ("1 stream", "10 streams", "40 streams")
COLUMNS: Sequence[Column] = (
    Column("chain, p50 at turns 1-3 / last 3, ms", "chain", (("", "p50_first_s"), ("", "p50_last_s")), 1e3, 1),
    Column("CPU a turn, ms", "chain", (("", "cpu_turn_s"),), 1e3, 2),
    Column(
        "CPU an event, µs: batched, 100 / 5,000 deltas", "stream",
        (("100 deltas, batched", "cpu_event_s"), ("5,000 deltas, batched", "cpu_event_s")), 1e6, 1,
    ),
    Column(
        "one a write, 100 / 5,000", "stream",
        (("100 deltas, one", "cpu_event_s"), ("5,000 deltas, one", "cpu_event_s")), 1e6, 1,
    ),
    Column("delta turn after 0.01 / 1 / 4 / 16 MB, p50 ms", "deep", [(size, "p50_s") for size in _SIZES], 1e3, 1),
    Column("its CPU, ms", "deep", [(size, "cpu_turn_s") for size in _SIZES], 1e3, 2),
    Column(
        "CPU 10 / 100 / 1,000 turns deep, ms", "deep",
        [(f"{depth} turns", "cpu_turn_s") for depth in (10, 100, 1000)], 1e3, 2,
    ),
    Column("64 sessions, turns/s", "many", (("", "turns_per_s"),), 1, 0),
    Column("their CPU a turn, ms", "many", (("", "cpu_turn_s"),), 1e3, 2),
    Column(
        "a socket, kB: idle / after a turn / after a compressed frame", "idle",
        (("", "idle_bytes"), ("", "after_turn_bytes"), ("", "after_deflate_bytes")), 1e-3, 1,
    ),
    Column(
        "4,000 tokens/s on one stream, one a write: behind the upstream p50 / p99, ms", "rates",
        ((_BURST, "lag_p50_s"), (_BURST, "lag_p99_s")), 1e3, 2,
    ),
    Column(
        "added between its tokens p50 / p99, ms", "rates", ((_BURST, "added_p50_s"), (_BURST, "added_p99_s")), 1e3, 2
    ),
    Column("its CPU an event, µs", "rates", ((_BURST, "cpu_event_s"),), 1e6, 1),
    Column(
        "1,000 tokens/s a stream, one a write, 1 / 10 / 40 streams: behind the upstream p99, ms", "rates",
        [(streams, "lag_p99_s") for streams in _STREAMS], 1e3, 1,
    ),
    Column("added between their tokens p99, ms", "rates", [(streams, "added_p99_s") for streams in _STREAMS], 1e3, 1),
    Column("their CPU an event, µs", "rates", [(streams, "cpu_event_s") for streams in _STREAMS], 1e6, 1),
)  # fmt: skip


def markdown(report: Report) -> str:
    """The conditions, a table for each floor and those measured against it, and what was not measured."""
    groups: dict[str, list[str]] = {}
    floor = ""
    for name in report.contestants:
        floor = name if name.startswith(_FLOOR) or not floor else floor
        groups.setdefault(floor, []).append(name)
    lines = [_conditions(report), ""]
    for floor, names in groups.items():
        lines += [*_table(report, floor, names), ""]
    lines += [f"{note.rstrip('.')}." for note in report.notes]
    failed = [
        f"{row.contestant}, {row.scene}{' ' * bool(row.case)}{row.case}: {row.failure}"
        for row in report.rows
        if row.failure
    ]
    lines += [f"Failed: {'; '.join(failed)}."] if failed else []
    return "\n".join(lines).strip()


def _conditions(report: Report) -> str:
    machine = report.machine
    return (
        f"`make bench-peers`, {report.started}: {machine.get('cpus')} cores ({machine.get('cpu')}), Python "
        f"{machine.get('python')}, Loopline {machine.get('loopline')}. The servers of a dialect run at once over one "
        "upstream and are played in turn, in two to five rounds (one of LiteLLM): CPU and rates are the median over "
        "rounds, percentiles those of all of them. Loopline is complete: metrics, a log line a turn, limits, every "
        "check. In brackets: how many times the bare relay of the same dialect. Ratios within this run count; absolute "
        "times are this machine's at that moment."
    )


def _table(report: Report, floor: str, names: Sequence[str]) -> list[str]:
    """Servers across, figures down: there are more figures than servers."""
    found = {name: [row for row in report.rows if row.contestant == name] for name in names}
    shown = [column for column in COLUMNS if any(_values(found[name], column) for name in names)]
    return [
        f"| | {' | '.join(names)} |",
        f"|---{'|---' * len(names)}|",
        *(
            _line(column, [_cell(found[name], found[floor], column, name == floor) for name in names])
            for column in shown
        ),
        *_kept_up([found[name] for name in names]),
    ]


def _kept_up(servers: Sequence[Sequence[Row]]) -> list[str]:
    """With how many streams of 1,000 tokens a second each server still kept up, and with how many no more."""
    cells = [
        _most([row for row in rows if row.scene == "rates" and row.case.endswith((" stream", " streams"))])
        for rows in servers
    ]
    return [f"| streams of 1,000 tokens/s kept up with | {' | '.join(cells)} |"] if any(cells) else []


def _most(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    kept = 0
    for streams, note in sorted((int(row.case.split()[0]), row.note) for row in rows):
        if note:
            return f"{kept}; {streams} no more ({note})"
        kept = streams
    return f"{kept}"


def _line(column: Column, cells: Sequence[str]) -> str:
    return f"| {column.head} | {' | '.join(cells)} |"


def _values(rows: Sequence[Row], column: Column) -> list[float | None]:
    """The column's figures of one server; empty where it has none of them."""
    mine = [row for row in rows if row.scene == column.scene and not row.failure]
    values = [_figure(mine, case, figure) for case, figure in column.parts]
    return values if any(value is not None for value in values) else []


def _figure(rows: Sequence[Row], case: str, figure: str) -> float | None:
    return next((row.figures.get(figure) for row in rows if row.case.startswith(case)), None)


def _cell(rows: Sequence[Row], floor: Sequence[Row], column: Column, is_floor: bool) -> str:
    values, base = _values(rows, column), _values(floor, column)
    if not values:
        return MISSING
    own = _joined(values, lambda value: f"{value * column.factor:,.{column.decimals}f}")
    if is_floor or not base:
        return own
    pairs = zip(values, base, strict=True)
    # What is added to a time may be nothing, or less: of that there is no ratio.
    ratios = [v / b if v is not None and b is not None and min(v, b) > 0 else None for v, b in pairs]
    return f"{own} ({_joined(ratios, lambda ratio: f'{ratio:,.1f}' if ratio < 100 else f'{ratio:,.0f}')})"


def _joined(values: Sequence[float | None], shown: Callable[[float], str]) -> str:
    return " / ".join(MISSING if value is None else _unsigned(shown(value)) for value in values)


def _unsigned(shown: str) -> str:
    """Nothing has no sign."""
    return shown if shown.strip("-0.") else shown.removeprefix("-")


def between(document: str, table: str, begin: str = BEGIN, end: str = END) -> str:
    """The document with the table between its markers. Raises ValueError where they are not there."""
    before, found, rest = document.partition(begin)
    _, ended, after = rest.partition(end)
    if not (found and ended):
        raise ValueError(f"the document has no markers: {begin} and {end}")
    return f"{before}{begin}\n\n{table}\n\n{end}{after}"
