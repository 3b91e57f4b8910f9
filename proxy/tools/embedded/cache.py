"""The cache folder: where it is, who may change it, and whether the model in it is whole."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from .recipe import Recipe

_CHUNK_BYTES = 1 << 20


def default_cache_dir() -> Path:
    """`$XDG_CACHE_HOME/loopline`, else `~/.cache/loopline`. RuntimeError for a user without a home."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification: a relative path is invalid and to be ignored.
    return (Path(given) if os.path.isabs(given) else Path.home() / ".cache") / "loopline"


@contextmanager
def locked(folder: Path, waiting: Callable[[], None]) -> Iterator[int]:
    """Hold the folder's lock, calling `waiting` once if another process has it. Yields the lock's descriptor.

    A child that inherits the descriptor keeps the lock while it lives: an installer whose parent was killed cannot
    have its files removed by the next one. Raises OSError where the file system has no locks.
    """
    if sys.platform == "win32":  # for the type checker: `prepare` has refused already
        raise OSError("no file locks here")
    import fcntl

    with (folder / "lock").open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file in one step: a reader sees the old content or the new one."""
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(content)
    part.replace(path)


def read_stamp(path: Path) -> dict[str, object]:
    """A stamp's content; empty when it is missing or damaged, which both mean: check again."""
    with suppress(OSError, ValueError):
        stamp = json.loads(path.read_bytes())
        if isinstance(stamp, dict):
            return stamp
    return {}


def write_stamp(path: Path, **content: object) -> None:
    write_whole(path, json.dumps(content).encode())


def model_is_whole(path: Path, recipe: Recipe) -> bool:
    """Whether the model is the pinned file: by size and stamp, by its SHA-256 (0.2 s) where the stamp does not fit."""
    with suppress(OSError):
        found = path.stat()
        if found.st_size != recipe.file_bytes:
            return False
        if read_stamp(_stamp(path)) == _stamp_of(found, recipe):
            return True
        with path.open("rb") as file:
            if digest(file) == recipe.file_sha256:
                with suppress(OSError):  # a read-only cache is hashed each time
                    stamp_model(path, recipe)
                return True
    return False


def stamp_model(path: Path, recipe: Recipe) -> None:
    """Note that the model was found whole, so that the next start need not read it."""
    write_stamp(_stamp(path), **_stamp_of(path.stat(), recipe))


def _stamp(path: Path) -> Path:
    return path.with_name(f"{path.name}.stamp")


def _stamp_of(found: os.stat_result, recipe: Recipe) -> dict[str, object]:
    return {"sha256": recipe.file_sha256, "bytes": found.st_size, "mtime_ns": found.st_mtime_ns}


def digest(source: IO[bytes], copy: IO[bytes] | None = None) -> str:
    """The SHA-256 of the rest of `source` in hex, written to `copy` on the way."""
    sha = hashlib.sha256()
    while chunk := source.read(_CHUNK_BYTES):
        sha.update(chunk)
        if copy is not None:
            copy.write(chunk)
    return sha.hexdigest()
