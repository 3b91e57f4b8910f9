"""Logs: one line a session, one a turn, with ids, sizes and times; never content, headers or credentials."""

from __future__ import annotations

import logging
import sys
import time
import traceback
from collections.abc import Callable, MutableMapping
from typing import Any

import structlog
from cachetools import LRUCache

from proxy.errors import kind_of
from proxy.telemetry.lines import Line, passed_line, session_line, turn_line
from proxy.telemetry.observer import PassedRecord, SessionRecord, TurnRecord
from proxy.telemetry.writer import Writer
from proxy.wire.codec import encode

_MOST_CAUSES = 8
_MOST_WARNED = 4096
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
        logger_factory=_LoggerFactory(Writer(sys.stderr.buffer), None if console else _LEVELS[level]),
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


class _Logger:
    """What structlog hands finished lines to."""

    def __init__(self, writer: Writer) -> None:
        self.msg = self.debug = self.info = writer.write
        self.warning = self.error = self.critical = writer.write_now


class _LoggerFactory:
    """`direct_level` is from which level on lines of JSON may go to the writer directly, None where none may."""

    def __init__(self, writer: Writer, direct_level: int | None) -> None:
        self._logger = _Logger(writer)
        self.direct = None if direct_level is None else _Direct(writer, direct_level)
        self.flush = writer.flush

    def __call__(self, *_: Any) -> _Logger:
        return self._logger


class _Direct:
    """Writes what structlog's processors would make of a line, for a tenth of their cost."""

    def __init__(self, writer: Writer, level: int) -> None:
        self._writer = writer
        self._level = level
        self._second = 0
        self._stamp = ""

    def write(self, line: Line) -> None:
        """One line, whose level counts here."""
        try:
            encoded: str | bytes = encode(line)
        except UnicodeEncodeError:
            encoded = _to_json(line.fields())
        (self._writer.write if line.level == "info" else self._writer.write_now)(encoded)

    def takes(self, level: str) -> bool:
        """Are lines of this level written?"""
        return _LEVELS[level] >= self._level

    def now(self) -> str:
        """The time, as lines have it."""
        now = time.time()
        second = int(now)
        if second != self._second:
            self._second = second
            self._stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._stamp}.{int((now - second) * 1e6):06d}Z"


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
        factory = structlog.get_config()["logger_factory"]
        self._direct = factory.direct if isinstance(factory, _LoggerFactory) else None
        self._warned: LRUCache[tuple[str, int], bool] = LRUCache(_MOST_WARNED)

    def _write(self, level: str, make: Callable[[str], Line]) -> None:
        """Write the line that `make` makes of the time."""
        if self._direct is None:
            fields = make("").fields()
            event = fields.pop("event")
            del fields["level"], fields["timestamp"]
            getattr(self._log, level)(event, **fields)
        elif self._direct.takes(level):
            self._direct.write(make(self._direct.now()))

    def session_opened(self, record: SessionRecord) -> None:
        self._log.debug("session opened", session=record.id)

    def session_ended(self, record: SessionRecord) -> None:
        self._write("info", lambda now: session_line(record, now))

    def turn_started(self, record: TurnRecord) -> None:
        pass

    def turn_ended(self, record: TurnRecord) -> None:
        level = "warning" if record.left_out and self._is_news(record) else "info"
        self._write(level, lambda now: turn_line(record, now, level))

    def _is_news(self, record: TurnRecord) -> bool:
        """Is it the first time that this session, or this client, has this left out? A client's tools never change."""
        key = (record.session or record.client, hash(record.left_out))
        if key in self._warned:
            return False
        self._warned[key] = True
        return True

    def passed(self, record: PassedRecord) -> None:
        self._write("info", lambda now: passed_line(record, now))

    def upstream_failed(self, endpoint: str, kind: str) -> None:
        pass  # the turn's line says it

    def unreadable(self, why: str) -> None:
        self._log.debug("unreadable request", kind=why)  # a client can provoke as many as it likes

    def limited(self, limit: str) -> None:
        pass  # so does the client's error

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
