"""What is told of the agent loop by each way of sending."""

from __future__ import annotations

from proxy.tools.bench.rows import Report, Row
from tests.bench.loop import DIRECT, RESENT, SOCKET, _median, pictures, stages, text


def _loop(who: str, total_s: float, link_s: float, up_bytes: float = 1000.0) -> Row:
    series = {"link_s": [link_s / 2] * 2, "proxy_s": [0.01] * 2, "upstream_s": [0.2] * 2}
    figures = {"total_s": total_s, "client_s": 0.1, "link_s": link_s, "proxy_s": 0.0, "upstream_s": 0.4}
    return Row("agent-loop", "", who, {**figures, "up_bytes": up_bytes}, series=series)


def _report(*rows: Row) -> Report:
    return Report("today", {"cpus": 2}, {}, [row.contestant for row in rows], list(rows))


def test_what_the_websocket_saves_is_told_beside_each_other_way() -> None:
    table = stages(_report(_loop(SOCKET, 0.6, 0.1), _loop(RESENT, 1.2, 0.7, 50_000), _loop(DIRECT, 0.5, 0.8)))
    assert table[0] == f"| | {SOCKET} | {RESENT} | {DIRECT} |"
    assert "| total, ms | 600 | 1,200 (−50 %) | 500 (+20 %) |" in table
    assert "| link, ms | 100 | 700 (−86 %) | 800 (−88 %) |" in table
    assert "| Loopline, ms | 0.0 | 0.0 | 0.0 |" in table
    assert "| sent up, kB | 1.0 | 50.0 (−98 %) | 1.0 (+0 %) |" in table


def test_the_round_with_the_median_total_is_told_and_a_failure_before_it() -> None:
    rounds = [_loop(SOCKET, total_s, 0.1) for total_s in (0.9, 0.6, 0.7)]
    assert _median(rounds) is rounds[2]
    failed = Row("agent-loop", "", SOCKET, failure="closed")
    assert _median([*rounds, failed]) is failed
    told = text(_report(failed), _report(_loop(SOCKET, 0.6, 0.1)))
    assert f"Failed: {SOCKET}, agent-loop: closed." in told


def test_the_pictures_that_the_document_shows_are_written() -> None:
    link = _report(_loop(SOCKET, 0.6, 0.1), _loop(RESENT, 1.2, 0.7), _loop(DIRECT, 0.5, 0.8))
    told = text(link, link)
    assert [f"](images/{name})" in told for name in pictures(link)] == [True] * 3
