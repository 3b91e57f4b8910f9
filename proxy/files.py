"""A file of secrets replaced in one step, under a lock, readable by its owner alone."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock beside `path`. Raises OSError where the file system has no locks."""
    if sys.platform == "win32":  # for the type checker, and a word where Loopline is embedded there
        raise OSError("no file locks here")
    import fcntl

    # Opened for writing: over NFS only such a file can be locked.
    descriptor = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def replace(path: Path, text: str) -> None:
    """Replace a file in one step, its mode and owner kept; a new one is 0600. Only under `locked`."""
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)  # of a process that was killed here
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            with suppress(FileNotFoundError):
                _like(path.stat(), descriptor)
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _like(old: os.stat_result, descriptor: int) -> None:
    """Root may rotate the keys of a server that runs as somebody else: it must be able to read them still."""
    new = os.fstat(descriptor)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))
