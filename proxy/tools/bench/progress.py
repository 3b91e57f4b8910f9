"""Where a run is: a bar on a terminal, a line for each scene elsewhere; on stderr, beside the report."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import click


class Progress(Protocol):
    """Told what begins and how many turns are done."""

    def begin(self, label: str) -> None: ...

    def step(self, turns: int) -> None: ...


class Quiet:
    """Says nothing."""

    def begin(self, label: str) -> None: ...

    def step(self, turns: int) -> None: ...


class _Lines:
    def begin(self, label: str) -> None:
        print(f"loopline bench: {label}", file=sys.stderr, flush=True)

    def step(self, turns: int) -> None: ...


class _Drawn(Protocol):
    """click's bar, as far as it is used; click does not export its class."""

    label: str

    def render_progress(self) -> None: ...

    def update(self, n_steps: int) -> None: ...


class _Bar:
    def __init__(self, bar: _Drawn) -> None:
        self._bar = bar

    def begin(self, label: str) -> None:
        self._bar.label = f"{label:32.32}"
        self._bar.render_progress()

    def step(self, turns: int) -> None:
        self._bar.update(turns)


@contextmanager
def shown(turns: int) -> Iterator[Progress]:
    """Show a run of so many turns."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    with click.progressbar(length=turns, show_pos=True, file=sys.stderr, update_min_steps=20) as bar:
        yield _Bar(bar)
