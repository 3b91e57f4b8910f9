"""Logs: one line a session, one a turn, with ids, sizes and times; never content, headers or credentials."""

from __future__ import annotations

import atexit
import logging
import sys
import time
import traceback
from collections.abc import Callable, MutableMapping, Sequence
from functools import partial
from typing import Any
from weakref import WeakSet

import structlog
from cachetools import LRUCache

from proxy.errors import kind_of
from proxy.telemetry.lines import Line, passed_line, session_line, turn_line
from proxy.telemetry.observer import NoObserver, PassedRecord, SessionRecord, TurnRecord
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
    """`direct_level` is from which level on lines of JSON may go to the writer directly, None where none may.

    `logs` are those that write here.
    """

    def __init__(self, writer: Writer, direct_level: int | None) -> None:
        self._logger = _Logger(writer)
        self._writer = writer
        self.direct = None if direct_level is None else _Direct(writer, direct_level)
        self.logs: WeakSet[Log] = WeakSet()
        atexit.register(self.flush)  # before the writer's own, which was registered earlier

    def __call__(self, *_: Any) -> _Logger:
        return self._logger

    def flush(self) -> None:
        """Give all that happened a moment to be written."""
        for log in tuple(self.logs):
            log.before()
        self._writer.flush()


class _Direct:
    """Writes what structlog's processors would make of a line, for a tenth of their cost."""

    def __init__(self, writer: Writer, level: int) -> None:
        self._writer = writer
        self._level = level
        self._second = 0
        self._stamp = ""

    def write(self, level: str, make: Callable[[str], Line]) -> None:
        """Write the line that `make` makes of the time, if lines of this level are written."""
        if self.takes(level):
            line = self._encoded(make(self._at(time.time_ns())))
            (self._writer.write if level == "info" else self._writer.write_now)(line)

    def write_turns(self, turns: Sequence[tuple[str, TurnRecord]]) -> None:
        """A line for each turn, of its level and with the time of its end."""
        offset_ns, lines = time.time_ns() - time.monotonic_ns(), []
        for level, record in turns:
            if self.takes(level):
                at = self._at(offset_ns + int((record.ended_s or record.received_s) * 1e9))
                lines.append(self._encoded(turn_line(record, at, level)))
        self._writer.write_all(lines)

    def takes(self, level: str) -> bool:
        """Are lines of this level written?"""
        return _LEVELS[level] >= self._level

    def _encoded(self, line: Line) -> str | bytes:
        try:
            return encode(line)
        except UnicodeEncodeError:
            return _to_json(line.fields())

    def _at(self, at_ns: int) -> str:
        """A moment in nanoseconds since 1970, as lines have it."""
        second = at_ns // 1_000_000_000
        if second != self._second:
            self._second = second
            self._stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._stamp}.{str(at_ns)[-9:-3]}Z"


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


class Log(NoObserver):
    """An `Observer` that writes lines. What of an upstream failed or which limit was hit, the turn's line says.

    `before` is called before all is flushed (`Observers.settle`).
    """

    def __init__(self) -> None:
        self._log = structlog.get_logger()
        self.before: Callable[[], object] = lambda: None
        self._direct: _Direct | None = None
        factory = structlog.get_config()["logger_factory"]
        if isinstance(factory, _LoggerFactory):
            self._direct = factory.direct
            factory.logs.add(self)
        self._warned: LRUCache[tuple[str, int], bool] = LRUCache(_MOST_WARNED)

    def _write(self, level: str, make: Callable[[str], Line]) -> None:
        """Write the line that `make` makes of the time."""
        if self._direct is not None:
            self._direct.write(level, make)
            return
        fields = make("").fields()
        event = fields.pop("event")
        del fields["level"], fields["timestamp"]
        getattr(self._log, level)(event, **fields)

    def session_opened(self, record: SessionRecord) -> None:
        self._log.debug("session opened", session=record.id)

    def session_ended(self, record: SessionRecord) -> None:
        self._write("info", lambda now: session_line(record, now))

    def turn_ended(self, record: TurnRecord) -> None:
        self.turns_ended((record,))

    def turns_ended(self, records: Sequence[TurnRecord]) -> None:
        turns = [("warning" if each.left_out and self._is_news(each) else "info", each) for each in records]
        if self._direct is not None:
            self._direct.write_turns(turns)
            return
        for level, record in turns:
            self._write(level, partial(turn_line, record, level=level))

    def _is_news(self, record: TurnRecord) -> bool:
        """Is it the first time that this session, or this client, has this left out? A client's tools never change."""
        key = (record.session or record.client, hash(record.left_out))
        if key in self._warned:
            return False
        self._warned[key] = True
        return True

    def passed(self, record: PassedRecord) -> None:
        self._write("info", lambda now: passed_line(record, now))

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
