"""What the bench's upstream answers: bytes prepared once for each length, in both dialects; pure.

A request says what it wants by a marker in its last text:

    [[bench deltas=100 gap_us=1000 burst=1 ttft_ms=30 stamp=1 call=1]]

`deltas` is the number of tokens and `ttft_ms` the wait before the first. `burst` tokens go into one write, `gap_us`
after the one before or, at 0, as fast as it can; without a burst the whole answer is one write. With `stamp` each token
is the moment at which it was written, with `call` the answer is one call of a tool. History holds older markers; the
last one counts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import NamedTuple

MODEL = "bench"
TOOL = "shell"
_OPEN = b"[[bench "
_WANTED = re.compile(rb"(\w+)=(\d+)")
# Of the width of what takes their place, so that lengths stay right.
_ID = b"000000000000000000000000"
STAMP = b"@@@@@@@@@@@@@@@@@@@"
# Two in turn: there are gateways that take one token again and again for a model that has lost its way.
_TOKENS = (b"tik ", b"tok ")


@dataclass(frozen=True, slots=True)
class Wanted:
    """One answer: what the marker asks for. `stamp` and `call` are 0 or 1."""

    deltas: int = 10
    gap_us: int = 0
    burst: int = 0
    ttft_ms: int = 0
    stamp: int = 0
    call: int = 0

    @property
    def marker(self) -> str:
        """The text that asks for this."""
        told = (f"{field.name}={getattr(self, field.name)}" for field in fields(self))
        return f"[[bench {' '.join(told)}]]"

    @property
    def at_once(self) -> bool:
        """Whether the whole answer is one write."""
        return not (self.burst or self.ttft_ms or self.stamp)

    @property
    def is_fine(self) -> bool:
        """Whether a gap is shorter than a millisecond, the step of an event loop's timers."""
        return 0 < self.gap_us < 1000


_NAMES = frozenset(field.name for field in fields(Wanted))


def wanted(body: bytes | bytearray) -> Wanted:
    """What a request asks for; an answer of 10 tokens at once where it has no marker."""
    at = body.rfind(_OPEN)
    if at < 0:
        return Wanted()
    told = _WANTED.findall(body[at : body.find(b"]]", at)])
    return Wanted(**{name.decode(): int(value) for name, value in told if name.decode() in _NAMES})


def _tokens(count: int) -> list[bytes]:
    return [_TOKENS[number % 2] for number in range(count)]


class Answer(NamedTuple):
    """A streamed answer: events before the tokens, an event for each token, what follows. All hold `_ID`."""

    head: bytes
    deltas: Sequence[bytes]
    tail: bytes

    def named(self, number: int) -> Answer:
        """The same with ids of its own."""
        own = b"%024d" % number
        return Answer(
            self.head.replace(_ID, own), [delta.replace(_ID, own) for delta in self.deltas], self.tail.replace(_ID, own)
        )


@lru_cache(64)
def answer(dialect: str, deltas: int, stamp: int, call: int) -> Answer:
    """The answer of so many tokens in `chat` or `responses`."""
    tokens = [STAMP] * deltas if stamp else _tokens(deltas)
    if dialect == "chat":
        return _chat_call(deltas) if call else _chat(tokens)
    return _responses_call(deltas) if call else _responses(tokens)


@lru_cache(64)
def whole_stream(dialect: str, deltas: int, call: int) -> bytes:
    """The same as one piece, for an answer in one write."""
    head, tokens, tail = answer(dialect, deltas, 0, call)
    return head + b"".join(tokens) + tail


def renamed(stream: bytes, number: int) -> bytes:
    """A stream with ids of its own."""
    return stream.replace(_ID, b"%024d" % number)


# ----------------------------------------------------------------------------------------------------------------- chat


def _chunk(delta: bytes, finish: bytes = b"null") -> bytes:
    return (
        b'data: {"id":"chatcmpl-' + _ID + b'","object":"chat.completion.chunk","created":1790000000,"model":"bench",'
        b'"choices":[{"index":0,"delta":' + delta + b',"logprobs":null,"finish_reason":' + finish + b"}]}\n\n"
    )


def _chat_end(deltas: int, finish: bytes) -> bytes:
    usage = (
        b'{"prompt_tokens":10,"completion_tokens":%d,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":0}}'
        % (deltas, deltas + 10)
    )
    return (
        _chunk(b"{}", finish) + b'data: {"id":"chatcmpl-' + _ID + b'","object":"chat.completion.chunk",'
        b'"created":1790000000,"model":"bench","choices":[],"usage":' + usage + b"}\n\ndata: [DONE]\n\n"
    )


def _chat(tokens: Sequence[bytes]) -> Answer:
    head = _chunk(b'{"role":"assistant","content":""}')
    pieces = [_chunk(b'{"content":"' + token + b'"}') for token in tokens]
    return Answer(head, pieces, _chat_end(len(tokens), b'"stop"'))


def _chat_call(deltas: int) -> Answer:
    head = _chunk(
        b'{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_' + _ID + b'","type":"function",'
        b'"function":{"name":"' + TOOL.encode() + b'","arguments":""}}]}'
    )
    pieces = [
        _chunk(b'{"tool_calls":[{"index":0,"function":{"arguments":"' + piece + b'"}}]}')
        for piece in _arguments(deltas)
    ]
    return Answer(head, pieces, _chat_end(deltas, b'"tool_calls"'))


def _arguments(deltas: int) -> list[bytes]:
    """A call's arguments in so many pieces, at least two, each as it stands inside of a JSON string."""
    return [b'{\\"command\\":\\"', *_tokens(deltas - 2), b'\\"}']


# ------------------------------------------------------------------------------------------------------------ responses

_RESPONSE = (
    b'{"id":"resp_' + _ID + b'","object":"response","created_at":1790000000,"completed_at":null,"status":"@STATUS",'
    b'"incomplete_details":null,"model":"bench","previous_response_id":null,"instructions":null,"output":@OUTPUT,'
    b'"error":null,"tools":[],"tool_choice":"auto","truncation":"disabled","parallel_tool_calls":true,'
    b'"text":{"format":{"type":"text"}},"top_p":1.0,"presence_penalty":0.0,"frequency_penalty":0.0,"top_logprobs":0,'
    b'"temperature":1.0,"reasoning":null,"usage":@USAGE,"max_output_tokens":null,"max_tool_calls":null,"store":false,'
    b'"background":false,"service_tier":"default","metadata":{},"safety_identifier":null,"prompt_cache_key":null}'
)


def _response(status: bytes, output: bytes, usage: bytes) -> bytes:
    return _RESPONSE.replace(b"@STATUS", status).replace(b"@OUTPUT", output).replace(b"@USAGE", usage)


class _Events:
    """Numbers events as they are made."""

    def __init__(self) -> None:
        self._number = 0

    def __call__(self, name: bytes, rest: bytes) -> bytes:
        numbered = b'"sequence_number":%d,' % self._number
        self._number += 1
        return b"event: " + name + b'\ndata: {"type":"' + name + b'",' + numbered + rest + b"}\n\n"


def _responses(tokens: Sequence[bytes]) -> Answer:
    of = b'"item_id":"msg_' + _ID + b'","output_index":0,"content_index":0,'
    text = b"".join(tokens)

    def part(text: bytes) -> bytes:
        return b'{"type":"output_text","text":"' + text + b'","annotations":[],"logprobs":[]}'

    def item(status: bytes, content: bytes) -> bytes:
        return (
            b'{"id":"msg_' + _ID + b'","type":"message","status":"' + status + b'","role":"assistant","content":['
            + content + b"]}"
        )  # fmt: skip

    event = _Events()
    head = _begin(event, item(b"in_progress", b"")) + event(b"response.content_part.added", of + b'"part":' + part(b""))
    name = b"response.output_text.delta"
    pieces = [event(name, of + b'"delta":"' + token + b'","logprobs":[]') for token in tokens]
    tail = event(b"response.output_text.done", of + b'"text":"' + text + b'","logprobs":[]')
    tail += event(b"response.content_part.done", of + b'"part":' + part(text))
    return Answer(head, pieces, tail + _end(event, item(b"completed", part(text)), len(tokens)))


def _responses_call(deltas: int) -> Answer:
    of = b'"item_id":"fc_' + _ID + b'","output_index":0,'
    pieces = _arguments(deltas)
    arguments = b"".join(pieces)

    def item(status: bytes, arguments: bytes) -> bytes:
        return (
            b'{"id":"fc_' + _ID + b'","type":"function_call","status":"' + status + b'","call_id":"call_' + _ID
            + b'","name":"' + TOOL.encode() + b'","arguments":"' + arguments + b'"}'
        )  # fmt: skip

    event = _Events()
    head = _begin(event, item(b"in_progress", b""))
    name = b"response.function_call_arguments."
    tokens = [event(name + b"delta", of + b'"delta":"' + piece + b'"') for piece in pieces]
    tail = event(name + b"done", of + b'"name":"' + TOOL.encode() + b'","arguments":"' + arguments + b'"')
    return Answer(head, tokens, tail + _end(event, item(b"completed", arguments), deltas))


def _begin(event: _Events, item: bytes) -> bytes:
    started = b'"response":' + _response(b"in_progress", b"[]", b"null")
    return (
        event(b"response.created", started)
        + event(b"response.in_progress", started)
        + event(b"response.output_item.added", b'"output_index":0,"item":' + item)
    )


def _end(event: _Events, item: bytes, deltas: int) -> bytes:
    usage = (
        b'{"input_tokens":10,"output_tokens":%d,"total_tokens":%d,"input_tokens_details":{"cached_tokens":0},'
        b'"output_tokens_details":{"reasoning_tokens":0}}' % (deltas, deltas + 10)
    )
    done = event(b"response.output_item.done", b'"output_index":0,"item":' + item)
    return done + event(b"response.completed", b'"response":' + _response(b"completed", b"[" + item + b"]", usage))


# ----------------------------------------------------------------------------------------------------------- unstreamed


@lru_cache(64)
def whole(dialect: str, deltas: int) -> bytes:
    """The answer of a request that does not stream: one JSON object."""
    if dialect == "chat":
        usage = b'{"prompt_tokens":10,"completion_tokens":%d,"total_tokens":%d}' % (deltas, deltas + 10)
        return (
            b'{"id":"chatcmpl-' + _ID + b'","object":"chat.completion","created":1790000000,"model":"bench","choices":'
            b'[{"index":0,"message":{"role":"assistant","content":"'
            + b"".join(_tokens(deltas))
            + b'"},"finish_reason":"stop"}]'
            b',"usage":' + usage + b"}"
        )
    tail = _responses(_tokens(deltas)).tail
    return tail[tail.rindex(b'"response":{') + len(b'"response":') : tail.rindex(b"}")]
