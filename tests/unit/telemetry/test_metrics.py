"""What is counted, under which labels, and what a turn's counting costs."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from proxy.errors import Kind
from proxy.models.catalog import Catalog, Names
from proxy.models.profile import generic
from proxy.settings import CATALOG
from proxy.telemetry import families
from proxy.telemetry.caches import CacheCounts
from proxy.telemetry.lines import turn_line
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.numbers import Family, Histogram
from proxy.telemetry.observer import PassedRecord, SessionRecord, Stages, TurnRecord
from proxy.tools.metrics_table import rewritten

ROOT = Path(__file__).parents[3]


def turn(**members: object) -> TurnRecord:
    """A turn of two seconds that was answered; each part of it took another time."""
    record = TurnRecord(
        "resp_lp1", "websocket", 100.0, model="m", upstream_model="m", endpoint="default", dialect="chat",
        outcome="completed", attempts=1, bytes_in=10, bytes_history=20, bytes_upstream=30, bytes_out=40, events_out=9,
        tokens_in=5, tokens_cached=3, tokens_out=11, model_known=True, previous_end_s=97.0, answers_calls=True,
        parsed_s=100.001, started_s=100.003, chained_s=100.006, prepared_s=100.01, sent_s=100.015, connected_s=100.021,
        accepted_s=100.1, first_output_s=100.5, stalled_s=0.25, upstream_end_s=101.5, stored_s=101.7, ended_s=102.0,
    )  # fmt: skip
    for name, value in members.items():
        setattr(record, name, value)
    return record


def samples(metrics: Metrics) -> Iterator[Sample]:
    """Everything of ours in the classic text."""
    for family in text_string_to_metric_families(metrics.render()[0].decode()):
        yield from (sample for sample in family.samples if sample.name.startswith("loopline_"))


def value(metrics: Metrics, name: str, **labels: str) -> float:
    """One sample."""
    [found] = [sample.value for sample in samples(metrics) if sample.name == name and sample.labels == labels]
    return found


# --- Parts -----------------------------------------------------------------------------------------------------------


def test_the_parts_of_a_turn_are_its_time() -> None:
    stages = turn().stages()
    assert tuple(stages) == pytest.approx((0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 1.229, 0.25, 0.2, 0.3))
    assert sum(stages) == pytest.approx(2.0)


MARKS = ("parsed_s", "started_s", "chained_s", "prepared_s", "sent_s", "connected_s", "upstream_end_s", "stored_s")


@pytest.mark.parametrize("reached", range(len(MARKS) + 1))
def test_however_far_a_turn_comes_its_parts_are_its_time(reached: int) -> None:
    record = turn(stalled_s=0.0, outcome="cancelled", **dict.fromkeys(MARKS[reached:]))
    stages = record.stages()
    assert sum(stages) == pytest.approx(2.0)
    assert min(stages) >= 0
    if record.sent_s is not None and record.upstream_end_s is None:
        assert stages.upstream >= 1.9  # it was asked and did not answer: nobody else took that time


def test_a_turn_that_runs_has_parts_until_now() -> None:
    record = turn(upstream_end_s=None, stored_s=None, ended_s=None, stalled_s=0.0)
    assert sum(record.stages(100.5)) == pytest.approx(0.5)
    assert sum(record.stages(101.0)) == pytest.approx(1.0)


@pytest.mark.parametrize("reached", range(len(MARKS) + 1))
def test_the_part_a_turn_is_in_is_the_one_that_grows(reached: int) -> None:
    record = turn(stalled_s=0.0, ended_s=None, **dict.fromkeys(MARKS[max(1, reached) :]))
    before, after = record.stages(103.0)._asdict(), record.stages(104.0)._asdict()
    assert {part for part in after if after[part] > before[part]} == {record.part()}


def test_while_a_client_makes_no_room_the_time_is_its_own() -> None:
    record = turn(upstream_end_s=None, stored_s=None, ended_s=None, stalled_s=0.25, stall_began_s=100.5)
    assert record.part() == "stall"
    stages = record.stages(101.0)
    assert (stages.stall, sum(stages)) == pytest.approx((0.75, 1.0))
    assert stages.upstream == record.stages(102.0).upstream


def test_a_warm_up_asks_no_upstream() -> None:
    record = turn(sent_s=None, connected_s=None, upstream_end_s=None, stored_s=100.02, stalled_s=0.0)
    stages = record.stages()
    assert stages.upstream == stages.connect == stages.stall == 0
    assert sum(stages) == pytest.approx(2.0)


def test_a_round_of_the_loop_is_the_time_between_two_ends() -> None:
    record = turn()
    loop = record.loop(record.stages())
    assert loop.client == pytest.approx(3.0 + 0.25)
    assert sum(filter(None, loop)) == pytest.approx(102.0 - 97.0)


def test_what_of_a_queue_lies_in_the_turn_before_is_in_no_round() -> None:
    record = turn(previous_end_s=100.5, started_s=100.6, chained_s=None, prepared_s=None, sent_s=100.7, stalled_s=0.0)
    record.connected_s = None
    loop = record.loop(record.stages())
    assert loop.client == 0
    assert sum(filter(None, loop)) == pytest.approx(102.0 - 100.5)


# --- What is counted -------------------------------------------------------------------------------------------------


def test_an_answered_turn_is_counted_in_every_family_of_turns() -> None:
    metrics, model = Metrics("1"), {"endpoint": "default", "model": "m"}
    metrics.turn_started(turn())
    metrics.turn_ended(turn(forked=True, steers=2, left_out=(("tool", "web_search"),)))
    one = {"transport": "websocket", "dialect": "chat", "outcome": "completed", **model}
    assert value(metrics, "loopline_turn_ended_total", **one) == 1
    assert value(metrics, "loopline_turn_running") == 0
    assert value(metrics, "loopline_turn_duration_seconds_sum", **model) == 2
    assert value(metrics, "loopline_turn_first_token_seconds_sum", **model) == 0.5
    assert value(metrics, "loopline_turn_token_interval_seconds_sum", **model) == pytest.approx(0.1)
    assert value(metrics, "loopline_turn_tokens_total", direction="cached", **model) == 3
    assert value(metrics, "loopline_turn_bytes_total", transport="websocket", direction="out") == 40
    assert value(metrics, "loopline_turn_history_saved_bytes_total") == 20
    assert value(metrics, "loopline_turn_forks_total") == 1
    assert value(metrics, "loopline_turn_steers_total") == 2
    assert value(metrics, "loopline_translate_left_out_total", what="tool") == 1
    assert value(metrics, "loopline_upstream_sent_bytes_total", endpoint="default") == 30
    parts = [sample.value for sample in samples(metrics) if sample.name == "loopline_turn_part_seconds_sum"]
    assert len(parts) == 10
    assert sum(parts) == pytest.approx(2)
    rounds = {s.labels["stage"]: s.value for s in samples(metrics) if s.name == "loopline_loop_stage_seconds_sum"}
    assert rounds == pytest.approx({"client": 3.25, "idle": 0, "proxy": 0.521, "upstream": 1.229})


def test_a_pause_of_a_person_is_not_the_clients() -> None:
    metrics = Metrics("1")
    metrics.turn_ended(turn(answers_calls=False))
    assert value(metrics, "loopline_loop_stage_seconds_count", stage="client") == 0
    assert value(metrics, "loopline_loop_stage_seconds_count", stage="idle") == 1


def test_turns_that_were_not_answered_are_counted_but_take_no_time() -> None:
    metrics = Metrics("1")
    metrics.turn_ended(turn(outcome="cancelled", error="cancelled"))
    metrics.turn_ended(turn(outcome="cancelled"))
    metrics.turn_ended(turn(outcome="refused", error="queue_full", sent_s=None))
    metrics.turn_ended(turn(warm_up=True, sent_s=None))
    assert value(metrics, "loopline_turn_cancels_total", by="request") == 1
    assert value(metrics, "loopline_turn_cancels_total", by="leaving") == 1
    assert value(metrics, "loopline_turn_errors_total", kind="queue_full") == 1
    assert value(metrics, "loopline_turn_warm_ups_total") == 1
    assert value(metrics, "loopline_turn_duration_seconds_count", endpoint="default", model="m") == 0


def test_an_endpoint_is_down_after_its_last_attempt_alone() -> None:
    metrics = Metrics("1")
    assert metrics.health("default") == ("unknown", "")
    metrics.upstream_failed("default", "upstream_rejected")  # a refusal of one request
    assert metrics.health("default") == ("unknown", "")
    metrics.upstream_failed("default", "upstream_unreachable")
    metrics.turn_ended(turn(outcome="refused", error="upstream_unreachable", accepted_s=None))
    assert metrics.health("default") == ("down", "upstream_unreachable")
    assert value(metrics, "loopline_upstream_up", endpoint="default") == 0
    metrics.turn_ended(turn())
    assert metrics.health("default") == ("up", "")
    assert value(metrics, "loopline_upstream_up", endpoint="default") == 1


def test_a_failure_is_forgotten_or_an_endpoint_out_of_service_would_stay_so(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = Metrics("1")
    metrics.upstream_failed("default", "upstream_unreachable")
    later = metrics._health._failures["default"][1] + 31
    monkeypatch.setattr("proxy.telemetry.health.time.monotonic", lambda: later)
    assert metrics.health("default") == ("unknown", "upstream_unreachable")


class Kept(list[int]):
    """A cache of two entries."""

    counts = CacheCounts(hits=3, misses=2, full=1, old=4)

    def used_bytes(self) -> int:
        return 1000


def test_caches_are_looked_at_when_somebody_asks() -> None:
    metrics, cache = Metrics("1"), Kept([1, 2])
    metrics.watch_caches({"tools": cache})
    cache.append(3)
    assert value(metrics, "loopline_cache_entries", cache="tools") == 3
    assert value(metrics, "loopline_cache_bytes", cache="tools") == 1000
    assert value(metrics, "loopline_cache_hits_total", cache="tools") == 3
    assert value(metrics, "loopline_cache_evictions_total", cache="tools", reason="old") == 4


def test_a_bucket_holds_what_its_bound_says() -> None:
    histogram = Histogram((0.001, 0.01))
    for seconds in (0.0005, 0.001, 0.0011, 5.0):
        histogram.observe(seconds)
    assert histogram.counts == [2, 1, 1]
    assert histogram.count == 4


def test_many_observations_at_once_are_the_same_as_one_by_one() -> None:
    rng, bounds = random.Random(4), families.SECONDS
    values = [*bounds, 0.0, -1e-9, 1000.0, *(10 ** rng.uniform(-5, 3) for _ in range(500))]
    single, at_once, later = (Histogram(bounds) for _ in range(3))
    for each in values:
        single.observe(each)
        later.later(each)
    assert later.count == 0
    at_once.observe_all(values)
    later.settle()
    later.settle()
    assert single.counts == at_once.counts == later.counts
    assert at_once.sum == later.sum == pytest.approx(single.sum)


def test_times_are_in_their_buckets_although_nobody_asks() -> None:
    metrics = Metrics("1")
    for _ in range(10_000):
        metrics.turn_ended(turn())
    held = sum(len(each) for each in (metrics._stages, metrics._proxy._new, metrics._client._new))
    assert held < 1000
    assert value(metrics, "loopline_turn_duration_seconds_count", endpoint="default", model="m") == 10_000
    assert value(metrics, "loopline_turn_part_seconds_count", part="parse") == 10_000


def test_whoever_accepts_open_metrics_gets_traces() -> None:
    metrics = Metrics("1")
    metrics.turn_ended(turn(trace_id="0af7651916cd43dd8448eb211c80319c", sampled=True))
    metrics.turn_ended(turn(trace_id="bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"))  # which nobody keeps
    metrics.turn_ended(turn())
    text, kind = metrics.render("application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
    assert kind.startswith("application/openmetrics-text")
    traced = {
        (sample.name, sample.exemplar.labels["trace_id"], sample.exemplar.value)
        for family in open_metrics(text.decode())  # type: ignore[no-untyped-call]
        for sample in family.samples
        if sample.exemplar is not None
    }
    trace = "0af7651916cd43dd8448eb211c80319c"
    assert traced == {
        ("loopline_turn_duration_seconds_bucket", trace, 2.0),
        ("loopline_turn_first_token_seconds_bucket", trace, 0.5),
    }
    assert b"0af7651916cd43dd" not in metrics.render()[0]


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text;version=1.0.0"])
def test_a_text_made_in_pieces_is_one_text(accept: str) -> None:
    metrics = Metrics("1")
    for number in range(50):
        metrics.turn_ended(turn(upstream_model=f"m{number}"))
    text = metrics.render(accept)[0].decode()
    parse = open_metrics if accept else text_string_to_metric_families
    [family] = [each for each in parse(text) if each.name == "loopline_turn_duration_seconds"]
    assert {sample.labels["model"] for sample in family.samples} == {f"m{number}" for number in range(50)}
    described = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(described) == len(set(described))
    assert max(piece.count(b"\n") for piece in metrics.exposition.pieces(accept)[0]) < 300


# --- Closed labels ---------------------------------------------------------------------------------------------------

CLOSED: dict[str, set[str]] = {
    "transport": {"websocket", "http"},
    "dialect": {"chat", "responses", "none"},
    "endpoint": {"default", "none"},
    "outcome": {"completed", "incomplete", "failed", "refused", "cancelled", "passed"},
    "kind": {kind.value for kind in Kind} | {"none"},
    "by": {"request", "leaving"},
    "part": set(Stages._fields),
    "stage": {"client", "idle", "proxy", "upstream"},
    "direction": {"in", "out", "input", "cached", "output"},
    "what": {"tool", "field", "item", "part", "reasoning", "call"},
    "code": {*map(str, range(1000, 1016)), "other"},
    "status": {"1xx", "2xx", "3xx", "4xx", "5xx", "none"},
    "version": {"1"},
    "reason": {"full", "old", "malformed", "too_large"},
    "limit": set(CATALOG),
}


def test_ten_thousand_names_of_clients_make_no_series() -> None:
    rng, metrics = random.Random(8), Metrics("1")
    listed = frozenset(f"served-{number}" for number in range(300))
    catalogs = [Catalog("chat", generic(), names, {}) for names in (listed, None)]
    names = Names({"fast": "aimed-at"}, "")
    for number in range(10_000):
        word = f"{rng.getrandbits(64):x}"
        model = rng.choice((f"m-{word}", f"served-{rng.randrange(300)}", "aimed-at"))
        known = names.knows(model, rng.choice(catalogs))
        outcome = rng.choice(tuple(CLOSED["outcome"] - {"passed"}))
        metrics.turn_ended(
            turn(model=word, upstream_model=model, model_known=known, outcome=outcome, session=word, client=word,
                 request_id=word, parent=word, error="", left_out=(("tool", word),))
        )  # fmt: skip
        metrics.passed(PassedRecord("POST", f"/v1/{word}", 0.0, status=rng.randrange(0, 700), outcome="passed"))
        metrics.session_ended(SessionRecord(word, 0.0, client=word, close_code=rng.choice((None, 1000, 3000 + number))))
    found = list(samples(metrics))
    for sample in found:
        for label, said in sample.labels.items():
            if label == "le":
                continue
            if label == "model":
                assert said in listed | {"aimed-at", "other"}
            else:
                assert said in CLOSED[label], (sample.name, label)
    models = {sample.labels["model"] for sample in found if "model" in sample.labels}
    assert "other" in models
    assert 50 < len(models) <= families.MAX_MODELS + 1
    assert len(metrics._same) <= families.MAX_MODELS + 1


# --- The document ----------------------------------------------------------------------------------------------------


def test_the_tables_of_the_document_are_those_of_the_code() -> None:
    text = (ROOT / "docs" / "metrics.md").read_text()
    assert rewritten(text) == text, "make docs writes them anew"


def test_every_log_field_that_the_document_names_exists() -> None:
    named = set(re.findall(r"`(\w+_s)`", (ROOT / "docs" / "metrics.md").read_text()))
    assert len(named) > 9
    assert named <= turn_line(turn(), "", "info").fields().keys()


@pytest.mark.parametrize("family", families.FAMILIES, ids=lambda family: family.name)
def test_a_name_tells_layer_and_unit(family: Family) -> None:
    stem = family.name.removesuffix("_total")
    assert re.fullmatch(r"loopline_[a-z]+(_[a-z]+)+|loopline_passthrough", stem)
    assert (family.name.endswith("_total")) == (family.type == "counter")
    assert stem.endswith(family.unit)
    assert family.help.endswith(".")
    assert bool(family.bounds) == (family.type == "histogram")


def test_buckets_tell_a_tenth_of_a_millisecond_from_a_whole_and_reach_minutes() -> None:
    bounds = families.SECONDS
    assert list(bounds) == sorted(bounds)
    assert bounds[0] == 0.0001
    assert len([bound for bound in bounds if 0.0001 <= bound < 0.001]) >= 3
    assert bounds[-1] >= 300


# --- Cost ------------------------------------------------------------------------------------------------------------


def calls(work: object) -> int:
    """How many calls of Python functions and of C functions a piece of work makes."""
    count = 0

    def seen(_frame: object, event: str, _arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    assert callable(work)
    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_a_turns_counting_is_a_few_dozen_calls_and_no_new_series() -> None:
    metrics = Metrics("1")
    metrics.turn_ended(turn())  # the labels are looked up once
    before, record = len(list(samples(metrics))), turn()
    assert calls(lambda: metrics.turn_ended(record)) <= 60
    assert len(list(samples(metrics))) == before
