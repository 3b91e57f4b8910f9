"""The parts that hold an answer's words, text, refusal and reasoning: their items and events, as bytes.

Source: API reference, Responses, output items and streaming events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from proxy.wire import server_events as events
from proxy.wire.codec import encode


class Marks(NamedTuple):
    """What stands beside a piece of text: JSON objects joined by commas, and annotations one by one.

    `told` are log-probabilities as events have them, `kept` as the part does.
    """

    told: bytes = b""
    kept: bytes = b""
    annotations: tuple[bytes, ...] = ()


class Shape(NamedTuple):
    """A kind of part. `kind` is its item's type, `role` the item's, `prefix` starts the item's id.

    `added` is the item when it is announced (of its id), `item` the whole one (of id, status and part). `events`
    starts the names of the events, `member` holds the text in the last of them, `extra` is what they hold besides.
    """

    kind: str
    role: str | None
    prefix: bytes
    added: bytes
    item: bytes
    part: Callable[[bytes], bytes]
    events: bytes
    member: bytes
    extra: bytes = b""


_NEW_MESSAGE = b'{"type":"message","id":"%b","status":"in_progress","role":"assistant","content":[]}'
_MESSAGE = b'{"type":"message","id":"%b","status":"%b","role":"assistant","content":[%b]}'
_NEW_REASONING = b'{"type":"reasoning","id":"%b","status":"in_progress","summary":[],"content":[]}'
_REASONING = b'{"type":"reasoning","id":"%b","status":"%b","summary":[],"content":[%b]}'

# Kind of what is said → its shape.
SHAPES: Mapping[str, Shape] = {
    "text": Shape(
        "message",
        "assistant",
        b"msg",
        _NEW_MESSAGE,
        _MESSAGE,
        events.text_part,
        b"response.output_text",
        b"text",
        b',"logprobs":[]',
    ),
    "refusal": Shape(
        "message",
        "assistant",
        b"msg",
        _NEW_MESSAGE,
        _MESSAGE,
        events.refusal_part,
        b"response.refusal",
        b"refusal",
    ),
    "reasoning": Shape(
        "reasoning",
        None,
        b"rs",
        _NEW_REASONING,
        _REASONING,
        events.reasoning_part,
        b"response.reasoning_text",
        b"text",
    ),
}


def place(item_id: bytes, index: int) -> bytes:
    """The members that say which part an event is of. An item made here has one part."""
    return b'"item_id":"%b","output_index":%d,"content_index":0' % (item_id, index)


def whole_part(shape: Shape, text: bytes, marks: Iterable[Marks]) -> tuple[bytes, bytes]:
    """A part and what else its text's `done` event holds. `text` is its JSON string."""
    marks = list(marks)
    if not marks:
        return shape.part(text), shape.extra
    annotations = b",".join(annotation for mark in marks for annotation in mark.annotations)
    part = b'{"type":"output_text","text":%b,"annotations":[%b],"logprobs":[%b]}' % (
        text,
        annotations,
        b",".join(mark.kept for mark in marks if mark.kept),
    )
    return part, b',"logprobs":[%b]' % b",".join(mark.told for mark in marks if mark.told)


def marked_delta(delta: str, marks: Marks) -> bytes:
    """What a text delta with log-probabilities holds besides its place."""
    return b',"logprobs":[%b],"delta":%b' % (marks.told, encode(delta))
