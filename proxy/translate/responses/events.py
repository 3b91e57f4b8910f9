"""What a Responses upstream sends: the members that are acted on, and what its items and its usage mean."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from proxy.errors import Kind, LooplineError
from proxy.translate.base import Tokens, counted
from proxy.wire import server_events as events
from proxy.wire.codec import NULL, Raw, encode
from proxy.wire.items import Item, parse_item


class Event(msgspec.Struct, gc=False):
    type: str = ""
    response: Raw = NULL
    item: Raw = NULL
    error: Raw = NULL
    code: Raw = NULL
    message: Raw = NULL
    delta: Raw = NULL
    stream_id: Raw = NULL
    logprobs: Raw = NULL
    part: Raw = NULL
    text: Raw = NULL
    refusal: Raw = NULL
    arguments: Raw = NULL
    input: Raw = NULL
    annotation: Raw = NULL
    name: str | None = None
    item_id: str | None = None
    output_index: int | None = None
    content_index: int | None = None
    summary_index: int | None = None


class Head(msgspec.Struct, gc=False):
    id: str | None = None
    call_id: str | None = None
    type: str | None = None


class Open(NamedTuple):
    """An item that was added and is not done, and what tells it from others."""

    raw: Raw
    head: Head


class _Details(msgspec.Struct, gc=False):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct, gc=False):
    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    input_tokens_details: _Details | None = None
    output_tokens_details: _Details | None = None


class Response(msgspec.Struct, gc=False):
    id: str | None = None
    status: str | None = None
    output: list[Raw] | None = None
    usage: Raw = NULL
    error: Raw = NULL
    incomplete_details: Raw = NULL


EVENT = msgspec.json.Decoder(Event | None)
RESPONSE = msgspec.json.Decoder(Response)
_USAGE = msgspec.json.Decoder(_Usage | None)
MEMBERS = msgspec.json.Decoder(dict[str, Raw])
HEAD = msgspec.json.Decoder(Head)

_NAMES: Sequence[Callable[[Head], str]] = (
    lambda head: head.id or "",
    lambda head: head.call_id or "",
    lambda head: "" if head.call_id else head.type or "",
)


def recognised(output: Sequence[Raw], told: Sequence[tuple[Head, int]]) -> list[int | None]:
    """Where each item of `output` is among those told of: the number beside it, None for a new one.

    By id, or by call id; else by type, in order: some servers give an item another id in the end.
    """
    heads = [HEAD.decode(raw) for raw in output]
    found: list[int | None] = [None] * len(heads)
    left = dict(enumerate(told))
    for name_of in _NAMES:
        named: dict[str, deque[int]] = {}
        for number, (head, _) in left.items():
            named.setdefault(name_of(head), deque()).append(number)
        for position, head in enumerate(heads):
            name = name_of(head)
            if found[position] is None and name and named.get(name):
                found[position] = left.pop(named[name].popleft())[1]
    return found


def output_item(raw: Raw) -> Item:
    try:
        return parse_item(raw, "output")
    except LooplineError as error:
        raise LooplineError(
            Kind.UPSTREAM_GARBLED, "The upstream sent an output item that is not valid.", cause=error.message
        ) from error


class _Incomplete(msgspec.Struct, gc=False):
    reason: str | None = None


_DETAILS = msgspec.json.Decoder(_Incomplete | None)
# Why an answer is incomplete (openai-python 3.57, IncompleteDetails).
_REASONS = frozenset({"max_output_tokens", "max_messages", "content_filter", "steered"})


def incomplete_details(raw: Raw) -> bytes:
    """Why an answer is incomplete; where the upstream does not say so in the API's words, by length."""
    try:
        details = _DETAILS.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        details = None
    known = details is not None and details.reason in _REASONS
    return b'{"reason":%b}' % encode(details.reason if details is not None and known else "max_output_tokens")


def read_usage(raw: Raw) -> tuple[bytes, Tokens | None]:
    try:
        usage = _USAGE.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        usage = None  # the answer is whole; only its price is unknown
    if usage is None:
        return b"null", None
    cached = usage.input_tokens_details.cached_tokens if usage.input_tokens_details else None
    reasoning = usage.output_tokens_details.reasoning_tokens if usage.output_tokens_details else None
    tokens = counted(usage.input_tokens, cached, usage.output_tokens, reasoning, usage.total_tokens)
    if tokens is None:
        return b"null", None
    return events.usage(tokens.input, tokens.cached, tokens.output, tokens.reasoning, tokens.total), tokens
