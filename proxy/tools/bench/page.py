"""A report as one HTML page that needs nothing else: style and plots are inside, light and dark; pure."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from .drawings import by_case, colours, drawings
from .plots import COLOURS, LIGHT
from .rows import FIGURES, SHOWN, Report, Row, ratio
from .table import CAVEAT, cell, failure, heading

_STYLE = """
:root{color-scheme:light dark;--back:#fff;--fore:#1c2024;--dim:#667;--rule:#d9dde3;--head:#f3f5f8;@LIGHT}
@media(prefers-color-scheme:dark){:root{--back:#14171b;--fore:#e6e8eb;--dim:#99a2ad;--rule:#333a44;--head:#1d2228;
--c0:#60a5fa;--c1:#fbbf24;--c2:#2dd4bf;--c3:#c084fc;--c4:#fb7185;--c5:#94a3b8}}
body{background:var(--back);color:var(--fore);font:15px/1.5 system-ui,sans-serif;margin:0 auto;
max-width:1100px;padding:24px}
h1{font-size:1.5em;margin:0}h2{font-size:1.15em;margin:2em 0 .3em}p{margin:.4em 0}.dim,figcaption{color:var(--dim)}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9em}
th,td{padding:4px 10px;text-align:right;border-bottom:1px solid var(--rule);white-space:nowrap}
th{background:var(--head)}th.text,td.text{text-align:left}tr.case td{border-top:2px solid var(--rule)}
figure{margin:1.2em 0;max-width:760px}svg{width:100%;height:auto;font:12px system-ui,sans-serif}
svg text{fill:var(--fore)}.grid{stroke:var(--rule)}.tick-y,.name{text-anchor:end}.tick-x,.label{text-anchor:middle}
.tick-x,.tick-y,.label{fill:var(--dim)!important}.line{fill:none;stroke-width:2}
.legend span{margin-right:1.2em}.key{display:inline-block;width:.8em;height:.8em;margin-right:.4em;border-radius:2px}
.fail{color:var(--c4)}
""".replace("@LIGHT", ";".join(f"--c{number}:{colour}" for number, colour in enumerate(LIGHT)))


def render(report: Report) -> str:
    """The whole page."""
    body = [f"<h1>{escape(heading(report)[0])}</h1>"]
    body += [f'<p class="dim">{escape(line)}</p>' for line in heading(report)[1:]]
    body.append(f"<p><strong>{escape(CAVEAT)}</strong></p>")
    if report.interrupted:
        body.append('<p class="fail">Interrupted: what is missing was not measured.</p>')
    for scene, shown in SHOWN.items():
        rows = [row for row in report.rows if row.scene == scene]
        if rows:
            body.append(f"<h2>{scene}: {escape(shown.title.lower())}</h2>")
            body += [
                f"<figure><figcaption>{escape(drawing.caption)}</figcaption>{drawing.plot.inline()}</figure>"
                for drawing in drawings(scene, rows, colours(report))
            ]
            body.append(_table(rows, report.contestants[0]))
    body += [f"<p>{escape(note)}</p>" for note in report.notes]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>loopline bench</title><style>{_STYLE}{_colour_rules()}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _colour_rules() -> str:
    return "".join(
        f".bar.c{n},.dot.c{n}{{fill:var(--c{n})}}.line.c{n}{{stroke:var(--c{n})}}.key.c{n}{{background:var(--c{n})}}"
        for n in range(COLOURS)
    )


def _table(rows: Sequence[Row], baseline: str) -> str:
    names = [name for name in SHOWN[rows[0].scene].columns if any(name in row.figures for row in rows)]
    first = {row.case: row for row in rows if row.contestant == baseline}
    labels = "".join(f"<th>{escape(FIGURES[name].label)}</th>" for name in names)
    lines = [f'<tr><th class="text">case</th><th class="text">contestant</th>{labels}<th>×</th></tr>']
    last = ""
    for row in by_case([row for row in rows if not row.failure]):
        times = ratio(row, first.get(row.case))
        cells = "".join(f"<td>{escape(cell(row, name))}</td>" for name in names)
        who = row.contestant + (f" ({row.note})" if row.note else "")
        lines.append(
            f'<tr{_new(row.case != last)}><td class="text">{escape(row.case)}</td><td class="text">{escape(who)}</td>'
            f"{cells}<td>{'' if times is None else f'{times:.2f}'}</td></tr>"
        )
        last = row.case
    failed = "".join(
        f'<p class="fail">{escape(f"{row.contestant}: {failure(row)}")}</p>' for row in rows if row.failure
    )
    return f'<div class="scroll"><table>{"".join(lines)}</table></div>{failed}'


def _new(is_new: bool) -> str:
    return ' class="case"' if is_new else ""
