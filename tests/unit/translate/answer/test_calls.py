"""Calls of functions as the items that a client knows, through the chat dialect."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.errors import Kind, LooplineError
from proxy.translate.answer.accumulate import COMPLETED, INCOMPLETE, Answer
from proxy.translate.tools.listed import Called, read_tools
from proxy.wire.items import parse_item
from tests.conformance.schema import SERVER_EVENTS
from tests.unit.strategies import TEXT, dumped
from tests.unit.translate.turns import DONE, SEED, Event, chat, chunk, create, output, play, sse, tool_call

STREAMED = {"function_call": "arguments", "custom_tool_call": "input"}
PATCH = {"type": "custom", "name": "apply_patch", "format": {"type": "grammar", "syntax": "lark", "definition": "s"}}
LIST = {"type": "function", "name": "list", "parameters": {"type": "object"}}
TOOLS: list[dict[str, Any]] = [
    PATCH, LIST, {"type": "shell"}, {"type": "local_shell"}, {"type": "apply_patch"},
    {"type": "tool_search", "execution": "client"},
    {"type": "namespace", "name": "mcp", "description": "d", "tools": [LIST, {"type": "custom", "name": "run"}]},
    {"type": "function", "name": "odd name é"},
]  # fmt: skip
CALLS = read_tools(dumped(TOOLS)).calls


ENVELOPE = "*** Begin Patch\n*** Update File: a.py\n@@\n-x\n+y\n*** End Patch\n"


def name_of(kind: str, name: str, namespace: str | None = None) -> str:
    return next(each for each, called in CALLS.items() if called == Called(kind, name, namespace))


def check_calls(told: Sequence[Event]) -> None:
    """The order of items and of their events, the sums of their deltas, and OpenAI's types, for every kind of call."""
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    for event in told:
        SERVER_EVENTS[event["type"]].model_validate_json(json.dumps(event), strict=True)
    open_: Event | None = None
    text = ""
    done: list[Event] = []
    for event in told[2:-1]:
        kind = event["type"].removeprefix("response.")
        if kind == "output_item.added":
            assert open_ is None
            assert (event["output_index"], event["item"]["status"]) == (len(done), "in_progress")
            open_, text = event["item"], ""
            continue
        assert open_ is not None
        assert event["output_index"] == len(done)
        if kind == "output_item.done":
            item = event["item"]
            assert [item[key] for key in ("id", "type")] == [open_[key] for key in ("id", "type")]
            assert STREAMED.get(item["type"]) is None or item[STREAMED[item["type"]]] == text
            done.append(item)
            open_ = None
        else:
            assert event["item_id"] == open_["id"]
            text += event["delta"] if kind.endswith(".delta") else ""
            if kind in ("function_call_arguments.done", "custom_tool_call_input.done"):
                assert event[STREAMED[open_["type"]]] == text
    assert open_ is None or told[-1]["type"] == "response.failed"
    assert told[-1]["response"]["output"] == done


def called(name: str, *pieces: str, finish: str = "tool_calls") -> list[Event]:
    """The turn of an answer that is one call, its arguments in pieces."""
    made = create(tools=TOOLS)
    chunks = [tool_call(0, "c1", name, pieces[0]), *(tool_call(0, None, None, piece) for piece in pieces[1:])]
    told = play(chat(made), [sse(*chunks, chunk(finish), DONE)], made)
    check_calls(told)
    return told


def test_a_custom_tools_call_is_its_raw_input_with_events_of_its_own() -> None:
    told = called("apply_patch", '{"inp', 'ut": "*** Begin', ' Patch\\n"', "}")
    (item,) = output(told)
    assert item == {
        "type": "custom_tool_call", "id": item["id"], "call_id": "c1", "name": "apply_patch",
        "input": "*** Begin Patch\n", "status": "completed",
    }  # fmt: skip
    assert [event["type"].removeprefix("response.") for event in told[2:-1]] == [
        "output_item.added", "custom_tool_call_input.delta", "custom_tool_call_input.delta",
        "custom_tool_call_input.done", "output_item.done",
    ]  # fmt: skip
    assert told[2]["item"]["input"] == ""


@given(TEXT, st.booleans(), st.integers(1, 7))
@settings(deadline=None, max_examples=40)
def test_any_input_of_a_custom_tool_is_told_as_it_is(text: str, ascii_only: bool, size: int) -> None:
    arguments = json.dumps({"input": text}, ensure_ascii=ascii_only)
    pieces = [arguments[at : at + size] for at in range(0, len(arguments), size)]
    assert output(called("apply_patch", *pieces))[0]["input"] == text


def test_names_that_were_changed_for_the_upstream_come_back() -> None:
    odd = called(name_of("function", "odd name é"), "{}")
    assert output(odd)[0]["name"] == "odd name é"
    told = called(name_of("function", "list", "mcp"), "{}")
    assert [output(told)[0][key] for key in ("name", "namespace")] == ["list", "mcp"]
    (ended,) = [event for event in told if event["type"] == "response.function_call_arguments.done"]
    assert ended["name"] == "list"
    run = output(called(name_of("custom", "run", "mcp"), '{"input":"x"}'))[0]
    assert (run["type"], run["name"], run["namespace"], run["input"]) == ("custom_tool_call", "run", "mcp", "x")


def test_a_function_that_was_not_offered_is_called_by_its_name() -> None:
    assert output(called("other", "{}"))[0]["name"] == "other"


WHOLE = [
    (
        "shell", '{"commands":["ls","pwd"],"timeout_ms":5}', "shell_call",
        {"action": {"commands": ["ls", "pwd"], "timeout_ms": 5, "max_output_length": None}, "environment": None},
    ),
    (
        "shell", '{"commands":"ls","timeout_ms":"5"}', "shell_call",
        {"action": {"commands": ["ls"], "timeout_ms": 5, "max_output_length": None}, "environment": None},
    ),
    (
        "local_shell", '{"command":["ls"],"env":null,"working_directory":"/"}', "local_shell_call",
        {"action": {"type": "exec", "command": ["ls"], "env": {}, "working_directory": "/", "timeout_ms": None}},
    ),
    (
        name_of("apply_patch", "apply_patch"), '{"type":"update_file","path":"a","diff":"@@\\n+b"}', "apply_patch_call",
        {"operation": {"type": "update_file", "path": "a", "diff": "@@\n+b"}},
    ),
    (
        name_of("apply_patch", "apply_patch"), '{"type":"delete_file","path":"a","diff":""}', "apply_patch_call",
        {"operation": {"type": "delete_file", "path": "a"}},
    ),
    (
        "tool_search", '{"query":"x","status":"completed"}', "tool_search_call",
        {"arguments": {"query": "x", "status": "completed"}, "execution": "client"},
    ),
    ("tool_search", "", "tool_search_call", {"arguments": {}, "execution": "client"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "kind", "members"), WHOLE)
def test_a_call_of_a_built_in_tool_is_told_whole(name: str, arguments: str, kind: str, members: Event) -> None:
    told = called(name, *(arguments[at : at + 5] for at in range(0, len(arguments) or 1, 5)))
    (item,) = output(told)
    assert item == {"type": kind, "id": item["id"], "call_id": "c1", **members, "status": "completed"}
    assert [event["type"].removeprefix("response.") for event in told[2:-1]] == [
        "output_item.added",
        "output_item.done",
    ]
    assert told[2]["item"] == {**item, "status": "in_progress"}
    assert (parse_item(dumped(item)).call_id, parse_item(dumped(item)).unfinished) == ("c1", False)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("shell", "ls"),
        ("shell", "{}"),
        ("shell", '{"commands":[1]}'),
        ("shell", ""),
        ("local_shell", '{"command":""}'),
        ("local_shell", '{"command":7}'),
        ("shell", '{"command":""}'),
        (name_of("apply_patch", "apply_patch"), json.dumps({"type": "delete_file", "path": "b", "diff": ENVELOPE})),
        (name_of("apply_patch", "apply_patch"), "*** Begin Patch\n*** End Patch"),
        (
            name_of("apply_patch", "apply_patch"),
            "*** Begin Patch\n*** Delete File: a\n*** Delete File: b\n*** End Patch",
        ),
        (name_of("apply_patch", "apply_patch"), '{"type":"update_file","path":"a"}'),
        (name_of("apply_patch", "apply_patch"), '{"type":"rename_file","path":"a","diff":"x"}'),
        ("tool_search", "{"),
        ("tool_search", "[" * 100_000),
    ],
)
def test_arguments_that_make_no_such_call_fail_before_any_of_it_is_told(name: str, arguments: str) -> None:
    made = create(tools=TOOLS)
    translator = chat(made)
    translator.feed(sse(tool_call(0, "c1", name, arguments), chunk("tool_calls")))
    with pytest.raises(LooplineError) as raised:
        translator.finish()
    assert raised.value.kind is Kind.UPSTREAM_GARBLED
    assert translator.feed(b"") == []
    assert (translator.has_output, translator.partial()) == (False, b"")


@pytest.mark.parametrize(("name", "arguments"), [(each[0], each[1]) for each in WHOLE])
def test_a_cut_call_of_a_built_in_tool_is_dropped(name: str, arguments: str) -> None:
    told = called(name, arguments[:-2], finish="length")
    assert told[-1]["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert [(item["type"], item["status"]) for item in output(told)] == [("message", "incomplete")]


@pytest.mark.parametrize("arguments", ["", '{"inp', '{"input":"ab', '{"input":"ab\\', '{"input":"ab"'])
def test_a_cut_call_of_a_custom_tool_is_one_that_nobody_can_answer(arguments: str) -> None:
    (item,) = output(called("apply_patch", arguments, finish="length"))
    assert (item["type"], item["status"]) == ("custom_tool_call", "incomplete")
    assert item["input"] == ("ab" if "ab" in arguments else "")
    assert parse_item(dumped(item)).unfinished


@pytest.mark.parametrize(
    ("arguments", "told_as"),
    [("", "{}"), (None, "{}"), ("null", "null"), ("[1]", "[1]"), ('"a"', '"a"'), ("{", "{"), ('{"a": 1}', '{"a": 1}')],
)
def test_a_functions_arguments_are_what_the_model_wrote(arguments: str | None, told_as: str) -> None:
    made = create(tools=TOOLS)
    told = play(chat(made), [sse(tool_call(0, "c1", "list", arguments), chunk("tool_calls"), DONE)], made)
    check_calls(told)
    assert output(told)[0]["arguments"] == told_as


def test_arguments_that_come_as_an_object_are_their_text() -> None:
    made = create(tools=TOOLS)
    call = {"function": {"name": "list", "arguments": {"a": [1.5, "é"]}}}
    told = play(chat(made), [sse(chunk(tool_calls=[call]), chunk("tool_calls"), DONE)], made)
    assert json.loads(output(told)[0]["arguments"]) == {"a": [1.5, "é"]}


@pytest.mark.parametrize(
    "names",
    [["get_weather"], ["get", "_weather"], ["get_", "wea", "ther"], ["get", "get_weather"], ["get_weather"] * 3],
)
@pytest.mark.parametrize("arguments", ["{}", ""])
def test_a_name_may_come_in_pieces_or_again(names: list[str], arguments: str) -> None:
    made = create(tools=[{**LIST, "name": name} for name in ("get", "get_weather", "get_time")])
    pieces = [tool_call(0, "c1", name, "") for name in names]
    told = play(chat(made), [sse(*pieces, tool_call(0, None, None, arguments), chunk("tool_calls"), DONE)], made)
    assert [(item["name"], item["arguments"]) for item in output(told)] == [("get_weather", "{}")]


def test_a_name_that_is_whole_is_told_at_once() -> None:
    translator = chat(create(tools=[LIST]))
    (added,) = translator.feed(sse(tool_call(0, "c1", "list", "")))
    assert json.loads(added)["item"]["name"] == "list"


def test_a_call_that_was_whole_when_a_limit_cut_the_answer_can_be_answered() -> None:
    for name, arguments in (("apply_patch", '{"input":"ab"}'), ("shell", '{"commands":["ls"]}'), ("list", "{}")):
        told = called(name, arguments, finish="length")
        assert told[-1]["response"]["status"] == "incomplete"
        assert [item["status"] for item in output(told)] == ["completed"]


@pytest.mark.parametrize("kind", ["shell", "list"])
def test_calls_that_a_limit_cut_are_cut_wherever_they_stand(kind: str) -> None:
    answer = Answer(SEED, 0, CALLS)
    answer.call(0, "c0", kind, '{"comm')
    answer.call(1, "c1", "list", '{"a":')
    answer.call(2, "c2", "", "")
    answer.close(INCOMPLETE)
    made = [(item.kind, item.call_id, item.unfinished) for item in answer.items]
    assert made[-1] == ("function_call", "c1", True)
    assert made[:-1] == ([] if kind == "shell" else [("function_call", "c0", True)])


def test_a_built_in_tools_call_waits_and_is_waited_for() -> None:
    answer = Answer(SEED, 0, CALLS)
    answer.text("a")
    answer.call(0, "c0", "shell", '{"commands":')
    answer.text("b")
    assert answer.call_begun
    answer.call(0, "", "", '["ls"]}')
    answer.call(1, "c1", "apply_patch", '{"input":"p"}')
    answer.close(COMPLETED)
    assert [item.kind for item in answer.items] == ["message", "shell_call", "message", "custom_tool_call"]


def exec_of(command: list[str], **members: Any) -> Event:
    return {"type": "exec", "command": command, "working_directory": None, "timeout_ms": None, "env": {}, **members}


def commands_of(*commands: str, timeout_ms: int | None = None) -> Event:
    return {"commands": list(commands), "timeout_ms": timeout_ms, "max_output_length": None}


UPDATE = {"type": "update_file", "path": "a.py", "diff": "@@\n-x\n+y\n"}


@pytest.mark.parametrize(
    ("kind", "arguments", "meant"),
    [
        ("local_shell", '{"command":"ls -la \'a b\'"}', exec_of(["ls", "-la", "a b"])),
        ("local_shell", '{"command":"ls | wc"}', exec_of(["sh", "-c", "ls | wc"])),
        ("local_shell", '{"command":"echo \'a"}', exec_of(["sh", "-c", "echo 'a"])),
        ("local_shell", '{"commands":["ls -la"]}', exec_of(["ls", "-la"])),
        ("local_shell", '{"command":["ls"],"timeout_ms":12.6}', exec_of(["ls"], timeout_ms=13)),
        ("local_shell", '{"command":["ls"],"timeout_ms":"1000.4"}', exec_of(["ls"], timeout_ms=1000)),
        ("local_shell", '{"command":["ls"],"timeout_ms":"soon"}', exec_of(["ls"])),
        ("local_shell", '{"command":["ls"],"env":{"A":1,"B":null},"cwd":"/"}',
         exec_of(["ls"], env={"A": "1"}, working_directory="/")),
        ("local_shell", '{"commands":null,"command":["ls -la"]}', exec_of(["ls -la"])),
        ("local_shell", '{"command":["ls"],"timeout_ms":1e300}', exec_of(["ls"])),
        ("shell", '{"commands":null,"command":["ls","-la"]}', commands_of("ls -la")),
        ("shell", '{"command":"ls"}', commands_of("ls")),
        ("shell", '{"cmd":["ls","a b"]}', commands_of("ls 'a b'")),
        ("shell", '{"commands":[["ls","a"],"pwd"],"timeout_ms":12.5}', commands_of("ls a", "pwd", timeout_ms=12)),
        ("apply_patch", '{"type":"update","path":"a.py","diff":"@@\\n-x\\n+y\\n"}', UPDATE),
        ("apply_patch", '{"type":"add","file":"a","patch":"+x"}', {"type": "create_file", "path": "a", "diff": "+x"}),
        ("apply_patch", '{"type":"delete","path":"a"}', {"type": "delete_file", "path": "a"}),
        ("apply_patch", ENVELOPE, UPDATE),
        ("apply_patch", json.dumps(ENVELOPE), UPDATE),
        ("apply_patch", json.dumps({"input": ENVELOPE}), UPDATE),
        ("apply_patch", json.dumps({"type": "update_file", "path": "a.py", "diff": ENVELOPE}), UPDATE),
        ("apply_patch", "*** Begin Patch\n*** Delete File: a\n*** End Patch", {"type": "delete_file", "path": "a"}),
    ],
)  # fmt: skip
def test_what_a_model_plainly_meant_is_taken(kind: str, arguments: str, meant: Event) -> None:
    made = create(tools=[{"type": kind}])
    told = play(chat(made), [sse(tool_call(0, "c1", kind, arguments), chunk("tool_calls"), DONE)], made)
    (item,) = output(told)
    assert item["operation" if kind == "apply_patch" else "action"] == meant
    check_calls(told)


# --- calls that a client did not allow ---

OTHER = {**LIST, "name": "other"}


@pytest.mark.parametrize(
    ("choice", "left"),
    [
        ("none", []),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "list"}]}, ["list"]),
        ("auto", ["other", "list"]),
    ],
)
def test_a_call_that_is_not_allowed_is_no_part_of_the_answer(choice: Any, left: list[str]) -> None:
    made = create(tools=[LIST, OTHER], tool_choice=choice)
    translator = chat(made)
    translator.request([])
    pieces = [tool_call(0, "c1", "other", '{"a"'), tool_call(0, "c1", "other", ":1}"), tool_call(1, "c2", "list", "{}")]
    told = play(translator, [sse(*pieces, chunk("tool_calls"), DONE)], made)
    check_calls(told)
    assert [item["name"] for item in output(told) if item["type"] == "function_call"] == left
    assert told[-1]["type"] == "response.completed"
    assert left or [item["type"] for item in output(told)] == ["message"]
    assert translator.left_out == [("call", name) for name in ("other", "list") if name not in left]


# --- a placeholder for arguments that come later ---


@pytest.mark.parametrize(
    ("pieces", "arguments"),
    [
        (["{}", '{"a"', ":1}"], '{"a":1}'),
        (["{}", " ", '{"a":1}'], '{"a":1}'),
        (["{}"], "{}"),
        (["{}", "\n"], "{}"),
        (["{", "}"], "{}"),
    ],
)
def test_an_empty_object_gives_way_to_the_arguments_that_follow(pieces: list[str], arguments: str) -> None:
    told = called("list", *pieces)
    check_calls(told)
    assert [item["arguments"] for item in output(told)] == [arguments]


def test_empty_objects_of_several_calls_give_way_to_their_arguments() -> None:
    answer = Answer(SEED, 0, CALLS)
    for key in (0, 1):
        answer.call(key, f"c{key}", "list", "{}")
    for key in (0, 1):
        answer.call(key, "", "", f'{{"a":{key}}}')
    answer.close()
    assert [json.loads(item.raw)["arguments"] for item in answer.items] == ['{"a":0}', '{"a":1}']
