"""A request's tools: as snapshots echo them, and as functions for an upstream that knows nothing else.

Every tool that a client runs itself can be told to a model as a function; `Called` says what a call of that function
means to the client. Names are made so that they mean the same in every turn, in whatever order tools are offered.

Clients repeat their tools in every turn (Codex: 18.7 kB), so what was made of them is kept and found by digest, until
nobody has asked for it for a while; the digest only finds, the bytes themselves decide.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import xxhash

from proxy.caching import Bounded, Pool
from proxy.errors import Kind, LooplineError
from proxy.translate.left_out import LeftOut
from proxy.translate.tools.kinds import FUNCTION_MAKERS, NEEDLESS, Spec
from proxy.wire.codec import NULL, Raw, decode, decode_array, encode, is_null
from proxy.wire.items import Item
from proxy.wire.server_events import echo_tool

NO_TOOLS = b"[]"
# What every server takes for a function's name (API reference, Chat Completions, tools).
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ODD = re.compile(r"[^A-Za-z0-9_-]")
_KEPT_CHARS = 64 - 9
_JOINT = "__"
# Bounds on work that grows faster than a request: functions a model is offered, characters of a name.
MAX_FUNCTIONS = 4096
MAX_NAME_CHARS = 512


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
    """One of a client's tools. `functions` is empty for one that only its own server could run.

    `unable` are the kinds of tools inside it, a namespace, that are so. `is_deferred` says that it waits for a search
    of the client's.
    """

    kind: str
    raw: bytes
    functions: tuple[Function, ...]
    unable: tuple[str, ...] = ()
    is_deferred: bool = False


class Tools(NamedTuple):
    """A request's tools.

    `raw` is as they came, `echo` a JSON array for snapshots. `listed` are those to offer, the ones that items of the
    conversation brought included. `calls` tells by a function's upstream name what a call means, `names` the reverse;
    those that wait for a search are in both, since a model may call them before.
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
    gone: dict[str, None] = {}
    for tool in tools.listed:
        if tool.kind not in kinds:
            whole = [] if tool.functions or tool.is_deferred or tool.kind in NEEDLESS else [tool.kind]
            gone.update(dict.fromkeys((*whole, *tool.unable)))
    return [LeftOut("tool", kind) for kind in gone]


class ToolMemo:
    """Tools already read, by tenant and digest, within a byte budget, for `ttl_s` seconds since their last use."""

    def __init__(
        self, budget_bytes: int = 64 * 1024 * 1024, ttl_s: float = math.inf, clock: Callable[[], float] = lambda: 0.0
    ) -> None:
        self._kept: Bounded[tuple[str, bytes], _Kept] = Bounded(Pool(budget_bytes), ttl_s)
        self._clock = clock
        self.counts = self._kept.counts

    def read(self, tenant: str, raw: bytes | None, lasting: Sequence[Item] = ()) -> Tools:
        """The tools of a request and of the items (`brings_tools`) that last in its conversation.

        Raises `LooplineError` (invalid_request) for a tool that is none.
        """
        # The last of those with the same bytes: it says all that the others did.
        brought = [*dict.fromkeys(item.raw for item in reversed(lasting) if item.kind in BRINGS_TOOLS)][::-1]
        if raw is None and not brought:
            return EMPTY
        given = (raw or NO_TOOLS, *brought)
        key = (tenant, xxhash.xxh3_128_digest(b"\0".join(given)))
        now = self._clock()
        kept = self._kept.one(key, now)
        if kept is not None and kept.given == given:
            return kept.tools
        kept = _Kept(given, read_tools(given[0], brought))
        self._kept.put(key, kept, _size(kept), now)
        return kept.tools

    def used_bytes(self) -> int:
        """About what the tools take."""
        return self._kept.used_bytes()

    def __len__(self) -> int:
        return len(self._kept)


class _Kept(NamedTuple):
    given: tuple[bytes, ...]
    tools: Tools


def _size(kept: _Kept) -> int:
    """About what it takes in memory, in bytes."""
    functions = [function for tool in kept.tools.listed for function in tool.functions]
    made = sum(len(function.members) + len(function.strict) + _FUNCTION_BYTES for function in functions)
    # Its bytes are there as they came, in the echo, and cut into tools.
    return 2 * sum(map(len, kept.given)) + len(kept.tools.echo) + made + _TOOL_BYTES * (1 + len(kept.tools.listed))


_FUNCTION_BYTES, _TOOL_BYTES = 1000, 300


# Items that add tools to those of the request, for the rest of the conversation.
BRINGS_TOOLS = frozenset({"additional_tools", "tool_search_output"})


class _Bringer(msgspec.Struct):
    type: str
    tools: Raw = NULL


_BRINGER = msgspec.json.Decoder(_Bringer)
_SPEC = msgspec.json.Decoder(Spec)
_TEXT = msgspec.json.Decoder(str)


class _Given(NamedTuple):
    """A tool as it came: what is acted on, its bytes, its place in the request, and whether a search found it."""

    spec: Spec
    raw: bytes
    param: str
    found: bool = False


def read_tools(raw: bytes, brought: Sequence[bytes] = ()) -> Tools:
    """A JSON array of tools, read; `brought` are items that have more of them. A later tool of one name replaces.

    Raises `LooplineError` (invalid_request, missing_parameter) naming the tool that is none or the bound that is
    passed.
    """
    own = [
        _Given(_spec(each, f"tools[{index}]"), bytes(each), f"tools[{index}]")
        for index, each in enumerate(decode_array(raw, "'tools'", "tools"))
    ]
    echo = b"[" + b",".join(echo_tool(each.raw) for each in own) + b"]"
    given = [*own, *(each for item in brought for each in _brought(item))]
    waits = any(each.spec.type == "tool_search" and each.spec.execution == "client" for each in given)
    namer = _Namer()
    unnamed = [_tool(each, namer, deferred=waits and not each.found) for each in given]
    names = namer.names()
    listed = [
        tool._replace(functions=tuple(each._replace(name=names[each.called]) for each in tool.functions))
        for tool in unnamed
    ]
    calls = {name: called for called, name in names.items()}
    return Tools(raw, echo, tuple(_last_of_each(listed)), calls, names)


def _brought(item: bytes) -> list[_Given]:
    bringer = decode(_BRINGER, item, "'input'", "input")
    tools = [] if is_null(bringer.tools) else decode_array(bringer.tools, "'input.tools'", "input")
    _require_at_most(MAX_FUNCTIONS, len(tools), "input")
    found = bringer.type == "tool_search_output"
    return [_Given(_spec(each, "input"), bytes(each), "input", found) for each in tools]


def _spec(raw: Raw, param: str) -> Spec:
    return decode(_SPEC, raw, f"'{param}'", param)


def _tool(given: _Given, namer: _Namer, *, deferred: bool) -> Tool:
    """`deferred` says that tools marked so wait until a search of the client's brings them."""
    spec, param = given.spec, given.param
    if spec.type == "namespace":
        return _namespace(given, namer, deferred=deferred)
    if deferred and spec.defer_loading and spec.type in FUNCTION_MAKERS:
        if FUNCTION_MAKERS[spec.type].is_named:
            namer.add(Called(spec.type, _named(spec, param)), param)
        return Tool(spec.type, given.raw, (), is_deferred=True)
    function = _function(spec, param, None, namer)
    return Tool(spec.type, given.raw, () if function is None else (function,))


def _namespace(given: _Given, namer: _Namer, *, deferred: bool) -> Tool:
    spec, param = given.spec, given.param
    namespace = _named(spec, param)
    inner = spec.tools or []
    _require_at_most(MAX_FUNCTIONS, len(inner), f"{param}.tools")
    about = "" if is_null(spec.description) else decode(_TEXT, spec.description, f"'{param}.description'", param)
    functions: list[Function] = []
    unable: list[str] = []
    for at, raw in enumerate(inner):
        where = f"{param}.tools[{at}]"
        each = _spec(raw, where)
        if each.type not in FUNCTION_MAKERS or not FUNCTION_MAKERS[each.type].is_named:
            unable.append(each.type)
        elif deferred and each.defer_loading:
            namer.add(Called(each.type, _named(each, where), namespace), where)
        else:
            if about and not functions:  # once: with every function it would cost its tokens as often
                each = _described(each, f"{about}\n\n", where)
            function = _function(each, where, namespace, namer)
            functions += [] if function is None else [function]
    return Tool(spec.type, given.raw, tuple(functions), tuple(dict.fromkeys(unable)))


def _described(spec: Spec, before: str, param: str) -> Spec:
    own = "" if is_null(spec.description) else decode(_TEXT, spec.description, f"'{param}.description'", param)
    return msgspec.structs.replace(spec, description=Raw(encode((before + own).strip())))


def _function(spec: Spec, param: str, namespace: str | None, namer: _Namer) -> Function | None:
    """None for a tool that only its own server could run. It gets its name when all tools are known."""
    make = FUNCTION_MAKERS.get(spec.type)
    if make is None:
        return None
    name = _named(spec, param) if make.is_named else spec.type
    described = make.describe(spec, param)
    if described is None:
        return None
    called = Called(spec.type, name, namespace)
    namer.add(called, param)
    return Function("", *described, called)


def _named(spec: Spec, param: str) -> str:
    if not spec.name:
        raise LooplineError(
            Kind.MISSING_PARAMETER, f"Missing required parameter: '{param}.name'.", param=f"{param}.name"
        )
    if len(spec.name) > MAX_NAME_CHARS:
        raise LooplineError(
            Kind.INVALID_REQUEST, f"'{param}.name' is longer than {MAX_NAME_CHARS} characters.", param=f"{param}.name"
        )
    return spec.name


def _require_at_most(bound: int, count: int, param: str) -> None:
    if count > bound:
        raise LooplineError(
            Kind.INVALID_REQUEST,
            f"'{param}' makes more than {bound} functions in one request; offer fewer tools.",
            param=param,
        )


def _last_of_each(listed: Iterable[Tool]) -> list[Tool]:
    """Servers refuse two functions of one name; what came last is meant."""
    seen: set[str] = set()
    kept: list[Tool] = []
    for tool in reversed(list(listed)):
        last = {function.name: function for function in tool.functions if function.name not in seen}
        seen.update(last)
        if last or not tool.functions:
            kept.append(tool._replace(functions=tuple(last.values())))
    return kept[::-1]


class _Namer:
    """Gives upstream names to all tools of a request; two that would share one get two."""

    def __init__(self) -> None:
        self._called: dict[Called, None] = {}

    def add(self, called: Called, param: str) -> None:
        """One more tool. Raises `LooplineError` (invalid_request) above `MAX_FUNCTIONS`."""
        self._called[called] = None
        _require_at_most(MAX_FUNCTIONS, len(self._called), param)

    def names(self) -> dict[Called, str]:
        """All names. Of those that would share one, the same keeps it whatever their order."""
        taken: set[str] = set()
        names = {}
        for called in sorted(self._called, key=_rank):
            name = plain = upstream_name(called)
            tries = 0
            while name in taken:
                name = _suffixed(plain, called, tries)
                tries += 1
            taken.add(name)
            names[called] = name
        return {called: names[called] for called in self._called}


def _rank(called: Called) -> tuple[bool, int, Called]:
    """First of those that share a name are tools without a namespace, and of these the ones that a client named."""
    kinds = ("function", "custom", called.kind)
    bare = called._replace(namespace=called.namespace or "")
    return called.namespace is not None, kinds.index(called.kind), bare


def upstream_name(called: Called) -> str:
    """A function name that every server takes: the tool's own, where it is one.

    A namespace stands before it. No two pairs share that name: the last underscores are where it was joined, or the
    name has a suffix.
    """
    if called.namespace is None:
        return called.name if _PLAIN.fullmatch(called.name) else _suffixed(called.name, called)
    joined = f"{called.namespace}{_JOINT}{called.name}"
    is_clear = joined.rpartition(_JOINT)[2] == called.name
    return joined if is_clear and _PLAIN.fullmatch(joined) else _suffixed(joined, called)


def _suffixed(name: str, called: Called, seed: int = 0) -> str:
    return f"{_ODD.sub('_', name)[:_KEPT_CHARS]}_{xxhash.xxh32_hexdigest(encode(called), seed)}"
