"""What stands on spans, by what was recorded. Pure.

Attributes are those of the GenAI and HTTP conventions where these have one, else ours (`loopline.`).
Source: OpenTelemetry semantic conventions for GenAI 0.1 (client inference), HTTP 1.44 (client and server spans).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from proxy.settings import Endpoint
from proxy.telemetry.observer import PassedRecord, SessionRecord, Stages, TurnRecord

_MAX_TEXT = 128
_FAILED = frozenset({"failed", "refused"})
# What the conventions call who serves; for whoever speaks its API without being named they want `openai`.
_PROVIDERS = {"xai": "x_ai", "auto": "openai", "generic": "openai", "simulated": "openai"}

# Attribute → field of a record; absent where that is empty or 0. Texts are cut: clients choose some of them.
_TURN_TEXTS = (
    ("gen_ai.request.model", "model"),
    ("gen_ai.response.model", "upstream_model"),
    ("gen_ai.request.previous_response.id", "parent"),
    ("session.id", "session"),
    ("loopline.dialect", "dialect"),
)
_TURN_NUMBERS = (
    ("gen_ai.usage.input_tokens", "tokens_in"),
    ("gen_ai.usage.cache_read.input_tokens", "tokens_cached"),
    ("gen_ai.usage.output_tokens", "tokens_out"),
    ("loopline.bytes_in", "bytes_in"),
    ("loopline.bytes_upstream", "bytes_upstream"),
)
_SESSION_NUMBERS = (
    ("loopline.turns", "turns"),
    ("loopline.errors", "errors"),
    ("loopline.bytes_in", "bytes_in"),
    ("loopline.bytes_out", "bytes_out"),
    ("loopline.close_code", "close_code"),
)
_PASSED_NUMBERS = (
    ("http.response.status_code", "status"),
    ("loopline.bytes_in", "bytes_in"),
    ("loopline.bytes_out", "bytes_out"),
)
# For others the conventions have a word.
_OTHER = "_OTHER"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY"})

_STAGES = tuple(f"loopline.stage.{name}_s" for name in Stages._fields)

Value = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Server:
    """Where an endpoint is, as attributes of spans: those of a turn and those of an attempt."""

    turn: Mapping[str, Value]
    attempt: Mapping[str, Value]


def of_session(record: SessionRecord) -> dict[str, Value]:
    """Of one WebSocket; with an `error.type` its span failed, as any other."""
    attributes: dict[str, Value] = {"session.id": record.id, **_numbers(record, _SESSION_NUMBERS)}
    if record.reason:
        attributes["error.type"] = record.reason
    return attributes


def of_turn(record: TurnRecord) -> dict[str, Value]:
    """Of a turn that ended."""
    attributes: dict[str, Value] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.response.id": record.response,
        "loopline.transport": record.transport,
        "loopline.outcome": record.outcome,
        **_numbers(record, _TURN_NUMBERS),
    }
    for name, member in _TURN_TEXTS:
        if value := getattr(record, member):
            attributes[name] = cut(value)
    for stage, took_s in zip(_STAGES, record.stages(), strict=True):
        if took_s:
            attributes[stage] = took_s
    if record.warm_up:
        attributes["loopline.warm_up"] = True
    elif record.sent_s is not None:
        attributes["gen_ai.request.stream"] = True
    if record.outcome in _FAILED:
        attributes["error.type"] = record.error
    return attributes


def of_passed(record: PassedRecord) -> dict[str, Value]:
    """Of a request that was passed on."""
    attributes: dict[str, Value] = {
        "http.request.method": known_method(record.method),
        "url.path": cut(record.path),
        "loopline.endpoint": record.endpoint,
        "loopline.outcome": record.outcome,
        **_numbers(record, _PASSED_NUMBERS),
    }
    if record.outcome in _FAILED:
        attributes["error.type"] = record.error
    elif record.status >= 500:
        attributes["error.type"] = str(record.status)
    return attributes


def server_of(endpoint: Endpoint) -> Server:
    """Where an endpoint is, by its settings."""
    parts = urlsplit(endpoint.url)
    where: dict[str, Value] = {
        "server.address": parts.hostname or "",
        "server.port": parts.port or (443 if parts.scheme == "https" else 80),
    }
    known = endpoint.profile.isidentifier()  # else it is the path of a file
    provider = _PROVIDERS.get(endpoint.profile, endpoint.profile) if known else "openai"
    return Server({"gen_ai.provider.name": provider, "loopline.endpoint": endpoint.name, **where}, where)


def known_method(method: str) -> str:
    """The method, or `_OTHER`: a client may send any word."""
    return method if method in _METHODS else _OTHER


def named(method: str) -> str:
    """The name of a span of HTTP."""
    return "HTTP" if method == _OTHER else method


def cut(text: str) -> str:
    """A text that a client may have chosen: bounded, and one that can be encoded, or a whole batch would be lost."""
    text = text[:_MAX_TEXT]
    return text if text.isascii() else text.encode(errors="replace").decode()


def _numbers(record: TurnRecord | SessionRecord | PassedRecord, table: Sequence[tuple[str, str]]) -> dict[str, Value]:
    return {name: value for name, member in table if (value := getattr(record, member))}
