"""Translated items, found again when a client sends them again: a request with its whole history costs its new part.

A client that resends everything writes an item that it has sent before in the same bytes. So what is kept is keyed by
those bytes, by all else that a translation looks at (tenant, encoding, the tools' names upstream), and by nothing that
it does not look at. A hit by meaning instead of bytes would cost most of what translating costs (docs/caches.md).

A translation does not look at one item alone: what an assistant said and called is one message. `cuts` finds the places
at which a history falls apart into runs of items that are translated the same, alone or together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from proxy.caching import Bounded, Pool
from proxy.translate.left_out import LeftOut
from proxy.translate.tools.arguments import TOOL_OF_CALL
from proxy.translate.tools.hosted import HOSTED
from proxy.translate.tools.listed import Called
from proxy.translate.tools.outputs import TOOL_OF_OUTPUT
from proxy.wire.items import Item

Names = Mapping[Called, str]
# A run of items and the place of its first in the request → its bytes in the upstream's dialect.
Encode = Callable[[Sequence[Item], int], bytes]

# An answer's parts: a run ends before the next one or after the last output, not among them.
_SPOKEN_ROLE = "assistant"
_ITEM_BYTES = 200


class _Kept(NamedTuple):
    """A run's translation, None where it is the items' own bytes, and what was left out of it."""

    names: Names
    fragment: bytes | None
    left_out: tuple[LeftOut, ...]


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
        return Fragments(self.stored if stored else self.unstored, tenant, self._clock())


class Fragments:
    """The memo as one request sees it. `reused` and `made` count items."""

    def __init__(self, kept: Bounded[_Key, _Kept], tenant: str, now: float) -> None:
        self._kept = kept
        self._tenant = tenant
        self._now = now
        self.reused = 0
        self.made = 0

    def encoded(
        self, items: tuple[Item, ...], encoding: str, names: Names, encode: Encode, left_out: list[LeftOut]
    ) -> bytes:
        """All items in the dialect, joined by commas; `encode` is asked for unknown runs alone.

        `encode` adds what it leaves out to `left_out`; what was left out of a known run is added here.
        """
        if any(map(_looks_around, items)):
            self.made += len(items)
            return encode(items, 0)
        ends = list(cuts(items))
        starts = [0, *ends][: len(ends)]
        keys = [(self._tenant, encoding, items[start:end]) for start, end in zip(starts, ends, strict=True)]
        parts: list[bytes] = []
        for kept, key, start in zip(self._kept.get(keys, self._now), keys, starts, strict=True):
            run = key[2]
            if kept is None or (kept.names is not names and kept.names != names):
                kept = self._make(key, names, encode, start, left_out)
                self.made += len(run)
            else:
                left_out += kept.left_out
                self.reused += len(run)
            if kept.fragment is None:
                parts += [item.raw for item in run]
            elif kept.fragment:
                parts.append(kept.fragment)
        return b",".join(parts)

    def _make(self, key: _Key, names: Names, encode: Encode, start: int, left_out: list[LeftOut]) -> _Kept:
        run, before = key[2], len(left_out)
        fragment = encode(run, start)
        same = fragment == b",".join([item.raw for item in run])
        kept = _Kept(names, None if same else fragment, tuple(left_out[before:]))
        size = sum(len(item.raw) + _ITEM_BYTES for item in run) + (0 if same else len(fragment))
        self._kept.put(key, kept, size, self._now)
        return kept


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
