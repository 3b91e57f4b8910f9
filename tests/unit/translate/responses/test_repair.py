"""Streams of Responses servers that are not faithful, made into strictly nested items with every key."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.errors import LooplineError
from proxy.models.profile import profiles
from proxy.translate.responses.translator import ResponsesTranslator
from proxy.wire.client_events import Create
from tests.conformance.schema import check_turn
from tests.unit.strategies import cuts
from tests.unit.translate.turns import SEED, Event, brief, create, output, play, responses, sse, text

CAPTURED = Path(__file__).parents[3] / "golden" / "captured" / "streams"
STREAMS = sorted(CAPTURED.glob("*-responses-*.*"))
FUNCTION: Event = {"type": "function", "name": "f"}
CUSTOM: Event = {"type": "custom", "name": "run"}
TOOLS = [
    FUNCTION, CUSTOM, {"type": "shell"}, {"type": "apply_patch"},
    {"type": "namespace", "name": "geo", "tools": [{"type": "function", "name": "find"}]},
]  # fmt: skip


def added(item: str, item_id: str | None = None, **members: Any) -> Event:
    named = {} if item_id is None else {"id": item_id}
    return {"type": "response.output_item.added", "item": {"type": item, **named, **members}}


def done(item: str, item_id: str | None = None, **members: Any) -> Event:
    return {**added(item, item_id, **members), "type": "response.output_item.done"}


def said(kind: str, delta: str, item_id: str | None = None) -> Event:
    named = {} if item_id is None else {"item_id": item_id}
    return {"type": f"response.{kind}.delta", **named, "delta": delta}


def ended(status: str = "completed", **members: Any) -> Event:
    return {"type": "response.completed", "response": {"id": "up", "status": status, **members}}


def answered(*events: Event, profile: str = "llamacpp", made: Create | None = None) -> list[Event]:
    told = play(responses(made, profile=profile), [sse(*events)], made)
    check_turn(told)
    return told


def deltas(told: Sequence[Event]) -> list[str]:
    return [event["delta"] for event in told if event["type"].endswith(".delta")]


def kinds(told: Sequence[Event]) -> list[str]:
    return [item["type"] for item in output(told)]


# --- real streams ---


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: str(path.name))
def test_what_real_servers_send_becomes_a_valid_stream(path: Path) -> None:
    profile = path.name.partition("-")[0]
    data = path.read_bytes()
    whole = play(responses(profile=profile), [data])
    check_turn(whole)
    assert whole == play(responses(profile=profile), [data[at : at + 7] for at in range(0, len(data), 7)])


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("llamacpp-responses-reasoning-then-text", ["reasoning", "message"]),
        ("llamacpp-responses-parallel-calls", ["function_call", "function_call"]),
        ("vllm-responses-reasoning-then-tool", ["reasoning", "function_call"]),
        ("vllm-responses-custom-tool", ["reasoning", "custom_tool_call"]),
        ("transformers-responses-text", ["message"]),
    ],
)
def test_real_answers_keep_their_items(name: str, wanted: list[str]) -> None:
    told = play(responses(profile=name.partition("-")[0]), [(CAPTURED / f"{name}.sse").read_bytes()])
    assert kinds(told) == wanted
    assert all(item.get("status") == "completed" for item in output(told))


@pytest.mark.parametrize("name", ["llamacpp-responses-text-cut", "llamacpp-responses-tool-cut-12"])
@pytest.mark.parametrize("form", ["sse", "json"])
def test_a_cut_that_llamacpp_hides_is_told(name: str, form: str) -> None:
    data = (CAPTURED / f"{name}.{form}").read_bytes()
    payload = data.decode().rpartition("data: ")[2] if form == "sse" else data.decode()
    used = json.loads(payload)
    limit = (used["response"] if form == "sse" else used)["usage"]["output_tokens"]
    for asked, status in ((limit, "incomplete"), (limit + 1, "completed")):
        made = create(max_output_tokens=asked)
        told = play(responses(made, profile="llamacpp"), [data], made)
        check_turn(told)
        assert told[-1]["type"] == f"response.{status}" or "tool-cut" in name
        if status == "incomplete":
            assert told[-1]["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
            assert output(told)[-1]["status"] == "incomplete"


def test_a_cut_that_vllm_tells_inside_reaches_the_last_item() -> None:
    told = play(responses(profile="vllm"), [(CAPTURED / "vllm-responses-text-cut.sse").read_bytes()])
    assert told[-1]["type"] == "response.incomplete"
    assert output(told)[-1]["status"] == "incomplete"


# --- what is missing ---


def test_events_that_are_missing_are_made() -> None:
    told = answered(added("message"), said("output_text", "Hi"), said("output_text", "!"), done("message"), ended())
    assert [event["type"].removeprefix("response.") for event in told[2:-1]] == [
        "output_item.added", "content_part.added", "output_text.delta", "output_text.delta", "output_text.done",
        "content_part.done", "output_item.done",
    ]  # fmt: skip
    part = {"type": "output_text", "text": "Hi!", "annotations": [], "logprobs": []}
    item_id = f"msg_{SEED}0001"
    assert output(told) == [
        {"type": "message", "id": item_id, "role": "assistant", "status": "completed", "content": [part]}
    ]


@pytest.mark.parametrize(
    ("delta", "kind"),
    [("output_text", "message"), ("refusal", "message"), ("reasoning_text", "reasoning")],
)
def test_an_item_that_was_never_announced_begins_with_what_it_says(delta: str, kind: str) -> None:
    told = answered(said(delta, "a"), said(delta, "b", "x"), ended())
    assert kinds(told) == [kind]
    assert deltas(told) == ["a", "b"]


def test_ids_that_are_repeated_or_odd_are_made_new() -> None:
    call = {"name": "f", "call_id": "c", "arguments": "{}"}
    events = [
        done("message", "m", content=[]), done("message", "m", content=[{"type": "output_text", "text": "b"}]),
        done("message", 'a"b', content=[]), done("function_call", "x", **call), done("function_call", "y", **call),
    ]  # fmt: skip
    told = answered(*events, ended())
    assert [item["id"] for item in output(told)] == ["m", f"msg_{SEED}0001", f"msg_{SEED}0002", "x", "y"]
    assert [item["call_id"] for item in output(told)[3:]] == ["c", f"call_{SEED}0003"]


def test_an_end_that_is_told_twice_is_one() -> None:
    item = done("message", "m", content=[{"type": "output_text", "text": "b"}])
    assert text(answered(item, item, ended(output=[item["item"]]))) == "b"


def test_what_only_the_end_of_an_item_tells_is_told() -> None:
    annotation = {"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 1}
    part = {"type": "output_text", "text": "Hello", "annotations": [annotation]}
    told = answered(
        added("message", "m"), said("output_text", "Hel", "m"),
        done("message", "m", content=[part], phase="final_answer"), ended(),
    )  # fmt: skip
    assert deltas(told) == ["Hel", "lo"]
    assert output(told)[0]["content"] == [{**part, "logprobs": []}]
    assert output(told)[0]["phase"] == "final_answer"


def test_a_function_that_is_called_without_arguments_gets_an_empty_object() -> None:
    told = answered(done("function_call", "x", name="f", call_id="c"), ended(), profile="vllm")
    assert output(told)[0]["arguments"] == "{}"


# --- order ---


def test_items_that_end_only_at_the_end_do_not_hold_up_what_follows() -> None:
    translator = responses(profile="llamacpp")
    thought, message = added("reasoning", "r"), added("message", "m")
    made = translator.feed(sse(thought, said("reasoning_text", "hm", "r"), message, said("output_text", "Hi", "m")))
    assert json.loads(made[-1])["delta"] == "Hi"
    end = [done("message", "m", content=[]), done("reasoning", "r"), ended()]
    told = answered(thought, said("reasoning_text", "hm", "r"), message, said("output_text", "Hi", "m"), *end)
    assert kinds(told) == ["reasoning", "message"]


def test_calls_side_by_side_are_told_one_after_the_other() -> None:
    first, second = {"name": "f", "call_id": "a"}, {"name": "f", "call_id": "b"}
    pieces = (("{", "x"), ("{", "y"), ("}", "y"), ("}", "x"))
    told = answered(
        added("function_call", "x", **first), added("function_call", "y", **second),
        *(said("function_call_arguments", piece, item) for piece, item in pieces), ended(),
    )  # fmt: skip
    assert [(item["id"], item["call_id"], item["arguments"]) for item in output(told)] == [
        ("x", "a", "{}"),
        ("y", "b", "{}"),
    ]


def test_text_that_goes_on_after_another_item_is_another_item() -> None:
    told = answered(
        added("message", "m"), said("output_text", "Hel", "m"), added("reasoning", "r"),
        said("reasoning_text", "hm", "r"), said("output_text", "lo", "m"), ended(),
    )  # fmt: skip
    assert kinds(told) == ["message", "reasoning", "message"]
    assert text(told) == "Hello"


def test_parts_that_come_in_any_order_lose_nothing() -> None:
    texts = [{**said("output_text", piece, "m"), "content_index": at} for at, piece in ((0, "a"), (1, "b"), (0, "c"))]
    whole = [{"type": "output_text", "text": "acd"}, {"type": "output_text", "text": "b"}]
    told = answered(added("message", "m"), *texts, done("message", "m", content=whole), ended())
    assert [part["text"] for part in output(told)[0]["content"]] == ["a", "b", "cd"]


def test_items_of_other_kinds_pass_in_their_place() -> None:
    search = {"status": "completed", "action": {"type": "search", "query": "q"}}
    events = [
        said("output_text", "a"), added("web_search_call", "w", status="in_progress"),
        {"type": "response.web_search_call.searching", "item_id": "w", "output_index": 9},
        done("web_search_call", "w", **search), {"type": "slug:ping", "n": 1.5}, ended(),
    ]  # fmt: skip
    told = play(responses(), [sse(*events)])
    assert output(told)[1] == {"type": "web_search_call", "id": "w", **search}
    (searching,) = (event for event in told if event["type"] == "response.web_search_call.searching")
    assert (searching["item_id"], searching["output_index"]) == ("w", 1)
    assert any(event["type"] == "slug:ping" and event["n"] == 1.5 for event in told)


def test_what_was_done_is_kept_when_the_stream_fails() -> None:
    events = [said("output_text", "a", "m"), done("message", "m"), said("reasoning_text", "hm")]
    for end in ([], [{"type": "error", "message": "boom"}]):
        told = play(responses(profile="vllm"), [sse(*events[: 2 if end else 3], *end)])
        check_turn(told)
        assert kinds(told) == ["message"]


def test_an_answer_that_is_steered_keeps_what_was_said() -> None:
    for last, kept in (("message", ["message"]), ("reasoning", []), ("function_call", [])):
        translator = responses(profile="vllm")
        stem = {"message": "output_text", "reasoning": "reasoning_text", "function_call": "function_call_arguments"}
        translator.feed(sse(added(last, "i", name="f", call_id="c"), said(stem[last], "{", "i")))
        assert translator.call_begun is (last == "function_call")
        translator.interrupt()
        assert [item.kind for item in translator.result().items] == kept


# --- calls that mean something else to the client ---


def called(name: str, *pieces: str, profile: str = "vllm") -> list[Event]:
    made = create(tools=TOOLS)
    events = [
        added("function_call", "fc_1", name=name, call_id="c1", arguments="", status="in_progress"),
        *(said("function_call_arguments", piece, "fc_1") for piece in pieces),
        {"type": "response.function_call_arguments.done", "item_id": "fc_1", "arguments": "".join(pieces)},
        done("function_call", "fc_1", name=name, call_id="c1", arguments="".join(pieces), status="completed"),
        ended(),
    ]
    told = play(responses(made, profile=profile), [sse(*events)], made)
    if not set(kinds(told)) & {"shell_call", "apply_patch_call"}:
        check_turn(told)
    return told


def test_a_plain_function_stays_what_it_is() -> None:
    (call,) = output(called("f", '{"a"', ":1}"))
    assert (call["type"], call["id"], call["name"], call["arguments"]) == ("function_call", "fc_1", "f", '{"a":1}')


@pytest.mark.parametrize("profile", ["vllm", "llamacpp", "xai"])
def test_a_custom_tools_input_streams_as_it_comes(profile: str) -> None:
    told = called("run", '{"inp', 'ut":"say ', '\\"hi', '\\""}', profile=profile)
    (call,) = output(told)
    assert (call["type"], call["call_id"], call["name"], call["input"]) == (
        "custom_tool_call", "c1", "run", 'say "hi"',
    )  # fmt: skip
    inputs = [event for event in told if event["type"] == "response.custom_tool_call_input.delta"]
    assert [event["delta"] for event in inputs] == ["say ", '"hi', '"']
    assert call["id"].startswith("ctc_")


def test_a_custom_call_that_was_cut_before_its_input_has_none() -> None:
    made = create(tools=TOOLS)
    told = play(
        responses(made, profile="vllm"),
        [sse(
            added("function_call", "fc_1", name="run", call_id="c1", arguments="", status="in_progress"),
            said("function_call_arguments", '{"inp', "fc_1"),
            {"type": "response.incomplete", "response": {"id": "up", "status": "incomplete"}},
        )],
        made,
    )  # fmt: skip
    check_turn(told)
    (call,) = output(told)
    assert (call["type"], call["input"], call["status"]) == ("custom_tool_call", "", "incomplete")
    assert deltas(told) == []


def test_a_function_in_a_namespace_gets_its_own_name_back() -> None:
    (call,) = output(called("geo__find", "{}"))
    assert (call["type"], call["name"], call["namespace"]) == ("function_call", "find", "geo")


def test_calls_that_are_told_whole() -> None:
    told = called("shell", '{"commands":', '["ls"]}')
    (call,) = output(told)
    assert (call["type"], call["action"]["commands"]) == ("shell_call", ["ls"])
    assert [event["item"]["status"] for event in told if "item" in event] == ["in_progress", "completed"]
    (patch,) = output(called("apply_patch", '{"type":"delete_file","path":"a"}'))
    assert (patch["type"], patch["operation"]) == ("apply_patch_call", {"type": "delete_file", "path": "a"})


def test_a_shell_call_that_does_not_fit_fails_the_answer() -> None:
    assert called("shell", '{"commands":7}')[-1]["type"] == "response.failed"


# --- reasoning ---


@pytest.mark.parametrize("faithful", [False, True])
@pytest.mark.parametrize("form", ["events", "end"])
def test_raw_reasoning_is_sealed_where_the_client_wants_it(faithful: bool, form: str) -> None:
    content = [{"type": "reasoning_text", "text": "hm"}]
    plain = done("reasoning", "r", summary=[], content=content, status="completed")
    theirs = done("reasoning", "q", summary=[], content=content, encrypted_content="gAAAA")
    events = [plain, theirs, ended()] if form == "events" else [ended(output=[plain["item"], theirs["item"]])]
    told_to = replace(brief(create()), seal_reasoning=lambda text: f"sealed:{text}")
    told = play(ResponsesTranslator(told_to, faithful=faithful), [sse(*events)])
    assert [item["encrypted_content"] for item in output(told)] == ["sealed:hm", "gAAAA"]
    assert output(told) == [event["item"] for event in told if event["type"] == "response.output_item.done"]


def test_a_summary_that_only_its_events_tell_is_kept() -> None:
    event = {"type": "response.reasoning_summary_text.delta", "item_id": "r", "summary_index": 0}
    told = play(
        responses(), [sse(added("reasoning", "r"), {**event, "delta": "in "}, {**event, "delta": "short"}, ended())]
    )
    assert output(told)[0]["summary"] == [{"type": "summary_text", "text": "in short"}]


# --- anything ---

_IDS = st.sampled_from([None, "a", "b", "c"])
_TEXT = st.sampled_from(["", "x", "{", "}", '{"a":1}', '{"input":"y'])
_NAMES = st.sampled_from(["f", "run", "geo__find", "unknown"])
_THOUGHTS = st.lists(st.builds(lambda text: {"type": "reasoning_text", "text": text}, _TEXT), max_size=2)
_ITEMS = st.one_of(
    st.fixed_dictionaries({"type": st.just("message"), "role": st.just("assistant")}, optional={
        "id": _IDS, "status": st.sampled_from(["completed", "incomplete", "in_progress", None]),
        "content": st.one_of(st.none(), _TEXT, st.lists(st.one_of(
            st.builds(lambda text: {"type": "output_text", "text": text}, _TEXT),
            st.builds(lambda text: {"type": "refusal", "refusal": text}, _TEXT)), max_size=2))}),
    st.fixed_dictionaries({"type": st.just("reasoning")}, optional={
        "id": _IDS, "content": _THOUGHTS}),
    st.fixed_dictionaries({"type": st.just("function_call"), "name": _NAMES}, optional={
        "id": _IDS, "call_id": _IDS, "arguments": _TEXT}),
    st.fixed_dictionaries({"type": st.just("custom_tool_call"), "name": st.just("run")}, optional={
        "id": _IDS, "call_id": _IDS, "input": _TEXT}),
)  # fmt: skip
_PLACE: dict[str, st.SearchStrategy[Any]] = {
    "item_id": _IDS, "output_index": st.integers(0, 2), "content_index": st.integers(0, 1),
}  # fmt: skip
_STEMS = ("output_text", "refusal", "reasoning_text", "function_call_arguments", "custom_tool_call_input")
_PARTS = st.sampled_from(["output_text", "refusal", "reasoning_text"]).flatmap(
    lambda kind: st.builds(lambda text: {"type": kind, "refusal" if kind == "refusal" else "text": text}, _TEXT)
)
_EVENTS = st.one_of(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["response.output_item.added", "response.output_item.done"]), "item": _ITEMS},
        optional={"output_index": st.integers(0, 2)},
    ),
    st.fixed_dictionaries(
        {"type": st.sampled_from([f"response.{stem}.delta" for stem in _STEMS]), "delta": _TEXT}, optional=_PLACE
    ),
    st.fixed_dictionaries(
        {"type": st.sampled_from([f"response.{stem}.done" for stem in _STEMS])},
        optional={**_PLACE, "text": _TEXT, "refusal": _TEXT, "arguments": _TEXT, "input": _TEXT, "name": _NAMES},
    ),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["response.content_part.added", "response.content_part.done"]), "part": _PARTS},
        optional=_PLACE,
    ),
)
_UNFAITHFUL = [name for name, profile in profiles().items() if not profile.responses.faithful]
_ENDS: st.SearchStrategy[list[Event]] = st.one_of(
    st.just([]),
    st.builds(
        lambda status, output: [ended(status, output=output)],
        st.sampled_from(["completed", "incomplete", "failed"]),
        st.lists(_ITEMS, max_size=2),
    ),
)


@given(st.lists(_EVENTS, max_size=10), _ENDS, st.sampled_from(_UNFAITHFUL), st.data())
@settings(deadline=None, max_examples=100)
def test_any_events_in_any_order_become_a_valid_stream(
    events: list[Event], end: list[Event], profile: str, data: st.DataObject
) -> None:
    made = create(tools=TOOLS)
    told = play(responses(made, profile=profile), data.draw(cuts(sse(*events, *end))), made)
    check_turn(told)


@given(st.lists(_EVENTS, max_size=8), st.data())
@settings(deadline=None, max_examples=100)
def test_an_answer_can_be_interrupted_anywhere(events: list[Event], data: st.DataObject) -> None:
    made = create(tools=TOOLS)
    translator = responses(made, profile="vllm")
    try:
        translator.feed(sse(*events))
    except LooplineError:
        return
    translator.interrupt()
    assert translator.result().status == b"incomplete"


@pytest.mark.parametrize(
    ("choice", "left"),
    [
        ("none", ["message"]),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "clock"}]}, ["message"]),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "weather"}]},
         ["message", "function_call"]),
        ("auto", ["message", "function_call"]),
    ],
)  # fmt: skip
def test_a_call_that_was_not_allowed_is_dropped(choice: Any, left: list[str]) -> None:
    tools = [{"type": "function", "name": "clock"}, {"type": "function", "name": "weather"}]
    made = create(tools=tools, tool_choice=choice)
    translator = responses(made, profile="vllm")
    translator.request([])
    call = {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "weather", "arguments": "{}"}
    stream = sse(
        added("message", "m"), said("output_text", "Hi.", "m"), done("message", "m"),
        {"type": "response.output_item.added", "output_index": 1, "item": {**call, "arguments": ""}},
        {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "output_index": 1, "delta": "{}"},
        {"type": "response.output_item.done", "output_index": 1, "item": call},
        ended(),
    )  # fmt: skip
    told = play(translator, [stream], made)
    check_turn(told, transport="http")
    assert [item["type"] for item in output(told)] == left
    assert translator.left_out == ([] if len(left) == 2 else [("call", "weather")])


def test_an_item_with_a_part_that_is_none_is_left_untold_where_the_answer_fails_or_is_steered() -> None:
    begun = [added("message", "m"), said("output_text", "Hi", "m"), done("message", "m", content=[None])]
    failed = play(responses(profile="vllm"), [sse(*begun[:2], {**begun[2], "output_index": 0}, b"{")])
    assert failed[-1]["type"] == "response.failed"
    assert output(failed) == []
    translator = responses(profile="vllm")
    translator.feed(sse(*begun))
    translator.interrupt()
    assert translator.result().items == ()
