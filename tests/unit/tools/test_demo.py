"""The demonstration: its accounts, its agent, its report, and both runs on a simulated upstream."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proxy.telemetry.observer import TurnRecord
from proxy.tools import simulate
from proxy.tools.demo import DemoError, Options, Report, Run, render, run, to_json
from proxy.tools.demo.accounting import Parts, StageObserver, Stages, Timed, account
from proxy.tools.demo.agent import TOOLS, Agent, fields, tool_output
from proxy.tools.figures import percentile
from proxy.tools.simulate.script import parse
from proxy.tools.simulate.tokens import split

QUICK = Options(turns=4, rtt_ms=8, up_mbit_s=80, tool_ms=4, ttft_ms=6, tokens_per_s=2_000, answer_tokens=20)
TIMEOUT_S = 20
DOCS = Path(__file__).parents[3] / "docs" / "demo.md"


# -------------------------------------------------------------------------------------------------------- the accounts


def test_a_run_is_split_without_a_rest() -> None:
    turns = [Timed("a", 10.0, 11.0), Timed("b", 12.0, 14.0)]
    stages = {"a": Stages(10.2, 10.25, 10.75, 10.8), "b": Stages(12.5, 12.6, 13.6, 13.7)}
    parts = account(turns, stages, connect_s=0.08, total_s=5.0)
    assert parts == pytest.approx(
        (
            5.0 - 0.08 - 3.0,  # client
            0.08 + 0.2 + 0.2 + 0.5 + 0.3,  # link
            0.05 + 0.05 + 0.1 + 0.1,  # proxy
            0.5 + 1.0,  # upstream
        )
    )
    assert sum(parts) == pytest.approx(5.0)


def test_the_observer_keeps_numbers_of_answered_turns_alone() -> None:
    now = [3.0]
    observer = StageObserver(lambda: now[0])
    answered, refused = TurnRecord("r1", "http", 0.0), TurnRecord("r2", "http", 0.0)
    observer.turn_started(answered)
    now[0] = 9.0
    observer.turn_started(refused)
    answered.sent_s, answered.upstream_end_s, answered.ended_s = 4.0, 5.0, 6.0
    observer.turn_ended(answered)
    observer.turn_ended(refused)
    assert observer.stages == {"r1": Stages(3.0, 4.0, 5.0, 6.0)}


def test_percentiles_are_values_that_occurred() -> None:
    values = [float(value) for value in range(1, 22)]
    assert (percentile(values, 50), percentile(values, 95), percentile([7.0], 95)) == (11.0, 20.0, 7.0)
    with pytest.raises(ValueError, match="nothing"):
        percentile([], 50)


# ------------------------------------------------------------------------------------------------------------ the agent


def test_the_script_of_the_simulated_model_makes_every_call() -> None:
    (first,) = Agent(Options(turns=7, answer_tokens=60), "run x").history
    assert first["content"].startswith("[run x] ")
    steps = parse(first["content"]).steps
    assert len(steps) == 8
    assert {(part.kind, part.name) for step in steps[:-1] for part in step.parts} == {("call", "shell")}
    assert len(split(steps[0].parts[0].text)) == 60


def test_a_result_answers_the_calls_or_is_a_message() -> None:
    agent = Agent(Options(upstream="http://u/v1", tool_output_bytes=50), "t")
    agent.take([{"type": "message", "role": "assistant", "content": "Hm."}])
    (item,) = agent.use_tool(1)
    assert item["role"] == "user"
    assert item["content"].endswith(tool_output(1, 50))
    calls = [{"type": "function_call", "call_id": name, "status": "completed"} for name in "ab"]
    agent.take([*calls, {"type": "function_call", "call_id": "c", "status": "incomplete"}])
    assert [item.get("call_id") for item in agent.use_tool(2)] == ["a", "b"]
    assert agent.called == 1
    assert agent.use_tool(3)[0]["role"] == "user"  # calls are answered once
    assert len(agent.history) == 1 + 1 + 1 + 3 + 2 + 1


@pytest.mark.parametrize("size", [1, 50, 4_000, 32_000])
def test_tool_outputs_have_their_size_and_differ(size: int) -> None:
    outputs = {tool_output(number, size) for number in range(20)}
    assert {len(output.encode()) for output in outputs} == {size}
    assert size < 50 or len(outputs) == 20


def test_the_tools_are_those_of_a_coding_agent() -> None:
    assert 3_000 < len(json.dumps(TOOLS)) < 8_000
    assert "max_output_tokens" not in fields(Options(), "m")
    assert fields(Options(upstream="http://u/v1"), "m")["max_output_tokens"] == 64


@pytest.mark.parametrize(
    "wrong",
    [{"turns": 0}, {"turns": 5_001}, {"rtt_ms": -1}, {"up_mbit_s": -1}, {"tool_output_bytes": 0}, {"answer_tokens": 0}],
)
def test_options_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must"):
        Options(**wrong)


def test_the_page_lists_every_option_and_its_default() -> None:
    rows = re.findall(r"^\| `--([a-z-]+)` \| (.+?) \|", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    shown = {name.replace("-", "_"): default for name, default in rows}
    assert list(shown) == [field.name for field in dataclasses.fields(Options)]
    for field in dataclasses.fields(Options):
        if field.default and not isinstance(field.default, bool):
            assert shown[field.name] == (field.default if isinstance(field.default, str) else f"{field.default:g}")


# ------------------------------------------------------------------------------------------------------------- the runs


async def test_the_parts_sum_to_the_total_and_each_holds_what_it_must() -> None:
    seen: list[tuple[str, int, int]] = []
    report = await run(QUICK, lambda *progress: seen.append(progress))
    rtt_s = QUICK.rtt_s
    for measured, round_trips in ((report.http, QUICK.steps + 1), (report.websocket, QUICK.steps + 2)):
        parts = measured.parts
        assert sum(parts) == pytest.approx(measured.total_s, abs=1e-6)
        assert min(parts) > 0
        # Timers of the event loop may be early by half a millisecond.
        assert parts.client_s > QUICK.turns * (QUICK.tool_ms / 1000 - 0.0006)
        assert parts.link_s > round_trips * (rtt_s - 0.0011)
        assert parts.upstream_s > QUICK.turns * (QUICK.ttft_ms + 19 / 2) / 1000 - 0.005
        assert sum(measured.turns_s) + parts.client_s <= measured.total_s + 1e-6
        assert len(measured.turns_s) == QUICK.steps
        assert measured.called == QUICK.turns
    assert report.http.bytes_up > 1.5 * report.websocket.bytes_up
    assert report.http.bytes_up > sum(range(QUICK.turns)) * QUICK.tool_output_bytes
    assert abs(report.http.history_bytes - report.websocket.history_bytes) < 100
    assert seen == [
        *(("HTTP", done, 10) for done in range(1, 6)),
        *(("WebSocket", done, 10) for done in range(6, 11)),
    ]


@pytest.mark.parametrize("dialect", ["chat", "responses"])
async def test_before_an_upstream_of_your_own_both_runs_ask_the_same(dialect: Any) -> None:
    async with await simulate.start(simulate.Options(model="own")) as upstream:
        report = await run(replace(QUICK, upstream=upstream.url, dialect=dialect, tool_output_bytes=100))
        assert {request.dialect for request in upstream.requests} == {dialect}
        bodies = [request.body for request in upstream.requests][2:]  # after the warm-ups
    assert report.model == "own"
    by_http, by_websocket = (list(map(_said, bodies[start : start + QUICK.steps])) for start in (0, QUICK.steps))
    assert by_http == by_websocket
    # The simulated agent calls a tool at every other turn, which is what a model that rarely calls looks like.
    assert report.http.called == report.websocket.called == 2
    assert "The model called a tool in 2 of 4 turns by HTTP and in 2 by WebSocket" in render(report)


def _said(body: dict[str, Any]) -> list[tuple[str, str]]:
    """The conversation of an upstream request, without ids and without the run's tag."""
    items = body.get("messages") or body["input"]
    return [(str(item.get("role") or item["type"]), _text(item)) for item in items]


def _text(item: dict[str, Any]) -> str:
    parts = [item.get("content") or "", item.get("output", ""), item.get("arguments", "")]
    parts += [call["function"]["arguments"] for call in item.get("tool_calls", ())]
    return json.dumps(parts).replace("[run HTTP]", "").replace("[run WebSocket]", "")


@pytest.mark.parametrize(
    ("simulated", "says"),
    [
        (simulate.Options(context_tokens=2_500), "turn 3 of 5 by HTTP: .*maximum context length.*shorter loop"),
        (simulate.Options(api_key="secret"), "Unauthorized|401|key"),
        (simulate.Options(any_model=False), "gpt-nowhere"),
    ],
)
async def test_what_an_upstream_refuses_is_said_with_its_own_words(simulated: simulate.Options, says: str) -> None:
    model = "" if simulated.any_model else "gpt-nowhere"
    async with await simulate.start(simulated) as upstream:
        with pytest.raises(DemoError, match=says) as raised:
            await run(replace(QUICK, upstream=upstream.url, model=model, tool_output_bytes=2_000))
    assert str(raised.value).startswith(upstream.url)
    assert "\n" not in str(raised.value)


# ----------------------------------------------------------------------------------------------------------- the report

HTTP = Run(1_122_806, 718_746, 94_374, 20, [0.159] * 19 + [0.178] * 2, 3.754, Parts(0.421, 1.388, 0.0364, 1.9086))
SOCKET = Run(214_700, 645_200, 94_374, 20, [0.14] * 21, 3.378, Parts(0.417, 1.052, 0.0214, 1.8876))
TABLE = """\
Simulated link: 40 ms round trip, 20 Mbit/s up, 100 Mbit/s down.
Upstream: simulated, 30 ms to the first token, then 1,000 tokens/s, 60 tokens an answer.
Agent loop: 20 tool calls of 16.0 kB, 21 turns, 94.4 kB of history at the end.

                       HTTP, full history        WebSocket, deltas        saved
bytes sent up                  1,122.8 kB                 214.7 kB         81 %  5.2x
bytes received                   718.7 kB                 645.2 kB         10 %  1.1x
time per turn, median              159 ms                   140 ms         12 %  1.1x
time per turn, p95                 178 ms                   140 ms         21 %  1.3x
total                            3,754 ms                 3,378 ms         10 %  1.1x
  client (its tools)               421 ms  11 %             417 ms  12 %    1 %  1.0x
  link                           1,388 ms  37 %           1,052 ms  31 %   24 %  1.3x
  proxy (Loopline)                36.4 ms   1 %            21.4 ms   1 %   41 %  1.7x
  upstream                       1,909 ms  51 %           1,888 ms  56 %    1 %  1.0x

The link is simulated. Connecting is part of its time: one round trip by HTTP, two by WebSocket
(TCP's handshake, then the upgrade). TLS, slow start and loss are not simulated; nothing is compressed."""


def test_the_table() -> None:
    assert render(Report(Options(), "simulated", HTTP, SOCKET)) == TABLE


def test_the_table_of_extremes_is_plain_and_narrow() -> None:
    options = Options(upstream="http://127.0.0.1:8000/v1", rtt_ms=0.5, up_mbit_s=0, turns=5_000)
    huge = replace(HTTP, bytes_up=4 * 10**12, total_s=9_999.0, parts=Parts(0.0, 9_998.0, 0.5, 0.5))
    text = render(Report(options, "m", huge, replace(SOCKET, parts=Parts(0, 0, 0, 3.378))))
    assert "Simulated link: 0.5 ms round trip, no limit up" in text
    assert "http://127.0.0.1:8000/v1, model m, at most 64 tokens an answer." in text
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= 104
    without = replace(Options(), tokens_per_s=0)
    assert "then all at once" in render(Report(without, "simulated", HTTP, SOCKET))


def test_the_json_says_the_same() -> None:
    document = json.loads(to_json(Report(Options(), "simulated", HTTP, SOCKET)))
    assert document["link_is_simulated"] is True
    assert document["upstream_is_simulated"] is True
    assert document["options"]["rtt_ms"] == 40
    assert document["http"]["bytes_up"] == 1_122_806
    websocket = document["websocket"]
    parts = [websocket[f"{part}_s"] for part in ("client", "link", "proxy", "upstream")]
    assert sum(parts) == pytest.approx(websocket["total_s"])
    assert (websocket["turn_median_s"], len(websocket["turns_s"])) == (0.14, 21)


# ---------------------------------------------------------------------------------------------------------- the command


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "proxy", "demo", *arguments]


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["--upstream", "http://127.0.0.1:1/v1"], 1, "http://127.0.0.1:1/v1: The upstream refused the connection."),
        (["--upstream", "nonsense"], 2, "endpoints[0].url from flag --upstream: 'nonsense' is not allowed"),
    ],
)
def test_errors_are_one_line(arguments: list[str], status: int, says: str) -> None:
    done = subprocess.run(command(*arguments), capture_output=True, text=True, timeout=TIMEOUT_S)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.startswith(f"loopline: {says}")
    assert done.stderr.count("\n") == 1


def test_the_report_is_alone_on_stdout() -> None:
    quick = ("--turns", "2", "--rtt-ms", "2", "--ttft-ms", "1", "--tokens-per-s", "0", "--tool-ms", "0")
    done = subprocess.run(command(*quick, "--json"), capture_output=True, text=True, timeout=TIMEOUT_S)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["options"]["turns"] == 2


def test_a_terminal_sees_progress_and_an_interrupt_leaves_cleanly() -> None:
    terminal, theirs = os.openpty()
    shown, begun = bytearray(), threading.Event()

    def watch() -> None:
        """A terminal goes on showing: one that does not would stop the program in its write."""
        with contextlib.suppress(OSError):  # how Linux says that the other end is closed
            while data := os.read(terminal, 4096):
                shown.extend(data)
                if b"HTTP" in shown:
                    begun.set()

    with subprocess.Popen(command("--turns", "1000"), stdout=subprocess.PIPE, stderr=theirs) as process:
        os.close(theirs)
        watching = threading.Thread(target=watch)
        watching.start()
        assert begun.wait(TIMEOUT_S)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=TIMEOUT_S)
        watching.join(TIMEOUT_S)
    os.close(terminal)
    assert (process.returncode, out) == (130, b"")
    assert b"/2002" in shown
    assert b"Traceback" not in shown
