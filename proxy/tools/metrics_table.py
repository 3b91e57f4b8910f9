"""Every metric and label as Markdown tables, for docs/metrics.md: `python -m proxy.tools.metrics_table FILE`.

Rewrites what stands between the two marks of each table in the file; `make docs` calls it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from proxy.telemetry.families import FAMILIES
from proxy.telemetry.numbers import Family
from proxy.tools import markdown


def tables() -> Mapping[str, str]:
    """Every table by the name in its marks: all families as they are declared, and what their labels may be."""
    labels: dict[tuple[str, str], list[str]] = {}
    for family in FAMILIES:
        for label, values in family.labels.items():
            labels.setdefault((label, values), []).append(f"`{family.name.removeprefix('loopline_')}`")
    return {
        "metrics": markdown.table(("name", "type", "unit", "labels", "meaning"), map(_row, FAMILIES)),
        "labels": markdown.table(
            ("label", "values", "of"),
            ((f"`{label}`", values, ", ".join(names)) for (label, values), names in labels.items()),
        ),
    }


def rewritten(text: str) -> str:
    """The document with its tables as they are now. Raises ValueError where it lacks the marks of one."""
    return markdown.rewritten(text, tables())


def _row(family: Family) -> Sequence[str]:
    labels = ", ".join(f"`{name}`" for name in family.labels) or "–"
    return (f"`{family.name}`", family.type, family.unit or "–", labels, family.help)


def main(path: str) -> None:
    """Rewrite the tables of the file."""
    file = Path(path)
    file.write_text(rewritten(file.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
