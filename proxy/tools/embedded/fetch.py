"""Runs pip, watches how far it has come, and says why it failed."""

from __future__ import annotations

import math
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from .progress import Progress

_TICK_S = 0.2
_STOP_S = 5.0
_PIP = ("-m", "pip", "--no-input", "--disable-pip-version-check", "--no-cache-dir", "--retries=2")
# A user's own defaults for these would put the packages elsewhere, or run another Python's code.
_NOT_INHERITED = ("PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_REQUIRE_VIRTUALENV", "PYTHONHOME", "PYTHONPATH")
_UNITS = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}
_SIZE = re.compile(r"^\s*Downloading \S+\.whl.* \(([\d.]+) (B|kB|MB|GB)\)", re.MULTILINE)
_UNREACHABLE = re.compile(
    r"NewConnectionError|NameResolutionError|ConnectTimeoutError|Failed to establish a new connection|ProxyError"
    r"|Name or service not known|Temporary failure in name resolution|Network is unreachable|Max retries exceeded"
)
_NO_MATCH = re.compile(r"No matching distribution found|is not a supported wheel on this platform")

Cause = Literal["offline", "no_wheel", "disk", "other"]


class Failure(NamedTuple):
    """Why pip failed: `other` may pass when it is tried again."""

    cause: Cause
    text: str


class PipFailed(Exception):
    """pip ended with an error."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.text)
        self.failure = failure


class Pip:
    """The pip of one Python. `work` is a folder of its own, for temporary files and its output."""

    def __init__(self, python: Path, work: Path, progress: Progress, keep: int) -> None:
        self._python = python
        self._work = work
        self._progress = progress
        self._keep = keep  # a descriptor that every child inherits: the lock's

    def run(self, label: str, arguments: Sequence[str], total_bytes: int | None = None) -> None:
        """Run to the end, reporting the bytes on disk under `label`. Raises PipFailed, and OSError if it cannot start.

        `total_bytes` is the download's size where it is known beforehand; else it is read from what pip says.
        """
        temporary = self._work / "tmp"
        temporary.mkdir(parents=True, exist_ok=True)
        said = self._work / "pip.log"
        with said.open("wb") as output:
            process = subprocess.Popen(
                [str(self._python), *_PIP, *arguments, "--progress-bar=off"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment(temporary),
                pass_fds=(self._keep,),
            )
        try:
            self._watch(process, label, temporary, said, total_bytes)
        finally:
            _end(process)
            self._progress.finished(label)
        if process.returncode != 0:
            raise PipFailed(diagnose(said.read_text(encoding="utf-8", errors="replace"), process.returncode))

    def _watch(self, process: subprocess.Popen[bytes], label: str, folder: Path, said: Path, total: int | None) -> None:
        most = 0
        while True:
            try:
                process.wait(_TICK_S)
            except subprocess.TimeoutExpired:
                done = _wheel_bytes(folder)
            else:
                return
            total = total or announced_bytes(said.read_text(encoding="utf-8", errors="replace"))
            # A stall is shown, as a falling rate; what pip does after the last byte (it rounds sizes) is none.
            if most < done or 0 < most < 0.99 * (total or math.inf):
                most = max(most, done)  # pip removes the wheel before it ends
                self._progress.moved(label, most, total)


def environment(temporary: Path) -> dict[str, str]:
    """pip's environment: the user's (proxies, mirrors, certificates) without what would divert an installation."""
    kept = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    # pip streams a download into a file below TMPDIR: there it can be watched, and /tmp may be small.
    return {**kept, "TMPDIR": str(temporary), "PYTHONUNBUFFERED": "1", "PYTHONUTF8": "1", "LC_ALL": "C"}


def _wheel_bytes(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*.whl"):
        try:
            total += path.stat().st_size
        except OSError:  # pip moved it meanwhile
            continue
    return total


def _end(process: subprocess.Popen[bytes]) -> None:
    """Leave no pip behind when the wait was interrupted."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def announced_bytes(output: str) -> int | None:
    """The size pip announced last: `Downloading name.whl (33.8 MB)`."""
    found = _SIZE.findall(output)
    return round(float(found[-1][0]) * _UNITS[found[-1][1]]) if found else None


def diagnose(output: str, code: int) -> Failure:
    """The cause, from pip's words: it has no exit codes for them."""
    if "No space left on device" in output:
        return Failure("disk", "no space left on device")
    if _NO_MATCH.search(output):
        # With no index in reach pip says the same as for a package that has no build.
        if _UNREACHABLE.search(output):
            return Failure("offline", "no package index could be reached")
        return Failure("no_wheel", "there is no build of it for this platform")
    if _UNREACHABLE.search(output):
        return Failure("offline", "no package index could be reached")
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")] or lines or [f"pip ended with code {code}"]
    return Failure("other", without_credentials(errors[-1].removeprefix("ERROR:").strip()[:300]))


def without_credentials(text: str) -> str:
    """The same text with `user:password@` cut out of addresses."""
    return re.sub(r"(?<=://)[^/@\s]+@", "", text)
