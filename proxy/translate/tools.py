"""Tools as snapshots echo them and as a Chat Completions server takes them.

Clients repeat their tools in every turn (Codex: 18.7 kB), so what was made of them is kept and found by digest; the
digest only finds, the bytes themselves decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import xxhash
from cachetools import LRUCache

from proxy.errors import Kind, LooplineError
from proxy.wire.codec import NULL, Raw, decode, decode_array, encode, is_null
from proxy.wire.server_events import echo_tool


class _Function(msgspec.Struct):
    type: str
    name: str | None = None
    description: Raw = NULL
    parameters: Raw = NULL
    strict: Raw = NULL


_TOOL = msgspec.json.Decoder(_Function)
NO_TOOLS = b"[]"


class Tools(NamedTuple):
    """A request's tools.

    `raw` is as they came, `echo` a JSON array for snapshots. `functions` are the function tools for a chat upstream,
    each with its name; `others` the types that no chat upstream knows.
    """

    raw: bytes
    echo: bytes
    functions: tuple[tuple[str, bytes], ...]
    others: tuple[str, ...]


EMPTY = Tools(NO_TOOLS, NO_TOOLS, (), ())


class ToolMemo:
    """Tools already read, by tenant and digest, within a byte budget."""

    def __init__(self, budget_bytes: int = 64 * 1024 * 1024) -> None:
        self._kept: LRUCache[tuple[str, bytes], Tools] = LRUCache(budget_bytes, getsizeof=_size)

    def read(self, tenant: str, raw: bytes | None) -> Tools:
        """Raises `LooplineError` (invalid_request) for a tool that is none."""
        if raw is None:
            return EMPTY
        key = (tenant, xxhash.xxh3_128_digest(raw))
        tools = self._kept.get(key)
        if tools is None or tools.raw != raw:
            tools = read_tools(raw)
            if _size(tools) <= self._kept.maxsize:
                self._kept[key] = tools
        return tools


def read_tools(raw: bytes) -> Tools:
    """A JSON array of tools, read."""
    functions: list[tuple[str, bytes]] = []
    others: list[str] = []
    echoes: list[bytes] = []
    for index, each in enumerate(decode_array(raw, "'tools'", "tools")):
        param = f"tools[{index}]"
        tool = decode(_TOOL, each, f"'{param}'", param)
        if tool.type == "function":
            if not tool.name:
                raise LooplineError(
                    Kind.MISSING_PARAMETER, f"Missing required parameter: '{param}.name'.", param=f"{param}.name"
                )
            functions.append((tool.name, _chat_function(tool)))
        else:
            others.append(tool.type)
        echoes.append(echo_tool(each))
    return Tools(raw, b"[" + b",".join(echoes) + b"]", tuple(functions), tuple(others))


def _chat_function(tool: _Function) -> bytes:
    function: dict[str, Any] = {"name": tool.name}
    for member in ("description", "parameters", "strict"):
        value = getattr(tool, member)
        # Absent stays absent: `strict: null` makes some engines compile a grammar, some reject it.
        if not is_null(value):
            function[member] = value
    return encode({"type": "function", "function": function})


class _Choice(msgspec.Struct):
    type: str
    name: str | None = None
    mode: str | None = None
    tools: list[_Function] | None = None


_CHOICE = msgspec.json.Decoder(str | _Choice)
_MODES = frozenset({"auto", "none", "required"})


def chat_tools(tools: Tools, choice: bytes | None, parallel: bytes | None) -> list[bytes]:
    """Members of a chat request: `tools`, `tool_choice`, `parallel_tool_calls`, where there is a tool to speak of.

    Raises `LooplineError` (invalid_request) where `tool_choice` demands what a chat upstream cannot do.
    """
    mode, allowed = _read_choice(choice, tools)
    functions = [encoded for name, encoded in tools.functions if allowed is None or name in allowed]
    if not functions:
        if mode is not None and mode not in (b'"auto"', b'"none"'):
            raise _undemandable("it demands a tool, and none of 'tools' is a function")
        return []
    members = [b'"tools":[' + b",".join(functions) + b"]"]
    if mode is not None:
        members.append(b'"tool_choice":' + mode)
    if parallel is not None:
        members.append(b'"parallel_tool_calls":' + parallel)
    return members


def _read_choice(choice: bytes | None, tools: Tools) -> tuple[bytes | None, frozenset[str] | None]:
    """`tool_choice` → the chat server's, and the names it allows (None for all)."""
    if choice is None:
        return None, None
    read = decode(_CHOICE, choice, "'tool_choice'", "tool_choice")
    if isinstance(read, str):
        if read not in _MODES:
            raise _undemandable(f"'{read}' is none of auto, none, required")
        return encode(read), None
    if read.type == "function" and read.name:
        if read.name not in {name for name, _ in tools.functions}:
            raise _undemandable(f"'{read.name}' is not one of 'tools'")
        return encode({"type": "function", "function": {"name": read.name}}), None
    if read.type == "allowed_tools":
        return encode(read.mode or "auto"), _names(read.tools or ())
    raise _undemandable(f"a tool of type '{read.type}' cannot run on this upstream")


def _names(tools: Sequence[_Function]) -> frozenset[str]:
    return frozenset(tool.name for tool in tools if tool.type == "function" and tool.name)


def _undemandable(reason: str) -> LooplineError:
    return LooplineError(Kind.INVALID_REQUEST, f"'tool_choice' cannot be met: {reason}.", param="tool_choice")


def _size(tools: Tools) -> int:
    return 2 * len(tools.raw) + len(tools.echo) + 500
