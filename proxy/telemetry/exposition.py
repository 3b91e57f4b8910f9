"""What was counted, as Prometheus reads it; the only file that imports its client library.

Nothing is done before somebody asks: plain numbers become samples at each scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar
from prometheus_client.utils import floatToGoString

from proxy.telemetry.numbers import Family, Histogram, Histograms, Labels, Numbers

Sampled = Callable[[], Iterable[tuple[Labels, float]]]


_EOF = b"# EOF\n"  # of OpenMetrics
_HISTOGRAMS_A_PIECE = 10


class _One(Collector):
    """One family."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return (self._metric,)


class Exposition:
    """Families that are counted (`add`) and families that are read when somebody asks (`sample`).

    `settle` counts what has happened and is not counted yet.
    """

    def __init__(self, settle: Callable[[], None]) -> None:
        self._settle = settle
        self._process = CollectorRegistry()
        self._counted: list[Numbers | Histograms] = []
        self._sampled: list[tuple[Family, Sampled]] = []
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self._process)

    def add(self, counted: Numbers | Histograms) -> None:
        """One more family that is counted as things happen."""
        self._counted.append(counted)

    def sample(self, family: Family, read: Sampled) -> None:
        """One more family whose values `read` tells at each scrape."""
        self._sampled.append((family, read))

    def pieces(self, accept: str = "") -> tuple[Iterator[bytes], str]:
        """The text in pieces, and its content type: OpenMetrics, with exemplars, for whoever accepts it.

        The library takes some 15 µs for a line: made whole, the text of many models would hold up every stream.
        """
        self._settle()
        encode, content_type = choose_encoder(accept)
        return self._pieces(encode), content_type

    def _pieces(self, encode: Callable[[Collector], bytes]) -> Iterator[bytes]:
        text = encode(self._process)
        end = _EOF if text.endswith(_EOF) else b""
        yield text.removesuffix(end)
        last = ""
        for metric in self._collected():
            text = encode(_One(metric)).removesuffix(end)
            while metric.name == last and text.startswith(b"#"):
                text = text.partition(b"\n")[2]  # what the family is was said with its first piece
            last = metric.name
            yield text
        yield end

    def _collected(self) -> Iterator[Metric]:
        """All families in the order they were added, large ones in several parts."""
        for counted in self._counted:
            if isinstance(counted, Histograms):
                yield from _histograms(counted)
            else:
                yield _numbers(counted.family, [(labels, each.value) for labels, each in counted.children.items()])
        for family, read in self._sampled:
            yield _numbers(family, read())


def _numbers(family: Family, values: Iterable[tuple[Labels, float]]) -> Metric:
    made: CounterMetricFamily | GaugeMetricFamily
    make = CounterMetricFamily if family.type == "counter" else GaugeMetricFamily
    made = make(family.name, family.help, labels=tuple(family.labels), unit=family.unit)
    for labels, value in values:
        made.add_metric(labels, value)
    return made


def _histograms(counted: Histograms) -> Iterator[Metric]:
    family = counted.family
    bounds = [*map(floatToGoString, family.bounds), "+Inf"]
    children = list(counted.children.items())
    for start in range(0, len(children) or 1, _HISTOGRAMS_A_PIECE):
        made = HistogramMetricFamily(family.name, family.help, labels=tuple(family.labels), unit=family.unit)
        for labels, histogram in children[start : start + _HISTOGRAMS_A_PIECE]:
            made.add_metric(labels, _buckets(histogram, bounds), histogram.sum)
        yield made


def _buckets(histogram: Histogram, bounds: list[str]) -> list[tuple[str, float] | tuple[str, float, Exemplar]]:
    made: list[tuple[str, float] | tuple[str, float, Exemplar]] = []
    total = 0
    for at, (bound, count) in enumerate(zip(bounds, histogram.counts, strict=True)):
        total += count
        seen = histogram.exemplars.get(at)
        if seen is None:
            made.append((bound, total))
        else:
            made.append((bound, total, Exemplar({"trace_id": seen.trace_id}, seen.value, seen.at_s)))
    return made
