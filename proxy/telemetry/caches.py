"""How a cache reports what it does: it counts about itself, and is looked at when somebody asks for numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(slots=True)
class CacheCounts:
    """What a cache counts about itself: hits, misses, and what it let go, `full` to make room, `old` by its age."""

    hits: int = 0
    misses: int = 0
    full: int = 0
    old: int = 0


@runtime_checkable
class Cache(Protocol):
    """A cache that reports. Give it a name in `Loopline._watch` (proxy/app.py)."""

    @property
    def counts(self) -> CacheCounts: ...

    def used_bytes(self) -> int: ...

    def __len__(self) -> int: ...
