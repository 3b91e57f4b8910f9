"""The command: a progress bar on stderr while it runs, the report on stdout, an exit code."""

from __future__ import annotations

import sys

import click
import uvloop

from proxy.settings import BadSetting
from proxy.telemetry.logging import configure

from .accounting import Report
from .client import DemoError
from .options import Options
from .report import render, to_json
from .running import run

FAILED, BAD_SETTING, INTERRUPTED = 1, 2, 130


def main(options: Options) -> int:
    """Run the demonstration and print its report. Returns the exit code; errors are one line on stderr."""
    configure("auto", "error")
    try:
        report = uvloop.run(_run(options))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BadSetting as error:
        print(f"loopline: {error}", file=sys.stderr)
        return BAD_SETTING
    except DemoError as error:
        print(f"loopline: {error}", file=sys.stderr)
        return FAILED
    except OSError as error:
        print(f"loopline: cannot listen on loopback: {error.strerror or error}", file=sys.stderr)
        return FAILED
    print(to_json(report) if options.json else render(report))
    return 0


async def _run(options: Options) -> Report:
    hidden = not sys.stderr.isatty()
    with click.progressbar(length=2 * options.steps, show_pos=True, file=sys.stderr, hidden=hidden) as bar:

        def show(name: str, done: int, _total: int) -> None:
            bar.label = f"{name:9}"
            bar.update(done - bar.pos)

        return await run(options, show)
