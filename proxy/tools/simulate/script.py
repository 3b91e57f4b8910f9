"""The notation by which a client's last user message tells the simulated model what to do; pure.

`[[say 20]]`, `[[call get_weather {"city": "Paris"}]]`, `[[fail 429 retry-after=2 once]]`, `[[then]]`, ... The table
`DIRECTIVES` is the whole notation; `docs/simulate.md` shows an example of each, and a test holds the two together.

A directive starts with `[[` and a lower-case word without a space between; any other `[[` is plain text. An argument
is a number, a word, `key=value`, a JSON string or a JSON object, so that `]]` inside a string does not end it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal

from .tokens import filler

MAX_TOKENS = 1_000_000  # a typing slip must not fill the memory
MAX_STEPS = 10_000

PartKind = Literal["say", "think", "call", "refuse"]
FaultKind = Literal["drop", "eof", "stall", "garbage", "error", "null"]


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of an answer: text, reasoning, a refusal, or a call (then `text` is its arguments)."""

    kind: PartKind
    text: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Fail:
    """Answer with an HTTP error instead."""

    status: int
    message: str = "scripted failure"
    type: str = ""
    code: str = ""
    retry_after: str = ""
    plain: bool = False
    once: bool = False


@dataclass(frozen=True, slots=True)
class Fault:
    """Go wrong after so many tokens of the answer; 0 is before its first event."""

    kind: FaultKind
    after: int
    once: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """One answer of the model."""

    parts: tuple[Part, ...] = ()
    cut: bool = False  # finish by length
    fail: Fail | None = None
    fault: Fault | None = None
    done: bool = True  # send [DONE]
    as_json: bool = False  # a whole JSON body, whatever was asked


@dataclass(frozen=True, slots=True)
class Script:
    """The answers to one user message: one for each round of tool results. Empty without directives."""

    steps: tuple[Step, ...] = ()


class ScriptError(ValueError):
    """A directive that cannot be understood. The message names it."""


@dataclass(slots=True)
class Arguments:
    """What stood between a directive's name and its `]]`."""

    positional: list[Any] = field(default_factory=list)
    raw: list[str] = field(default_factory=list)  # the positional ones as written
    words: set[str] = field(default_factory=set)
    named: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Directive:
    """How one directive changes the list of steps, and how it is written."""

    form: str
    apply: Callable[[list[Step], Arguments], None]
    words: frozenset[str] = frozenset()
    named: frozenset[str] = frozenset()


def _add(steps: list[Step], *parts: Part) -> None:
    steps[-1] = replace(steps[-1], parts=steps[-1].parts + parts)


def _whole(value: Any, least: int = 0) -> int:
    if not isinstance(value, int) or not least <= value <= MAX_TOKENS:
        raise ScriptError(f"a number of {least} to {MAX_TOKENS} is missing")
    return value


def _only(arguments: Arguments) -> Any:
    if len(arguments.positional) != 1:
        raise ScriptError("it takes exactly one argument")
    return arguments.positional[0]


def _nothing(arguments: Arguments) -> None:
    if arguments.positional:
        raise ScriptError("it takes no argument")


def _text(arguments: Arguments) -> str:
    value = _only(arguments)
    if isinstance(value, int):
        return filler(_whole(value))
    if not isinstance(value, str) or not arguments.raw[0].startswith('"'):
        raise ScriptError('it takes a number of tokens or a "text"')
    return value


def _invocation(positional: list[Any], raw: list[str]) -> Part:
    """`name`, `name {JSON}`, or `name "raw arguments"`: a string is sent as it is, valid JSON or not."""
    if not 1 <= len(positional) <= 2 or not isinstance(positional[0], str) or raw[0].startswith('"'):
        raise ScriptError("it takes a tool's name and its arguments as a JSON object")
    if len(positional) == 1:
        return Part("call", "{}", positional[0])
    if isinstance(positional[1], str) and raw[1].startswith('"'):
        return Part("call", positional[1], positional[0])
    if not isinstance(positional[1], dict):
        raise ScriptError("a tool's arguments are a JSON object")
    return Part("call", raw[1], positional[0])


def _say(steps: list[Step], arguments: Arguments) -> None:
    _add(steps, Part("say", _text(arguments)))


def _think(steps: list[Step], arguments: Arguments) -> None:
    _add(steps, Part("think", _text(arguments)))


def _call(steps: list[Step], arguments: Arguments) -> None:
    _add(steps, _invocation(arguments.positional, arguments.raw))


def _loop(steps: list[Step], arguments: Arguments) -> None:
    rounds = _whole(arguments.positional[0] if arguments.positional else None, least=1)
    if rounds + len(steps) > MAX_STEPS:
        raise ScriptError(f"at most {MAX_STEPS} steps")
    call = _invocation(arguments.positional[1:], arguments.raw[1:])
    _add(steps, call)
    steps.extend(Step(parts=(call,)) for _ in range(rounds - 1))
    steps.append(Step(parts=(Part("say", "Done."),)))


def _length(steps: list[Step], arguments: Arguments) -> None:
    _add(steps, Part("say", filler(_whole(_only(arguments)))))
    steps[-1] = replace(steps[-1], cut=True)


def _refuse(steps: list[Step], arguments: Arguments) -> None:
    text = _text(arguments) if arguments.positional else "I cannot help with that."
    _add(steps, Part("refuse", text))


def _fail(steps: list[Step], arguments: Arguments) -> None:
    status = arguments.positional[0] if arguments.positional else None
    if not isinstance(status, int) or not 400 <= status <= 599 or len(arguments.positional) > 2:
        raise ScriptError('it takes a status of 400 to 599 and perhaps a "message"')
    message = str(arguments.positional[1]) if len(arguments.positional) == 2 else "scripted failure"
    named = arguments.named
    fail = Fail(
        status,
        message,
        type=named.get("type", ""),
        code=named.get("code", ""),
        retry_after=named.get("retry-after", ""),
        plain="text" in arguments.words,
        once="once" in arguments.words,
    )
    steps[-1] = replace(steps[-1], fail=fail)


def _fault(kind: FaultKind) -> Directive:
    def apply(steps: list[Step], arguments: Arguments) -> None:
        fault = Fault(kind, _whole(_only(arguments)), once="once" in arguments.words)
        steps[-1] = replace(steps[-1], fault=fault)

    return Directive(f"[[{kind} N]] or [[{kind} N once]]", apply, words=frozenset({"once"}))


def _nodone(steps: list[Step], arguments: Arguments) -> None:
    _nothing(arguments)
    steps[-1] = replace(steps[-1], done=False)


def _json(steps: list[Step], arguments: Arguments) -> None:
    _nothing(arguments)
    steps[-1] = replace(steps[-1], as_json=True)


def _then(steps: list[Step], arguments: Arguments) -> None:
    _nothing(arguments)
    if len(steps) >= MAX_STEPS:
        raise ScriptError(f"at most {MAX_STEPS} steps")
    steps.append(Step())


DIRECTIVES: Mapping[str, Directive] = {
    "say": Directive('[[say N]] or [[say "text"]]', _say),
    "think": Directive('[[think N]] or [[think "text"]]', _think),
    "call": Directive("[[call TOOL {JSON}]]", _call),
    "loop": Directive("[[loop N TOOL {JSON}]]", _loop),
    "length": Directive("[[length N]]", _length),
    "refuse": Directive('[[refuse]] or [[refuse "text"]]', _refuse),
    "fail": Directive(
        '[[fail STATUS "message" text once retry-after=S code=C type=T]]',
        _fail,
        words=frozenset({"text", "once"}),
        named=frozenset({"retry-after", "code", "type"}),
    ),
    "drop": _fault("drop"),
    "eof": _fault("eof"),
    "stall": _fault("stall"),
    "garbage": _fault("garbage"),
    "error": _fault("error"),
    "null": _fault("null"),
    "nodone": Directive("[[nodone]]", _nodone),
    "json": Directive("[[json]]", _json),
    "then": Directive("[[then]]", _then),
}

_START = re.compile(r"\[\[([a-z]+)(?=\s|\]\])")
_SPACE = re.compile(r"\s*")
_NAMED = re.compile(r"([a-z-]+)=([^\s\]]+)")
_WORD = re.compile(r"[^\s\]\"{}=]+")
_DECODER = json.JSONDecoder()


@lru_cache(maxsize=256)
def parse(text: str) -> Script:
    """Read the directives of a user message; text around them is ignored.

    Raises `ScriptError`, whose message quotes the directive that is wrong.
    """
    steps, position, found = [Step()], 0, False
    while start := _START.search(text, position):
        try:
            directive = _named(start[1])
            arguments, position = _arguments(text, start.end(), directive)
            directive.apply(steps, arguments)
        except ScriptError as error:
            raise ScriptError(f"{_quote(text, start.start())}: {error}") from None
        found = True
    return Script(tuple(steps)) if found else Script()


def _named(name: str) -> Directive:
    if name not in DIRECTIVES:
        raise ScriptError(f"there is no directive '{name}'; there are {', '.join(DIRECTIVES)}")
    return DIRECTIVES[name]


def _quote(text: str, start: int) -> str:
    end = text.find("]]", start)
    return text[start : min(end + 2 if end >= 0 else len(text), start + 80)]


def _arguments(text: str, position: int, directive: Directive) -> tuple[Arguments, int]:
    """Read up to `]]`: the arguments and the position after it."""
    arguments = Arguments()
    while True:
        position = _skip(text, position)
        if text.startswith("]]", position):
            return arguments, position + 2
        if position >= len(text):
            raise ScriptError("its ]] is missing")
        position = _argument(text, position, directive, arguments)


def _skip(text: str, position: int) -> int:
    space = _SPACE.match(text, position)
    return space.end() if space else position


def _argument(text: str, position: int, directive: Directive, arguments: Arguments) -> int:
    if text[position] in '"{':
        try:
            value, end = _DECODER.raw_decode(text, position)
        except ValueError as error:
            raise ScriptError(f"invalid JSON ({error})") from None
        arguments.positional.append(value)
        arguments.raw.append(text[position:end])
        return end
    if named := _NAMED.match(text, position):
        if named[1] not in directive.named:
            raise ScriptError(f"it knows no '{named[1]}='; it is written {directive.form}")
        arguments.named[named[1]] = named[2]
        return named.end()
    word = _WORD.match(text, position)
    if word is None:
        raise ScriptError(f"unexpected '{text[position]}'; it is written {directive.form}")
    if word[0] in directive.words:
        arguments.words.add(word[0])
    else:
        arguments.positional.append(int(word[0]) if word[0].isascii() and word[0].isdigit() else word[0])
        arguments.raw.append(word[0])
    return word.end()
