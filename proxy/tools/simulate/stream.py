"""What the dialects have in common: frames of a stream, their faults, and how they group into writes; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

import msgspec

from .script import Fault

DONE = b"data: [DONE]\n\n"
_GARBAGE = b'data: {"id": "broken, \xe2\x80\xa6\n\n'
_NULL = b"data: null\n\n"

encode = msgspec.json.Encoder().encode


class Frame(NamedTuple):
    """One server-sent event ready to send, and how many tokens it carries (0: structure)."""

    data: bytes
    tokens: int = 0


class Stream(NamedTuple):
    """A whole answer as events. `opening` leaves at once, the rest paced, `closing` after the last token and
    before `[DONE]`.

    `failure(sent)` makes the events that report a failure in the middle, after `sent` earlier ones.
    """

    opening: bytes
    frames: list[Frame]
    closing: bytes
    failure: Callable[[int], bytes]


Ending = Literal["done", "drop", "eof", "stall"]


class Course(NamedTuple):
    """A stream after its fault has been worked in: what is sent, and how it ends."""

    opening: bytes
    frames: list[Frame]
    closing: bytes
    ending: Ending = "done"


class Write(NamedTuple):
    """Bytes for one write. `last_token` is the number of the last token in it, from 0; -1 before the first."""

    data: bytes
    tokens: int
    last_token: int


def chunks(pieces: tuple[str, ...], size: int, start: int, boundary: int | None) -> Iterator[tuple[bytes, int]]:
    """Group tokens into the JSON strings of chunks.

    `start` tokens came before. No chunk crosses `boundary`, so that a fault strikes after exactly that many tokens.
    """
    position, end = 0, len(pieces)
    while position < end:
        stop = min(position + size, end)
        if boundary is not None and start + position < boundary < start + stop:
            stop = boundary - start
        yield encode(pieces[position] if stop == position + 1 else "".join(pieces[position:stop])), stop - position
        position = stop


def course(stream: Stream, fault: Fault | None, done: bool) -> Course:
    """Work a fault into a stream. A fault after 0 tokens strikes before the first event."""
    mark = DONE if done else b""
    if fault is None:
        return Course(stream.opening, stream.frames, stream.closing + mark)
    if fault.after == 0:
        head, tail = Course(b"", [], b""), [Frame(stream.opening), *stream.frames]
    else:
        cut = _position(stream.frames, fault.after)
        head, tail = Course(stream.opening, stream.frames[:cut], b""), stream.frames[cut:]
    return _spoilt(fault, head, tail, stream, mark)


def _position(frames: list[Frame], after: int) -> int:
    """The index behind the frame that carries the token number `after`."""
    tokens = 0
    for index, frame in enumerate(frames):
        tokens += frame.tokens
        if frame.tokens and tokens >= after:
            return index + 1
    return len(frames)


def _spoilt(fault: Fault, head: Course, tail: list[Frame], stream: Stream, mark: bytes) -> Course:
    if fault.kind in ("garbage", "null"):
        line = Frame(_GARBAGE if fault.kind == "garbage" else _NULL)
        return head._replace(frames=[*head.frames, line, *tail], closing=stream.closing + mark)
    if fault.kind == "error":
        sent = head.opening.count(b"\n\n") + sum(frame.data.count(b"\n\n") for frame in head.frames)
        return head._replace(closing=stream.failure(sent) + mark)
    return head._replace(ending=_ENDINGS[fault.kind])


_ENDINGS: Mapping[str, Ending] = {"drop": "drop", "eof": "eof", "stall": "stall"}


def writes(frames: Iterable[Frame], chunks_per_write: int) -> Iterator[Write]:
    """Group frames into writes of so many chunks; structure rides along with the chunk that follows it."""
    data: list[bytes] = []
    chunks_held = tokens = total = 0
    for frame in frames:
        data.append(frame.data)
        if frame.tokens:
            tokens += frame.tokens
            chunks_held += 1
            if chunks_held == chunks_per_write:
                total += tokens
                yield Write(b"".join(data), tokens, total - 1)
                data, chunks_held, tokens = [], 0, 0
    if data:
        total += tokens
        yield Write(b"".join(data), tokens, total - 1)
