"""Bytes that are held, counted where they are taken and where they are given back. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from proxy.errors import Kind, LooplineError

_RETRY_S = 1.0


class Budget:
    """At most about `limit` bytes (0: no limit), and as many as its `parent` has room for.

    Only new work is asked to fit (`admit`). What runs already is counted (`add`) and goes on: to end it would free
    less than it costs its client.
    """

    __slots__ = ("_parent", "limit", "used")

    def __init__(self, limit: int = 0, parent: Budget | None = None) -> None:
        self.limit = limit
        self.used = 0
        self._parent = parent

    def admit(self, size: int = 0) -> None:
        """Is there room for `size` bytes of new work? Raises `LooplineError` (overloaded)."""
        if self.limit and self.used + size > self.limit:
            raise LooplineError(
                Kind.OVERLOADED,
                "There is no memory for more work at the moment; try again.",
                retry_after_s=_RETRY_S,
                limit=f"{'access' if self._parent is not None else 'limits'}.memory_bytes",
            )
        if self._parent is not None:
            self._parent.admit(size)

    def add(self, size: int) -> None:
        """`size` bytes more are held, fewer where it is below 0."""
        self.used += size
        if self._parent is not None:
            self._parent.add(size)

    @contextmanager
    def hold(self, size: int) -> Iterator[None]:
        """New work of `size` bytes, held while open. Raises as `admit`."""
        self.admit(size)
        self.add(size)
        try:
            yield
        finally:
            self.add(-size)


class Held:
    """A number of bytes held in a budget that changes over time; `release` ends it, once and for all."""

    __slots__ = ("_budget", "_open", "size")

    def __init__(self, budget: Budget) -> None:
        self.size = 0
        self._budget = budget
        self._open = True

    def set(self, size: int) -> None:
        """It is `size` bytes now."""
        if self._open and size != self.size:
            self._budget.add(size - self.size)
            self.size = size

    def grow(self, size: int) -> None:
        """It is `size` bytes more."""
        self.set(self.size + size)

    def release(self) -> None:
        """It is nothing any more, whatever is said of it later."""
        self.set(0)
        self._open = False
