"""Events of a response, as bytes without any transport's framing.

Every event starts with its `type`, then its `sequence_number`; the transports rely on the first. What is constant over
an item's deltas is encoded once, in a prefix; a delta is one join of bytes. Source: API reference, Responses,
streaming events; protocol.md 2.2 and 4.1.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from proxy.wire.client_events import Create
from proxy.wire.codec import Raw, decode, encode, is_null
from proxy.wire.items import string
from proxy.wire.terms import Terms

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


class Shown(msgspec.Struct, frozen=True):
    """A response object in one state, in pieces, its output left out: what is kept of it to be shown again.

    `before` goes up to the output's bracket, `usage` starts with the closing one, `tail` echoes the request. `output`
    is there only where what was shown is not the bytes of the answer's items.
    """

    status: bytes
    background: bool
    before: bytes
    usage: bytes
    tail: tuple[bytes, ...]
    output: bytes | None = None

    def render(self, output: bytes) -> bytes:
        """The object. `output` is the items joined by commas."""
        given = output if self.output is None else self.output
        return b"".join((self.before, given, self.usage, *self.tail))

    def sharing(self, other: Shown | None) -> tuple[Shown, int]:
        """The same, made of `other`'s bytes where they are equal, and how many bytes it holds beside those."""
        theirs = other.tail if other is not None else (b"",) * len(self.tail)
        tail = tuple(old if old == new else new for old, new in zip(theirs, self.tail, strict=True))
        own = sum(len(new) for old, new in zip(theirs, tail, strict=True) if new is not old)
        return replace(self, tail=tail), own + len(self.before) + len(self.usage) + len(self.output or b"")


class Snapshot:
    """The response object inside lifecycle events and HTTP answers: all keys of the schema, in every state.

    What does not change over a turn is encoded once. `tools` is the echo of the request's tools, a JSON array.
    `left_out` says what the upstream could not be told; it stands in the metadata under `LEFT_OUT`.
    """

    __slots__ = ("_background", "_head", "_tail", "id")

    def __init__(
        self, response: str, create: Create, model: str, tools: bytes, created_at: int, left_out: str = ""
    ) -> None:
        self.id = response
        self._background = create.background
        self._head = b'{"id":"%b","object":"response","created_at":%d,' % (response.encode(), created_at)
        self._tail = _echo(create, model, tools, left_out)

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
        shown = self.shown(status, usage=usage, error=error, incomplete=incomplete, completed_at=completed_at)
        return shown.render(output)

    def shown(
        self,
        status: bytes,
        *,
        usage: bytes = b"null",
        error: bytes = b"null",
        incomplete: bytes = b"null",
        completed_at: int | None = None,
    ) -> Shown:
        """The object in one state, without its output. All are JSON values."""
        at = b"null" if completed_at is None else b"%d" % completed_at
        before = b'%b"status":"%b","completed_at":%b,"error":%b,"incomplete_details":%b,"output":[' % (
            self._head,
            status,
            at,
            error,
            incomplete,
        )
        return Shown(status, self._background, before, b'],"usage":' + usage, self._tail)


# Member → what the snapshot says where the request was silent (protocol.md 2.3: 31 keys, always). `_echo` adds those
# whose place it decides.
_ECHOED: Mapping[str, bytes] = {
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


def _echo(create: Create, model: str, tools: bytes, left_out: str) -> tuple[bytes, ...]:
    """The members that echo the request; apart from the others those that are long and the same in every turn."""
    metadata = create.raw("metadata") or b"{}"
    given = create.value("metadata") or {}
    if left_out and len(given) < _MAX_METADATA and LEFT_OUT not in given:
        metadata = encode({**given, LEFT_OUT: left_out})
    parent = create.raw("previous_response_id") or b"null"
    lasting = create.terms.made("echo", (), lambda: _echo_terms(create.terms))
    return (
        b',"model":%b,"tools":' % string(model),
        tools,
        b',"metadata":%b,"previous_response_id":%b,"instructions":' % (metadata, parent),
        *lasting,
    )


def _echo_terms(terms: Terms) -> tuple[bytes, bytes]:
    """The instructions, and the members that are short."""

    def raw(name: str) -> bytes | None:
        return bytes(terms.members[name]) if name in terms.members else None

    members = [b'"%b":%b' % (name.encode(), raw(name) or default) for name, default in _ECHOED.items()]
    members.append(b'"text":' + _text(terms.values.get("text")))
    members.append(b'"reasoning":' + _reasoning(terms.values.get("reasoning")))
    return raw("instructions") or b"null", b"," + b",".join(members) + b"}"


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
