"""A report as one JSON object; pure. `docs/bench.md` describes it."""

from __future__ import annotations

from dataclasses import asdict

import msgspec

from .rows import FIGURES, SCHEMA, SHOWN, Report


def to_json(report: Report) -> str:
    """Figures in seconds, bytes, counts a second and shares; null is "not available"."""
    document = {
        "schema": SCHEMA,
        "started": report.started,
        "interrupted": report.interrupted,
        "machine": report.machine,
        "conditions": report.conditions,
        "contestants": report.contestants,
        "scenes": {
            name: {"title": shown.title, "main": shown.main, "less_is_better": shown.less_is_better}
            for name, shown in SHOWN.items()
            if any(row.scene == name for row in report.rows)
        },
        "labels": {name: figure.label for name, figure in FIGURES.items()},
        "rows": [{name: value for name, value in asdict(row).items() if name != "samples"} for row in report.rows],
        "notes": report.notes,
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
