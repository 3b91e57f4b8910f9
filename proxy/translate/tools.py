"""A request's tools: as snapshots echo them, and as functions for an upstream that knows nothing else.

Every tool that a client runs itself can be told to a model as a function; `Called` says what a call of that function
means to the client. Names are made so that they mean the same in every turn, whatever else is offered.

Clients repeat their tools in every turn (Codex: 18.7 kB), so what was made of them is kept and found by digest; the
digest only finds, the bytes themselves decide.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import xxhash
from cachetools import LRUCache

from proxy.errors import Kind, LooplineError
from proxy.translate.left_out import LeftOut
from proxy.translate.tool_kinds import FUNCTION_MAKERS, NEEDLESS, Spec
from proxy.wire.codec import NULL, Raw, decode, decode_array, encode, is_null
from proxy.wire.items import Item
from proxy.wire.server_events import echo_tool

NO_TOOLS = b"[]"
# What every server takes for a function's name (API reference, Chat Completions, tools).
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ODD = re.compile(r"[^A-Za-z0-9_-]")
_KEPT_CHARS = 64 - 9


class Called(NamedTuple):
    """What a client calls a tool: its type, its name, the namespace it is in."""

    kind: str
    name: str
    namespace: str | None = None


class Function(NamedTuple):
    """A tool as a function: its name upstream, and its members but for the name, without braces.

    `strict` is a member of its own (`,"strict":true`, or empty), since not every server takes it.
    """

    name: str
    members: bytes
    strict: bytes
    called: Called

    def definition(self, *, strict: bool) -> bytes:
        """The members of a function's definition, without braces."""
        return b'"name":%b%b%b' % (encode(self.name), self.members, self.strict if strict else b"")


class Tool(NamedTuple):
    """One of a client's tools. `functions` is empty for one that only its own server could run."""

    kind: str
    raw: bytes
    functions: tuple[Function, ...]


class Tools(NamedTuple):
    """A request's tools.

    `raw` is as they came, `echo` a JSON array for snapshots. `listed` are those to offer, the ones that items of the
    conversation brought included. `calls` tells by a function's upstream name what a call means, `names` the reverse.
    """

    raw: bytes
    echo: bytes
    listed: tuple[Tool, ...]
    calls: Mapping[str, Called]
    names: Mapping[Called, str]

    def functions(self, kinds: Collection[str] = ()) -> list[Function]:
        """All tools as functions, but for those of `kinds`."""
        return [function for tool in self.listed if tool.kind not in kinds for function in tool.functions]

    def name_of(self, kind: str, name: str, namespace: str | None = None) -> str:
        """The upstream name of a tool, also of one that is not offered any more."""
        called = Called(kind, name, namespace)
        return self.names.get(called) or upstream_name(called)


EMPTY = Tools(NO_TOOLS, NO_TOOLS, (), {}, {})


def left_out_tools(tools: Tools, kinds: Collection[str] = ()) -> list[LeftOut]:
    """Tools that only their own server could run; `kinds` are those that the upstream takes as they are."""
    gone = {tool.kind: None for tool in tools.listed if not tool.functions and tool.kind not in {*kinds, *NEEDLESS}}
    return [LeftOut("tool", kind) for kind in gone]


class ToolMemo:
    """Tools already read, by tenant and digest, within a byte budget."""

    def __init__(self, budget_bytes: int = 64 * 1024 * 1024) -> None:
        self._kept: LRUCache[tuple[str, bytes], tuple[bytes, Tools]] = LRUCache(budget_bytes, getsizeof=_size)

    def read(self, tenant: str, raw: bytes | None, lasting: Sequence[Item] = ()) -> Tools:
        """The tools of a request and of the items (`brings_tools`) that last in its conversation.

        Raises `LooplineError` (invalid_request) for a tool that is none.
        """
        brought = [item.raw for item in lasting if item.kind in BRINGS_TOOLS]
        if raw is None and not brought:
            return EMPTY
        whole = b"\0".join((raw or NO_TOOLS, *brought))
        key = (tenant, xxhash.xxh3_128_digest(whole))
        kept = self._kept.get(key)
        if kept is not None and kept[0] == whole:
            return kept[1]
        tools = read_tools(raw or NO_TOOLS, brought)
        if _size((whole, tools)) <= self._kept.maxsize:
            self._kept[key] = (whole, tools)
        return tools


def _size(kept: tuple[bytes, Tools]) -> int:
    return 3 * len(kept[0]) + len(kept[1].echo) + 500


# Items that add tools to those of the request, for the rest of the conversation.
BRINGS_TOOLS = frozenset({"additional_tools", "tool_search_output"})


class _Bringer(msgspec.Struct):
    tools: Raw = NULL


_BRINGER = msgspec.json.Decoder(_Bringer)
_SPEC = msgspec.json.Decoder(Spec)


def read_tools(raw: bytes, brought: Sequence[bytes] = ()) -> Tools:
    """A JSON array of tools, read; `brought` are items that have more of them. A later tool of one name replaces."""
    given = [(f"tools[{index}]", each) for index, each in enumerate(decode_array(raw, "'tools'", "tools"))]
    echo = b"[" + b",".join(echo_tool(each) for _, each in given) + b"]"
    loaded = [("input", each) for item in brought for each in _brought(item)]
    specs = [(_spec(each, param), bytes(each), param) for param, each in given]
    found = [(_spec(each, param), bytes(each), param) for param, each in loaded]
    searched = any(spec.type == "tool_search" and spec.execution == "client" for spec, _, _ in specs)
    namer = _Namer()
    listed = [_tool(spec, each, param, namer, deferred=searched) for spec, each, param in specs]
    listed += [_tool(spec, each, param, namer, deferred=False) for spec, each, param in found]
    return Tools(raw, echo, tuple(_last_of_each(listed)), namer.calls, namer.names)


def _brought(item: bytes) -> list[Raw]:
    tools = decode(_BRINGER, item, "'input'", "input").tools
    return [] if is_null(tools) else decode_array(tools, "'input.tools'", "input")


def _spec(raw: Raw, param: str) -> Spec:
    return decode(_SPEC, raw, f"'{param}'", param)


def _tool(spec: Spec, raw: bytes, param: str, namer: _Namer, *, deferred: bool) -> Tool:
    """`deferred` says that tools marked so wait until a search of the client's brings them."""
    inner = [spec]
    if spec.type == "namespace":
        _require_name(spec, param)
        inner = [_spec(each, f"{param}.tools[{at}]") for at, each in enumerate(spec.tools or ())]
    functions = []
    for at, each in enumerate(inner):
        make = FUNCTION_MAKERS.get(each.type)
        if make is None or (deferred and each.defer_loading):
            continue
        where = param if each is spec else f"{param}.tools[{at}]"
        if make.is_named:
            _require_name(each, where)
        described = make.describe(each, where)
        if described is not None:
            called = Called(each.type, each.name or each.type, spec.name if each is not spec else None)
            functions.append(Function(namer.name(called), *described, called))
    return Tool(spec.type, raw, tuple(functions))


def _require_name(spec: Spec, param: str) -> None:
    if not spec.name:
        raise LooplineError(
            Kind.MISSING_PARAMETER, f"Missing required parameter: '{param}.name'.", param=f"{param}.name"
        )


def _last_of_each(listed: Iterable[Tool]) -> list[Tool]:
    """Servers refuse two functions of one name; what came last is meant."""
    seen: set[str] = set()
    kept: list[Tool] = []
    for tool in reversed(list(listed)):
        functions = tuple(function for function in tool.functions if function.name not in seen)
        seen.update(function.name for function in functions)
        if functions or not tool.functions:
            kept.append(tool._replace(functions=functions))
    return kept[::-1]


class _Namer:
    """Gives upstream names; two tools that would share one get two."""

    def __init__(self) -> None:
        self.calls: dict[str, Called] = {}
        self.names: dict[Called, str] = {}

    def name(self, called: Called) -> str:
        name = self.names.get(called)
        if name is None:
            name = upstream_name(called)
            if name in self.calls:
                name = _suffixed(name, called)
            self.calls[name], self.names[called] = called, name
        return name


def upstream_name(called: Called) -> str:
    """A function name that every server takes: the tool's own, where it is one."""
    joined = called.name if called.namespace is None else f"{called.namespace}__{called.name}"
    return joined if _PLAIN.fullmatch(joined) else _suffixed(joined, called)


def _suffixed(name: str, called: Called) -> str:
    digest = xxhash.xxh32_hexdigest("\0".join((called.kind, called.namespace or "", called.name)).encode())
    return f"{_ODD.sub('_', name)[:_KEPT_CHARS]}_{digest}"
