"""What an upstream's error means for the client: status and body → `LooplineError`.

`RULES` is the one table: the first rule that fits says the kind of failure, and `proxy/errors.py` what a client sees of
that kind. Engines agree on little: `{"error":{message,type,param,code}}` (OpenAI, vLLM, llama.cpp), the same without
`error` (SGLang), `{"code":…,"error":"text"}` (xAI), `{"detail":…}` (transformers, frameworks), plain text (a proxy
between). tests/unit/translate/test_failures.py has a real or documented body for every rule and every profile.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from proxy.errors import Kind, LooplineError, Retry
from proxy.translate.retry_hints import retry_after
from proxy.wire.codec import NULL, Raw, is_null

_MAX_MESSAGE_CHARS = 2000
_MAX_PARAM_CHARS = 200
# Rules read this much of a message: what comes later may be the client's own text, quoted.
_READ_CHARS = 400
# The status of an error inside a stream that names none: rules go by its words alone.
UNSAID = 0


class Rule(NamedTuple):
    """One line of `RULES`. It fits where the status is one of `statuses` (any, if empty) or unsaid, and the code or
    type is one of `names` or the message holds `says`; a rule with neither goes by the status alone.

    `hint` is added to the message: what to do about it.
    """

    kind: Kind
    names: frozenset[str] = frozenset()
    says: re.Pattern[str] | None = None
    statuses: frozenset[int] = frozenset()
    hint: str = ""

    def fits(self, status: int, names: frozenset[str], message: str) -> bool:
        """`names` are the error's code and type in lower case."""
        if not self.names and self.says is None:
            return status in self.statuses
        if self.statuses and status not in self.statuses and status != UNSAID:
            return False
        return not self.names.isdisjoint(names) or (self.says is not None and self.says.search(message) is not None)


def _rule(kind: Kind, names: str = "", says: str = "", statuses: str = "", hint: str = "") -> Rule:
    """`names` and `statuses` are parted by spaces."""
    return Rule(
        kind,
        frozenset(names.split()),
        re.compile(says, re.IGNORECASE) if says else None,
        frozenset(number for each in statuses.split() for number in _statuses(each)),
        hint,
    )


def _statuses(text: str) -> Sequence[int]:
    """`503`, or `5xx` for all of its hundred."""
    return range(int(text[0]) * 100, int(text[0]) * 100 + 100) if text.endswith("xx") else (int(text),)


# Codes of refused content that the Responses API has too: they are kept.
_POLICIES = "bio_policy cyber_policy misalignment_policy_violation image_content_policy_violation"
_WRONG_URL = "Does the URL (endpoints.url) end in /v1, and does the server have this API (endpoints.dialect)?"

RULES: tuple[Rule, ...] = (
    # --- too slow, whatever words a server has for it
    _rule(Kind.UPSTREAM_TIMEOUT, statuses="408"),
    # --- refused content: OpenAI and Azure by code, xAI with 403 and words
    _rule(Kind.CONTENT_FILTER, f"{_POLICIES} content_filter content_policy_violation moderation_blocked"),
    _rule(
        Kind.CONTENT_FILTER,
        says=r"content management policy|violates usage guidelines|our safety system|violating our usage policy"
        r"|content[_ ]filter",
        statuses="400 403 422",
    ),
    _rule(Kind.UPSTREAM_REJECTED, "invalid_prompt"),
    # --- no money left, before "too many requests": both are 429
    _rule(Kind.QUOTA, "insufficient_quota billing_hard_limit_reached billing_not_active quota_exceeded"),
    _rule(
        Kind.QUOTA,
        says=r"exceeded your current quota|used all available credits|spending limit|doesn't have any credits"
        r"|insufficient (balance|credits|funds)|credit balance",
        statuses="400 402 403 429",
    ),
    _rule(Kind.QUOTA, statuses="402"),
    # --- busy, starting, stopping or dead: passes, or another replica is asked
    _rule(
        Kind.UPSTREAM_UNAVAILABLE,
        "overloaded_error server_is_overloaded slow_down unavailable_error serviceunavailableerror engine_overloaded",
    ),
    _rule(
        Kind.UPSTREAM_UNAVAILABLE,
        says=r"after shutdown|enginecore encountered|enginedeaderror|loading model|queue is full|server busy"
        r"|maximum pending requests|overloaded|cannot accept new requests|backlog limit|currently scaling"
        r"|higher priority request|no slots? available",
        statuses="429 5xx",
    ),
    # --- too many requests
    _rule(Kind.UPSTREAM_RATE_LIMITED, "rate_limit_exceeded rate_limit_error too_many_requests"),
    _rule(Kind.UPSTREAM_RATE_LIMITED, says=r"rate limit|too many requests", statuses="5xx"),
    _rule(Kind.UPSTREAM_RATE_LIMITED, statuses="429"),
    # --- a prompt too long; LM Studio and older llama.cpp say so with 500, or inside a stream
    _rule(
        Kind.CONTEXT_LENGTH,
        "context_length_exceeded exceed_context_size_error context_window_exceeded model_context_window_exceeded",
    ),
    _rule(
        Kind.CONTEXT_LENGTH,
        says=r"context (length|size|window)|maximum prompt length|input_too_large|input is too large"
        r"|prompt is too long|too many tokens|when context the overflows|input length \(?\d.{0,80}\bexceeds"
        r"|input tokens exceeds? the|reduce the length of (the|your) (messages|prompt|input)",
        statuses="4xx 500",
    ),
    _rule(Kind.CONTEXT_LENGTH, statuses="413"),
    # --- who asks, and for what
    _rule(Kind.UPSTREAM_UNAUTHORIZED, "invalid_api_key authentication_error permission_error"),
    _rule(Kind.UPSTREAM_UNAUTHORIZED, says=r"(incorrect|invalid) api key", statuses="400"),
    _rule(Kind.UPSTREAM_UNAUTHORIZED, statuses="401 403"),
    _rule(Kind.UPSTREAM_NOT_FOUND, "model_not_found"),
    _rule(
        Kind.UPSTREAM_NOT_FOUND,
        says=r"server is pinned to|no models? (is |are )?loaded|model\b.{0,200}\b(not found|does not exist)",
        statuses="400 404 422",
    ),
    _rule(Kind.UPSTREAM_NOT_FOUND, says=r"\A(file )?not found\Z|unexpected endpoint", statuses="404", hint=_WRONG_URL),
    _rule(Kind.UPSTREAM_NOT_FOUND, statuses="404"),
    # --- the request itself; some servers say 500 where trying again cannot help
    _rule(
        Kind.UNSUPPORTED_PARAMETER,
        "unsupported_parameter unknown_parameter",
        r"unexpected fields in the request|extra inputs are not permitted|unrecognized request argument"
        r"|argument not supported",
        "400 422",
    ),
    _rule(
        Kind.UPSTREAM_REJECTED,
        says=r"(image|audio|video) input is not supported|failed to parse (tools|messages|tool call arguments)",
        statuses="5xx",
    ),
    # --- a state that passes: a conflict, too early, a connection that a server between took for closed
    _rule(Kind.UPSTREAM_UNAVAILABLE, statuses="409 425 499"),
    _rule(Kind.UPSTREAM_REJECTED, "invalid_request_error badrequesterror", statuses="4xx"),
    _rule(Kind.UPSTREAM_REJECTED, statuses="501"),
    # --- by status alone
    _rule(Kind.UPSTREAM_TIMEOUT, statuses="504"),
    _rule(Kind.UPSTREAM_UNAVAILABLE, statuses="503 529"),
    _rule(Kind.UPSTREAM_REJECTED, statuses="4xx"),
)  # fmt: skip

# A code of the request's own fault is kept where clients know it; an engine's number or class name would mean nothing.
_CODE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)+\Z")
_KEEPS: Mapping[Kind, re.Pattern[str]] = {
    Kind.UPSTREAM_REJECTED: _CODE,
    Kind.UNSUPPORTED_PARAMETER: _CODE,
    Kind.CONTENT_FILTER: re.compile(rf"({_POLICIES.replace(' ', '|')})\Z"),
}
# Where a message names the field at fault and nothing else does.
_NAMED = re.compile(
    r"unexpected fields in the request: \{'(\w+)'"  # transformers
    r"|\A(?:field )?'(\w+)'(?::| is required)"  # llama.cpp
    r"|argument not supported[^:]*: (\w+)"  # xAI
    r"|\(parameter=([\w.]+)"  # vLLM
    r"|(?:unsupported|unknown|unrecognized)[\w ]*: '?([\w.]+)'?"  # OpenAI
    r"""|"loc": ?\["body", ?"(\w+)\"""",  # FastAPI
    re.IGNORECASE,
)


class _Error(msgspec.Struct):
    message: Raw = NULL
    type: Raw = NULL
    param: Raw = NULL
    code: Raw = NULL


class _Body(_Error):
    error: Raw = NULL
    detail: Raw = NULL


_BODY = msgspec.json.Decoder(_Body)
_ERROR = msgspec.json.Decoder(_Error)
_STRING = msgspec.json.Decoder(str)
_INTEGER = msgspec.json.Decoder(int, strict=False)  # some write the status as a string


def upstream_error(status: int, headers: Mapping[str, str], body: bytes, context_hint: str = "") -> LooplineError:
    """The failure that an upstream's HTTP answer stands for.

    `headers` are matched without regard to case. `context_hint` is added to what is said of a prompt too long.
    """
    return _failure(status, headers, _read(body), context_hint)


def stream_error(error: bytes | Raw, context_hint: str = "") -> LooplineError:
    """The failure that an `error` object inside a stream stands for; its `code` may be the HTTP status."""
    read = _parse(error)
    return _failure(_number(read.code) or UNSAID, {}, read, context_hint)


def _failure(status: int, headers: Mapping[str, str], error: _Error, context_hint: str) -> LooplineError:
    message = _text(error.message).strip() or f"The upstream answered with {_said(status)} and no message."
    message = message[:_MAX_MESSAGE_CHARS]
    code = _text(error.code)
    rule = _rule_for(status, code, _text(error.type), message)
    kept = code if rule.kind in _KEEPS and _KEEPS[rule.kind].match(code) else None
    if rule.hint:
        message = f"{message.rstrip('. ')}. {rule.hint}"
    if context_hint and rule.kind is Kind.CONTEXT_LENGTH:
        # Codex has words of its own for `context_length_exceeded`; this code makes it show ours.
        message, kept = f"{message.rstrip('. ')}. {context_hint}", "invalid_prompt"
    failure = LooplineError(
        rule.kind, message, param=_param(error, message), code=kept, cause=f"upstream {_said(status)}"
    )
    failure.retry_after_s = retry_after(headers, message if failure.retry is Retry.LATER else "")
    return failure


def _rule_for(status: int, code: str, error_type: str, message: str) -> Rule:
    names = frozenset((code.lower(), error_type.lower()))
    start = message[:_READ_CHARS]
    return next((rule for rule in RULES if rule.fits(status, names, start)), _FAILED)


_FAILED = Rule(Kind.UPSTREAM_FAILED)


def _said(status: int) -> str:
    return f"status {status}" if status else "an error inside its stream"


def _param(error: _Error, message: str) -> str | None:
    """The field at fault, as the upstream calls it."""
    param = _text(error.param).removeprefix("body.")
    if not param and (named := _NAMED.search(message)):
        param = next(filter(None, named.groups()))
    return param[:_MAX_PARAM_CHARS] or None


def _read(body: bytes) -> _Error:
    try:
        outer = _BODY.decode(body)
    except (msgspec.DecodeError, RecursionError):
        text = body.decode(errors="replace").strip()
        return _Error(message=Raw(msgspec.json.encode(text))) if text else _Error()
    if not is_null(outer.error):
        inner = _parse(outer.error)
        return inner if is_null(outer.code) else _Error(inner.message, inner.type, inner.param, outer.code)
    if is_null(outer.detail):
        return _Error(outer.message, outer.type, outer.param, outer.code)
    return _Error(message=outer.detail)


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
