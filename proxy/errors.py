"""Every failure Loopline reports, and what each looks like on the wire.

A failure has one `Kind`. `TABLE` says, for each kind, whose fault it is, whether trying again can help, and the
codes a client sees: `error.type`, `error.code`, the HTTP status and the WebSocket close code (where the failure ends
the socket). Codes and statuses are chosen for what real clients do with them: Codex treats a 400 with an unknown code
as final and retries a 5xx; it waits on a 429; it stops on `server_is_overloaded`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple


class Source(StrEnum):
    """Whose fault a failure is."""

    CLIENT = "client"
    UPSTREAM = "upstream"
    PROXY = "proxy"


class Retry(StrEnum):
    """Whether the same request can succeed later."""

    NEVER = "never"
    LATER = "later"


class Kind(StrEnum):
    """What went wrong. The value is the label in logs and metrics."""

    INVALID_JSON = "invalid_json"
    INVALID_UNICODE = "invalid_unicode"
    TOO_DEEP = "too_deep"
    BINARY_FRAME = "binary_frame"
    MESSAGE_TOO_LARGE = "message_too_large"
    HISTORY_TOO_LARGE = "history_too_large"
    UNKNOWN_EVENT = "unknown_event"
    INVALID_REQUEST = "invalid_request"
    MISSING_PARAMETER = "missing_parameter"
    UNSUPPORTED_PARAMETER = "unsupported_parameter"
    UNSUPPORTED_MEDIA = "unsupported_media"
    PARENT_NOT_FOUND = "parent_not_found"
    UNPAIRED_CALL = "unpaired_call"
    MODEL_NOT_FOUND = "model_not_found"
    INVALID_STREAM_ID = "invalid_stream_id"
    STREAM_LIMIT = "stream_limit"
    CONNECTION_LIMIT = "connection_limit"
    RESPONSE_NOT_RUNNING = "response_not_running"
    QUEUE_FULL = "queue_full"
    UNAUTHORIZED = "unauthorized"
    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    SLOW_SENDER = "slow_sender"
    FORBIDDEN = "forbidden"
    WEBSOCKET_OFF = "websocket_off"
    NOT_FOUND = "not_found"
    CLIENT_STALLED = "client_stalled"
    CANCELLED = "cancelled"
    SHUTTING_DOWN = "shutting_down"
    UPSTREAM_UNREACHABLE = "upstream_unreachable"
    UPSTREAM_TIMEOUT = "upstream_timeout"
    UPSTREAM_CLOSED = "upstream_closed"
    UPSTREAM_GARBLED = "upstream_garbled"
    UPSTREAM_FAILED = "upstream_failed"
    UPSTREAM_REJECTED = "upstream_rejected"
    UPSTREAM_UNAUTHORIZED = "upstream_unauthorized"
    UPSTREAM_NOT_FOUND = "upstream_not_found"
    UPSTREAM_RATE_LIMITED = "upstream_rate_limited"
    UPSTREAM_UNAVAILABLE = "upstream_unavailable"
    CONTEXT_LENGTH = "context_length"
    CONTENT_FILTER = "content_filter"
    QUOTA = "quota"
    INTERNAL = "internal"


class Row(NamedTuple):
    """One line of `TABLE`."""

    source: Source
    retry: Retry
    type: str
    code: str | None
    status: int
    close: int | None = None


_C, _U, _P = Source.CLIENT, Source.UPSTREAM, Source.PROXY
_NO, _YES = Retry.NEVER, Retry.LATER
_BAD = "invalid_request_error"

TABLE: Mapping[Kind, Row] = {
    Kind.INVALID_JSON: Row(_C, _NO, _BAD, "invalid_json", 400),
    Kind.INVALID_UNICODE: Row(_C, _NO, _BAD, "invalid_unicode", 400),
    Kind.TOO_DEEP: Row(_C, _NO, _BAD, "json_too_deep", 400),
    Kind.BINARY_FRAME: Row(_C, _NO, _BAD, "unsupported_binary_frame", 400),
    # 400, not 413: Codex takes 413 for something that may pass and sends the same message a dozen times more.
    Kind.MESSAGE_TOO_LARGE: Row(_C, _NO, _BAD, "message_too_large", 400, 1009),
    Kind.HISTORY_TOO_LARGE: Row(_C, _NO, _BAD, "context_length_exceeded", 400),
    Kind.UNKNOWN_EVENT: Row(_C, _NO, _BAD, "unsupported_event_type", 400),
    Kind.INVALID_REQUEST: Row(_C, _NO, _BAD, None, 400),
    Kind.MISSING_PARAMETER: Row(_C, _NO, _BAD, "missing_required_parameter", 400),
    Kind.UNSUPPORTED_PARAMETER: Row(_C, _NO, _BAD, "unsupported_parameter", 400),
    Kind.UNSUPPORTED_MEDIA: Row(_C, _NO, _BAD, "unsupported_media_type", 415),
    Kind.PARENT_NOT_FOUND: Row(_C, _NO, _BAD, "previous_response_not_found", 400),
    Kind.UNPAIRED_CALL: Row(_C, _NO, _BAD, None, 400),
    Kind.MODEL_NOT_FOUND: Row(_C, _NO, _BAD, "model_not_found", 404),
    Kind.INVALID_STREAM_ID: Row(_C, _NO, _BAD, "invalid_stream_id", 400),
    Kind.STREAM_LIMIT: Row(_C, _NO, _BAD, "websocket_stream_limit_reached", 400),
    # The client opens a new connection: the codes are what it keys on, the close is a clean one.
    Kind.CONNECTION_LIMIT: Row(_P, _YES, _BAD, "websocket_connection_limit_reached", 400, 1001),
    Kind.RESPONSE_NOT_RUNNING: Row(_C, _NO, _BAD, "response_not_found", 404),
    Kind.QUEUE_FULL: Row(_C, _YES, "rate_limit_error", "rate_limit_exceeded", 429),
    # Of a key that no longer counts: the socket is closed too, with 1008 (policy).
    Kind.UNAUTHORIZED: Row(_C, _NO, _BAD, "invalid_api_key", 401, 1008),
    Kind.RATE_LIMITED: Row(_C, _YES, "rate_limit_error", "rate_limit_exceeded", 429),
    # A plain 503: 429 and a 503 with the code server_is_overloaded are the end for Codex where an upgrade is refused.
    Kind.OVERLOADED: Row(_P, _YES, "server_error", "server_error", 503),
    Kind.SLOW_SENDER: Row(_C, _YES, _BAD, "request_timeout", 408, 1008),
    Kind.FORBIDDEN: Row(_C, _NO, _BAD, "forbidden", 403),
    Kind.WEBSOCKET_OFF: Row(_C, _NO, _BAD, "websocket_disabled", 426),
    Kind.NOT_FOUND: Row(_C, _NO, _BAD, "not_found", 404),
    Kind.CLIENT_STALLED: Row(_C, _YES, _BAD, "client_stalled", 408, 1008),
    Kind.CANCELLED: Row(_C, _NO, _BAD, "cancelled", 499),
    # 503 with a code of its own would stop Codex; "server_error" makes it try again.
    Kind.SHUTTING_DOWN: Row(_P, _YES, "server_error", "server_error", 503, 1012),
    Kind.UPSTREAM_UNREACHABLE: Row(_U, _YES, "server_error", "server_error", 502),
    Kind.UPSTREAM_TIMEOUT: Row(_U, _YES, "server_error", "server_error", 504),
    Kind.UPSTREAM_CLOSED: Row(_U, _YES, "server_error", "server_error", 502),
    Kind.UPSTREAM_GARBLED: Row(_U, _YES, "server_error", "server_error", 502),
    Kind.UPSTREAM_FAILED: Row(_U, _YES, "server_error", "server_error", 502),
    Kind.UPSTREAM_REJECTED: Row(_C, _NO, _BAD, None, 400),
    Kind.UPSTREAM_UNAUTHORIZED: Row(_C, _NO, _BAD, "invalid_api_key", 401),
    Kind.UPSTREAM_NOT_FOUND: Row(_C, _NO, _BAD, "model_not_found", 404),
    Kind.UPSTREAM_RATE_LIMITED: Row(_U, _YES, "rate_limit_error", "rate_limit_exceeded", 429),
    Kind.UPSTREAM_UNAVAILABLE: Row(_U, _YES, "server_error", "server_error", 503),
    Kind.CONTEXT_LENGTH: Row(_C, _NO, _BAD, "context_length_exceeded", 400),
    # `invalid_prompt` is what the Responses API calls a prompt that its policies refuse. Codex shows the message.
    Kind.CONTENT_FILTER: Row(_C, _NO, _BAD, "invalid_prompt", 400),
    Kind.QUOTA: Row(_U, _NO, "insufficient_quota", "insufficient_quota", 429),
    Kind.INTERNAL: Row(_P, _YES, "server_error", "server_error", 500),
}


def kind_of(error: BaseException) -> str:
    """What of an exception may stand in a log: its class and the system's word for it.

    Never its own text: that quotes what was being worked on, be it a header or what a user said.
    """
    name = type(error).__name__
    return f"{name}: {error.strerror}" if isinstance(error, OSError) and error.strerror else name


class LooplineError(Exception):
    """A failure with a kind, a message for the client, and what an operator needs.

    `message` is shown to the client and names the remedy where there is one. `param` is the request field at fault.
    `code` overrides the table's code (an upstream's own code, kept). `retry_after_s` becomes `Retry-After`;
    `headers` are further ones of the answer. `cause` is for the log alone. `limit` is the setting that was exceeded,
    where the failure is that something is too much.
    """

    def __init__(
        self,
        kind: Kind,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: float | None = None,
        headers: Mapping[str, str] | None = None,
        cause: str | None = None,
        limit: str = "",
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s
        self.headers = headers or {}
        self.cause = cause
        self.limit = limit
        row = TABLE[kind]
        self.source = row.source
        self.retry = row.retry
        self.type = row.type
        self.code = code if code is not None else row.code
        self.status = row.status
        self.close = row.close

    def bare(self) -> LooplineError:
        """Itself without the frames that it came through: they hold what was worked on, and often whoever keeps it."""
        self.__traceback__ = self.__cause__ = self.__context__ = None
        return self

    def __repr__(self) -> str:
        return f"LooplineError({self.kind.value}, {self.message!r}, cause={self.cause!r})"
