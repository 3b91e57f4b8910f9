"""The chat dialect against whatever an upstream may send, cut anywhere: events, or a failure with a name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.errors import LooplineError
from proxy.translate.chat.translator import ChatTranslator
from tests.unit.strategies import TEXT, cuts, dumped, json_values
from tests.unit.translate.answer.test_calls import check_calls
from tests.unit.translate.turns import DONE, Event, chat, chunk, create, output, play, sse, tool_call

DELTAS = st.one_of(
    st.builds(lambda said: chunk(content=said), TEXT),
    st.just(chunk(reasoning="hm\u2028 é")),
    st.builds(
        tool_call,
        st.sampled_from([0, 1]),
        st.sampled_from([None, "c1", "c2"]),
        st.sampled_from([None, "f"]),
        st.sampled_from([None, '{"a"', ":1}", "{}"]),
    ),
    st.just({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 5}}),
    st.just(b"null"),
)
WORDS = ("choices", "delta", "content", "index", "tool_calls", "function", "name", "arguments", "id", "finish_reason")
MORE_WORDS = ("stop", "usage", "error", "message", "reasoning", "prompt_tokens")
PIECES = st.sampled_from([b"data: ", b"\n\n", b'{"choices":', b"\r", b"[DONE]", b"{", b"\xff"])


def outcome(translator: ChatTranslator, reads: list[bytes]) -> tuple[list[Event], str | None]:
    """Every event, and the kind of failure; nothing else may come out."""
    out: list[bytes] = []
    kind: str | None = None
    try:
        for read in reads:
            out += translator.feed(read)
        out += translator.finish()
        translator.result()
    except LooplineError as error:
        kind = error.kind.value
        out += translator.feed(b"")
    assert translator.sequence == len(out) + 2
    return [json.loads(event) for event in out], kind


@given(st.lists(DELTAS, max_size=8), st.sampled_from(["stop", "length", None]), st.data())
@settings(deadline=None, max_examples=80)
def test_where_the_reads_fall_changes_nothing(deltas: list[Event], finish: str | None, data: st.DataObject) -> None:
    stream = sse(*deltas, *([chunk(finish), DONE] if finish else []))
    whole = outcome(chat(), [stream])
    assert outcome(chat(), data.draw(cuts(stream))) == whole
    assert outcome(chat(), [stream[i : i + 1] for i in range(len(stream))]) == whole


@given(st.lists(json_values(*WORDS, *MORE_WORDS), max_size=4), st.booleans())
@settings(deadline=None, max_examples=80)
def test_any_json_from_an_upstream_gives_events_or_a_named_failure(values: list[Any], stream: bool) -> None:
    reads = [sse(*values, DONE)] if stream else [dumped(value) for value in values]
    outcome(chat(), reads)


@given(st.lists(st.one_of(st.binary(max_size=40), PIECES), max_size=10))
@settings(deadline=None, max_examples=80)
def test_any_bytes_from_an_upstream_give_events_or_a_named_failure(reads: list[bytes]) -> None:
    outcome(chat(), reads)


# --- any interleaving, streamed and whole ---

TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": "list", "parameters": {"type": "object"}},
    {"type": "custom", "name": "patch"},
    {"type": "shell"},
    {"type": "namespace", "name": "mcp", "description": "d", "tools": [{"type": "function", "name": "list"}]},
]
SAID = TEXT.filter(bool)


class Whole(NamedTuple):
    """A message as a server that does not stream would send it."""

    reasoning: str
    content: str
    refusal: str
    calls: list[tuple[str, str]]

    @property
    def message(self) -> Event:
        made: Event = {"role": "assistant", "content": self.content or None}
        if self.reasoning:
            made["reasoning_content"] = self.reasoning
        if self.refusal:
            made["refusal"] = self.refusal
        if self.calls:
            made["tool_calls"] = [
                {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
                for number, (name, arguments) in enumerate(self.calls)
            ]
        return made


@st.composite
def arguments_of(draw: st.DrawFn, name: str) -> str:
    value: Any = {"a": draw(TEXT), "b": draw(st.integers())}
    if name == "patch":
        value = {"input": draw(TEXT)}
    elif name == "shell":
        value = {"commands": draw(st.lists(TEXT, max_size=2))}
    return json.dumps(value, ensure_ascii=draw(st.booleans()))


@st.composite
def wholes(draw: st.DrawFn) -> Whole:
    names = draw(st.lists(st.sampled_from(["list", "patch", "shell", "mcp__list", "unknown"]), max_size=3))
    made = [(name, draw(arguments_of(name))) for name in names]
    return Whole(draw(TEXT), draw(TEXT), draw(TEXT), made)


def pieces_of(draw: st.DrawFn, text: str) -> list[str]:
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=3)))
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


def thought(draw: st.DrawFn, text: str) -> Event:
    members = draw(st.sampled_from([("reasoning_content",), ("reasoning",), ("reasoning_content", "reasoning")]))
    if draw(st.booleans()):
        return dict.fromkeys(members, text)
    inner = draw(st.sampled_from([text, [{"type": "text", "text": text}]]))
    return {"content": [{"type": "thinking", "thinking": inner}]}


def spoken(draw: st.DrawFn, text: str) -> Event:
    return draw(st.sampled_from([{"content": text}, {"content": [{"type": "text", "text": text}]}]))


def refused(draw: st.DrawFn, text: str) -> Event:
    return draw(st.sampled_from([{"refusal": text}, {"content": [{"type": "refusal", "refusal": text}]}]))


def call_chunks(draw: st.DrawFn, number: int, name: str, arguments: str) -> list[Event]:
    first, *more = pieces_of(draw, arguments)
    begun = {"index": number, "id": f"c{number}", "type": "function", "function": {"name": name, "arguments": first}}
    agains: list[Event] = [{}, {"id": f"c{number}"}, {"id": None}]
    nameds: list[Event] = [{}, {"name": None}, {"name": ""}]
    again, named = draw(st.sampled_from(agains)), draw(st.sampled_from(nameds))
    return [begun, *({"index": number, **again, "function": {**named, "arguments": piece}} for piece in more)]


@st.composite
def streams(draw: st.DrawFn, whole: Whole, *, any_order: bool) -> list[Event]:
    """Deltas that say a message; the calls are woven into each other, with `any_order` everything is."""
    texts = [
        [make(draw, piece) for piece in pieces_of(draw, text)]
        for make, text in ((thought, whole.reasoning), (spoken, whole.content), (refused, whole.refusal))
    ]
    calls = [
        [{"tool_calls": [piece]} for piece in call_chunks(draw, number, *call)]
        for number, call in enumerate(whole.calls)
    ]
    if any_order:
        return woven(draw, [*texts, *calls])
    begun = [call.pop(0) for call in calls]
    return [delta for text in texts for delta in text] + begun + woven(draw, calls)


def woven(draw: st.DrawFn, tracks: list[list[Event]]) -> list[Event]:
    made: list[Event] = []
    while any(tracks):
        ready = [track for track in tracks if track]
        made.append(ready[draw(st.integers(0, len(ready) - 1))].pop(0))
    return made


@st.composite
def in_chunks(draw: st.DrawFn, deltas: list[Event]) -> list[Event]:
    """Some neighbours in one chunk, where their members do not meet; roles, empty chunks and usage between them."""
    merged: list[Event] = [{"role": "assistant", "content": draw(st.sampled_from(["", None]))}]
    order = ("reasoning_content", "reasoning", "content", "refusal", "tool_calls")
    for delta in deltas:
        before = merged[-1]
        last = max((order.index(member) for member in before if member in order and before[member]), default=-1)
        if draw(st.booleans()) and min(order.index(member) for member in delta) > last:
            merged[-1] = {**before, **delta}
        else:
            merged.append(delta)
    chunks = [chunk(**delta) for delta in merged]
    return [{**each, "usage": {"prompt_tokens": 1}} if draw(st.booleans()) else each for each in chunks]


def meant(told: Sequence[Event]) -> list[Event]:
    """The items, ids aside."""
    return [{key: value for key, value in item.items() if key != "id"} for item in output(told)]


@given(wholes(), st.data())
@settings(deadline=None, max_examples=120)
def test_a_streamed_answer_gives_the_same_items_as_a_whole_one(whole: Whole, data: st.DataObject) -> None:
    made = create(tools=TOOLS)
    document = {"id": "x", "choices": [{"index": 0, "message": whole.message, "finish_reason": "stop"}]}
    at_once = play(chat(made), [dumped(document)], made)
    deltas = data.draw(in_chunks(data.draw(streams(whole, any_order=False))))
    streamed = play(chat(made), [sse(*deltas, chunk("stop"), DONE)], made)
    for told in (at_once, streamed):
        check_calls(told)
        assert told[-1]["type"] == "response.completed"
    assert meant(streamed) == meant(at_once)


@given(wholes(), st.data())
@settings(deadline=None, max_examples=120)
def test_any_interleaving_is_told_as_nested_items_and_loses_nothing(whole: Whole, data: st.DataObject) -> None:
    made = create(tools=TOOLS)
    deltas = data.draw(in_chunks(data.draw(streams(whole, any_order=True))))
    told = play(chat(made), [sse(*deltas, chunk("tool_calls"), DONE)], made)
    check_calls(told)
    assert told[-1]["type"] == "response.completed"
    parts = [part for item in output(told) for part in item.get("content", ())]
    for kind, member, text in (
        ("output_text", "text", whole.content),
        ("refusal", "refusal", whole.refusal),
        ("reasoning_text", "text", whole.reasoning),
    ):
        assert "".join(part[member] for part in parts if part["type"] == kind) == text
    got = {item["call_id"]: item for item in output(told) if "call_id" in item}
    for number, (name, arguments) in enumerate(whole.calls):
        item, read = got[f"c{number}"], json.loads(arguments)
        if name == "patch":
            assert (item["type"], item["input"]) == ("custom_tool_call", read["input"])
        elif name == "shell":
            assert (item["type"], item["action"]["commands"]) == ("shell_call", read["commands"])
        else:
            assert (item["name"], item["arguments"]) == (name.removeprefix("mcp__"), arguments)
            assert item.get("namespace") == ("mcp" if name.startswith("mcp") else None)
