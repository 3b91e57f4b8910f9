"""`loopline bench` as a user runs it: what it measures adds up, and it leaves no process behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from proxy.tools import simulate
from proxy.tools.bench.answers import Wanted
from proxy.tools.bench.contestants import DELTAS, RESEND, Contestant
from proxy.tools.bench.meter import Meter
from proxy.tools.bench.plan import Plan, quick
from proxy.tools.bench.scenes.observability import OFF, ON, TRACED
from proxy.tools.bench.servers import own_upstream
from proxy.tools.bench.turns import BenchError, Fields, prompt
from tests.program import ROOT, Program, environment, free_port, loopline

LINUX = sys.platform == "linux"
pytestmark = pytest.mark.slow
FIRST_EVENTS, LAST_EVENTS = 4, 4  # created, in progress, item, part; text, part, item, completed


async def _bench(*arguments: str, folder: Path) -> tuple[Program, dict[str, object]]:
    file = folder / "bench.json"
    async with loopline("bench", *arguments, "--json", str(file)) as program:
        await program.ended(50)
    return program, json.loads(file.read_text()) if file.exists() else {}


async def test_a_quick_run_measures_both_ways_and_its_counts_add_up(tmp_path: Path) -> None:
    html = tmp_path / "bench.html"
    program, told = await _bench("--quick", "--scenes", "chain,stream", "--html", str(html), folder=tmp_path)
    assert program.err.count("Traceback") == 0
    assert told["contestants"] == ["Loopline", "HTTP, full resend"]
    rows = {(row["scene"], row["case"], row["contestant"]): row for row in _rows(told)}
    assert not any(row["failure"] for row in rows.values())
    chain, resent = rows["chain", "10 turns", "Loopline"], rows["chain", "10 turns", "HTTP, full resend"]
    assert chain["turns"] == resent["turns"] == len(chain["series"]["turn_p50_s"]) == 10
    assert chain["events"] == 10 * (FIRST_EVENTS + 10 + LAST_EVENTS)
    # Ten turns send their text once by deltas, and 1 + 2 + … + 10 = 55 times by resending.
    assert chain["bytes_up"] == pytest.approx(10 * 4300, rel=0.1)
    assert resent["bytes_up"] > 5 * chain["bytes_up"]
    for how, turns in (("batched", 4), ("one a write", 4)):
        stream = rows["stream", f"100 deltas, {how}", "Loopline"]
        assert (stream["turns"], stream["events"]) == (turns, turns * (FIRST_EVENTS + 100 + LAST_EVENTS))
        assert (stream["figures"]["cpu_event_s"] is not None) == LINUX
        assert rows["stream", f"100 deltas, {how}", "HTTP, full resend"]["figures"]["cpu_event_s"] is None
    assert "chain: a chain of turns" in program.out
    assert "Compare within this run" in program.out
    assert html.read_text().count("<svg") == (2 if LINUX else 1)


async def test_observability_is_measured_against_the_same_server_without_it(tmp_path: Path) -> None:
    html = tmp_path / "bench.html"
    program, told = await _bench("--quick", "--scenes", "observability", "--html", str(html), folder=tmp_path)
    assert program.err.count("Traceback") == 0
    rows = {row["case"]: row for row in _rows(told)}
    assert list(rows) == [OFF, ON, TRACED], "and nothing of the full resend"
    plan = quick(Plan())
    for case, row in rows.items():
        assert not row["failure"]
        assert row["turns"] == plan.observed_starts * plan.observed_rounds * plan.observed_turns
        assert (row["figures"]["cpu_turn_s"] is not None) == LINUX
        if LINUX and case != OFF:
            rounds = row["series"]["more_cpu"]
            assert len(rounds) == plan.observed_starts * plan.observed_rounds
            assert row["figures"]["more_cpu"] == median(rounds)
    assert rows[OFF]["figures"]["more_cpu"] is None
    assert "more than off" in program.out
    assert html.read_text().count("<svg") == LINUX


def _rows(told: dict[str, object]) -> Sequence[dict[str, Any]]:
    rows = told["rows"]
    assert isinstance(rows, list)
    return rows


@pytest.mark.skipif(not LINUX, reason="children of a process are read from /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
async def test_an_interrupted_run_tells_what_it_has_and_leaves_no_process(number: signal.Signals) -> None:
    async with loopline("bench", "--scenes", "chain,rates") as program:
        await program.prints("rates · Loopline", 40)
        started = [pid for pid in Meter((program.pid,))._tree() if pid != program.pid]
        assert len(started) == 2  # the upstream and Loopline
        program.signal(number)
        assert await program.ended() == 130
    assert not [pid for pid in started if os.path.exists(f"/proc/{pid}")]
    assert "Interrupted" in program.out
    assert "40 turns" in program.out
    assert "Traceback" not in program.err


async def test_every_scene_runs_on_an_upstream_of_the_users() -> None:
    """A server that answers in its own words: no scene counts on the bench's own upstream."""
    async with await simulate.start(simulate.Options(model="theirs")) as upstream:
        scenes = "chain,deep,stream,many,idle,agent-loop,observability"
        arguments = ("--scenes", scenes, "--upstream", upstream.url, "--quick", "--rtt-ms", "2", "--sockets", "4")
        async with loopline("bench", *arguments) as program:
            assert await program.ended(50) == 0, program.out + program.err
    for scene in scenes.split(","):
        assert f"\n{scene}: " in program.out


async def test_a_server_that_runs_is_measured_beside_another(tmp_path: Path) -> None:
    async with await simulate.start(simulate.Options(model="theirs")) as upstream:
        served = ("serve", "--port", "0", "--upstream", upstream.url, "--dialect", "chat")
        async with loopline(*served) as program:
            await program.prints("upstream")
            target, versus = f"{program.url},{program.pid}", f"again={program.url}"
            run = ("--target", target, "--versus", versus, "--scenes", "chain,agent-loop", "--quick", "--rtt-ms", "2")
            bench, told = await _bench(*run, folder=tmp_path)
    assert not [row["failure"] for row in _rows(told) if row["failure"]], bench.out
    assert told["contestants"] == ["Loopline", "again", "HTTP, full resend"]
    cpu = {row["contestant"]: row["figures"]["cpu_turn_s"] for row in _rows(told) if row["scene"] == "chain"}
    assert (cpu["Loopline"] is not None) == LINUX
    assert cpu["again"] is None
    notes = {row["contestant"]: row["note"] for row in _rows(told) if row["scene"] == "agent-loop"}
    assert notes["again"] == "server and upstream together"


@pytest.mark.parametrize(
    ("arguments", "says", "code"),
    [
        (("--scenes", "chain,nothing"), "there is no scene 'nothing': choose from idle, chain", 2),
        (("--upstream", "http://127.0.0.1:{free}/v1"), "does not answer", 1),
        (("--upstream", "{upstream}", "--model", "gone"), "has no model 'gone'; it has theirs", 1),
        (("--versus", "http://127.0.0.1:1/v1"), "is not NAME=URL[,PID]", 2),
        (("--history-kb", "9"), "two numbers like 200..1000", 2),
        (("--scenes", "chain", "--versus", "other=http://127.0.0.1:{free}/v1"), "other: no WebSocket at", 1),
    ],
)
async def test_what_cannot_work_is_said_in_one_line(arguments: tuple[str, ...], says: str, code: int) -> None:
    async with await simulate.start(simulate.Options(model="theirs")) as upstream:
        named = [part.format(free=free_port(), upstream=upstream.url) for part in arguments]
        async with loopline("bench", "--quick", *named) as program:
            assert await program.ended() == code
    assert says in " ".join(program.err.split())
    assert "Traceback" not in program.err


async def test_an_upstream_with_a_call_and_a_pace_answers_both_dialects(tmp_path: Path) -> None:
    wanted = Wanted(deltas=4, gap_us=1000, burst=1, ttft_ms=1, call=1)
    async with own_upstream(tmp_path) as upstream:
        who = Contestant("direct", upstream.url, RESEND, Meter(), Fields("bench"))
        async with who.lane() as lane:
            first = await lane.turn([prompt("go", wanted)])
            second = await lane.turn([prompt("on", Wanted(deltas=2))])
        assert first.call.startswith("call_")
        assert (second.call, second.events) == ("", FIRST_EVENTS + 2 + LAST_EVENTS)
        chat = Contestant("direct", upstream.url, RESEND, Meter(), Fields("bench"), dialect="chat")
        async with chat.lane() as lane:
            assert (await lane.turn([prompt("go", Wanted(deltas=2, burst=1))])).events == 1 + 2 + 2


async def test_a_server_that_speaks_no_websocket_is_a_plain_failure(tmp_path: Path) -> None:
    async with own_upstream(tmp_path) as upstream:
        with pytest.raises(BenchError, match="refused the WebSocket: 404 Not Found"):
            await Contestant("no", upstream.url, DELTAS, Meter(), Fields("bench")).socket()


@pytest.mark.skipif(not LINUX, reason="only Linux tells CPU time by thread")
async def test_the_meter_counts_a_process_and_its_children() -> None:
    work = (  # by a thread that has ended
        "import threading, time; thread = threading.Thread(target=lambda: sum(range(3_000_000))); thread.start(); "
        "thread.join(); print(time.process_time()); input()"
    )
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {work!r}])"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", script), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    said_s = float(await process.stdout.readline())  # the child has done its sum, and waits
    meter = Meter((process.pid,))
    both, rss = meter.cpu_s(), meter.rss_bytes()
    children = [pid for pid in meter._tree() if pid != process.pid]
    alone = Meter(children).cpu_s()
    await process.communicate(b"\n")
    assert len(children) == 1
    assert both is not None
    assert alone is not None
    assert both > alone >= said_s
    assert rss is not None
    assert rss > 4_000_000
    assert meter.cpu_s() == 0.0  # it has ended
    assert not Meter().available
    assert Meter().cpu_s() is None


async def test_the_agent_loop_is_told_by_each_way_of_sending() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.bench.loop", "--quick", "-"),
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        cwd=ROOT, env=environment(),
    )  # fmt: skip
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    told = out.decode()
    assert "Failed" not in told
    assert told.count("| upstream, ms |") == 2
    [sent, *_] = [line for line in told.splitlines() if line.startswith("| sent up, kB |")]
    assert "(−7" in sent  # of the history, every turn sends a part instead of all


async def test_the_floors_and_loopline_stand_side_by_side_in_one_table(tmp_path: Path) -> None:
    """Peers from a package index are left out: a test must not need one."""
    file = tmp_path / "peers.json"
    arguments = ("--quick", "--only", "relay,loopline", "--scenes", "chain,stream", "--json", str(file), "-")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.bench.peers", *arguments),
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        cwd=ROOT, env=environment(),
    )  # fmt: skip
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    table = out.decode()
    assert "| | bare relay, chat | Loopline, chat |" in table
    assert "| | bare relay, responses | Loopline, responses |" in table
    assert "Failed" not in table
    assert "not measured" not in table
    rows = _rows(json.loads(file.read_text()))
    events = {row["contestant"]: row["events"] for row in rows if row["case"] == "100 deltas, batched"}
    # The chat floor ends a part without an event of its own.
    rounds, turns = 2, 4
    assert events["bare relay, chat"] == events["Loopline, chat"] - rounds * turns
    both = events["bare relay, responses"], events["Loopline, responses"]
    assert both == (rounds * turns * (FIRST_EVENTS + 100 + LAST_EVENTS),) * 2
