"""`tool_choice`: which functions a model is offered, and whether it must call one.

Source: API reference, Responses, create, tool_choice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import msgspec

from proxy.errors import Kind, LooplineError
from proxy.translate.tools.kinds import FUNCTION_MAKERS
from proxy.translate.tools.listed import MAX_NAME_CHARS, Called, Function, Tool, Tools
from proxy.wire.codec import decode, encode


class _Inner(msgspec.Struct):
    name: str | None = None


class _Named(msgspec.Struct):
    """A tool; Chat Completions has its name one level deeper."""

    type: str
    name: str | None = None
    namespace: str | None = None
    function: _Inner | None = None
    custom: _Inner | None = None

    @property
    def called(self) -> str | None:
        """Its name, wherever it stands."""
        inner = self.function or self.custom
        return inner.name if self.name is None and inner is not None else self.name


class _Allowed(msgspec.Struct):
    mode: str | None = None
    tools: list[_Named] | None = None


class _Choice(_Named):
    mode: str | None = None
    tools: list[_Named] | None = None
    allowed_tools: _Allowed | None = None

    @property
    def allowed(self) -> _Allowed:
        """The mode and the tools of a choice of type `allowed_tools`."""
        return self.allowed_tools or _Allowed(self.mode, self.tools)


_CHOICE = msgspec.json.Decoder(str | _Choice)
_ALLOWED_MODES = ("auto", "required")
_MAX_NAMED = 8  # in one error
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
        mode = read.allowed.mode or "auto"
        if mode not in _ALLOWED_MODES:
            raise undemandable(f"the mode of allowed_tools is '{mode}', none of {', '.join(_ALLOWED_MODES)}")
        return Choice(mode, allowed=frozenset(_allowed(read.allowed.tools or (), tools)))
    can_be_called = {function.name for function in tools.functions()}
    found = [name for name in _found([read], tools) if name in can_be_called]
    if not found:
        raise undemandable(_missing(read))
    return Choice("required", named=found[0]) if len(found) == 1 else Choice("required", allowed=frozenset(found))


def allowed_calls(tools: Tools, raw_choice: bytes | None, kinds: Collection[str] = ()) -> frozenset[str] | None:
    """The functions, by upstream name, that a model may call under a choice; None for all. Raises `LooplineError`.

    `kinds` are those of tools that the server takes as they are: a choice of one of them is the server's own to keep.
    """
    if _wanted(raw_choice).type in kinds:
        return None
    choice = read_choice(raw_choice, tools)
    return frozenset() if choice.mode == "none" else choice.allowed if choice.named is None else None


def _allowed(wanted: Sequence[_Named], tools: Tools) -> list[str]:
    """The upstream names of `allowed_tools`. Raises `LooplineError` (invalid_request) naming what is none of `tools`.

    What only its own server could run is passed over, and what waits for a search is there already.
    """
    kinds = {tool.kind for tool in tools.listed}
    known = _Known(tools)
    missing = [each for each in wanted if not known.names(_key(each)) and _is_missing(each, kinds)]
    if missing:
        raise undemandable("; ".join(dict.fromkeys(map(_missing, missing[:_MAX_NAMED]))))
    return _found(wanted, tools)


def _is_missing(wanted: _Named, kinds: Collection[str]) -> bool:
    maker = FUNCTION_MAKERS.get(wanted.type)
    if maker is None:
        return wanted.type == "namespace"
    return maker.is_named or wanted.type not in kinds


def _found(wanted: Iterable[_Named], tools: Tools) -> list[str]:
    """The upstream names of what a choice speaks of; a namespace stands for all that is in it."""
    known = _Known(tools)
    return [name for each in {_key(each): None for each in wanted} for name in known.names(each)]


def _key(wanted: _Named) -> Called:
    """What is wanted; kinds without names of their own go by that of the kind."""
    maker = FUNCTION_MAKERS.get(wanted.type)
    nameless = maker is not None and not maker.is_named
    return Called(wanted.type, wanted.type if nameless else wanted.called or "", wanted.namespace)


class _Known:
    """The tools of a request by what a choice may call them."""

    def __init__(self, tools: Tools) -> None:
        self._names = tools.names
        self._inside: dict[str, list[str]] = {}
        self._anywhere: dict[tuple[str, str], list[str]] = {}
        for name, called in tools.calls.items():
            if called.namespace is not None:
                self._inside.setdefault(called.namespace, []).append(name)
                self._anywhere.setdefault((called.kind, called.name), []).append(name)

    def names(self, wanted: Called) -> list[str]:
        """Upstream names. One inside a namespace may be named without it, where that is clear."""
        if wanted.kind == "namespace":
            return self._inside.get(wanted.name, [])
        exact = self._names.get(wanted)
        if exact is not None:
            return [exact]
        inside = self._anywhere.get((wanted.kind, wanted.name), []) if wanted.namespace is None else []
        return inside if len(inside) == 1 else []


def _missing(wanted: _Named) -> str:
    if wanted.type != "namespace" and wanted.type not in FUNCTION_MAKERS:
        return f"a tool of type '{wanted.type}' cannot run on this upstream"
    return f"'{(wanted.called or wanted.type)[:MAX_NAME_CHARS]}' is not one of 'tools'"


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


def chat_tools(
    tools: Tools, raw_choice: bytes | None, *, strict: bool, named: bool, obeyed: bool = True
) -> list[bytes]:
    """`tools` and `tool_choice` of a chat request, none where there is no tool to speak of.

    `strict` and `named` say whether the server takes the first and obeys a choice by name, `obeyed` whether it obeys
    any: if not, tools that must not be called are not offered. Raises `LooplineError` (invalid_request).
    """
    choice = read_choice(raw_choice, tools)
    if choice.mode == "none" and not obeyed:
        return []
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
    wanted = _wanted(raw_choice)
    # Kinds of tools that the server itself runs, and that the choice speaks of.
    own = {tool.kind for tool in tools.listed if tool.kind in kinds and not tool.functions and not tool.is_deferred}
    own &= {each.type for each in wanted.allowed.tools or (wanted,)}
    is_own = raw_choice is not None and wanted.type in own
    choice = Choice("required") if is_own else read_choice(raw_choice, tools)
    if choice.named is not None and not named:
        choice = Choice("required", allowed=frozenset({choice.named}))
    encoded = [each for tool in tools.listed for each in _as_told(tool, kinds, choice.allowed, own)]
    if not encoded:
        offered([], choice)
        return []
    members = [b'"tools":[' + b",".join(encoded) + b"]"]
    if raw_choice is not None and (is_own or _is_told_raw(tools, kinds, choice.named)):
        members.append(b'"tool_choice":' + raw_choice)
    elif choice.named is not None:
        members.append(b'"tool_choice":' + encode({"type": "function", "name": choice.named}))
    elif choice.mode is not None:
        members.append(b'"tool_choice":' + encode(choice.mode))
    return members


def _wanted(raw_choice: bytes | None) -> _Choice:
    read = None if raw_choice is None else decode(_CHOICE, raw_choice, "'tool_choice'", "tool_choice")
    return read if isinstance(read, _Choice) else _Choice("")


def _as_told(tool: Tool, kinds: frozenset[str], allowed: frozenset[str] | None, own: set[str]) -> list[bytes]:
    """A tool as the server is told it: as it came, or those of its functions that are allowed."""
    functions = [function for function in tool.functions if allowed is None or function.name in allowed]
    is_whole = len(functions) == len(tool.functions) if functions else allowed is None or tool.kind in own
    if is_whole and _is_taken(tool, kinds) and not tool.is_deferred:
        return [tool.raw]
    return [b'{"type":"function",%b}' % function.definition(strict=True) for function in functions]


def _is_taken(tool: Tool, kinds: frozenset[str]) -> bool:
    return tool.kind in kinds and (tool.kind == "namespace" or not _is_renamed(tool))


def _is_told_raw(tools: Tools, kinds: frozenset[str], name: str | None) -> bool:
    """Is the function of this name told as another kind of tool, so that the choice's own words fit?"""
    return any(
        tool.kind != "function" and _is_taken(tool, kinds) and any(each.name == name for each in tool.functions)
        for tool in tools.listed
    )


def _is_renamed(tool: Tool) -> bool:
    return any(function.name != function.called.name for function in tool.functions)
