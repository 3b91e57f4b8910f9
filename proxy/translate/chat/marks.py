"""Log-probabilities and annotations of chat chunks, as Responses events and parts have them.

Source: API reference, Chat Completions, `logprobs` and `annotations`; Responses, output_text. What cannot be read is
left out: the answer itself is whole without.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from proxy.translate.answer.parts import Marks
from proxy.wire.codec import encode


class _Top(msgspec.Struct):
    token: str
    logprob: float
    bytes: list[int] | None = None


class _Token(_Top):
    top_logprobs: list[_Top] | None = None


class _Logprobs(msgspec.Struct):
    content: list[_Token] | None = None


class _Choice(msgspec.Struct):
    index: int = 0
    logprobs: _Logprobs | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None


class _Citation(msgspec.Struct):
    url: str
    title: str | None = None
    start_index: int | None = None
    end_index: int | None = None


class _Annotation(msgspec.Struct):
    type: Literal["url_citation"]
    url_citation: _Citation


class Logged(NamedTuple):
    """Tokens with their log-probabilities: JSON objects joined by commas, as events and as parts have them."""

    told: bytes = b""
    kept: bytes = b""


_LOGPROBS = msgspec.json.Decoder(_Chunk)
NOTHING = Logged()


def read_logprobs(payload: bytes) -> Logged:
    """Those of a chunk; `NOTHING` where it has none or none that can be read. For those alone who asked for them."""
    try:
        read = _LOGPROBS.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        return NOTHING
    found = [choice.logprobs.content for choice in read.choices or () if choice.index == 0 and choice.logprobs]
    tokens = found[0] or [] if found else []
    return Logged(_joined([_told(token) for token in tokens]), _joined([_kept(token) for token in tokens]))


def _joined(tokens: Sequence[dict[str, Any]]) -> bytes:
    return b",".join(encode(token) for token in tokens)


def joined(pieces: Sequence[Logged]) -> Logged:
    """The tokens of all of them."""
    return Logged(*(b",".join(each for each in part if each) for part in zip(*pieces, strict=True)))


def _told(token: _Token) -> dict[str, Any]:
    top = [{"token": each.token, "logprob": each.logprob} for each in token.top_logprobs or ()]
    return {"token": token.token, "logprob": token.logprob, "top_logprobs": top}


def _kept(token: _Token) -> dict[str, Any]:
    return {**_whole(token), "top_logprobs": [_whole(each) for each in token.top_logprobs or ()]}


def _whole(token: _Top) -> dict[str, Any]:
    # The part's schema wants bytes; some servers send null.
    in_bytes = list(token.token.encode()) if token.bytes is None else token.bytes
    return {"token": token.token, "logprob": token.logprob, "bytes": in_bytes}


def read_annotations(given: Any) -> tuple[bytes, ...]:
    """A delta's `annotations`: citations of web pages, the only ones that Chat Completions has."""
    found = []
    for each in given if isinstance(given, list) else ():
        try:
            found.append(_cited(msgspec.convert(each, _Annotation).url_citation))
        except (msgspec.ValidationError, RecursionError):
            continue
    return tuple(found)


def _cited(citation: _Citation) -> bytes:
    return encode(
        {
            "type": "url_citation",
            "url": citation.url,
            "title": citation.title or "",
            "start_index": citation.start_index or 0,
            "end_index": citation.end_index or 0,
        }
    )


def marks(logged: Logged, annotations: tuple[bytes, ...] = ()) -> Marks:
    """What stands beside a piece of text."""
    return Marks(logged.told, logged.kept, annotations)
