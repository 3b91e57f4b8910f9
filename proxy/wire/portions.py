"""What a request of very many items is worked on in: portions, between which others have their turn. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

# A request of more items is read and translated in portions.
MANY = 200
# One or two milliseconds of work: what an item costs beside its bytes is as much as 2 kB of them.
PORTION_BYTES = 256 * 1024
ITEM_BYTES = 2 * 1024


def portions(things: Sequence[T], size: Callable[[T], int]) -> Iterator[Sequence[T]]:
    """All of them in order, as many at a time as are one portion, `size` being the bytes that each counts for."""
    start, sum_bytes = 0, 0
    for at, thing in enumerate(things, 1):
        sum_bytes += size(thing)
        if sum_bytes >= PORTION_BYTES:
            yield things[start:at]
            start, sum_bytes = at, 0
    if start < len(things):
        yield things[start:]
