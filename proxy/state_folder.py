"""The state folder: secrets made at the first start, which must outlive it. No other file reads or writes them.

Each secret is a file of its own, 0600 in a folder of 0700, replaced in one step under a lock: processes that start at
once end with the same secrets. A file that is there is only read, so that the folder may be a read-only mount.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from proxy.files import locked, replace
from proxy.settings import BadSetting, Settings, sealing_keys, sealing_source, tenant_secret
from proxy.settings.keys import (
    KEY_BYTES,
    BadKeys,
    format_keys,
    format_secret,
    parse_keys,
    parse_secret,
    rotated,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, repr=False)
class Secrets:
    """What a server is given. `keys` is for `Sealer`, `tenant` (32 bytes) for `Door`; `warnings` are for the log."""

    keys: Mapping[str, bytes]
    tenant: bytes
    warnings: tuple[str, ...]


class Rotation(NamedTuple):
    """What `rotate` did: the file, the id that seals now, the ids that still open, the ids that no longer do."""

    path: Path
    sealing: str
    opening: tuple[str, ...]
    dropped: tuple[str, ...]


def folder(settings: Settings, environ: Mapping[str, str]) -> Path:
    """`state.folder`, else `$XDG_STATE_HOME/loopline`, else `~/.local/state/loopline`.

    Raises RuntimeError for a user without a home.
    """
    if settings.state.folder:
        return Path(settings.state.folder).expanduser()
    given = environ.get("XDG_STATE_HOME", "")
    # The XDG specification: a relative path is invalid and to be ignored.
    return (Path(given) if os.path.isabs(given) else Path.home() / ".local" / "state") / "loopline"


def load_secrets(settings: Settings, environ: Mapping[str, str]) -> Secrets:
    """The secrets that the settings name, else those of the state folder, made where there are none yet.

    Where the folder cannot be used they last as long as the process, and a warning says so. Raises `BadSetting` for
    secrets that are there and cannot be used.
    """
    warnings: list[str] = []
    keys = sealing_keys(settings, environ)
    tenant = tenant_secret(settings, environ)
    return Secrets(
        _kept(_KEYS, parse_keys, settings, environ, warnings) if keys is None else keys,
        _kept(_TENANT, parse_secret, settings, environ, warnings) if tenant is None else tenant,
        tuple(warnings),
    )


def check(settings: Settings, environ: Mapping[str, str]) -> None:
    """Raise `BadSetting` for a file of the state folder that would be used and cannot be. Makes nothing."""
    for file, parse, named in (
        (_KEYS, parse_keys, sealing_keys(settings, environ)),
        (_TENANT, parse_secret, tenant_secret(settings, environ)),
    ):
        if named is None:
            with suppress(OSError, RuntimeError):  # nothing to read is no fault: see load_secrets
                path = folder(settings, environ) / file.name
                _parsed(file, parse, path, _read(path))


def rotate(settings: Settings, environ: Mapping[str, str], keep: int) -> Rotation:
    """Put a new sealing key in front in the file that the settings name, else in the state folder's; keep `keep`.

    Raises `BadSetting` for keys that are not in a file or cannot be used, OSError where the file cannot be written.
    """
    source = sealing_source(settings, environ)
    if source is not None and source.path is None:
        raise BadSetting(
            f"{source.key}: the keys are in the environment ({source.shown}), which this command cannot change: put a "
            f"new id:key in front there, or keep them in a file ({source.shown}_FILE or reasoning.keys_file)"
        )
    # A link stays one: what it points to is replaced.
    path = (folder(settings, environ) / _KEYS.name if source is None or source.path is None else source.path).resolve()
    if source is None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with locked(path):
        keys: Mapping[str, bytes] = {}
        with suppress(FileNotFoundError):
            keys = _parsed(_KEYS, parse_keys, path, _read(path))
        changed = rotated(keys, *_fresh_key(), keep)
        replace(path, format_keys(changed))
    sealing, *opening = changed
    return Rotation(path, sealing, tuple(opening), tuple(name for name in keys if name not in changed))


# --- The files -------------------------------------------------------------------------------------------------------


class _File(NamedTuple):
    """A secret's file: how to make its text, what to say of it, and the setting that does without the file."""

    name: str
    make: Callable[[], str]
    what: str
    without: str
    instead: str


def _fresh_key() -> tuple[str, bytes]:
    return f"k{secrets.token_hex(4)}", secrets.token_bytes(KEY_BYTES)


_KEYS = _File(
    "sealing-keys",
    lambda: format_keys(dict([_fresh_key()])),
    "the keys",
    "sealed reasoning does not survive a restart: what was sealed before it cannot be opened after it",
    "reasoning.keys_env",
)
_TENANT = _File(
    "tenant-secret",
    lambda: format_secret(secrets.token_bytes(KEY_BYTES)),
    "the secret",
    "tenants do not survive a restart: a client is another tenant after it, to whom nothing sealed before opens",
    "state.tenant_secret_env",
)


def _kept(
    file: _File,
    parse: Callable[[str], T],
    settings: Settings,
    environ: Mapping[str, str],
    warnings: list[str],
) -> T:
    fresh, path = file.make(), Path(file.name)
    try:
        path = folder(settings, environ) / file.name
        text = _read_or_make(path, fresh)
        if path.stat().st_mode & stat.S_IRWXO:
            warnings.append(f"state.folder: {path} is open to every user of this machine: chmod 600 closes it")
    except (OSError, RuntimeError, ValueError) as error:  # no home; a path that no system takes
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        warnings.append(
            f"state.folder: cannot keep {path}: {reason}. So {file.without}. Name a folder that can be written, or "
            f"set {file.instead}."
        )
        return parse(fresh)
    return _parsed(file, parse, path, text)


def _parsed(file: _File, parse: Callable[[str], T], path: Path, text: str) -> T:
    try:
        return parse(text)
    except BadKeys as error:
        raise BadSetting(
            f"state.folder: {file.what} in {path}: {error}. Restore the file; or remove it, and a new one is made at "
            "the next start, but then what was sealed before cannot be opened"
        ) from None


def _read(path: Path) -> str:
    return path.read_bytes().decode(errors="replace")


def _read_or_make(path: Path, fresh: str) -> str:
    with suppress(FileNotFoundError):
        return _read(path)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with locked(path):
        with suppress(FileNotFoundError):  # another process was faster
            return _read(path)
        replace(path, fresh)
    return fresh
