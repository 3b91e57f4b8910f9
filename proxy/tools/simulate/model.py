"""The simulated model: decides what to answer to a request, whatever its dialect; pure.

`Ask` is a request without its dialect, `decide` finds the step that answers it (from the script in the last user
message, or as an agent would), `compose` cuts the step into tokens within the request's limits.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import msgspec

from .options import Options
from .sample import sample
from .script import Fault, Part, PartKind, Step, parse
from .tokens import filler, prompt_tokens, split

Finish = Literal["stop", "length", "tool_calls"]
_QUOTED_CHARS = 400
_FAULT_EXTRA_TOKENS = 10  # a fault without an answer of its own gets one a little longer than the fault is late


class Call(NamedTuple):
    """A call in the history."""

    id: str
    name: str
    arguments: str


class Message(NamedTuple):
    """A message of the history. `call_id` is set on a tool's result, `wordless` on content that is images alone."""

    role: str
    text: str
    calls: tuple[Call, ...] = ()
    call_id: str = ""
    wordless: bool = False


class Tool(NamedTuple):
    """A function tool."""

    name: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Ask:
    """A request in terms of the model. `choice` is auto, none, required, or `=` and a function's name."""

    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tools_text: str = ""
    choice: str = "auto"
    schema: Mapping[str, Any] | None = None
    max_tokens: int | None = None
    parallel: bool = True
    stream: bool = False
    include_usage: bool = False
    salt: str = ""


class Spoken(NamedTuple):
    """A part of an answer, cut into tokens. A call's tokens are those of its arguments."""

    kind: PartKind
    pieces: tuple[str, ...]
    name: str = ""

    @property
    def text(self) -> str:
        return "".join(self.pieces)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model says, and how that ends."""

    parts: tuple[Spoken, ...]
    finish: Finish
    fault: Fault | None = None
    done: bool = True

    def tokens(self, *kinds: PartKind) -> int:
        """How many tokens the parts have: all, or those of some kinds."""
        return sum(len(part.pieces) for part in self.parts if not kinds or part.kind in kinds)


class Usage(NamedTuple):
    prompt: int
    cached: int
    completion: int
    reasoning: int


class Ids:
    """Ids from one counter: unique within a server, and the same in every run."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def mint(self, prefix: str) -> str:
        return f"{prefix}{next(self._numbers):016x}"


@dataclass(slots=True)
class Reply:
    """All a dialect needs to encode an answer. `created` is in Unix seconds."""

    ask: Ask
    body: Mapping[str, Any]
    answer: Answer
    usage: Usage
    ids: Ids
    created: int
    options: Options = field(default_factory=Options)


# ---------------------------------------------------------------------------------------------- what to answer


class Turn(NamedTuple):
    """What happened since the last user message: its text, rounds of tool results, the last round's results."""

    text: str
    rounds: int
    results: tuple[str, ...]


def last_turn(messages: tuple[Message, ...]) -> Turn:
    """Look back to the last user message. One round is a run of tool results without another message between.

    Images alone, right after results, are what a tool showed: a chat request has no other place for them.
    """
    start = next((i for i in range(len(messages) - 1, -1, -1) if _asks(messages, i)), -1)
    text = messages[start].text if start >= 0 else ""
    rounds, names, results = 0, dict[str, str](), list[str]()
    previous = ""
    for message in messages[start + 1 :]:
        names.update({call.id: call.name for call in message.calls})
        if message.role == "tool":
            if previous != "tool":
                rounds, results = rounds + 1, []
            results.append(f"{names.get(message.call_id, 'The tool')} returned: {message.text[:_QUOTED_CHARS]}")
        previous = message.role
    return Turn(text, rounds, tuple(results))


def _asks(messages: tuple[Message, ...], index: int) -> bool:
    message = messages[index]
    return message.role == "user" and not (message.wordless and index > 0 and messages[index - 1].role == "tool")


def decide(ask: Ask) -> Step:
    """The step that answers: the script's if it has one for this round, else the agent's.

    Raises `ScriptError` for a directive that cannot be understood.
    """
    turn = last_turn(ask.messages)
    steps = parse(turn.text).steps
    if turn.rounds < len(steps):
        return steps[turn.rounds]
    return _act(ask, turn, scripted=bool(steps))


def _act(ask: Ask, turn: Turn, scripted: bool) -> Step:
    """Play an agent: call a tool, read its result, answer."""
    forced = ask.choice == "required" or ask.choice.startswith("=")
    may_call = bool(ask.tools) and ask.choice != "none"
    if may_call and not scripted and (forced or not turn.results):
        tool = next((t for t in ask.tools if ask.choice == "=" + t.name), ask.tools[0])
        arguments = msgspec.json.encode(sample(tool.parameters)).decode()
        return Step(parts=(Part("call", arguments, tool.name),))
    if ask.schema is not None:
        return Step(parts=(Part("say", msgspec.json.encode(sample(ask.schema)).decode()),))
    if turn.results:
        return Step(parts=(Part("say", "; ".join(turn.results)),))
    words = turn.text.split()
    excerpt = " ".join(words[:12]) + (" ..." if len(words) > 12 else "")
    return Step(parts=(Part("say", f"This is a simulated answer to: {excerpt[:_QUOTED_CHARS]}"),))


def compose(step: Step, ask: Ask, room_tokens: int) -> Answer:
    """Cut a step into tokens, within the request's limit and the room left in the context."""
    parts = _spoken(step, parallel=ask.parallel)
    limit = min(room_tokens, ask.max_tokens if ask.max_tokens is not None else room_tokens)
    kept, cut = _truncate(parts, limit)
    finish: Finish = "stop"
    if cut or step.cut:
        finish = "length"
    elif any(part.kind == "call" for part in kept) and not ask.choice.startswith("="):
        finish = "tool_calls"  # vLLM says "stop" when tool_choice names the function
    return Answer(kept, finish, step.fault, step.done)


def _spoken(step: Step, parallel: bool) -> list[Spoken]:
    """Parts as tokens: neighbours of one kind join, as a model that goes on talking."""
    parts = step.parts
    if not parts:
        length = max(20, step.fault.after + _FAULT_EXTRA_TOKENS if step.fault else 0)
        parts = (Part("say", filler(length)),)
    spoken: list[Spoken] = []
    calls = 0
    for part in parts:
        calls += part.kind == "call"
        if part.kind == "call" and calls > 1 and not parallel:
            continue  # as vLLM: only the first call is kept
        if spoken and part.kind == spoken[-1].kind and part.kind != "call":
            joined = spoken[-1].pieces + split(" " + part.text)
            spoken[-1] = Spoken(part.kind, joined)
        else:
            spoken.append(Spoken(part.kind, split(part.text), part.name))
    return spoken


def _truncate(parts: Iterable[Spoken], limit: int) -> tuple[tuple[Spoken, ...], bool]:
    kept: list[Spoken] = []
    for part in parts:
        if len(part.pieces) > limit:
            if limit > 0 or not kept:
                kept.append(part._replace(pieces=part.pieces[:limit]))
            return tuple(kept), True
        kept.append(part)
        limit -= len(part.pieces)
    return tuple(kept), False


# ---------------------------------------------------------------------------------------------- what the prompt is


def prompt(ask: Ask) -> bytes:
    """The tokens of the whole prompt."""
    return b"".join(map(prompt_tokens, (ask.tools_text, *map(_rendered, ask.messages))))


def completion(answer: Answer) -> bytes:
    """The tokens of the answer as the next prompt will hold them; reasoning, which a template drops, comes first."""
    thought = "".join(part.text for part in answer.parts if part.kind == "think")
    text = "".join(part.text for part in answer.parts if part.kind in ("say", "refuse"))
    calls = tuple(Call("", part.name, part.text) for part in answer.parts if part.kind == "call")
    return prompt_tokens(thought) + prompt_tokens(_rendered(Message("assistant", text, calls)))


def usage(prompt_count: int, cached: int, answer: Answer) -> Usage:
    return Usage(prompt_count, cached, answer.tokens(), answer.tokens("think"))


def conversation_key(ask: Ask) -> bytes:
    """Names this exact conversation, for directives that act only once."""
    history = msgspec.json.encode([ask.tools_text, ask.messages])
    return hashlib.blake2b(history, digest_size=16).digest()


def _rendered(message: Message) -> str:
    calls = "".join(f"<call>{call.name}{call.arguments}" for call in message.calls)
    return f"<|{message.role}|>{message.text}{calls}"


def image_text(url: str) -> str:
    """What an image is in the prompt: a few tokens that depend on its content. It is never fetched."""
    return f"<image {hashlib.blake2b(url.encode(), digest_size=32).hexdigest()}>"
