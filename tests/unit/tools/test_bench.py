"""The bench's pure parts: what is asked for, what the upstream answers, the accounts, the table, the page, the JSON."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import cast
from xml.etree import ElementTree

import msgspec
import pytest

from proxy.settings import load
from proxy.tools.bench import page, plots, running
from proxy.tools.bench.answers import STAMP, Wanted, answer, renamed, wanted, whole, whole_stream
from proxy.tools.bench.cli import bench
from proxy.tools.bench.command import conditions
from proxy.tools.bench.contestants import DELTAS, Contestant
from proxy.tools.bench.document import to_json
from proxy.tools.bench.drawings import everything
from proxy.tools.bench.meter import Meter
from proxy.tools.bench.options import Options, Other
from proxy.tools.bench.plan import SCENES, TURNS, Loop, Plan, on_a_real_engine, quick
from proxy.tools.bench.progress import Quiet
from proxy.tools.bench.rows import FIGURES, SHOWN, Report, Row, merged, per, ratio, row
from proxy.tools.bench.scenes import OURS, RUNS, WAYS
from proxy.tools.bench.scenes.observability import OFF, ON, TRACED, compared, variants
from proxy.tools.bench.scenes.rates import spread
from proxy.tools.bench.table import CAVEAT, render
from proxy.tools.bench.turns import BenchError, Fields, Item, Turn, history, message, prompt, result
from proxy.tools.bench.upstream import Paced
from proxy.tools.bench.websocket import Address, create, reason
from proxy.wire.sse import SseDecoder

DOCS = Path(__file__).parents[3] / "docs" / "bench.md"


# ------------------------------------------------------------------------------------------------------------- upstream


def test_a_marker_says_what_it_was_made_from_and_the_last_one_counts() -> None:
    asked = Wanted(deltas=7, gap_us=1000, burst=1, ttft_ms=30, stamp=1, call=1)
    body = f'{{"input":"{Wanted(deltas=3).marker}","more":"{asked.marker}"}}'.encode()
    assert wanted(body) == asked
    assert wanted(b"{}") == Wanted()


@pytest.mark.parametrize("dialect", ["chat", "responses"])
@pytest.mark.parametrize("call", [0, 1])
def test_an_answer_is_the_same_in_one_piece_and_in_many(dialect: str, call: int) -> None:
    head, deltas, tail = answer(dialect, 5, 0, call)
    assert len(deltas) == 5
    assert whole_stream(dialect, 5, call) == head + b"".join(deltas) + tail


def test_a_responses_answer_numbers_its_events_and_tells_its_text_whole() -> None:
    events = [msgspec.json.decode(event) for event in _events(whole_stream("responses", 3, 0))]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    text = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
    assert text == "tik tok tik "
    assert events[-1]["type"] == "response.completed"
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == text
    assert msgspec.json.decode(whole("responses", 3))["output"][0]["content"][0]["text"] == text


@pytest.mark.parametrize("dialect", ["chat", "responses"])
def test_a_call_has_arguments_that_are_json(dialect: str) -> None:
    events = [msgspec.json.decode(event) for event in _events(whole_stream(dialect, 4, 1))]
    if dialect == "chat":
        deltas = [choice["delta"] for event in events for choice in event["choices"]]
        pieces = [call["function"]["arguments"] for delta in deltas for call in delta.get("tool_calls", ())]
    else:
        pieces = [event["delta"] for event in events if event["type"].endswith("arguments.delta")]
        assert events[-1]["response"]["output"][0]["arguments"] == "".join(pieces)
    assert json.loads("".join(pieces)) == {"command": "tik tok "}


def test_answers_have_ids_of_their_own_which_stamps_leave_alone() -> None:
    first, second = (renamed(whole_stream("responses", 1, 0), number) for number in (1, 2))
    assert first != second
    assert len(first) == len(second)
    stamped = answer("responses", 2, 1, 0).named(1)
    assert [delta.count(STAMP) for delta in stamped.deltas] == [1, 1]
    assert STAMP not in stamped.head


class _Writes:
    """A transport that keeps each write by itself."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.seen.append(data)

    def is_closing(self) -> bool:
        return False


@pytest.mark.parametrize("gap_us", [1000, 250])
def test_a_paced_answer_writes_each_token_by_itself_when_it_is_due(gap_us: int) -> None:
    now, writes = 5.0, _Writes()
    asked = Wanted(deltas=4, gap_us=gap_us, burst=1, ttft_ms=10)
    paced = Paced(cast(asyncio.Transport, writes), asked, answer("chat", 4, 0, 0), lambda: now)
    assert paced.is_fine == (gap_us < 1000)
    assert not paced.write()
    assert writes.seen == []
    now += 0.010 + 1.5 * gap_us / 1e6
    assert not paced.write()
    assert len(writes.seen) == 1 + 2  # what begins it, and what was due at 0 and 1 gaps
    now += 2 * gap_us / 1e6
    assert paced.write()
    assert len(writes.seen) == 1 + 4 + 1
    assert [piece.count(b'"content":"t') for piece in writes.seen] == [0, 1, 1, 1, 1, 0]


def _events(stream: bytes) -> list[bytes]:
    return [event for event in SseDecoder(1 << 20).feed(stream) if event != b"[DONE]"]


# -------------------------------------------------------------------------------------------------------------- clients


def test_items_are_what_each_dialect_takes() -> None:
    assert json.loads(message("assistant", "hm").responses)["content"] == [{"type": "output_text", "text": "hm"}]
    assert json.loads(message("user", "hm").chat) == {"role": "user", "content": "hm"}
    assert json.loads(result("call_1", "ok").responses)["call_id"] == "call_1"
    assert json.loads(result("call_1", "ok").chat)["tool_call_id"] == "call_1"
    assert wanted(prompt("go", Wanted(deltas=4)).chat).deltas == 4
    assert sum(len(item.responses) for item in history(100_000)) == pytest.approx(100_000, rel=0.05)


def test_a_create_names_its_parent_only_where_it_has_one() -> None:
    fields = Fields("m", max_output_tokens=5).responses()
    first = json.loads(create(fields, [message("user", "a")]))
    assert first.keys() == {"type", "model", "store", "max_output_tokens", "input"}
    assert json.loads(create(fields, [], "resp_1"))["previous_response_id"] == "resp_1"


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://127.0.0.1:8780/v1", ("127.0.0.1", 8780, "/v1/responses", False)),
        ("wss://host/v1/responses", ("host", 443, "/v1/responses", True)),
    ],
)
def test_an_address_is_read_from_a_base_url(url: str, address: tuple[str, int, str, bool]) -> None:
    assert tuple(Address.of(url)) == address


@pytest.mark.parametrize("url", ["127.0.0.1:8780", "ftp://host/v1", "http://host:port/v1", "http:///v1"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(BenchError, match=re.escape(url)):
        Address.of(url)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"type":"error","error":{"message":"no\\nroom"}}', "no room"),
        (b'{"type":"response.failed","response":{"error":{"message":"broke"}}}', "broke"),
        (b"<html>", "<html>"),
    ],
)
def test_a_failure_is_told_in_one_line(body: bytes, words: str) -> None:
    assert reason(body) == words


# -------------------------------------------------------------------------------------------------------------- options


def test_every_scene_has_its_columns_its_count_and_its_run() -> None:
    assert set(SCENES) == set(SHOWN) == set(RUNS) == set(WAYS) == set(TURNS)
    assert set(SCENES) > OURS
    for shown in SHOWN.values():
        assert shown.main in ("", *shown.columns)
        assert set(shown.columns) <= set(FIGURES)


def test_quick_and_real_runs_are_smaller() -> None:
    plan = Plan()
    for smaller in (quick(plan), on_a_real_engine(plan, 16), quick(on_a_real_engine(plan, 16))):
        assert all(TURNS[scene](smaller) < TURNS[scene](plan) for scene in SCENES if scene != "idle")
    chosen = replace(plan, deep_bytes=(7000,), loop=Loop(tool_calls=3, history_kb=(1, 2)))
    real = on_a_real_engine(chosen, 16)
    assert (real.loop, real.deep_bytes) == (chosen.loop, (7000,))  # what was asked for stays


def test_another_server_is_named_with_its_url_and_perhaps_its_process() -> None:
    assert Other.parse("a=http://h:1/v1,77") == Other("a", "http://h:1/v1", 77)
    assert Other.parse("a=http://h:1/v1") == Other("a", "http://h:1/v1", 0)
    assert Other.parse("http://h:1/v1,5", name="Loopline") == Other("Loopline", "http://h:1/v1", 5)


@pytest.mark.parametrize("text", ["http://h:1/v1", "a=h:1", "=http://h", "a=http://h,x"])
def test_another_server_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(BenchError, match="NAME=URL"):
        Other.parse(text)


def test_what_excludes_each_other_is_refused() -> None:
    with pytest.raises(ValueError, match="leave one of them out"):
        Options(target=Other("a", "http://h"), upstream="http://u")
    with pytest.raises(ValueError, match="leave out --target"):
        Options(target=Other("a", "http://h"), scenes=("observability",))
    with pytest.raises(ValueError, match="chain, deep"):
        Options(scenes=("nothing",))


def test_what_cannot_be_played_is_neither_said_nor_played() -> None:
    behind = Options(target=Other("a", "http://h"))
    assert set(SCENES) - set(behind.played) == {"rates", "observability"}
    assert set(SCENES) - set(Options(upstream="http://u").played) == {"rates"}
    assert Options().played == SCENES
    assert conditions(behind)["scenes"] == ", ".join(behind.played)
    with pytest.raises(ValueError, match="own upstream"):
        Options(upstream="http://u", scenes=("rates",))


# ------------------------------------------------------------------------------------------------------------- accounts


def _turn(took_s: float, events: int = 3, tokens: list[tuple[float, bytes]] | None = None) -> Turn:
    return Turn(10.0, 10.0 + took_s / 2, 10.0 + took_s, events, 100, 1000, "", tokens or [])


def test_a_row_counts_what_its_turns_counted() -> None:
    made = row("chain", "2 turns", "a", [_turn(1), _turn(2, events=5)], p50_s=1.0)
    assert (made.turns, made.events, made.bytes_up, made.bytes_down) == (2, 8, 200, 2000)
    assert made.figures == {"p50_s": 1.0, "up_per_turn_bytes": 100, "down_per_turn_bytes": 1000}


def test_rounds_are_put_together_by_median_and_percentiles_by_all_that_was_measured() -> None:
    rounds = [
        row("many", "c", "a", [_turn(t) for t in took_s], {"p50_s": took_s, "p99_s": took_s}, cpu_turn_s=cpu_s)
        for took_s, cpu_s in (([1.0, 2.0], 0.1), ([1.0, 9.0], 0.7), ([1.0, 1.0], 0.2))
    ]
    rounds[1] = replace(rounds[1], note="saturated")
    whole = merged([replace(each, series={"s": [float(n), 1.0]}) for n, each in enumerate(rounds)])
    assert whole.figures["cpu_turn_s"] == 0.2  # one bad moment falls out
    assert (whole.figures["p50_s"], whole.figures["p99_s"]) == (1.0, 9.0)
    assert (whole.turns, whole.events, whole.bytes_up) == (6, 18, 600)
    assert (whole.series, whole.note, whole.samples) == ({"s": [1.0, 1.0]}, "", {})
    assert merged([Row("many", "c", "a", {"cpu_turn_s": None})]).figures == {"cpu_turn_s": None}


async def test_a_history_that_a_server_does_not_take_fails_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    class OnlySmall:
        """A conversation with a server that takes no message above 100 kB."""

        connect_s = 0.0

        async def turn(self, new: Sequence[Item], *, watch: bool = False) -> Turn:
            if sum(len(item.responses) for item in new) > 100_000:
                raise BenchError("too large")
            return _turn(1)

    @asynccontextmanager
    async def lane(self: Contestant) -> AsyncIterator[OnlySmall]:
        yield OnlySmall()

    monkeypatch.setattr(Contestant, "lane", lane)
    who = Contestant("a", "", DELTAS, Meter(), Fields("m"))
    plan = Plan(deep_bytes=(10_000, 1_000_000), depths=(3,), deep_turns=2, rounds={"deep": 2})
    report = Report("", {}, {}, ["a"])
    await running.play("deep", [(who, plan)], report, Quiet())
    told = {each.case: (each.turns, each.failure) for each in report.rows}
    assert told == {"0.01 MB": (4, ""), "1 MB": (0, "too large"), "3 turns deep": (4, "")}
    assert "a: failed (1 MB): too large" in render(report)
    assert "a: failed (1 MB): too large" in page.render(report)


async def test_contestants_take_turns_in_rounds_and_who_fails_plays_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[str] = []

    async def scene(who: Contestant, plan: Plan, step: Callable[[int], None]) -> AsyncIterator[Row]:
        played.append(who.name)
        if who.name == "c":
            raise BenchError("it closed")
        yield row("chain", "1 turn", who.name, [_turn(1)], cpu_turn_s=float(len(played)))

    monkeypatch.setitem(RUNS, "chain", scene)
    plans = {
        "a": Plan(rounds={"chain": 3}),
        "b": Plan(rounds={"chain": 3}),
        "c": Plan(rounds={"chain": 3}),
        "d": Plan(),
    }
    players = [(Contestant(name, "", DELTAS, Meter(), Fields("m")), plan) for name, plan in plans.items()]
    report = Report("", {}, {})
    await running.play("chain", players, report, Quiet())
    assert played == ["a", "b", "c", "d", "b", "a", "a", "b"]
    told = {each.contestant: each for each in report.rows}
    assert list(told) == ["a", "b", "c", "d"]
    assert [told[name].figures["cpu_turn_s"] for name in ("a", "b", "d")] == [6, 5, 4]
    assert (told["a"].turns, told["d"].turns, told["c"].failure) == (3, 1, "it closed")


def test_what_the_system_does_not_say_stays_unsaid() -> None:
    assert per(None, 3) is None
    assert per(6.0, 3) == 2.0
    silent = Row("stream", "c", "b", {"cpu_event_s": None})
    assert ratio(silent, Row("stream", "c", "a", {"cpu_event_s": 1.0})) is None
    assert ratio(Row("stream", "c", "b", {"cpu_event_s": 3.0}), Row("stream", "c", "a", {"cpu_event_s": 2.0})) == 1.5


def test_what_is_added_between_tokens_is_measured_against_their_departure() -> None:
    left = [5_000_000_000, 5_001_000_000, 5_003_000_000]
    came = [5.010, 5.011, 5.014]  # in time, in time, 1 ms late
    tokens = [(at, b'{"delta":"%019d"}' % stamp) for at, stamp in zip(came, left, strict=True)]
    left_per_s, came_per_s, samples = spread([_turn(1, tokens=tokens)], 1000)
    told = row("rates", "", "a", [_turn(1)], samples).figures
    assert told["lag_p50_s"] == pytest.approx(0.010)
    assert told["lag_p99_s"] == pytest.approx(0.011)
    assert told["added_p50_s"] == pytest.approx(0.0, abs=1e-9)
    assert told["added_p99_s"] == pytest.approx(0.001)
    assert left_per_s == pytest.approx(2 / 0.003)
    assert came_per_s == pytest.approx(2 / 0.014)  # from where the first one left
    at_once = [(5.5, event) for _, event in tokens]
    left_per_s, came_per_s, _ = spread([_turn(1, tokens=tokens), _turn(1, tokens=at_once)], 100)
    assert left_per_s == 2 * 100  # no faster than it should
    assert came_per_s == pytest.approx(100 + 2 / 0.5)


def test_each_round_is_set_against_the_same_round_of_the_other() -> None:
    assert compared([2.0, 3.0, 1.0], [1.0, 2.0, 0.0]) == pytest.approx([1.0, 0.5])
    assert compared([], []) == []


def test_observability_off_is_what_the_documents_say(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = dict(variants("http://127.0.0.1:1/v1"))
    settings = {case: load(None, {}, {"LOOPLINE_ENDPOINT_URL": "http://h/v1", **more}) for case, more in cases.items()}
    assert list(cases) == [OFF, ON, TRACED]
    assert (settings[OFF].metrics.enabled, settings[OFF].log.level) == (False, "warning")
    assert settings[ON] == load(None, {}, {"LOOPLINE_ENDPOINT_URL": "http://h/v1"})
    assert settings[TRACED].tracing.endpoint == "http://127.0.0.1:1"
    assert settings[TRACED].metrics.enabled
    assert list(dict(variants(""))) == [OFF, ON], "an engine of the user's is sent no traces"


# --------------------------------------------------------------------------------------------------------------- report


def _report() -> Report:
    loop = {"total_s": 2.0, "client_s": 0.2, "link_s": 1.0, "proxy_s": 0.1, "upstream_s": 0.7}
    series = {"link_s": [0.5, 0.5], "proxy_s": [0.05, 0.05], "upstream_s": [0.3, 0.4]}
    rounds = {"more_cpu": [0.03, 0.04, 0.06]}
    rows = [
        Row("chain", "40 turns", "a", {"p50_last_s": 0.002}, 40, 400, series={"turn_p50_s": [0.001, 0.002]}),
        Row("chain", "40 turns", "b <i>", {"p50_last_s": 0.003, "cpu_turn_s": None}, 40, 400),
        Row("deep", "0.01 MB", "a", {"p50_s": 0.002, "cpu_turn_s": 0.001}),
        Row("deep", "4 MB", "a", {"p50_s": 0.02, "cpu_turn_s": 0.01}),
        Row("stream", "100 deltas, batched", "a", {"cpu_event_s": 7e-6}),
        Row("agent-loop", "2 calls", "a", loop, series=series),
        Row("observability", OFF, "a", {"cpu_turn_s": 0.001, "more_cpu": None}),
        Row("observability", ON, "a", {"cpu_turn_s": 0.00104, "more_cpu": 0.04}, series=rounds),
        Row("agent-loop", "", "b <i>", failure="the server closed the WebSocket"),
    ]
    return Report("2026-11-30 05:00 UTC", {"cpus": 2}, {"scenes": "chain"}, ["a", "b <i>"], rows)


def test_the_table_says_figures_ratios_failures_and_what_they_are_worth() -> None:
    text = render(_report())
    assert re.search(r"40 turns +b <i> +3\.00 ms +n/a +1\.50", text)
    assert re.search(r"metrics, log, status +a +1\.04 ms +4\.0 %", text)
    assert "b <i>: failed: the server closed the WebSocket" in text
    assert text.endswith(CAVEAT)
    assert "Interrupted" in render(replace(_report(), interrupted=True))


def test_the_json_has_every_row_in_base_units() -> None:
    document = json.loads(to_json(_report()))
    assert document["schema"] == 1
    assert len(document["rows"]) == 9
    assert document["rows"][7]["series"] == {"more_cpu": [0.03, 0.04, 0.06]}
    assert document["rows"][0]["figures"] == {"p50_last_s": 0.002}
    assert document["rows"][1]["figures"]["cpu_turn_s"] is None
    assert document["scenes"]["chain"] == {"title": SHOWN["chain"].title, "main": "p50_last_s", "less_is_better": True}


class _Page(HTMLParser):
    """What a page would load, and its tags."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [f"{tag} {name}" for name, _ in attrs if name in ("src", "href", "srcset", "data", "action")]


def test_the_page_needs_nothing_else_and_has_its_plots() -> None:
    text = page.render(_report())
    parsed = _Page()
    parsed.feed(text)
    assert parsed.loads == []
    assert not re.search(r"https?:|url\(|@import|<script|<link", text)
    assert (
        parsed.tags.count("svg") == 7
    )  # chain, deep: time and CPU, stream, the loop whole and turn by turn, observability
    assert "prefers-color-scheme:dark" in text
    assert "b &lt;i&gt;" in text
    assert "b <i>" not in text
    assert CAVEAT.splitlines()[0] in text


def test_a_plot_places_its_points_and_bars_by_their_values() -> None:
    drawn = plots.lines([plots.Line("a", [(1, 0.0), (3, 4.0), (2, 2.0)], 0)], "x", "y", str, log=False)
    assert drawn is not None
    [points] = re.findall(r'points="([^"]*)"', drawn.body)
    xs, ys = zip(*[map(float, point.split(",")) for point in points.split()], strict=True)
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.2)
    assert ys[0] - ys[1] == pytest.approx(ys[1] - ys[2], abs=0.2)
    assert ys[0] > ys[2]  # upwards is more
    barred = plots.bars([plots.Bar("a", [(1.0, 0), (2.0, 1)], ""), plots.Bar("b", [(1.5, 0)], "")], "bars")
    assert barred is not None
    widths = [float(width) for width in re.findall(r'<rect[^>]* width="([\d.]+)"', barred.body)]
    assert widths[1] == pytest.approx(2 * widths[0], abs=2)
    assert widths[2] == pytest.approx(1.5 * widths[0], abs=2)
    assert plots.lines([], "x", "y", str, log=True) is plots.bars([], "bars") is None


def test_a_picture_stands_alone_whoever_shows_it() -> None:
    made = list(everything(_report()))
    assert [drawing.name for drawing in made] == [
        "chain", "deep-history-time", "deep-history-cpu", "stream", "agent-loop", "agent-loop-1", "observability",
    ]  # fmt: skip
    for drawing in made:
        text = drawing.plot.picture("What <it> shows")
        root = ElementTree.fromstring(text)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|url\(|@import|<script|var\(", text)
        classes = {name for each in root.iter() for name in each.get("class", "").split()}
        assert "back" in classes  # a ground of its own, so that a dark page shows it as a light one does
        style = "".join(each.text or "" for each in root.iter("{http://www.w3.org/2000/svg}style"))
        assert all(f".{name}" in style for name in classes - {"value"})
        words = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
        assert words[0] == "What <it> shows"
        assert {name for name, _ in drawing.plot.legend} <= set(words)


# ------------------------------------------------------------------------------------------------------------- document


@pytest.mark.parametrize("command", re.findall(r"^loopline bench.*$", DOCS.read_text(), re.MULTILINE))
def test_every_command_of_the_document_is_one(command: str) -> None:
    bench.make_context("bench", shlex.split(command)[2:])


def test_the_document_has_every_option_scene_column_and_key() -> None:
    text = DOCS.read_text()
    options = {name for option in bench.params for name in option.opts}
    assert options == set(re.findall(r"`(--[a-z-]+)`", text.partition("## Options")[2].partition("## Files")[0]))
    for scene in SCENES:
        assert f"| `{scene}` |" in text
    columns = text.partition("## What the columns mean")[2]
    for name in {name for shown in SHOWN.values() for name in shown.columns}:
        for word in FIGURES[name].label.removesuffix(" p99").split(" p50"):
            assert word in columns, f"{FIGURES[name].label} is not explained"
    document = json.loads(to_json(_report()))
    for key in (*document, *document["rows"][0]):
        assert f"`{key}`" in text, key
