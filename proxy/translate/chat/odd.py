"""Chunks whose members are of other types than documented: a number for an id, null for an index, a list for a string.

This is the rare way, after a chunk was refused: what is plain is taken, and what is nothing costs its own member only,
never the answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

_Straighten = Callable[[Any], Any]


def straightened(chunk: Any) -> Any:
    """A decoded chunk with every member of a type that is read; what is no object stays as it is.

    Raises ValueError, RecursionError, OverflowError.
    """
    return _object(chunk, _CHUNK) if isinstance(chunk, dict) else chunk


def _object(given: dict[str, Any], members: Mapping[str, _Straighten]) -> dict[str, Any]:
    made = {**given, **{name: make(given[name]) for name, make in members.items() if name in given}}
    # Not every member may be null; each may be absent.
    return {name: value for name, value in made.items() if value is not None or name not in members}


def _objects(members: Mapping[str, _Straighten]) -> _Straighten:
    def straighten(given: Any) -> Any:
        if not given:
            return None
        listed = [given] if isinstance(given, dict) else given
        if not isinstance(listed, list):
            return given  # nothing that could be meant
        return [_object(each, members) for each in listed if isinstance(each, dict)]

    return straighten


def _text(given: Any) -> str | None:
    """A string; a number is its text, and everything else nothing."""
    if isinstance(given, str):
        return given
    return str(given) if isinstance(given, int | float) and not isinstance(given, bool) else None


def _number(given: Any) -> int | None:
    try:
        return None if isinstance(given, bool) else int(given)
    except (TypeError, ValueError):
        return None


def _thought(given: Any) -> str | None:
    """Reasoning, which may be a list of parts, or one."""
    if isinstance(given, list):
        return "".join(_thought(each) or "" for each in given)
    if isinstance(given, dict):
        found = (given.get(name) for name in ("text", "content", "thinking", "summary"))
        return next((text for text in map(_thought, found) if text), None)
    return given if isinstance(given, str) else None


def _content(given: Any) -> str | list[dict[str, Any] | str] | None:
    if not isinstance(given, list | dict):
        return _text(given)
    parts = given if isinstance(given, list) else [given]
    return [_object(each, _PART) if isinstance(each, dict) else each for each in parts if isinstance(each, dict | str)]


def _arguments(given: Any) -> Any:
    if given is None or isinstance(given, str | dict | bool):
        return None if isinstance(given, bool) else given
    return json.dumps(given)


def _function(given: Any) -> dict[str, Any] | None:
    return _object(given, _FUNCTION) if isinstance(given, dict) else None


def _said(given: Any) -> dict[str, Any] | None:
    if isinstance(given, str):
        return {"content": given}
    return _object(given, _DELTA) if isinstance(given, dict) else None


_PART: Mapping[str, _Straighten] = {
    "type": lambda given: _text(given) or "text",
    "text": _text,
    "refusal": _text,
    "thinking": _thought,
}
_FUNCTION: Mapping[str, _Straighten] = {"name": _text, "arguments": _arguments}
_CALL: Mapping[str, _Straighten] = {"index": _number, "id": _text, "function": _function}
_DELTA: Mapping[str, _Straighten] = {
    "content": _content,
    "reasoning_content": _thought,
    "reasoning": _thought,
    "refusal": lambda given: given if isinstance(given, str) else None,
    "tool_calls": _objects(_CALL),
    "function_call": _function,
}
_CHOICE: Mapping[str, _Straighten] = {
    "index": _number,
    "delta": _said,
    "message": _said,
    "finish_reason": lambda given: given if isinstance(given, str) else None,
}
_CHUNK: Mapping[str, _Straighten] = {"id": _text, "choices": _objects(_CHOICE)}
