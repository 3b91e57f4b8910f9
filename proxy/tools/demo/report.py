"""A report as a table and as JSON; pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict

import msgspec

from proxy.tools import figures

from .accounting import Report, Run
from .options import Options

_HEAD = ("", "HTTP, full history", "", "WebSocket, deltas", "", "saved", "")
_NOTE = """\
The link is simulated. Connecting is part of its time: one round trip by HTTP, two by WebSocket
(TCP's handshake, then the upgrade). TLS, slow start and loss are not simulated; nothing is compressed."""
_BREAKDOWN: Sequence[tuple[str, Callable[[Run], float]]] = (
    ("  client (its tools)", lambda run: run.parts.client_s),
    ("  link", lambda run: run.parts.link_s),
    ("  proxy (Loopline)", lambda run: run.parts.proxy_s),
    ("  upstream", lambda run: run.parts.upstream_s),
)


def render(report: Report) -> str:
    """Plain ASCII text without colour, for a terminal of 100 columns; ends without a line break."""
    return "\n".join((*_heading(report), "", *_table(report), "", *_notes(report)))


def to_json(report: Report) -> str:
    """One JSON object: `options`, `model`, and for each run bytes and seconds."""
    document = {
        "link_is_simulated": True,
        "upstream_is_simulated": report.options.upstream is None,
        "options": asdict(report.options),
        "model": report.model,
        "http": _run_json(report.http),
        "websocket": _run_json(report.websocket),
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def _run_json(run: Run) -> dict[str, object]:
    parts = {name: round(value, 6) for name, value in run.parts._asdict().items()}
    return {
        "bytes_up": run.bytes_up,
        "bytes_down": run.bytes_down,
        "history_bytes": run.history_bytes,
        "results_of_calls": run.called,
        "turn_median_s": round(run.median_s, 6),
        "turn_p95_s": round(run.p95_s, 6),
        "turns_s": [round(turn, 6) for turn in run.turns_s],
        "total_s": round(run.total_s, 6),
        **parts,
    }


def _heading(report: Report) -> list[str]:
    options = report.options
    return [
        f"Simulated link: {options.rtt_ms:g} ms round trip, {figures.rate(options.up_mbit_s)} up, "
        f"{figures.rate(options.down_mbit_s)} down.",
        f"Upstream: {_upstream(options, report.model)}.",
        f"Agent loop: {options.turns} tool calls of {figures.size(options.tool_output_bytes)}, {options.steps} turns, "
        f"{figures.size(report.websocket.history_bytes)} of history at the end.",
        *_called(report),
    ]


def _upstream(options: Options, model: str) -> str:
    if options.upstream is not None:
        return f"{options.upstream}, model {model}, at most {options.max_output_tokens} tokens an answer"
    pace = f"then {options.tokens_per_s:,g} tokens/s" if options.tokens_per_s else "then all at once"
    return f"simulated, {options.ttft_ms:g} ms to the first token, {pace}, {options.answer_tokens} tokens an answer"


def _notes(report: Report) -> list[str]:
    own = ["What your upstream takes differs from run to run; the way of sending does not change it."]
    return [_NOTE] if report.options.upstream is None else [_NOTE, *own]


def _called(report: Report) -> list[str]:
    """Of a real model: how often it called a tool, and what was done where it did not."""
    if report.options.upstream is None:
        return []
    turns = report.options.turns
    return [
        f"The model called a tool in {report.http.called} of {turns} turns by HTTP and in {report.websocket.called} by "
        "WebSocket;",
        "where it did not, the client sent the tool's result as a user message.",
    ]


def _table(report: Report) -> list[str]:
    http, websocket = report.http, report.websocket
    rows = [
        _HEAD,
        _row("bytes sent up", http.bytes_up, websocket.bytes_up, figures.size),
        _row("bytes received", http.bytes_down, websocket.bytes_down, figures.size),
        _row("time per turn, median", http.median_s, websocket.median_s, figures.time),
        _row("time per turn, p95", http.p95_s, websocket.p95_s, figures.time),
        _row("total", http.total_s, websocket.total_s, figures.time),
    ]
    for label, part in _BREAKDOWN:
        shares = [_share(part(run), run.total_s) for run in (http, websocket)]
        rows.append(_row(label, part(http), part(websocket), figures.time, *shares))
    return figures.aligned(rows)


def _row(
    label: str, http: float, websocket: float, shown: Callable[[float], str], share: str = "", other: str = ""
) -> tuple[str, ...]:
    return (label, shown(http), share, shown(websocket), other, *_saved(http, websocket))


def _saved(http: float, websocket: float) -> tuple[str, str]:
    """How much less the second is: in percent, and as a factor."""
    if http <= 0 or websocket <= 0:
        return "", ""
    return f"{100 * (1 - websocket / http):.0f} %".replace("-0 %", "0 %"), f"{http / websocket:,.1f}x"


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole > 0 else ""
