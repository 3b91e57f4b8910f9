"""The command: progress on stderr, the table on stdout, JSON, HTML and SVG into files, an exit code."""

from __future__ import annotations

import asyncio
import os
import platform
import resource
import signal
import sys
import tempfile
from collections.abc import Coroutine
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import uvloop

from proxy import __version__

from . import page
from .document import to_json
from .drawings import everything
from .options import Options
from .progress import shown
from .rows import Report
from .running import run, turns
from .table import render
from .turns import BenchError

FAILED, INTERRUPTED = 1, 130


def main(options: Options) -> int:
    """Run the bench and print its table. Returns the exit code; errors are one line on stderr."""
    report = Report(now(), machine(), conditions(options))
    code = 0
    more_files()
    with tempfile.TemporaryDirectory(prefix="loopline-bench-") as folder:
        try:
            with shown(turns(options)) as progress:
                uvloop.run(until_told(run(options, Path(folder), report, progress)))
        except KeyboardInterrupt:
            report.interrupted = True
            code = INTERRUPTED
        except BenchError as error:
            print(f"loopline: {error}", file=sys.stderr)
            code = FAILED
    if not report.rows:  # nothing to tell: files of an earlier run stay
        return code
    print(render(report))
    return write(options, report) or code or (FAILED if any(row.failure for row in report.rows) else 0)


async def until_told(work: Coroutine[Any, Any, None]) -> None:
    """Do the work. SIGTERM, too, must leave no process behind: it raises KeyboardInterrupt as Ctrl-C does."""
    task = asyncio.current_task()
    assert task is not None
    terminated = False

    def terminate() -> None:
        nonlocal terminated
        terminated = True
        task.cancel()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
    try:
        await work
    except asyncio.CancelledError:
        if terminated:
            raise KeyboardInterrupt from None
        raise


def write(options: Options, report: Report) -> int:
    """Write the files that were asked for. Returns an exit code: 0, or 1 with a word about why."""
    try:
        if options.json is not None:
            options.json.write_text(to_json(report), encoding="utf-8")
        if options.html is not None:
            options.html.write_text(page.render(report), encoding="utf-8")
        if options.svg is not None:
            options.svg.mkdir(parents=True, exist_ok=True)
            for drawing in everything(report):
                picture = drawing.plot.picture(f"{drawing.caption}, {report.started}")
                (options.svg / f"{drawing.name}.svg").write_text(picture, encoding="utf-8")
    except OSError as error:
        print(f"loopline: cannot write {error.filename}: {error.strerror}", file=sys.stderr)
        return FAILED
    return 0


def now() -> str:
    """The date and the time of day."""
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def machine() -> dict[str, str | int]:
    """What a reader of the figures must know of this machine; no names."""
    return {
        "cpus": os.cpu_count() or 0,
        "cpu": _cpu_model(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "loopline": __version__,
    }


def _cpu_model() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def conditions(options: Options) -> dict[str, object]:
    """What was asked for, as the report tells it."""
    upstream = options.upstream or (f"behind {options.target.url}" if options.target else "the bench's own")
    return {
        "scenes": ", ".join(options.played),
        "upstream": upstream,
        "model": options.model,
        "quick": "yes: too short for figures to quote" if options.quick else "",
    }


def more_files() -> None:
    """As many open files as the system allows: each socket is one here and one in the server, which inherits it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
