"""Logs: one line a session, one a turn, with ids, sizes and times; never content, headers or credentials."""

from __future__ import annotations

import atexit
import logging
import queue
import sys
import threading
import traceback
from collections.abc import MutableMapping
from typing import Any, BinaryIO

import structlog

from proxy.errors import kind_of
from proxy.telemetry.observer import PassedRecord, SessionRecord, TurnRecord
from proxy.wire.codec import encode

# How long the end of the process waits for lines still to be written.
_FLUSH_S = 1.0
_MOST_CAUSES = 8
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def configure(log_format: str, level: str) -> None:
    """Set up logging for the process. `log_format` is json, console, or auto (console on a terminal)."""
    console = log_format == "console" or (log_format == "auto" and sys.stderr.isatty())
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _without_nones,
            structlog.dev.ConsoleRenderer() if console else structlog.processors.JSONRenderer(serializer=_to_json),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=_LoggerFactory(_Writer(sys.stderr.buffer)),
        cache_logger_on_first_use=True,
    )


def _to_json(event: dict[str, Any], **_: Any) -> str:
    try:
        return encode(event).decode()
    except UnicodeEncodeError:
        # A header may hold bytes that are no UTF-8; the line is worth more than those.
        return encode({name: _printable(value) for name, value in event.items()}).decode()


def _printable(value: Any) -> Any:
    return value.encode(errors="replace").decode() if isinstance(value, str) else value


def _without_nones(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in event.items() if value is not None}


class _Writer:
    """Writes lines in a thread of its own: whoever reads our stderr slowly must not hold up a turn.

    What does not fit into the bounded queue is dropped, and how much is said once there is room again.
    """

    def __init__(self, stream: BinaryIO, max_lines: int = 10_000) -> None:
        self._stream = stream
        self._lines: queue.Queue[str] = queue.Queue(max_lines)
        self._dropped = 0
        threading.Thread(target=self._run, name="log", daemon=True).start()
        atexit.register(self.flush)

    def write(self, line: str) -> None:
        """Put a line in the queue."""
        try:
            if self._dropped:
                self._lines.put_nowait(f"{self._dropped} log lines were dropped: stderr was not read fast enough")
                self._dropped = 0
            self._lines.put_nowait(line)
        except queue.Full:
            self._dropped += 1

    def _run(self) -> None:
        while True:
            line = self._lines.get()
            try:
                self._stream.write(line.encode(errors="replace") + b"\n")
                self._stream.flush()
            except (OSError, ValueError):
                pass  # a closed stderr has no reader; the server goes on
            finally:
                self._lines.task_done()

    def flush(self) -> None:
        """Give the thread a moment for what is left."""
        done = threading.Thread(target=self._lines.join, daemon=True)
        done.start()
        done.join(_FLUSH_S)


class _Logger:
    """What structlog hands finished lines to."""

    def __init__(self, writer: _Writer) -> None:
        self.msg = self.debug = self.info = self.warning = self.error = writer.write


class _LoggerFactory:
    def __init__(self, writer: _Writer) -> None:
        self._logger = _Logger(writer)
        self.flush = writer.flush

    def __call__(self, *_: Any) -> _Logger:
        return self._logger


class HttpErrors(logging.Handler):
    """What aiohttp says of requests that it could not read, without the request.

    Its own lines quote headers and bodies. A client can provoke as many as it likes, so they are for debugging.
    """

    def emit(self, record: logging.LogRecord) -> None:
        kind = record.exc_info[0] if record.exc_info else None
        structlog.get_logger().debug("unreadable request", kind=kind.__name__ if kind else None)


def http_logger() -> logging.Logger:
    """The logger to give to aiohttp's server."""
    logger = logging.getLogger("loopline.http")
    logger.propagate = False
    logger.handlers = [HttpErrors()]
    return logger


class Log:
    """An `Observer` that writes lines."""

    def __init__(self) -> None:
        self._log = structlog.get_logger()

    def session_opened(self, record: SessionRecord) -> None:
        self._log.debug("session opened", session=record.id)

    def session_ended(self, record: SessionRecord) -> None:
        self._log.info(
            "session",
            session=record.id,
            client=record.client or None,
            turns=record.turns,
            errors=record.errors,
            bytes_in=record.bytes_in,
            bytes_out=record.bytes_out,
            close_code=record.close_code,
            reason=record.reason or None,
            duration_s=_since(record.opened_s, record.ended_s),
        )

    def turn_started(self, record: TurnRecord) -> None:
        pass

    def turn_ended(self, record: TurnRecord) -> None:
        say = self._log.warning if record.left_out else self._log.info
        say(
            "turn",
            response=record.response,
            parent=record.parent[:64] or None,
            session=record.session or None,
            request_id=record.request_id[:128] or None,
            client=record.client or None,
            transport=record.transport,
            model=record.model[:128] or None,
            upstream_model=record.upstream_model[:128] or None,
            endpoint=record.endpoint or None,
            dialect=record.dialect or None,
            outcome=record.outcome,
            error=record.error or None,
            cause=record.cause[:300] or None,
            warm_up=record.warm_up or None,
            attempts=record.attempts,
            items_in=record.items_in,
            items_out=record.items_out,
            bytes_in=record.bytes_in,
            bytes_history=record.bytes_history,
            bytes_upstream=record.bytes_upstream,
            bytes_out=record.bytes_out,
            events_out=record.events_out,
            left_out=[f"{what} {name[:64]}" for what, name in record.left_out[:32]] or None,
            tokens_in=record.tokens_in,
            tokens_cached=record.tokens_cached,
            tokens_out=record.tokens_out,
            queued_s=_since(record.received_s, record.started_s),
            first_token_s=_since(record.received_s, record.first_output_s),
            total_s=_since(record.received_s, record.ended_s),
        )

    def passed(self, record: PassedRecord) -> None:
        self._log.info(
            "passed",
            method=record.method,
            path=record.path[:128],
            request_id=record.request_id[:128] or None,
            client=record.client or None,
            endpoint=record.endpoint or None,
            outcome=record.outcome,
            status=record.status or None,
            error=record.error or None,
            bytes_in=record.bytes_in,
            bytes_out=record.bytes_out,
            total_s=_since(record.received_s, record.ended_s),
        )

    def upstream_failed(self, endpoint: str, kind: str) -> None:
        pass  # the turn's line says it

    def unreadable(self, why: str) -> None:
        self._log.debug("unreadable request", kind=why)  # a client can provoke as many as it likes

    def crashed(self, where: str, error: BaseException) -> None:
        self._log.error("crashed", where=where, kind=kind_of(error), traceback=_lines(error))


def _lines(error: BaseException) -> str:
    """Where it happened, the causes first. Without locals and without what the exceptions say: users said it before."""
    parts: list[str] = []
    each: BaseException | None = error
    while each is not None and len(parts) < _MOST_CAUSES:
        parts.append("".join(traceback.format_tb(each.__traceback__)) + kind_of(each))
        each = each.__cause__ or each.__context__
    return "\n".join(reversed(parts))


def _since(start_s: float | None, end_s: float | None) -> float | None:
    return None if start_s is None or end_s is None else round(end_s - start_s, 6)
