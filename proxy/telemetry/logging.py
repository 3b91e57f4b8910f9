"""Logs: one line a session, one a turn, with ids, sizes and times; never content, headers or credentials."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog

from proxy.telemetry.observer import SessionRecord, TurnRecord
from proxy.wire.codec import encode

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def configure(log_format: str, level: str) -> None:
    """Set up logging for the process. `log_format` is json, console, or auto (console on a terminal)."""
    console = log_format == "console" or (log_format == "auto" and sys.stderr.isatty())
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            # A traceback's lines, not its locals: those hold what users said.
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer() if console else structlog.processors.JSONRenderer(serializer=_to_json),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=(
            structlog.PrintLoggerFactory(sys.stderr) if console else structlog.BytesLoggerFactory(sys.stderr.buffer)
        ),
        cache_logger_on_first_use=True,
    )


def _to_json(event: dict[str, Any], **_: Any) -> bytes:
    return encode({name: value for name, value in event.items() if value is not None})


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
        self._log.info(
            "turn",
            response=record.response,
            parent=record.parent[:64] or None,
            session=record.session or None,
            request_id=record.request_id[:128] or None,
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
            tools_dropped=record.tools_dropped or None,
            tokens_in=record.tokens_in,
            tokens_cached=record.tokens_cached,
            tokens_out=record.tokens_out,
            queued_s=_since(record.received_s, record.started_s),
            first_token_s=_since(record.received_s, record.first_output_s),
            total_s=_since(record.received_s, record.ended_s),
        )

    def upstream_failed(self, endpoint: str, kind: str) -> None:
        pass  # the turn's line says it

    def crashed(self, where: str, error: BaseException) -> None:
        self._log.error("crashed", where=where, exc_info=error)


def _since(start_s: float | None, end_s: float | None) -> float | None:
    return None if start_s is None or end_s is None else round(end_s - start_s, 6)
