"""Counters and histograms as plain Python numbers. No I/O.

Everything that counts runs on the event loop's thread, so nothing here takes a lock: a counter goes up by
`child.value += 1`, a histogram by one bisection, or by many observations sorted at once. A child is looked up by its
labels once and kept by whoever counts.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Labels = tuple[str, ...]
Type = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Family:
    """What one family counts. `unit` ends its name, as far as it has one; `help` is one sentence for people.

    `labels` tells, for each label, the closed set that its values come from, in words or all of them.
    """

    name: str
    type: Type
    help: str
    labels: Mapping[str, str] = field(default_factory=dict)
    unit: str = ""
    bounds: Sequence[float] = ()


class Number:
    """A counter or a gauge."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0


class Exemplar(NamedTuple):
    """One observation that a trace tells more of; `at_s` is seconds since 1970."""

    trace_id: str
    value: float
    at_s: float


class Histogram:
    """Observations by size: `counts` of those up to each bound, the last of those above all. Not cumulative.

    `later` takes an observation, too, but it counts only with the next `settle`: many at once cost a third. Whoever
    uses it sees to it that they do not become too many, and settles before anybody reads.
    """

    __slots__ = ("_new", "bounds", "counts", "exemplars", "later", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0
        self.exemplars: dict[int, Exemplar] = {}
        self._new: list[float] = []
        self.later = self._new.append

    def observe(self, value: float) -> None:
        """One observation."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def observe_all(self, values: Iterable[float]) -> None:
        """Several."""
        ordered = sorted(values)
        self.sum += sum(ordered)
        below, above = 0, len(ordered)
        for at, bound in enumerate(self.bounds):
            if below == above:
                return
            upto = bisect_right(ordered, bound, below)
            self.counts[at] += upto - below
            below = upto
        self.counts[-1] += above - below

    def settle(self) -> None:
        """Count what came by `later`."""
        if self._new:
            self.observe_all(self._new)
            self._new.clear()

    def remember(self, value: float, trace_id: str, at_s: float) -> None:
        """Which trace the last observation of that size belongs to."""
        self.exemplars[bisect_left(self.bounds, value)] = Exemplar(trace_id, value, at_s)

    @property
    def count(self) -> int:
        """All observations."""
        return sum(self.counts)


class Numbers:
    """A family of counters or gauges: its children by the values of its labels."""

    def __init__(self, family: Family) -> None:
        self.family = family
        self.children: dict[Labels, Number] = {}

    def child(self, *labels: str) -> Number:
        """The one with these labels; look it up once and keep it."""
        found = self.children.get(labels)
        if found is None:
            found = self.children[labels] = Number()
        return found


class Histograms:
    """A family of histograms: its children by the values of its labels."""

    def __init__(self, family: Family) -> None:
        self.family = family
        self.children: dict[Labels, Histogram] = {}

    def child(self, *labels: str) -> Histogram:
        """The one with these labels; look it up once and keep it."""
        found = self.children.get(labels)
        if found is None:
            found = self.children[labels] = Histogram(self.family.bounds)
        return found
