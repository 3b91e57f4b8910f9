"""`tool_choice`: which functions a model is offered, and whether it must call one.

Source: API reference, Responses, create, tool_choice.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from proxy.errors import Kind, LooplineError
from proxy.translate.tool_kinds import FUNCTION_MAKERS
from proxy.translate.tools import Called, Function, Tool, Tools
from proxy.wire.codec import decode, encode


class _Named(msgspec.Struct):
    type: str
    name: str | None = None
    namespace: str | None = None


class _Choice(_Named):
    mode: str | None = None
    tools: list[_Named] | None = None


_CHOICE = msgspec.json.Decoder(str | _Choice)
_MODES = frozenset({"auto", "none", "required"})


class Choice(NamedTuple):
    """A choice in upstream names. `mode` is auto, none, required or None for a silent client.

    `named` is the one function that must be called, `allowed` those that may be (None: all).
    """

    mode: str | None
    named: str | None = None
    allowed: frozenset[str] | None = None


def read_choice(raw: bytes | None, tools: Tools) -> Choice:
    """Raises `LooplineError` (invalid_request) for a choice that is none or demands a tool which is not there."""
    if raw is None:
        return Choice(None)
    read = decode(_CHOICE, raw, "'tool_choice'", "tool_choice")
    if isinstance(read, str):
        if read not in _MODES:
            raise undemandable(f"'{read}' is none of auto, none, required")
        return Choice(read)
    if read.type == "allowed_tools":
        return Choice(read.mode or "auto", allowed=frozenset(_found(read.tools or (), tools)))
    found = _found([read], tools)
    if not found:
        raise undemandable(
            f"'{read.name}' is not one of 'tools'"
            if read.name
            else f"a tool of type '{read.type}' cannot run on this upstream"
        )
    return Choice("required", named=found[0]) if len(found) == 1 else Choice("required", allowed=frozenset(found))


def _found(wanted: Iterable[_Named], tools: Tools) -> list[str]:
    """The upstream names of what a choice speaks of; a namespace stands for all that is in it."""
    return [name for each in wanted for name, called in tools.calls.items() if _speaks_of(each, called)]


def _speaks_of(wanted: _Named, called: Called) -> bool:
    if wanted.type == "namespace":
        return called.namespace is not None and called.namespace == wanted.name
    if wanted.name is None:
        return called.kind == wanted.type and not FUNCTION_MAKERS[called.kind].is_named
    return called == Called(wanted.type, wanted.name, wanted.namespace)


def offered(functions: list[Function], choice: Choice) -> list[Function]:
    """The functions to offer. Raises `LooplineError` (invalid_request) where one is demanded and there is none."""
    if choice.allowed is not None:
        functions = [function for function in functions if function.name in choice.allowed]
    if not functions and choice.mode == "required":
        raise undemandable("it demands a tool, and none of 'tools' can run on this upstream")
    return functions


def undemandable(reason: str) -> LooplineError:
    """The refusal of a choice that cannot be met."""
    return LooplineError(Kind.INVALID_REQUEST, f"'tool_choice' cannot be met: {reason}.", param="tool_choice")


def chat_tools(tools: Tools, raw_choice: bytes | None, *, strict: bool, named: bool) -> list[bytes]:
    """`tools` and `tool_choice` of a chat request, none where there is no tool to speak of.

    `strict` and `named` say whether the server takes the first and obeys a choice by name. Raises `LooplineError`
    (invalid_request).
    """
    choice = read_choice(raw_choice, tools)
    if choice.named is not None and not named:
        choice = Choice("required", allowed=frozenset({choice.named}))
    functions = offered(tools.functions(), choice)
    if not functions:
        return []
    encoded = [b'{"type":"function","function":{%b}}' % each.definition(strict=strict) for each in functions]
    members = [b'"tools":[' + b",".join(encoded) + b"]"]
    if choice.named is not None:
        members.append(b'"tool_choice":' + encode({"type": "function", "function": {"name": choice.named}}))
    elif choice.mode is not None:
        members.append(b'"tool_choice":' + encode(choice.mode))
    return members


def response_tools(tools: Tools, raw_choice: bytes | None, kinds: Iterable[str], *, named: bool) -> list[bytes]:
    """The same for a Responses server that takes only tools of `kinds` as they are; the others become functions."""
    kinds = frozenset(kinds)
    choice = read_choice(raw_choice, tools)
    if choice.named is not None and not named:
        choice = Choice("required", allowed=frozenset({choice.named}))
    encoded = []
    for tool in tools.listed:
        if tool.kind in kinds and choice.allowed is None and not _is_renamed(tool):
            encoded.append(tool.raw)
            continue
        for function in tool.functions:
            if choice.allowed is None or function.name in choice.allowed:
                encoded.append(b'{"type":"function",%b}' % function.definition(strict=True))
    if not encoded:
        offered([], choice)
        return []
    members = [b'"tools":[' + b",".join(encoded) + b"]"]
    if choice.named is not None:
        members.append(b'"tool_choice":' + encode({"type": "function", "name": choice.named}))
    elif choice.mode is not None:
        members.append(b'"tool_choice":' + encode(choice.mode))
    return members


def _is_renamed(tool: Tool) -> bool:
    return any(function.name != function.called.name for function in tool.functions)
