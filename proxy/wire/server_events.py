"""Events of a response, as bytes without any transport's framing.

Every event starts with its `type`, then its `sequence_number`; the transports rely on the first. What is constant over
an item's deltas is encoded once, in a prefix; a delta is one join of bytes. Source: API reference, Responses,
streaming events; protocol.md 2.2 and 4.1.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from proxy.wire.client_events import Create
from proxy.wire.codec import Raw, decode, encode, is_null
from proxy.wire.items import string

LEFT_OUT = "loopline.left_out"
_MAX_METADATA = 16  # keys (API reference, Responses, metadata); a client's own are not displaced
_DEFAULT_TEXT = b'{"format":{"type":"text"}}'


def event(kind: bytes, sequence: int, rest: bytes) -> bytes:
    """One event. `rest` is the remaining members, without braces."""
    return b'{"type":"%b","sequence_number":%d,%b}' % (kind, sequence, rest)


def text_part(text: bytes) -> bytes:
    """An output_text part. `text` is its JSON string."""
    return b'{"type":"output_text","text":' + text + b',"annotations":[],"logprobs":[]}'


def refusal_part(text: bytes) -> bytes:
    """A refusal part. `text` is its JSON string."""
    return b'{"type":"refusal","refusal":' + text + b"}"


def reasoning_part(text: bytes) -> bytes:
    """A reasoning_text part. `text` is its JSON string."""
    return b'{"type":"reasoning_text","text":' + text + b"}"


def usage(tokens_in: int, cached: int, tokens_out: int, reasoning: int, total: int) -> bytes:
    """The usage object; all counts are tokens."""
    return (
        b'{"input_tokens":%d,"input_tokens_details":{"cached_tokens":%d,"cache_write_tokens":0},'
        b'"output_tokens":%d,"output_tokens_details":{"reasoning_tokens":%d},"total_tokens":%d}'
        % (tokens_in, cached, tokens_out, reasoning, total)
    )


NO_USAGE = usage(0, 0, 0, 0, 0)


class Snapshot:
    """The response object inside lifecycle events and HTTP answers: all keys of the schema, in every state.

    What does not change over a turn is encoded once. `tools` is the echo of the request's tools, a JSON array.
    `left_out` says what the upstream could not be told; it stands in the metadata under `LEFT_OUT`.
    """

    __slots__ = ("_head", "_tail", "id")

    def __init__(
        self, response: str, create: Create, model: str, tools: bytes, created_at: int, left_out: str = ""
    ) -> None:
        self.id = response
        self._head = b'{"id":"%b","object":"response","created_at":%d,' % (response.encode(), created_at)
        self._tail = b"," + _echo(create, model, tools, left_out) + b"}"

    def render(
        self,
        status: bytes,
        *,
        output: bytes = b"",
        usage: bytes = b"null",
        error: bytes = b"null",
        incomplete: bytes = b"null",
        completed_at: int | None = None,
    ) -> bytes:
        """The object in one state. `output` is the items joined by commas, the others JSON values."""
        at = b"null" if completed_at is None else b"%d" % completed_at
        return b'%b"status":"%b","completed_at":%b,"error":%b,"incomplete_details":%b,"output":[%b],"usage":%b%b' % (
            self._head,
            status,
            at,
            error,
            incomplete,
            output,
            usage,
            self._tail,
        )


# Member → what the snapshot says where the request was silent (protocol.md 2.3: 31 keys, always).
_ECHOED: Mapping[str, bytes] = {
    "previous_response_id": b"null",
    "instructions": b"null",
    "tool_choice": b'"auto"',
    "truncation": b'"disabled"',
    "parallel_tool_calls": b"true",
    "top_p": b"1.0",
    "presence_penalty": b"0.0",
    "frequency_penalty": b"0.0",
    "top_logprobs": b"0",
    "temperature": b"1.0",
    "max_output_tokens": b"null",
    "max_tool_calls": b"null",
    "store": b"true",
    "background": b"false",
    "service_tier": b'"default"',
    "safety_identifier": b"null",
    "prompt_cache_key": b"null",
}


def _echo(create: Create, model: str, tools: bytes, left_out: str) -> bytes:
    metadata = create.raw("metadata") or b"{}"
    given = create.values.get("metadata") or {}
    if left_out and len(given) < _MAX_METADATA and LEFT_OUT not in given:
        metadata = encode({**given, LEFT_OUT: left_out})
    members = [b'"model":' + string(model), b'"tools":' + tools, b'"metadata":' + metadata]
    for name, default in _ECHOED.items():
        members.append(b'"%b":%b' % (name.encode(), create.raw(name) or default))
    members.append(b'"text":' + _text(create.values.get("text")))
    members.append(b'"reasoning":' + _reasoning(create.values.get("reasoning")))
    return b",".join(members)


def _text(text: dict[str, Raw] | None) -> bytes:
    if not text:
        return _DEFAULT_TEXT
    given = {name: value for name, value in text.items() if not is_null(value)}
    return encode({"format": Raw(b'{"type":"text"}'), **given})


def _reasoning(reasoning: dict[str, Raw] | None) -> bytes:
    return encode({"effort": None, "summary": None, **reasoning}) if reasoning else b"null"


class _Tool(msgspec.Struct):
    type: str = ""


_TOOL_HEAD = msgspec.json.Decoder(_Tool)
_TOOL_FULL = msgspec.json.Decoder(dict[str, Raw])


def echo_tool(raw: bytes | Raw) -> bytes:
    """A tool as snapshots show it: a function tool with all of its keys, others as they came."""
    if decode(_TOOL_HEAD, raw, "A tool", "tools").type != "function":
        return bytes(raw)
    members = decode(_TOOL_FULL, raw, "A tool", "tools")
    return encode({"type": "function", "name": "", "description": None, "parameters": None, "strict": None, **members})
