"""An observer that counts. Everything runs on the event loop's thread.

A turn reports once, at its end. Whatever it adds to was looked up by its labels before and is kept, so that a turn
costs additions; its times are sorted into buckets together with those of many other turns, at the latest when somebody
asks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from proxy.telemetry import families as f
from proxy.telemetry.caches import Cache
from proxy.telemetry.exposition import Exposition
from proxy.telemetry.health import Health
from proxy.telemetry.numbers import Family, Histograms, Labels, Numbers
from proxy.telemetry.observer import NoObserver, PassedRecord, SessionRecord, Stages, TurnRecord, loop_parts

_OBSERVED = 256  # turns, whose times are sorted into buckets at once
_ANSWERED = ("completed", "incomplete")
_OUTCOMES = (*_ANSWERED, "failed", "refused", "cancelled")


class Loaded(Protocol):
    """The part of an endpoint that is looked at."""

    name: str
    in_flight: int


class _Same:
    """What turns of one transport, dialect, endpoint and model add to."""

    def __init__(self, metrics: Metrics, transport: str, dialect: str, endpoint: str, model: str) -> None:
        self.ended = {
            outcome: metrics.turns.child(transport, dialect, endpoint, model, outcome) for outcome in _OUTCOMES
        }
        self.first_token = metrics.first_token.child(endpoint, model)
        self.interval = metrics.interval.child(endpoint, model)
        self.duration = metrics.duration.child(endpoint, model)
        tokens = metrics.tokens
        self.tokens_in, self.tokens_cached, self.tokens_out = (
            tokens.child(endpoint, model, each) for each in ("input", "cached", "output")
        )
        self.bytes_in, self.bytes_out = (metrics.bytes.child(transport, each) for each in ("in", "out"))
        self.sent = metrics.sent.child(endpoint)
        self.attempts = metrics.attempts.child(endpoint)


class Metrics(NoObserver):
    """An `Observer` that counts; `render` is what Prometheus gets.

    `before` is called before anything is read (`Observers.settle`); `running` tells how many turns run.
    """

    def __init__(self, version: str) -> None:
        self.before: Callable[[], object] = lambda: None
        self.running: Callable[[], int] = lambda: 0
        self._stages: list[Stages] = []  # of turns that are counted
        self.exposition = Exposition(self._settle)
        self.exposition.sample(f.BUILD_INFO, lambda: [((version,), 1)])
        self._crashes = self._numbers(f.CRASHES).child()
        self.loop_lag = self._histograms(f.LOOP_LAG).child()
        self._sessions_open = self._numbers(f.SESSIONS_OPEN).child()
        self._sessions = self._numbers(f.SESSIONS_ENDED)
        self.watch(f.TURNS_RUNNING, lambda: self.running())
        self.turns = self._numbers(f.TURNS_ENDED)
        self._errors = self._numbers(f.TURN_ERRORS)
        cancels = self._numbers(f.CANCELS)
        self._cancelled, self._left = cancels.child("request"), cancels.child("leaving")
        self._warm_ups = self._numbers(f.WARM_UPS).child()
        self._forks = self._numbers(f.FORKS).child()
        self._steers = self._numbers(f.STEERS).child()
        self.first_token = self._histograms(f.FIRST_TOKEN)
        self.interval = self._histograms(f.TOKEN_INTERVAL)
        self.duration = self._histograms(f.DURATION)
        parts = self._histograms(f.PARTS)
        self._parts = [parts.child(part) for part in Stages._fields]
        loop = self._histograms(f.LOOP_STAGES)
        self._client, self._idle, self._proxy, self._upstream = (
            loop.child(stage) for stage in ("client", "idle", "proxy", "upstream")
        )
        self.bytes = self._numbers(f.TURN_BYTES)
        self._saved = self._numbers(f.SAVED).child()
        self.tokens = self._numbers(f.TOKENS)
        self._left_out = self._numbers(f.LEFT_OUT)
        self._upstream_errors = self._numbers(f.UPSTREAM_ERRORS)
        self.attempts = self._numbers(f.UPSTREAM_ATTEMPTS)
        self.sent = self._numbers(f.UPSTREAM_SENT)
        self._health = Health(self._numbers(f.UPSTREAM_UP))
        self._limits = self._numbers(f.LIMITS)
        self._passed = self._numbers(f.PASSED)
        self._unreadable = self._numbers(f.UNREADABLE)
        self._same: dict[Labels, _Same] = {}
        self._models: set[str] = set()

    def _numbers(self, family: Family) -> Numbers:
        made = Numbers(family)
        self.exposition.add(made)
        return made

    def _histograms(self, family: Family) -> Histograms:
        made = Histograms(family)
        self.exposition.add(made)
        return made

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """The exposition text and its content type, in the form that `accept`, a header, asks for."""
        pieces, content_type = self.exposition.pieces(accept)
        return b"".join(pieces), content_type

    # --- What is looked at when somebody asks ------------------------------------------------------------------------

    def watch_caches(self, caches: Mapping[str, Cache]) -> None:
        """Report these caches, by name."""

        def each(read: Callable[[Cache], float]) -> Callable[[], Iterable[tuple[Labels, float]]]:
            return lambda: [((name,), read(cache)) for name, cache in caches.items()]

        def evictions() -> Iterable[tuple[Labels, float]]:
            for name, cache in caches.items():
                yield (name, "full"), cache.counts.full
                yield (name, "old"), cache.counts.old

        sample = self.exposition.sample
        sample(f.CACHE_HITS, each(lambda cache: cache.counts.hits))
        sample(f.CACHE_MISSES, each(lambda cache: cache.counts.misses))
        sample(f.CACHE_EVICTIONS, evictions)
        sample(f.CACHE_BYTES, each(lambda cache: cache.used_bytes()))
        sample(f.CACHE_ENTRIES, each(len))

    def watch_endpoints(self, endpoints: Iterable[Loaded]) -> None:
        """Report what these endpoints carry."""
        self.exposition.sample(f.UPSTREAM_IN_FLIGHT, lambda: [((each.name,), each.in_flight) for each in endpoints])

    def watch(self, family: Family, read: Callable[[], float]) -> None:
        """Report a family that is one number."""
        self.exposition.sample(family, lambda: [((), read())])

    def totals(self) -> dict[str, object]:
        """Sums over labels, for people to read beside what is exposed; the members are those of the status page."""
        self._settle()
        tokens_in, tokens_cached, tokens_out = (_sum(self.tokens, -1, each) for each in ("input", "cached", "output"))
        bytes_in, bytes_out = (_sum(self.bytes, -1, each) for each in ("in", "out"))
        stages = {"client": self._client, "idle": self._idle, "proxy": self._proxy, "upstream": self._upstream}
        return {
            "sessions_open": int(self._sessions_open.value),
            "sessions_ended": _sum(self._sessions),
            "turns_running": self.running(),
            "turns": {outcome: _sum(self.turns, -1, outcome) for outcome in _OUTCOMES},
            "errors": {kind: int(each.value) for (kind,), each in self._errors.children.items()},
            "forks": int(self._forks.value),
            "steers": int(self._steers.value),
            "tokens_in": tokens_in,
            "tokens_cached": tokens_cached,
            "tokens_out": tokens_out,
            "bytes_in": bytes_in,
            "bytes_out": bytes_out,
            "bytes_history_saved": int(self._saved.value),
            "loop_s": {stage: each.sum for stage, each in stages.items()},
        }

    def health(self, endpoint: str) -> tuple[str, str]:
        """As `Health.health`."""
        self.before()
        return self._health.health(endpoint)

    # --- Observer ----------------------------------------------------------------------------------------------------

    def session_opened(self, record: SessionRecord) -> None:
        self._sessions_open.value += 1

    def session_ended(self, record: SessionRecord) -> None:
        self._sessions_open.value -= 1
        self._sessions.child(_close_label(record.close_code)).value += 1

    def turn_ended(self, record: TurnRecord) -> None:
        self.turns_ended((record,))

    def turns_ended(self, records: Sequence[TurnRecord]) -> None:
        for record in records:
            self._count(record)
        if len(self._stages) >= _OBSERVED:
            self._observe()

    def _count(self, record: TurnRecord) -> None:
        same = self._kept(record)
        (same.ended.get(record.outcome) or same.ended["failed"]).value += 1
        same.bytes_in.value += record.bytes_in
        same.bytes_out.value += record.bytes_out
        if record.forked:
            self._forks.value += 1
        if record.steers:
            self._steers.value += record.steers
        if record.left_out:
            for what, _ in record.left_out:
                self._left_out.child(what).value += 1
        if record.warm_up:
            self._warm_ups.value += 1
        if record.sent_s is not None:
            self._asked(record, same)
        if record.outcome not in _ANSWERED:
            self._unanswered(record)
        elif not record.warm_up and record.ended_s is not None:
            self._answered(record, record.ended_s - record.received_s, same)

    def _settle(self) -> None:
        """Count everything that has happened."""
        self.before()
        self._observe()

    def _observe(self) -> None:
        for part, times in zip(self._parts, zip(*self._stages, strict=True), strict=False):
            part.observe_all(filter(None, times))  # a kept connection, a client that reads: nothing to observe
        self._stages.clear()
        for histogram in (self._client, self._idle, self._proxy, self._upstream):
            histogram.settle()
        for same in self._same.values():
            for histogram in (same.duration, same.first_token, same.interval):
                histogram.settle()

    def _kept(self, record: TurnRecord) -> _Same:
        model = record.upstream_model if record.model_known else f.OTHER
        key = (record.transport, record.dialect, record.endpoint, model)
        same = self._same.get(key)
        return self._made(*key) if same is None else same

    def _made(self, transport: str, dialect: str, endpoint: str, model: str) -> _Same:
        if model not in self._models and len(self._models) < f.MAX_MODELS:
            self._models.add(model)
        if model not in self._models:
            model = f.OTHER
        key = (transport, dialect, endpoint, model)
        same = self._same.get(key)
        if same is None:
            same = self._same[key] = _Same(self, transport, dialect or f.NONE, endpoint or f.NONE, model)
        return same

    def _asked(self, record: TurnRecord, same: _Same) -> None:
        same.sent.value += record.bytes_upstream
        same.attempts.value += record.attempts
        self._saved.value += record.bytes_history
        same.tokens_in.value += record.tokens_in
        same.tokens_cached.value += record.tokens_cached
        same.tokens_out.value += record.tokens_out
        self._health.turn_ended(record)

    def _unanswered(self, record: TurnRecord) -> None:
        if record.outcome != "cancelled":
            self._errors.child(record.error or f.NONE).value += 1
        elif record.error:
            self._cancelled.value += 1
        else:
            self._left.value += 1

    def _answered(self, record: TurnRecord, duration_s: float, same: _Same) -> None:
        stages = record.stages()
        self._stages.append(stages)
        client_s, proxy_s, upstream_s = loop_parts(stages, record.received_s, record.previous_end_s)
        if client_s is not None:
            (self._client if record.answers_calls else self._idle).later(client_s)
        self._proxy.later(proxy_s)
        self._upstream.later(upstream_s)
        same.duration.later(duration_s)
        if record.first_output_s is not None:
            same.first_token.later(record.first_output_s - record.received_s)
            spaces = (record.tokens_out or record.events_out) - 1
            if spaces > 0 and record.upstream_end_s is not None:
                same.interval.later((record.upstream_end_s - record.first_output_s) / spaces)
        if record.sampled:
            self._remember(record, same, duration_s)

    def _remember(self, record: TurnRecord, same: _Same, duration_s: float) -> None:
        """Exemplars: from a slow turn in a histogram to its trace."""
        now_s = time.time()
        same.duration.remember(duration_s, record.trace_id, now_s)
        if record.first_output_s is not None:
            same.first_token.remember(record.first_output_s - record.received_s, record.trace_id, now_s)

    def passed(self, record: PassedRecord) -> None:
        status = f"{record.status // 100}xx" if 100 <= record.status < 600 else f.NONE
        self._passed.child(record.outcome, status).value += 1

    def upstream_failed(self, endpoint: str, kind: str) -> None:
        self._upstream_errors.child(endpoint or f.NONE, kind).value += 1
        self._health.upstream_failed(endpoint, kind)

    def limited(self, limit: str) -> None:
        self._limits.child(limit).value += 1

    def unreadable(self, why: str) -> None:
        self._unreadable.child(why).value += 1

    def crashed(self, where: str, error: BaseException) -> None:
        self._crashes.value += 1


def _close_label(code: int | None) -> str:
    # A client may send any code from 3000 to 4999: those are one label.
    return str(code) if code is not None and 1000 <= code <= 1015 else f.OTHER


def _sum(numbers: Numbers, at: int = 0, label: str = "") -> int:
    """All children's values, or those of the children whose label at `at` is this one."""
    return int(sum(each.value for labels, each in numbers.children.items() if not label or labels[at] == label))
