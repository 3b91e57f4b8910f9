"""Lines are written beside the turns, and hold nothing that a client could not show to everybody."""

from __future__ import annotations

import io
import logging
import threading

import pytest
import structlog

from proxy.telemetry import logging as log_module
from proxy.telemetry.logging import Log, http_logger
from proxy.telemetry.observer import TurnRecord
from proxy.telemetry.writer import Writer


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
