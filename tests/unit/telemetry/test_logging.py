"""Lines are written beside the turns, and hold nothing that a client could not show to everybody."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
import threading
from datetime import datetime
from pathlib import Path

import pytest
import structlog

from proxy.telemetry import logging as log_module
from proxy.telemetry.logging import Log, http_logger
from proxy.telemetry.observer import PassedRecord, SessionRecord, TurnRecord
from proxy.telemetry.writer import Writer

ROOT = Path(__file__).parents[3]


class SlowStream(io.BytesIO):
    """A stream that nobody reads until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.released = threading.Event()
        self.written = threading.Event()

    def write(self, data: object) -> int:
        self.released.wait(10)
        count = super().write(data)  # type: ignore[arg-type]
        if b"last" in self.getvalue():
            self.written.set()
        return count


def test_a_stream_that_nobody_reads_holds_nobody_up_and_what_is_lost_is_said() -> None:
    stream = SlowStream()
    writer = Writer(stream, max_lines=10)
    for number in range(1000):
        writer.write(f"line {number}")
    stream.released.set()
    writer.flush()
    writer.write("last")
    assert stream.written.wait(10)
    lines = stream.getvalue().decode().splitlines()
    dropped = sum(int(line.split()[0]) for line in lines if "dropped" in line)
    assert dropped > 0
    assert dropped + len([line for line in lines if line.startswith("line ")]) == 1000


def test_a_closed_stream_is_survived() -> None:
    stream = io.BytesIO()
    stream.close()
    writer = Writer(stream)
    writer.write("line")
    writer.flush()


def test_a_header_that_is_no_text_costs_no_line() -> None:
    with structlog.testing.capture_logs() as lines:
        Log().turn_ended(TurnRecord("resp", "http", 0.0, request_id="a\udcff", ended_s=1.0))
    assert lines[0]["total_s"] == 1.0
    assert "a?" in log_module._to_json(dict(lines[0]))


def test_unreadable_requests_are_named_and_not_quoted() -> None:
    with structlog.testing.capture_logs() as lines:
        try:
            raise ValueError("Bearer sk-secret")
        except ValueError:
            http_logger().exception("Error handling request: Bearer sk-secret")
    assert lines == [{"event": "unreadable request", "kind": "ValueError", "log_level": "debug"}]


def test_the_http_logger_writes_nothing_itself(capfd: pytest.CaptureFixture[str]) -> None:
    http_logger().error("Bearer sk-secret")
    assert "sk-secret" not in "".join(capfd.readouterr())
    assert not logging.getLogger("loopline.http").propagate


# --- Lines of turns --------------------------------------------------------------------------------------------------


def turn(**members: object) -> TurnRecord:
    """A turn that was answered."""
    record = TurnRecord("resp", "http", 1.0, outcome="completed", ended_s=2.0)
    for name, value in members.items():
        setattr(record, name, value)
    return record


def lines(log: io.BytesIO) -> list[dict[str, object]]:
    """What was logged."""
    structlog.get_config()["logger_factory"].flush()
    return [json.loads(line) for line in log.getvalue().splitlines()]


def test_lines_that_go_past_structlog_say_what_it_would_have_said(log: io.BytesIO) -> None:
    records = (turn(session="s", left_out=(("tool", "x"),)), SessionRecord("s", 1.0, ended_s=3.0))
    passed = PassedRecord("GET", "/v1/files", 1.0, status=200, ended_s=2.0)
    direct, plain = Log(), Log()
    plain._direct = None
    for observer in (direct, plain):
        observer.turn_ended(records[0])
        observer.session_ended(records[1])
        observer.passed(passed)
    said = lines(log)
    assert len(said) == 6
    stamps = [str(line.pop("timestamp")) for line in said]
    assert all(datetime.fromisoformat(stamp).tzinfo is not None and stamp.endswith("Z") for stamp in stamps)
    assert stamps == sorted(stamps)
    assert said[:3] == said[3:]
    assert [line["level"] for line in said[:3]] == ["warning", "info", "info"]
    assert not any(value is None for line in said for value in line.values())


def test_what_is_left_out_is_a_warning_once_a_session_and_information_after_that(log: io.BytesIO) -> None:
    observer = Log()
    for session, names in (("a", "x"), ("a", "x"), ("b", "x"), ("a", "y"), ("a", "x")):
        observer.turn_ended(turn(session=session, left_out=(("tool", names),)))
    assert [line["level"] for line in lines(log)] == ["warning", "info", "warning", "warning", "info"]


def test_a_level_that_is_not_written_costs_no_line(log: io.BytesIO) -> None:
    observer = Log()
    assert observer._direct is not None
    observer._direct._level = logging.WARNING
    observer.turn_ended(turn())
    observer.turn_ended(turn(left_out=(("tool", "x"),)))
    assert [line["level"] for line in lines(log)] == ["warning"]


def test_the_parts_of_a_line_add_up_to_its_total(log: io.BytesIO) -> None:
    Log().turn_ended(turn(started_s=1.1, sent_s=1.3, upstream_end_s=1.8))
    [line] = lines(log)
    parts = ("parse_s", "queued_s", "chain_s", "prepare_s", "translate_s", "upstream_s", "store_s", "send_s")
    assert sum(float(str(line[part])) for part in parts) == pytest.approx(line["total_s"])


def test_lines_that_gather_are_written_in_their_order_and_an_error_waits_for_nobody() -> None:
    stream, expected = Gathered(3), [b"one", b"two", b"three"]
    writer = Writer(stream)
    writer.write("one")
    writer.write(b"two")
    writer.write_now("three")
    assert stream.full.wait(10)
    assert stream.getvalue().splitlines() == expected
    assert stream.writes <= 3


def test_a_thousand_lines_are_a_few_writes() -> None:
    stream = Gathered(1000)
    writer = Writer(stream)
    for number in range(1000):
        writer.write(b"%d" % number)
    assert stream.full.wait(10)
    assert stream.getvalue().splitlines() == [b"%d" % number for number in range(1000)]
    assert stream.writes < 100


class Gathered(io.BytesIO):
    """Counts writes; `full` is set once so many lines have come."""

    def __init__(self, lines: int) -> None:
        super().__init__()
        self.writes = 0
        self.full = threading.Event()
        self._lines = lines

    def write(self, data: object) -> int:
        self.writes += 1
        count = super().write(data)  # type: ignore[arg-type]
        if self.getvalue().count(b"\n") >= self._lines:
            self.full.set()
        return count


@pytest.mark.parametrize("end", ["pass", "raise SystemExit(3)", "raise RuntimeError('crash')"])
def test_nothing_is_lost_when_the_process_ends(end: str) -> None:
    program = (
        "from proxy.telemetry.logging import Log, configure\n"
        "from proxy.telemetry.observer import TurnRecord\n"
        "configure('json', 'info')\n"
        "log = Log()\n"
        "for number in range(500):\n"
        "    log.turn_ended(TurnRecord(f'resp_{number}', 'http', 1.0, ended_s=2.0))\n"
        f"{end}\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, cwd=ROOT, timeout=30)
    told = [json.loads(line)["response"] for line in run.stderr.splitlines() if line.startswith(b"{")]
    assert told == [f"resp_{number}" for number in range(500)]
