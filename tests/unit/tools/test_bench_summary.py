"""The table of `make bench-peers`."""

from __future__ import annotations

import pytest

from proxy.tools.bench.rows import Report, Row
from tests.bench.peers import AGENTIC, LITELLM, pictures
from tests.bench.summary import BEGIN, END, between, markdown


def _chain(who: str, first_s: float, cpu_s: float) -> Row:
    return Row("chain", "40 turns", who, {"p50_first_s": first_s, "p50_last_s": 2 * first_s, "cpu_turn_s": cpu_s})


def test_each_server_is_told_against_the_floor_of_its_dialect() -> None:
    names = ["bare relay, chat", "Loopline, chat", "bare relay, responses", "Loopline, responses"]
    rows = [_chain(name, 0.001 * n, 0.0005 * n) for n, name in enumerate(names, 1)]
    rows.append(Row("many", "", "Loopline, chat", failure="closed"))
    table = markdown(Report("today", {"cpus": 2}, {}, names, rows, ["Peer was not measured: no pip"])).splitlines()
    assert "| | bare relay, chat | Loopline, chat |" in table
    assert "| CPU a turn, ms | 0.50 | 1.00 (2.0) |" in table
    assert "| CPU a turn, ms | 1.50 | 2.00 (1.3) |" in table
    assert "| chain, p50 at turns 1-3 / last 3, ms | 1.0 / 2.0 | 2.0 / 4.0 (2.0 / 2.0) |" in table
    assert "Peer was not measured: no pip." in table
    assert "Failed: Loopline, chat, many: closed." in table


def test_where_a_server_saturates_is_told_by_its_streams() -> None:
    rows = [
        Row("rates", "1 stream, 4,000/s", "bare relay", {"lag_p50_s": 0.0002, "lag_p99_s": 0.001}),
        Row("rates", "1 stream", "bare relay", {"lag_p99_s": 0.002}),
        Row("rates", "40 streams", "bare relay", {"lag_p99_s": 0.01}),
        Row("rates", "1 stream", "Loopline", {"lag_p99_s": 0.003}),
        Row("rates", "40 streams", "Loopline", {"lag_p99_s": 0.5}, note="saturated"),
        Row("rates", "80 streams", "Loopline", {"lag_p99_s": 0.5}),  # of a better round
    ]
    table = markdown(Report("today", {}, {}, ["bare relay", "Loopline"], rows)).splitlines()
    assert "| streams of 1,000 tokens/s kept up with | 40 | 1; 40 no more (saturated) |" in table
    [behind] = [line for line in table if line.startswith("| 4,000 tokens/s")]
    assert behind.endswith("| 0.20 / 1.00 | – |")


def test_pictures_are_of_those_whose_lines_can_be_told_apart() -> None:
    names = ["bare relay, chat", "LiteLLM 1.110.2, chat bridge"]
    rows = [
        Row("deep", case, name, {"p50_s": 0.1, "cpu_turn_s": 0.05})
        for name in names
        for case in ("1 MB", "16 MB", "10 turns deep", "1000 turns deep")
    ]
    made = dict(pictures(Report("today", {}, {}, names, rows)))
    assert list(made) == ["bench-deep-history-cpu.svg", "bench-deep-depth-cpu.svg"]
    for picture in made.values():
        assert "bare relay, chat" in picture
        assert "LiteLLM" not in picture


def test_the_table_takes_the_place_of_the_one_before() -> None:
    document = f"head\n{BEGIN}\nold\n{END}\ntail\n"
    once = between(document, "new")
    assert once == f"head\n{BEGIN}\n\nnew\n\n{END}\ntail\n"
    assert between(once, "new") == once
    with pytest.raises(ValueError, match="no markers"):
        between("head", "new")


def test_peers_are_pinned_exactly() -> None:
    assert AGENTIC == ("agentic-api==0.9.0",)
    assert LITELLM[0] == "litellm==1.110.2"
