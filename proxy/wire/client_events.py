"""What a client sends: one JSON object a message, parsed once.

A create's members stay raw bytes beside the few that Loopline acts on, so that a Responses upstream gets them as they
came. Source: API reference, Responses, create and WebSocket mode; protocol.md 1.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from proxy.errors import Kind, LooplineError
from proxy.wire.codec import NULL, Raw, decode, decode_array, decode_object, is_null
from proxy.wire.items import Item, parse_item, user_message
from proxy.wire.terms import Terms

FindTerms = Callable[[Mapping[str, Raw], Callable[[Mapping[str, Raw]], Terms]], Terms]


def _optional(*types: Any) -> msgspec.json.Decoder[Any]:
    union = types[0]
    for kind in types[1:]:
        union = union | kind
    return msgspec.json.Decoder(union | None)


# Checked here so that a wrong type is the client's error with the member's name, not an upstream's riddle.
_TYPES: Mapping[str, msgspec.json.Decoder[Any]] = {
    "model": _optional(str),
    "previous_response_id": _optional(str),
    "store": _optional(bool),
    "generate": _optional(bool),
    "stream": _optional(bool),
    "background": _optional(bool),
    "instructions": _optional(str),
    "temperature": _optional(float),
    "top_p": _optional(float),
    "presence_penalty": _optional(float),
    "frequency_penalty": _optional(float),
    "top_logprobs": _optional(int),
    "max_output_tokens": _optional(int),
    "max_tool_calls": _optional(int),
    "parallel_tool_calls": _optional(bool),
    "truncation": _optional(str),
    "service_tier": _optional(str),
    "safety_identifier": _optional(str),
    "prompt_cache_key": _optional(str),
    "user": _optional(str),
    "metadata": _optional(dict[str, str]),
    "reasoning": _optional(dict[str, Raw]),
    "text": _optional(dict[str, Raw]),
    "include": _optional(list[str]),
    "tools": _optional(list[Raw]),
    "prompt_cache_options": _optional(dict[str, Raw]),
}

# What is decoded holds the event loop up meanwhile: of members that are never large the size is bounded, of the others
# to many times what clients send (Codex: 20 kB of instructions, 60 kB of tools).
_SMALL_BYTES = 64 * 1024
_MOST_BYTES = {"instructions": 64 * 1024 * 1024, "tools": 8 * 1024 * 1024, "text": 1024 * 1024}

# Members that would need state or work we do not have: refusing beats an answer that silently lacks them.
_REFUSED: Mapping[str, str] = {
    "conversation": "Conversations are not kept here; continue with 'previous_response_id'.",
}


# Members that belong to one turn: all others are its terms, which clients repeat.
_OWN = frozenset(
    {
        "type",
        "event_id",
        "stream_id",
        "previous_response_id",
        "generate",
        "prompt_cache_options",
        "metadata",
        "client_metadata",
    }
)

_SEALED = "reasoning.encrypted_content"


class Limits(NamedTuple):
    """Bounds on one request: number of input items and of tools."""

    input_items: int = 100_000
    tools: int = 1024


class Create(msgspec.Struct, frozen=True, eq=False):
    """A `response.create`, or the body of `POST /v1/responses`.

    `terms` are the members that clients repeat from turn to turn, `own` those that may differ in each, without
    `input`, as raw JSON, nulls left out; `own_values` are the decoded ones of the latter. `items` is the delta. `size`
    is the message's length in bytes.
    """

    terms: Terms
    own: Mapping[str, Raw]
    own_values: Mapping[str, Any]
    items: tuple[Item, ...]
    size: int

    @property
    def model(self) -> str | None:
        """The model as the client names it."""
        return self.terms.values.get("model")

    @property
    def parent_id(self) -> str | None:
        """`previous_response_id`; null equals omitted."""
        return self.own_values.get("previous_response_id")

    @property
    def store(self) -> bool:
        """May the response be found by its id on another socket? True when omitted."""
        return bool(self.terms.values.get("store", True))

    @property
    def background(self) -> bool:
        """Does nobody wait for the response?"""
        return bool(self.terms.values.get("background"))

    @property
    def generate(self) -> bool:
        """False for a warm-up, which gets an id and no output."""
        return _generates(self.own_values)

    @property
    def wants_sealed(self) -> bool:
        """Does the client want reasoning sealed, to send it back?"""
        return _SEALED in (self.terms.values.get("include") or ())

    @property
    def members(self) -> dict[str, Raw]:
        """All of them but `input`."""
        return {**self.terms.members, **self.own}

    def limited(self, max_output_tokens: int) -> Create:
        """The same, with a limit on its answer where the client set none; 0 sets none either."""
        if not max_output_tokens or "max_output_tokens" in self.terms.members:
            return self
        limit = max_output_tokens
        return replace(self, terms=self.terms.made(f"at most {limit}", (), lambda: _with_limit(self.terms, limit)))

    def value(self, name: str) -> Any:
        """A member's value, of those that are decoded; None where it is absent."""
        return self.own_values.get(name) if name in _OWN else self.terms.values.get(name)

    def raw(self, name: str) -> bytes | None:
        """A member's JSON, or None where it is absent or null."""
        value = (self.own if name in _OWN else self.terms.members).get(name)
        return None if value is None else bytes(value)


def _with_limit(terms: Terms, limit: int) -> Terms:
    named = "max_output_tokens"
    return Terms({**terms.members, named: Raw(b"%d" % limit)}, {**terms.values, named: limit})


def parse_message(data: bytes) -> tuple[str, dict[str, Raw]]:
    """A WebSocket message → its `type` and all its members, undecoded.

    Raises `LooplineError`: invalid_unicode, invalid_json, too_deep, invalid_request, missing_parameter.
    """
    members = decode_object(data)
    kind = members.get("type")
    if kind is None:
        raise LooplineError(Kind.MISSING_PARAMETER, "Missing required parameter: 'type'.", param="type")
    return decode(_STRING, kind, "'type'", "type"), members


_STRING = msgspec.json.Decoder(str)


class ReadItems(Protocol):
    """Reads the items of an input that may be a whole history."""

    def __call__(self, parts: Sequence[Raw], *, stored: bool) -> tuple[Item, ...]: ...


def parse_create(
    members: Mapping[str, Raw],
    size: int,
    limits: Limits,
    find: FindTerms | None = None,
    *,
    may_wait: bool = False,
    needs_input: bool = True,
    read_items: ReadItems | None = None,
) -> Create:
    """Check and take apart a create's members.

    `find` gives the terms that were parsed before. `may_wait` says that the response can be asked for later, so that
    `background` makes sense; `needs_input` is false where tokens are only counted. `read_items` reads an input of
    several items that continues nothing by its id.

    Raises `LooplineError` (missing_parameter, unsupported_parameter, invalid_request, too_deep …) with `param` set.
    """
    own: dict[str, Raw] = {}
    lasting: dict[str, Raw] = {}
    for name, raw in members.items():
        if raw != NULL and name != "input":
            (own if name in _OWN else lasting)[name] = raw
    terms = find(lasting, parse_terms) if find is not None else parse_terms(lasting)
    own_values = {name: _value(name, raw) for name, raw in own.items() if name in _TYPES}
    if terms.values.get("background"):
        _check_background(terms.values, may_wait=may_wait)
    if len(terms.values.get("tools") or ()) > limits.tools:
        raise LooplineError(
            Kind.INVALID_REQUEST,
            f"'tools' holds more than {limits.tools} tools (limits.tools).",
            param="tools",
            limit="limits.tools",
        )
    required = needs_input and _generates(own_values)
    read = None
    if read_items is not None and own_values.get("previous_response_id") is None:
        read = partial(read_items, stored=bool(terms.values.get("store", True)))
    return Create(terms, own, own_values, _input(members.get("input"), limits, required=required, read=read), size)


def _value(name: str, raw: Raw) -> Any:
    most = _MOST_BYTES.get(name, _SMALL_BYTES)
    size = memoryview(raw).nbytes
    if size > most:
        raise LooplineError(
            Kind.INVALID_REQUEST, f"'{name}' has {size} bytes, more than the {most} that it may have.", param=name
        )
    return decode(_TYPES[name], raw, f"'{name}'", name)


def parse_terms(members: Mapping[str, Raw]) -> Terms:
    """Check and decode what clients repeat from turn to turn. Raises `LooplineError` as `parse_create` does."""
    for name, reason in _REFUSED.items():
        if name in members:
            raise LooplineError(Kind.UNSUPPORTED_PARAMETER, f"'{name}' is not supported: {reason}", param=name)
    values = {name: _value(name, raw) for name, raw in members.items() if name in _TYPES}
    return Terms(members, values)


def _check_background(values: Mapping[str, Any], *, may_wait: bool) -> None:
    if not may_wait:
        raise LooplineError(
            Kind.UNSUPPORTED_PARAMETER,
            "'background' is not supported on a WebSocket; leave it out, or use POST.",
            param="background",
        )
    if values.get("store") is False:
        raise LooplineError(
            Kind.INVALID_REQUEST,
            "'background' needs 'store' to be true: the response is asked for by its id.",
            param="background",
        )


def _generates(values: Mapping[str, Any]) -> bool:
    """`prompt_cache_options.prewarm` is another way to say `generate: false`."""
    if values.get("generate") is False:
        return False
    options = values.get("prompt_cache_options")
    return not options or bytes(options.get("prewarm", NULL)) != b"true"


_Read = Callable[[Sequence[Raw]], tuple[Item, ...]]


def _input(raw: Raw | None, limits: Limits, *, required: bool, read: _Read | None) -> tuple[Item, ...]:
    if raw is not None and not is_null(raw):
        return parse_input(raw, limits, read)
    if required:
        raise LooplineError(Kind.MISSING_PARAMETER, "Missing required parameter: 'input'.", param="input")
    return ()


def parse_input(raw: Raw, limits: Limits, read: _Read | None = None) -> tuple[Item, ...]:
    """An input, a string or an array of items; `read` reads several.

    Raises `LooplineError` (invalid_request …) with `param` set.
    """
    first = bytes(memoryview(raw)[:1])
    if first == b'"':
        decode(_STRING, raw, "'input'", "input")
        return (user_message(raw),)
    if first != b"[":
        raise LooplineError(Kind.INVALID_REQUEST, "'input' must be a string or an array of items.", param="input")
    parts = decode_array(raw, "'input'", "input")
    if len(parts) > limits.input_items:
        raise LooplineError(
            Kind.INVALID_REQUEST,
            f"'input' holds more than {limits.input_items} items (limits.input_items).",
            param="input",
            limit="limits.input_items",
        )
    if read is not None and len(parts) > 1:
        return read(parts)
    return tuple([parse_item(part, f"input[{index}]") for index, part in enumerate(parts)])
