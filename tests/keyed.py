"""A server that requires client keys, and the file that they are in."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from proxy.access.key_file import change_keys
from proxy.access.keys import KeyLimits, make_key
from proxy.tools.simulate import Options
from tests.house import House, open_house


class KeyRing:
    """The file of keys. `house` hears of each change at once, as it would within a second."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.house: House | None = None
        change_keys(path, lambda keys: keys)

    def make(self, name: str, **options: Any) -> str:
        """A new key's token."""
        key, token = make_key(name, datetime.now(UTC), secrets.token_bytes, **options)
        change_keys(self.path, lambda keys: [*keys, key])
        self._tell()
        return token

    def limit(self, name: str, limits: KeyLimits) -> None:
        """It has these limits from now on."""
        changed = msgspec.structs.replace
        change_keys(self.path, lambda keys: [changed(key, limits=limits) if key.name == name else key for key in keys])
        self._tell()

    def revoke(self, name: str) -> None:
        """It counts no longer."""
        change_keys(self.path, lambda keys: [key for key in keys if key.name != name])
        self._tell()

    def _tell(self) -> None:
        if self.house is not None and self.house.server.keys is not None:
            self.house.server.keys.refresh()


@asynccontextmanager
async def keyed_house(
    folder: Path, extra: Mapping[str, object] | None = None, options: Options | None = None, dialect: str = "chat"
) -> AsyncIterator[tuple[House, KeyRing]]:
    """A server before a simulated upstream, with a file of keys that is empty at first."""
    ring = KeyRing(folder / "keys.jsonl")
    async with open_house(dialect, {"access.keys_file": str(ring.path), **(extra or {})}, options) as house:
        ring.house = house
        yield house, ring


def bearer(token: str) -> dict[str, str]:
    """The header that carries a token."""
    return {"Authorization": f"Bearer {token}"}


def moment() -> datetime:
    """One moment, for keys that need one."""
    return datetime(2026, 1, 1, tzinfo=UTC)


def random_bytes(size: int) -> bytes:
    """As many random bytes."""
    return secrets.token_bytes(size)
