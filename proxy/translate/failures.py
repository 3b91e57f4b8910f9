"""What an upstream's error means for the client: status and body → `LooplineError`.

Engines agree on little: `{"error":{message,type,param,code}}` (OpenAI, vLLM, llama.cpp), `{"detail":…}` (transformers,
framework errors), plain text (a proxy between). Source: upstreams/README.md, protocol.md 1.8.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from proxy.errors import Kind, LooplineError
from proxy.wire.codec import NULL, Raw, is_null

_MAX_MESSAGE_CHARS = 2000
_MAX_PARAM_CHARS = 200

_BY_STATUS: Mapping[int, Kind] = {
    400: Kind.UPSTREAM_REJECTED,
    401: Kind.UPSTREAM_UNAUTHORIZED,
    403: Kind.UPSTREAM_UNAUTHORIZED,
    404: Kind.UPSTREAM_NOT_FOUND,
    408: Kind.UPSTREAM_TIMEOUT,
    413: Kind.CONTEXT_LENGTH,
    415: Kind.UPSTREAM_REJECTED,
    422: Kind.UPSTREAM_REJECTED,
    429: Kind.UPSTREAM_RATE_LIMITED,
    503: Kind.UPSTREAM_UNAVAILABLE,
    504: Kind.UPSTREAM_TIMEOUT,
    529: Kind.UPSTREAM_UNAVAILABLE,
}

# Codes and types that say more than the status does.
_BY_CODE: Mapping[str, Kind] = {
    "context_length_exceeded": Kind.CONTEXT_LENGTH,
    "exceed_context_size_error": Kind.CONTEXT_LENGTH,
    "insufficient_quota": Kind.QUOTA,
    "rate_limit_exceeded": Kind.UPSTREAM_RATE_LIMITED,
    "rate_limit_error": Kind.UPSTREAM_RATE_LIMITED,
    "invalid_api_key": Kind.UPSTREAM_UNAUTHORIZED,
    "model_not_found": Kind.UPSTREAM_NOT_FOUND,
    # The request itself is at fault, which inside a stream no status says; trying again would not help.
    "invalid_prompt": Kind.UPSTREAM_REJECTED,
    "bio_policy": Kind.UPSTREAM_REJECTED,
    "cyber_policy": Kind.UPSTREAM_REJECTED,
    "misalignment_policy_violation": Kind.UPSTREAM_REJECTED,
    "image_content_policy_violation": Kind.UPSTREAM_REJECTED,
}
_CONTEXT = re.compile(r"maximum context length|context size|context window|too many tokens", re.IGNORECASE)
# A 400's own code is kept only where clients know it; an engine's number or class name would mean nothing to them.
_CODE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)+\Z")


class _Error(msgspec.Struct):
    message: Raw = NULL
    type: Raw = NULL
    param: Raw = NULL
    code: Raw = NULL


class _Body(msgspec.Struct):
    error: Raw = NULL
    detail: Raw = NULL
    message: Raw = NULL


_BODY = msgspec.json.Decoder(_Body)
_ERROR = msgspec.json.Decoder(_Error)
_STRING = msgspec.json.Decoder(str)
_INTEGER = msgspec.json.Decoder(int, strict=False)  # some write the status as a string


def upstream_error(status: int, headers: Mapping[str, str], body: bytes, context_hint: str = "") -> LooplineError:
    """The failure that an upstream's HTTP answer stands for.

    `headers` are matched without regard to case. `context_hint` is added to what is said of a prompt too long.
    """
    return _failure(status, _read(body), _retry_after(headers), context_hint)


def stream_error(error: bytes | Raw) -> LooplineError:
    """The failure that an `error` object inside a stream stands for; its `code` may be the HTTP status."""
    read = _parse(error)
    return _failure(_number(read.code) or 500, read, None)


def _failure(status: int, error: _Error, retry_after_s: float | None, context_hint: str = "") -> LooplineError:
    message = _text(error.message) or f"The upstream answered with status {status} and no message."
    message = message[:_MAX_MESSAGE_CHARS]
    code = _text(error.code)
    kind = _kind(status, code, _text(error.type), message)
    keeps_code = kind is Kind.UPSTREAM_REJECTED and _CODE.match(code) is not None
    if context_hint and kind is Kind.CONTEXT_LENGTH:
        # Codex has words of its own for `context_length_exceeded`; this code makes it show ours.
        message, code, keeps_code = f"{message.rstrip('. ')}. {context_hint}", "invalid_prompt", True
    return LooplineError(
        kind,
        message,
        param=_text(error.param)[:_MAX_PARAM_CHARS] or None,
        code=code if keeps_code else None,
        retry_after_s=retry_after_s,
        cause=f"upstream status {status}",
    )


def _kind(status: int, code: str, error_type: str, message: str) -> Kind:
    for name in (code, error_type):
        if name in _BY_CODE:
            return _BY_CODE[name]
    if 400 <= status < 500 and status != 429 and _CONTEXT.search(message):
        return Kind.CONTEXT_LENGTH
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    return Kind.UPSTREAM_REJECTED if 400 <= status < 500 else Kind.UPSTREAM_FAILED


def _read(body: bytes) -> _Error:
    try:
        outer = _BODY.decode(body)
    except (msgspec.DecodeError, RecursionError):
        text = body.decode(errors="replace").strip()
        return _Error(message=Raw(msgspec.json.encode(text))) if text else _Error()
    if not is_null(outer.error):
        return _parse(outer.error)
    return _Error(message=outer.message if is_null(outer.detail) else outer.detail)


def _parse(error: bytes | Raw) -> _Error:
    try:
        return _ERROR.decode(error)
    except (msgspec.DecodeError, RecursionError):
        return _Error(message=Raw(bytes(error)))


def _text(raw: Raw) -> str:
    """A member as text: a string as it is, null as nothing, anything else as its JSON."""
    if is_null(raw):
        return ""
    try:
        return _STRING.decode(raw)
    except msgspec.DecodeError:
        return bytes(raw).decode(errors="replace")


def _number(raw: Raw) -> int | None:
    try:
        number = _INTEGER.decode(raw)
    except msgspec.DecodeError:
        return None
    return number if 400 <= number < 600 else None


def _retry_after(headers: Mapping[str, str]) -> float | None:
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * scale
        except ValueError:
            continue
        if 0 <= seconds <= 86400:
            return seconds
    return None
