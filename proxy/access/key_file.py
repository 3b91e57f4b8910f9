"""The file of client keys: read again when it changes, replaced in one step. The only part of access that does I/O."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

from proxy.access.keys import BadKey, Key, Keys, read_lines, write_lines
from proxy.files import locked, replace

_Stamp = tuple[int, int, int]


class KeyFile(Keys):
    """A `KeyStore` that follows a file. Whoever owns it calls `refresh`, outside of any turn.

    What it cannot read leaves the keys as they were: a file that is being repaired must not lock everybody out, and
    nothing that was revoked comes back by it.
    """

    def __init__(self, path: Path) -> None:
        """Raises OSError, or `BadKey` for a file that holds something else."""
        self._path = path
        self._stamp = self._now()
        super().__init__(_read(path))

    def refresh(self) -> bool:
        """Read the file again if it has changed; says whether. Raises OSError or `BadKey`, each change once."""
        stamp = self._now()
        if stamp == self._stamp:
            return False
        # Before it is read: what is written meanwhile has a stamp of its own and is read next time.
        self._stamp = stamp
        self.replace(_read(self._path))
        return True

    @property
    def open_to_all(self) -> bool:
        """May every user of this machine read it?"""
        return bool(self._path.stat().st_mode & stat.S_IRWXO)

    def _now(self) -> _Stamp:
        seen = self._path.stat()
        return seen.st_mtime_ns, seen.st_size, seen.st_ino


def read_keys(path: Path) -> list[Key]:
    """The keys of the file, none where there is no file. Raises OSError or `BadKey`."""
    try:
        return _read(path)
    except FileNotFoundError:
        return []


def change_keys(path: Path, change: Callable[[list[Key]], list[Key]]) -> None:
    """Replace the file by what `change` makes of its keys, under a lock; a new one is 0600. Raises as `read_keys`."""
    path = path.resolve()  # a link stays one: what it points to is replaced
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with locked(path):
        text = write_lines(change(read_keys(path)))
        read_lines(text)  # what no server could read must not be written
        replace(path, text)


def _read(path: Path) -> list[Key]:
    try:
        return read_lines(path.read_bytes().decode())
    except UnicodeDecodeError:
        raise BadKey("it is not text") from None
