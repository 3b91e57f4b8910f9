"""The table of `make bench-peers`."""

from __future__ import annotations

import pytest

from proxy.tools.bench.rows import Report, Row
from tests.bench.peers import AGENTIC, LITELLM
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
