"""What a model said comes back to it in the next turn: nothing lost, nothing twice, every call with its answer.

Source of what clients leave out when they send an answer back: clients/README.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.models.profile import profiles
from proxy.translate.base import Result, Translator
from proxy.translate.tools.listed import Called
from proxy.wire.client_events import Create
from proxy.wire.items import pair_calls, require_answers
from tests.fuzz.harness import SEALED, answer_of, briefed, translator
from tests.fuzz.shapes import check_paired
from tests.unit.strategies import cuts, dumped
from tests.unit.translate.turns import DONE, Event, chunk, create, play, sse, tool_call, tools_of

FUNCTION = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}
TOOLS = [
    FUNCTION,
    {"type": "function", "name": "odd name", "parameters": {"type": "object"}},
    {"type": "custom", "name": "exec"},
    {"type": "namespace", "name": "files", "tools": [{**FUNCTION, "name": "read"}]},
    {"type": "namespace", "name": "notes", "tools": [{"type": "custom", "name": "write"}]},
    {"type": "shell"},
    {"type": "local_shell"},
    {"type": "apply_patch"},
    {"type": "tool_search", "execution": "client"},
]
FIRST = create(tools=TOOLS, include=["reasoning.encrypted_content"])
NAMES = tools_of(FIRST).names

# Quotes, backslashes, what JSON escapes, what JavaScript takes for a line's end, and characters of two halves.
TEXT = st.text(
    st.one_of(st.sampled_from('"\\{}\n\t\u2028\0é/😀𝒳'), st.characters(exclude_categories=["Cs"])), max_size=20
)
SAID = TEXT.filter(bool)
OBJECTS = st.dictionaries(TEXT, st.one_of(TEXT, st.integers(-9, 9), st.lists(TEXT, max_size=2), st.none()), max_size=3)


class Made(NamedTuple):
    """A call as a model makes it: whose it is, and the arguments as a value."""

    called: Called
    arguments: dict[str, Any]


def _optional(**members: st.SearchStrategy[Any]) -> dict[str, st.SearchStrategy[Any]]:
    return members


_PATCHES = st.one_of(
    st.fixed_dictionaries({"type": st.sampled_from(["create_file", "update_file"]), "path": SAID, "diff": TEXT}),
    st.fixed_dictionaries({"type": st.just("delete_file"), "path": SAID}),
)
_ARGUMENTS: dict[Called, st.SearchStrategy[dict[str, Any]]] = {
    Called("function", "get_weather"): OBJECTS,
    Called("function", "odd name"): OBJECTS,
    Called("function", "read", "files"): OBJECTS,
    Called("custom", "exec"): st.fixed_dictionaries({"input": TEXT}),
    Called("custom", "write", "notes"): st.fixed_dictionaries({"input": TEXT}),
    Called("shell", "shell"): st.fixed_dictionaries(
        {"commands": st.lists(TEXT, max_size=3)},
        optional=_optional(timeout_ms=st.integers(0, 9999), max_output_length=st.integers(0, 9999)),
    ),
    Called("local_shell", "local_shell"): st.fixed_dictionaries(
        {"command": st.lists(TEXT, max_size=3)},
        optional=_optional(
            working_directory=TEXT,
            timeout_ms=st.integers(0, 9999),
            env=st.dictionaries(TEXT, TEXT, min_size=1, max_size=2),
        ),
    ),
    Called("apply_patch", "apply_patch"): _PATCHES,
    Called("tool_search", "tool_search"): OBJECTS,
}
CALLS = st.one_of(*(st.builds(Made, st.just(called), given_) for called, given_ in _ARGUMENTS.items()))


class Answer(NamedTuple):
    """What a model says in one turn; `said` is (`text` or `reasoning`, string) in order, `refusal` alone otherwise."""

    said: list[tuple[str, str]]
    refusal: str
    calls: list[Made]

    def text(self, kind: str) -> str:
        """All that was said of one kind; a refusal is text to the model that gave it."""
        return "".join(text for each, text in self.said if each == kind) + (self.refusal if kind == "text" else "")


ANSWERS = st.builds(
    lambda said, refusal, calls: Answer([] if refusal else said, refusal, calls),
    st.lists(st.tuples(st.sampled_from(["reasoning", "text"]), SAID), max_size=4),
    st.one_of(st.just(""), st.just(""), SAID),
    st.lists(CALLS, max_size=4),
)


@st.composite
def spoken(draw: st.DrawFn, answer: Answer) -> list[bytes]:
    """The answer as a chat server streams it: cut into deltas, calls in one piece or many, read anyhow."""
    member = {"text": "content", "reasoning": draw(st.sampled_from(["reasoning", "reasoning_content"]))}
    chunks = [chunk(role="assistant", content=None)]
    for kind, text in answer.said:
        chunks += [chunk(**{member[kind]: piece}) for piece in draw(pieces(text))]
    chunks += [chunk(refusal=piece) for piece in draw(pieces(answer.refusal))]
    for index, call in enumerate(answer.calls):
        arguments = json.dumps(call.arguments, ensure_ascii=draw(st.booleans()))
        first, *rest = draw(pieces(arguments))
        chunks.append(tool_call(index, f"call_{index}", NAMES[call.called], first))
        chunks += [tool_call(index, None, None, piece) for piece in rest]
    return draw(cuts(sse(*chunks, chunk("tool_calls" if answer.calls else "stop"), DONE)))


def pieces(text: str) -> st.SearchStrategy[list[str]]:
    """A string in pieces of any sizes; at least one."""

    def cut(places: list[int]) -> list[str]:
        bounds = [0, *sorted(places), len(text)]
        return [text[start:end] for start, end in pairwise(bounds)]

    return st.lists(st.integers(0, len(text)), max_size=4).map(cut)


def told(made: Translator, reads: Sequence[bytes], asked: Create) -> list[Event]:
    """The items that a client reads from their events."""
    events = play(made, reads, asked)
    assert events[-1]["type"] == "response.completed", events[-1]
    items = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert items == events[-1]["response"]["output"]
    return items


@st.composite
def remembered(draw: st.DrawFn, items: Sequence[Event]) -> list[Event]:
    """The items as a client sends them back: what it leaves out is its own choice, for all of them."""
    gone = draw(st.sets(st.sampled_from(["id", "status", "annotations", "logprobs", "content of reasoning"])))
    return [_without(item, gone) for item in items]


def _without(item: Event, gone: set[str]) -> Event:
    kept = {name: value for name, value in item.items() if name not in gone}
    if item["type"] == "reasoning" and "content of reasoning" in gone:
        del kept["content"]
    elif isinstance(kept.get("content"), list):
        kept["content"] = [{name: part[name] for name in part if name not in gone} for part in kept["content"]]
    return kept


def by_chain(first: Translator, result: Result, answers: Sequence[Event], profile: str, dialect: str) -> Event:
    """The next turn's body where the answer was kept here, as `Turn` keeps it."""
    parts = (first.delta, first.encode(result.items))
    following = create(tools=TOOLS, input=[*answers, {"role": "user", "content": "go on"}])
    body = translator(briefed(following, profile), dialect).request([b",".join(part for part in parts if part)])
    read: Event = json.loads(b"".join(body.parts))
    return read


def by_resend(items: Sequence[Event], answers: Sequence[Event], profile: str, dialect: str) -> Event:
    """The next turn's body where the client sends all of it again."""
    hi, go_on = {"role": "user", "content": "hi"}, {"role": "user", "content": "go on"}
    following = create(tools=TOOLS, input=[hi, *items, *answers, go_on])
    require_answers(pair_calls(frozenset(), following.items))
    read: Event = json.loads(b"".join(translator(briefed(following, profile), dialect).request([]).parts))
    return read


def answers_to(items: Sequence[Event]) -> list[Event]:
    return [answer_of(item) for item in items if "call_id" in item]


# --- chat ---


def heard(body: Event, profile: str) -> tuple[str, str, list[tuple[str, dict[str, Any]]]]:
    """What a chat server is told that it said: text, reasoning, calls."""
    messages = body["messages"]
    check_paired(messages)
    assert messages[0] == {"role": "user", "content": "hi"}
    assert messages[-1] == {"role": "user", "content": "go on"}
    own = [message for message in messages if message["role"] == "assistant"]
    assert [message["role"] for message in messages[1:-1] if message["role"] not in ("assistant", "tool")] == []
    member = profiles()[profile].chat.reasoning
    return (
        "".join(_plain(message.get("content")) + (message.get("refusal") or "") for message in own),
        "".join(message.get(member) or "" for message in own) if member else "",
        [_heard_call(call["function"]) for message in own for call in message.get("tool_calls") or ()],
    )


def _plain(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part.get("text") or part.get("refusal") or "" for part in content)
    return content or ""


def _heard_call(function: Event) -> tuple[str, dict[str, Any]]:
    return function["name"], _telling(json.loads(function["arguments"]))


def _telling(arguments: dict[str, Any]) -> dict[str, Any]:
    """Without members that say nothing, which items have all the same."""
    return {name: value for name, value in arguments.items() if value is not None and value != {}}


def expected(answer: Answer, *, reasoning: bool = True) -> tuple[str, str, list[tuple[str, dict[str, Any]]]]:
    calls = [(NAMES[call.called], _telling(call.arguments)) for call in answer.calls]
    return answer.text("text"), answer.text("reasoning") if reasoning else "", calls


PROFILES = st.sampled_from(sorted(profiles()))


@given(ANSWERS, PROFILES, st.data())
@settings(deadline=None, max_examples=150)
def test_a_chat_server_hears_what_it_said(answer: Answer, profile: str, data: st.DataObject) -> None:
    first = translator(briefed(FIRST, profile), "chat")
    items = told(first, data.draw(spoken(answer)), FIRST)
    wanted = expected(answer, reasoning=bool(profiles()[profile].chat.reasoning))
    answers = answers_to(items)
    assert heard(by_chain(first, first.result(), answers, profile, "chat"), profile) == wanted
    again = data.draw(remembered(items))
    assert heard(by_resend(again, answers, profile, "chat"), profile) == wanted


@given(CALLS, st.data())
@settings(deadline=None, max_examples=100)
def test_a_client_gets_the_call_that_the_model_made(call: Made, data: st.DataObject) -> None:
    reads = data.draw(spoken(Answer([], "", [call])))
    (item,) = told(translator(briefed(FIRST, "generic"), "chat"), reads, FIRST)
    called, arguments = call.called, call.arguments
    readers: dict[str, Callable[[], dict[str, Any]]] = {
        "function": lambda: json.loads(item["arguments"]),
        "custom": lambda: {"input": item["input"]},
        "shell": lambda: item["action"],
        "local_shell": lambda: {name: value for name, value in item["action"].items() if name != "type"},
        "apply_patch": lambda: item["operation"],
        "tool_search": lambda: item["arguments"],
    }
    assert _telling(readers[called.kind]()) == _telling(arguments)
    assert item["call_id"] == "call_0"
    assert item.get("namespace") == called.namespace
    assert item.get("name", called.kind) == called.name


OUTPUTS: dict[str, Any] = {
    "function_call": lambda said: {"output": said},
    "custom_tool_call": lambda said: {"output": said},
    "local_shell_call": lambda said: {"output": said},
    "shell_call": lambda said: {
        "output": [{"stdout": said, "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]
    },
    "apply_patch_call": lambda said: {"output": said, "status": "failed"},
}


@given(st.lists(st.tuples(CALLS, SAID), min_size=1, max_size=3), PROFILES, st.data())
@settings(deadline=None, max_examples=80)
def test_a_model_reads_what_its_calls_gave(ran: list[tuple[Made, str]], profile: str, data: st.DataObject) -> None:
    ran = [(call, said) for call, said in ran if call.called.kind != "tool_search"]
    first = translator(briefed(FIRST, profile), "chat")
    items = told(first, data.draw(spoken(Answer([], "", [call for call, _ in ran]))), FIRST)
    calls = [item for item in items if "call_id" in item]
    answers = [{**answer_of(item), **OUTPUTS[item["type"]](said)} for item, (_, said) in zip(calls, ran, strict=True)]
    body = by_resend(items, answers, profile, "chat")
    outputs = {each["tool_call_id"]: _plain(each["content"]) for each in body["messages"] if each["role"] == "tool"}
    for item, (_, said) in zip(calls, ran, strict=True):
        # A program's output has its exit code and what it was written to around it.
        assert said.strip() in outputs[item["call_id"]]
        assert item["type"] in ("shell_call", "apply_patch_call") or outputs[item["call_id"]] == said


# --- responses ---


@st.composite
def streamed(draw: st.DrawFn, answer: Answer, *, bare: bool) -> list[bytes]:
    """The answer as a Responses server streams it that knows functions alone; `bare` leaves out numbers and indices."""
    items = _items_of(answer)
    events: list[Event] = [{"type": "response.created", "response": {"id": "resp_up", "status": "in_progress"}}]
    for index, item in enumerate(items):
        events += [{**event, "output_index": index} for event in draw(_item_events(item))]
    ended = {"id": "resp_up", "status": "completed", "output": items}
    events.append({"type": "response.completed", "response": ended})
    if bare:
        events = [_without(event, {"output_index", "content_index"}) for event in events]
    else:
        events = [{"sequence_number": number, **event} for number, event in enumerate(events)]
    return draw(cuts(sse(*events)))


def _items_of(answer: Answer) -> list[Event]:
    said = [*answer.said, *([("refusal", answer.refusal)] if answer.refusal else [])]
    parts: dict[str, tuple[str, str]] = {
        "text": ("output_text", "text"),
        "refusal": ("refusal", "refusal"),
        "reasoning": ("reasoning_text", "text"),
    }
    items: list[Event] = []
    for index, (kind, text) in enumerate(said):
        part_type, member = parts[kind]
        part: Event = {"type": part_type, member: text}
        if kind == "text":
            part |= {"annotations": [], "logprobs": []}
        shape: Event = {"type": "reasoning", "summary": []} if kind == "reasoning" else _MESSAGE
        items.append({**shape, "id": f"item_{index}", "status": "completed", "content": [part]})
    for index, call in enumerate(answer.calls):
        ids = {"id": f"fc_{index}", "call_id": f"call_{index}", "name": NAMES[call.called]}
        arguments = json.dumps(call.arguments, ensure_ascii=index % 2 == 0)
        items.append({"type": "function_call", **ids, "arguments": arguments, "status": "completed"})
    return items


_MESSAGE: Event = {"type": "message", "role": "assistant"}


@st.composite
def _item_events(draw: st.DrawFn, item: Event) -> list[Event]:
    at = {"item_id": item["id"]}
    is_call = item["type"] == "function_call"
    empty: Event = {"arguments": ""} if is_call else {"content": []}
    events: list[Event] = [{"type": "response.output_item.added", "item": {**item, **empty, "status": "in_progress"}}]
    if is_call:
        stem, text, done = "response.function_call_arguments", item["arguments"], {"arguments": item["arguments"]}
    else:
        (part,) = item["content"]
        member = "refusal" if part["type"] == "refusal" else "text"
        stem, text, done = f"response.{part['type']}", part[member], {member: part[member]}
        at["content_index"] = 0
        events.append({"type": "response.content_part.added", **at, "part": {**part, member: ""}})
    more: Event = {"logprobs": []} if stem == "response.output_text" else {}
    events += [{"type": f"{stem}.delta", **at, **more, "delta": piece} for piece in draw(pieces(text))]
    named = {"name": item["name"]} if is_call else more
    events.append({"type": f"{stem}.done", **at, **named, **done})
    if not is_call:
        events.append({"type": "response.content_part.done", **at, "part": part})
    return [*events, {"type": "response.output_item.done", "item": item}]


def heard_items(body: Event) -> tuple[str, str, list[tuple[str, dict[str, Any]]]]:
    """What a Responses server is told that it said, in its own items: text, reasoning, calls."""
    items = body["input"]
    assert [item.get("role") for item in (items[0], items[-1])] == ["user", "user"]
    own = [item for item in items if item["type"] == "message" and item["role"] == "assistant"]
    thought = [item for item in items if item["type"] == "reasoning"]
    calls = [item for item in items if item["type"] == "function_call"]
    answered = [item["call_id"] for item in items if item["type"] == "function_call_output"]
    assert answered == [call["call_id"] for call in calls]
    assert len(own) + len(thought) + 2 * len(calls) + 2 == len(items), items
    return (
        "".join(_plain(item["content"]) for item in own),
        "".join(_plain(item.get("content")) for item in thought),
        [_heard_call(call) for call in calls],
    )


@pytest.mark.parametrize("profile", ["vllm", "llamacpp"])
@given(ANSWERS, st.data())
@settings(deadline=None, max_examples=100)
def test_a_responses_server_of_functions_hears_what_it_said(profile: str, answer: Answer, data: st.DataObject) -> None:
    first = translator(briefed(FIRST, profile), "responses")
    items = told(first, data.draw(streamed(answer, bare=profile == "llamacpp")), FIRST)
    kinds = {f"{call.called.kind}_call" for call in answer.calls} | {"custom_tool_call"}
    assert {item["type"] for item in items if "call_id" in item} <= kinds
    wanted, answers = expected(answer), answers_to(items)
    assert heard_items(by_chain(first, first.result(), answers, profile, "responses")) == wanted
    again = data.draw(remembered(items))
    assert heard_items(by_resend(again, answers, profile, "responses")) == wanted


def _sealed_elsewhere(item: Event) -> Event:
    """Reasoning as OpenAI wants it back."""
    return {**item, "encrypted_content": "gAAAAAC"} if item["type"] == "reasoning" else item


@pytest.mark.parametrize("profile", ["generic", "openai"])
@given(ANSWERS, st.data())
@settings(deadline=None, max_examples=60)
def test_items_of_a_full_responses_server_come_back_to_it_as_they_were(
    profile: str, answer: Answer, data: st.DataObject
) -> None:
    opaque = {"type": "reasoning", "id": "rs_x", "summary": [], "encrypted_content": "gAAAAAB" + SEALED}
    unknown = {"type": "x_new_item", "id": "new_1", "said": answer.text("text"), "status": "completed"}
    sent = [opaque, *map(_sealed_elsewhere, _items_of(answer)), unknown]
    ended = {"id": "resp_up", "status": "completed", "output": sent}
    first = translator(briefed(create(tools=[FUNCTION]), profile), "responses")
    play(first, [sse({"type": "response.completed", "sequence_number": 2, "response": ended})])
    result = first.result()
    assert [json.loads(item.raw) for item in result.items] == sent
    answers = answers_to(sent)
    body = by_chain(first, result, answers, profile, "responses")
    assert body["input"][1:-1] == [*sent, *answers]
    body = by_resend(sent, answers, profile, "responses")
    assert body["input"][1:-1] == [*sent, *answers]
    assert dumped(body["input"][1]) == dumped(opaque)
