"""Failures as clients need to see them.

The WebSocket `error` event is the union of three published shapes (nested with `status`, flat, and with `code` at the
top), because each real client reads another part of it: Codex hangs without an integer `status`, Vercel's transport
rejects the nested form alone. Source: protocol.md 1.8, clients/README.md section 2.
"""

from __future__ import annotations

import math
from typing import Any

from proxy.errors import LooplineError, Retry
from proxy.wire.codec import encode

# `response.error.code` is a closed list in OpenAI's types, and these are what a chat or Responses server says of it;
# `context_length_exceeded` and `insufficient_quota`, which are not in it, are what Codex keys on.
_FAILED_CODES = frozenset(
    {
        "server_error",
        "rate_limit_exceeded",
        "invalid_prompt",
        "bio_policy",
        "misalignment_policy_violation",
        "image_content_policy_violation",
        "context_length_exceeded",
        "insufficient_quota",
    }
)


def error_event(error: LooplineError) -> bytes:
    """The `error` event: ends a turn that had not begun, or answers a message that is no turn."""
    body = _body(error)
    event: dict[str, Any] = {
        "type": "error",
        "sequence_number": 0,
        "status": error.status,
        "code": error.code,
        "message": error.message,
        "param": error.param,
        "error": body,
    }
    headers = retry_headers(error)
    if headers:
        event["headers"] = headers
        body["headers"] = headers
    return encode(event)


def error_body(error: LooplineError) -> bytes:
    """The JSON body of an HTTP error."""
    return encode({"error": _body(error)})


def failed_error(error: LooplineError) -> bytes:
    """The `error` member of a failed response."""
    code = error.code if error.code in _FAILED_CODES else _failed_code(error)
    message = error.message
    if error.retry_after_s is not None:
        # Nothing else in the event can name a time; Codex reads it from the words.
        message += f" Please try again in {math.ceil(error.retry_after_s)}s."
    return encode({"code": code, "message": message})


def retry_headers(error: LooplineError) -> dict[str, str]:
    """`retry-after` in whole seconds, where the failure names a time, and the failure's own headers."""
    if error.retry_after_s is None:
        return dict(error.headers)
    return {"retry-after": str(math.ceil(error.retry_after_s)), **error.headers}


def _failed_code(error: LooplineError) -> str:
    return "invalid_prompt" if error.retry is Retry.NEVER and error.status < 500 else "server_error"


def _body(error: LooplineError) -> dict[str, Any]:
    return {"type": error.type, "code": error.code, "message": error.message, "param": error.param}
