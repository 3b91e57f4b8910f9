"""Every metric and label as Markdown tables, for docs/metrics.md: `python -m proxy.tools.metrics_table FILE`.

Rewrites what stands between the two marks of each table in the file; `make docs` calls it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from proxy.telemetry.families import FAMILIES
from proxy.telemetry.numbers import Family

_MARKS = "(<!-- {} -->\n).*?(<!-- end -->)"


def tables() -> Mapping[str, str]:
    """Every table by the name in its marks: all families as they are declared, and what their labels may be."""
    labels: dict[tuple[str, str], list[str]] = {}
    for family in FAMILIES:
        for label, values in family.labels.items():
            labels.setdefault((label, values), []).append(f"`{family.name.removeprefix('loopline_')}`")
    return {
        "metrics": _table(("name", "type", "unit", "labels", "meaning"), map(_row, FAMILIES)),
        "labels": _table(
            ("label", "values", "of"),
            ((f"`{label}`", values, ", ".join(names)) for (label, values), names in labels.items()),
        ),
    }


def rewritten(text: str) -> str:
    """The document with its tables as they are now. Raises ValueError where it lacks the marks of one."""
    for name, table in tables().items():
        marks = re.compile(_MARKS.format(name), re.DOTALL)
        if not marks.search(text):
            raise ValueError(f"there are no marks <!-- {name} --> … <!-- end -->")
        text = marks.sub(lambda found, table=table: found[1] + table + found[2], text)  # type: ignore[misc]
    return text


def _row(family: Family) -> Sequence[str]:
    labels = ", ".join(f"`{name}`" for name in family.labels) or "–"
    return (f"`{family.name}`", family.type, family.unit or "–", labels, family.help)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = (head, ["---"] * len(head), *rows)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main(path: str) -> None:
    """Rewrite the tables of the file."""
    file = Path(path)
    file.write_text(rewritten(file.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
