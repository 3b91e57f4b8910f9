"""Translated items, found again when a client sends them again: a request with its whole history costs its new part.

A client that resends everything writes an item that it has sent before in the same bytes. So what is kept is keyed by
those bytes, by all else that a translation looks at (tenant, encoding, the tools' names upstream), and by nothing that
it does not look at. A hit by meaning instead of bytes would cost most of what translating costs (docs/caches.md).

A translation does not look at one item alone: what an assistant said and called is one message. `cuts` finds the places
at which a history falls apart into runs of items that are translated the same, alone or together.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from proxy.caching import Bounded, Pool
from proxy.translate.left_out import LeftOut
from proxy.translate.tools.arguments import TOOL_OF_CALL
from proxy.translate.tools.hosted import HOSTED
from proxy.translate.tools.listed import Called
from proxy.translate.tools.outputs import TOOL_OF_OUTPUT
from proxy.wire.items import Item
from proxy.wire.portions import ITEM_BYTES, portions

Names = Mapping[Called, str]

# An answer's parts: a run ends before the next one or after the last output, not among them.
_SPOKEN_ROLE = "assistant"
_ITEM_BYTES = 200


class Encoder(Protocol):
    """Brings items into an upstream's dialect. `left_out` grows by what it leaves out."""

    left_out: list[LeftOut]

    def encode(self, items: Sequence[Item], start: int = 0) -> bytes:
        """Items joined by commas; `start` is the place of the first in the request."""
        ...


class _Kept(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A run's translation, None where it is the items' own bytes, and what was left out of it."""

    names: Names
    fragment: bytes | None
    left_out: tuple[LeftOut, ...]


_Run = tuple[int, tuple[Item, ...]]  # and the place of its first item
_Key = tuple[str, str, tuple[Item, ...]]


class FragmentMemo:
    """Runs of items in an upstream's dialect, by their bytes, for every tenant alone.

    What came with `store:false` and what did not are kept apart, each for its own time.
    """

    def __init__(self, pool: Pool, unstored_ttl_s: float, stored_ttl_s: float, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.unstored: Bounded[_Key, _Kept] = Bounded(pool, unstored_ttl_s)
        self.stored: Bounded[_Key, _Kept] = Bounded(pool, stored_ttl_s)

    def of(self, tenant: str, *, stored: bool) -> Fragments:
        """What is kept for one tenant's request."""
        return Fragments(self.stored if stored else self.unstored, tenant, self._clock)


class Fragments:
    """The memo as one request sees it. `reused` and `made` count items."""

    def __init__(self, kept: Bounded[_Key, _Kept], tenant: str, clock: Callable[[], float]) -> None:
        self._kept = kept
        self._tenant = tenant
        self._clock = clock
        self.reused = 0
        self.made = 0

    def encoded(self, items: tuple[Item, ...], encoding: str, names: Names, encoder: Encoder) -> bytes:
        """All items in the dialect, joined by commas; the encoder is asked for unknown runs alone.

        What was left out of a known run is added to its `left_out` here.
        """
        if any(map(_looks_around, items)):
            self.made += len(items)
            return encoder.encode(items, 0)
        return b",".join(self._told(_runs(items), encoding, names, encoder))

    def in_portions(
        self, items: tuple[Item, ...], encoding: str, names: Names, encoder: Encoder
    ) -> Generator[None, None, bytes]:
        """The same, a portion after each step; a run is not cut."""
        yield  # to find the runs is a portion of its own
        if any(map(_looks_around, items)):
            return self.encoded(items, encoding, names, encoder)
        parts: list[bytes] = []
        for runs in portions(_runs(items), _weight):
            yield
            parts += self._told(runs, encoding, names, encoder)
        return b",".join(parts)

    def _told(self, runs: Sequence[_Run], encoding: str, names: Names, encoder: Encoder) -> list[bytes]:
        keys, now = [(self._tenant, encoding, run) for _, run in runs], self._clock()
        parts: list[bytes] = []
        for kept, key, (start, run) in zip(self._kept.get(keys, now), keys, runs, strict=True):
            if kept is None or (kept.names is not names and kept.names != names):
                kept = self._make(key, start, names, encoder, now)
                self.made += len(run)
            else:
                encoder.left_out += kept.left_out
                self.reused += len(run)
            if kept.fragment is None:
                parts += [item.raw for item in run]
            elif kept.fragment:
                parts.append(kept.fragment)
        return parts

    def _make(self, key: _Key, start: int, names: Names, encoder: Encoder, now: float) -> _Kept:
        run, before = key[2], len(encoder.left_out)
        fragment = encoder.encode(run, start)
        same = fragment == b",".join([item.raw for item in run])
        kept = _Kept(names, None if same else fragment, tuple(encoder.left_out[before:]))
        size = sum(len(item.raw) + _ITEM_BYTES for item in run) + (0 if same else len(fragment))
        self._kept.put(key, kept, size, now)
        return kept


def _runs(items: tuple[Item, ...]) -> list[_Run]:
    ends = list(cuts(items))
    return [(start, items[start:end]) for start, end in zip([0, *ends], ends, strict=False)]


def _weight(run: _Run) -> int:
    return sum([len(item.raw) + ITEM_BYTES for item in run[1]])


def cuts(items: Sequence[Item]) -> Iterator[int]:
    """The ends of the runs, the last one being the end of the items.

    A run ends where no call waits for its output and nothing that an assistant says is still growing: after the last
    output, and before what a user says (an empty system message ends nothing).
    """
    waiting: set[str | None] = set()
    told: set[str | None] = set()  # answered together with an earlier output: the later one stands nowhere
    growing = False
    for at, item in enumerate(items):
        kind = item.kind
        if kind == "message" and item.role == "user":
            if not waiting:
                if at:
                    yield at
                growing = False
        elif kind in TOOL_OF_OUTPUT:
            waiting.discard(item.call_id)
            if item.call_id in told:
                told.discard(item.call_id)
            else:
                told |= waiting
                growing = False
        else:
            if not (waiting or growing) and at:
                yield at
            growing = growing or item.role is None or item.role == _SPOKEN_ROLE
            if kind in TOOL_OF_CALL and not item.unfinished:
                waiting.add(item.call_id)
    if items:
        yield len(items)


def _looks_around(item: Item) -> bool:
    """Is it told by what stands elsewhere? What a server ran itself has ids that must differ, or a search before it."""
    return item.kind in HOSTED or (item.call_id is None and item.kind in _MAY_LACK_ID)


_MAY_LACK_ID = TOOL_OF_CALL.keys() | TOOL_OF_OUTPUT.keys()
