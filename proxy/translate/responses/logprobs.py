"""Log-probabilities as events and as items have them: an item's also tell the bytes of each token.

Source: openai-python 3.57, ResponseTextDoneEvent and ResponseOutputText. What cannot be read is nothing.
"""

from __future__ import annotations

from typing import Any

import msgspec

from proxy.wire.codec import Raw


class _Top(msgspec.Struct):
    token: str
    logprob: float
    bytes: list[int] | None = None


class _Token(_Top):
    top_logprobs: list[_Top] | None = None


_TOKENS = msgspec.json.Decoder(list[_Token] | None)


def in_item(raw: Raw) -> list[dict[str, Any]]:
    """What an event told, as an item tells it."""
    return [{**_whole(token), "top_logprobs": [_whole(each) for each in _top(token)]} for token in _read(raw)]


def in_event(raw: Raw) -> list[dict[str, Any]]:
    """What an item tells, as an event tells it."""
    return [{**_told(token), "top_logprobs": [_told(each) for each in _top(token)]} for token in _read(raw)]


def _read(raw: Raw) -> list[_Token]:
    try:
        return _TOKENS.decode(raw) or []
    except (msgspec.DecodeError, RecursionError):
        return []


def _top(token: _Token) -> list[_Top]:
    return token.top_logprobs or []


def _told(token: _Top) -> dict[str, Any]:
    return {"token": token.token, "logprob": token.logprob}


def _whole(token: _Top) -> dict[str, Any]:
    return {**_told(token), "bytes": list(token.token.encode()) if token.bytes is None else token.bytes}
