from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.translate.answer.calls import COMPLETED, call_writer
from proxy.translate.tools.listed import read_tools
from tests.unit.strategies import TEXT, dumped
from tests.unit.translate.encoded import CHAT_PICTURE, PNG, called, encoder, messages, returned, roles, said
from tests.unit.translate.turns import Event, items

CALLS: list[tuple[Event, str, Any]] = [
    (called("c", "f", '{"x":1}'), "f", {"x": 1}),
    (called("c", "f", ""), "f", {}),
    (called("c", "run", "{}", namespace="box"), "box__run", {}),
    ({"type": "custom_tool_call", "call_id": "c", "name": "apply", "input": 'a "b"\n'}, "apply", {"input": 'a "b"\n'}),
    (
        {"type": "custom_tool_call", "call_id": "c", "name": "js", "namespace": "ns", "input": ""},
        "ns__js",
        {"input": ""},
    ),
    (
        {
            "type": "shell_call",
            "call_id": "c",
            "action": {"commands": ["ls", "id"], "timeout_ms": 5, "max_output_length": None},
        },
        "shell",
        {"commands": ["ls", "id"], "timeout_ms": 5},
    ),
    (
        {
            "type": "local_shell_call",
            "id": "lsh",
            "call_id": "c",
            "action": {"type": "exec", "command": ["ls"], "env": {}, "working_directory": "/w", "user": None},
        },
        "local_shell",
        {"command": ["ls"], "working_directory": "/w"},
    ),
    (
        {"type": "apply_patch_call", "call_id": "c", "operation": {"type": "update_file", "path": "a", "diff": "+b"}},
        "apply_patch",
        {"type": "update_file", "path": "a", "diff": "+b"},
    ),
    (
        {"type": "apply_patch_call", "call_id": "c", "operation": {"type": "delete_file", "path": "a"}},
        "apply_patch",
        {"type": "delete_file", "path": "a"},
    ),
    (
        {"type": "tool_search_call", "call_id": "c", "execution": "client", "arguments": {"query": "é"}},
        "tool_search",
        {"query": "é"},
    ),
    (
        {"type": "computer_call", "id": "cu", "call_id": "c", "action": {"type": "click", "x": 1, "y": 2}},
        "computer",
        {"action": {"type": "click", "x": 1, "y": 2}},
    ),
    (
        {"type": "computer_call", "call_id": "c", "actions": [{"type": "screenshot"}], "action": None},
        "computer",
        {"actions": [{"type": "screenshot"}]},
    ),
    ({"type": "program", "id": "p", "call_id": "c", "code": "f()", "fingerprint": "x"}, "program", {"code": "f()"}),
]


@pytest.mark.parametrize(("call", "name", "arguments"), CALLS, ids=lambda each: str(each)[:40])
def test_a_call_is_told_with_the_arguments_that_its_function_was_given(call: Event, name: str, arguments: Any) -> None:
    (made,) = messages(call)
    assert made["content"] is None
    (told,) = made["tool_calls"]
    assert (told["id"], told["type"], told["function"]["name"]) == ("c", "function", name)
    assert json.loads(told["function"]["arguments"]) == arguments


OUTPUTS: list[tuple[Event, str]] = [
    (returned("c", "ok"), "ok"),
    (returned("c", ""), ""),
    (returned("c", []), ""),
    (returned("c", [{"type": "input_text", "text": "o"}, {"type": "output_text", "text": "k"}]), "o\nk"),
    ({"type": "custom_tool_call_output", "call_id": "c", "output": "done"}, "done"),
    ({"type": "custom_tool_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "done"}]}, "done"),
    ({"type": "local_shell_call_output", "id": "c", "output": '{"exit_code":0}'}, '{"exit_code":0}'),
    (
        {
            "type": "shell_call_output",
            "call_id": "c",
            "output": [
                {"stdout": "a\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}},
                {"stdout": "b", "stderr": "no", "outcome": {"type": "exit", "exit_code": 2}},
                {"stdout": "", "stderr": "", "outcome": {"type": "timeout"}},
            ],
        },
        "stdout:\na\n\nexit code: 0\n\nstdout:\nb\nstderr:\nno\nexit code: 2\n\noutcome: timeout",
    ),
    ({"type": "apply_patch_call_output", "call_id": "c", "status": "completed"}, "completed"),
    ({"type": "apply_patch_call_output", "call_id": "c", "status": "failed", "output": "no a"}, "failed\nno a"),
    ({"type": "tool_search_output", "call_id": "c", "tools": []}, "No tools found."),
    ({"type": "program_output", "id": "po", "call_id": "c", "result": "7", "status": "completed"}, "7"),
]


@pytest.mark.parametrize(("output", "text"), OUTPUTS, ids=lambda each: str(each)[:40])
def test_an_output_is_readable_text_under_its_calls_id(output: Event, text: str) -> None:
    assert messages(output) == [{"role": "tool", "tool_call_id": "c", "content": text}]


def test_a_screenshot_is_an_image() -> None:
    shot = {"type": "computer_screenshot", "image_url": PNG}
    output = {"type": "computer_call_output", "call_id": "c", "output": shot, "acknowledged_safety_checks": []}
    (tool, user) = messages(output)
    assert tool["content"] == "The image of this output: see the next message."
    assert user == {"role": "user", "content": [CHAT_PICTURE]}


FOUND: list[Event] = [
    {"type": "function", "name": "weather", "description": "tells it", "parameters": {}},
    {"type": "custom", "name": "js"},
    {"type": "namespace", "name": "box", "tools": [{"type": "function", "name": "open", "description": "d"}]},
]


def test_tools_that_were_found_are_told_by_the_names_to_call_them_by() -> None:
    told = "Tools found:\n- weather: tells it\n- js\n- box__open: d"
    output = {"type": "tool_search_output", "call_id": "c", "execution": "client", "tools": FOUND}
    assert messages(output)[0]["content"] == told


def test_a_tool_search_of_a_servers_own_is_a_call_with_its_output() -> None:
    search = {"type": "tool_search_call", "execution": "server", "arguments": {"query": "w"}}
    output = {"type": "tool_search_output", "execution": "server", "tools": FOUND[:1]}
    made = messages(search, output, search, output, said("hi"))
    assert roles(made) == ["assistant", "tool", "assistant", "tool", "assistant"]
    calls = [each["tool_calls"][0] for each in made[:4:2]]
    assert [call["function"] for call in calls] == [{"name": "tool_search", "arguments": '{"query": "w"}'}] * 2
    assert [each["tool_call_id"] for each in made[1:4:2]] == [call["id"] for call in calls]
    assert calls[0]["id"] != calls[1]["id"]


def test_names_are_those_that_the_tools_have_upstream() -> None:
    """Two tools that would share a name have two, and their calls in the history have the same."""
    tools = (
        {"type": "custom", "name": "run"},
        {"type": "function", "name": "run"},
        {"type": "function", "name": "a name with spaces"},
    )
    names = {each.called: each.name for each in read_tools(dumped(list(tools))).functions()}
    (made,) = messages(
        {"type": "custom_tool_call", "call_id": "1", "name": "run", "input": ""},
        called("2", "run"),
        called("3", "a name with spaces"),
        tools=tools,
    )
    assert [each["function"]["name"] for each in made["tool_calls"]] == list(names.values())
    assert len(set(names.values())) == 3


@pytest.mark.parametrize(
    "call", [each[0] for each in CALLS if each[0]["type"] != "program"], ids=lambda each: str(each["type"])
)
def test_a_call_that_was_cut_off_is_dropped(call: Event) -> None:
    assert messages(said("hi"), {**call, "status": "incomplete"}) == [{"role": "assistant", "content": "hi"}]
    assert encoder().encode(items({**call, "status": "incomplete"})) == b""


NS = {"type": "namespace", "name": "ns", "tools": [{"type": "function", "name": "f"}, {"type": "custom", "name": "c"}]}
OFFERED: tuple[Event, ...] = (
    {"type": "function", "name": "f"}, {"type": "custom", "name": "c"}, {"type": "shell"}, {"type": "local_shell"},
    {"type": "apply_patch"}, {"type": "tool_search", "execution": "client"}, NS,
)  # fmt: skip
COUNTS = st.integers(0, 10**6)
ARGUMENTS: dict[str, st.SearchStrategy[Any]] = {
    "f": st.dictionaries(TEXT, TEXT),
    "c": st.fixed_dictionaries({"input": TEXT}),
    "ns__f": st.dictionaries(TEXT, COUNTS),
    "ns__c": st.fixed_dictionaries({"input": TEXT}),
    "shell": st.fixed_dictionaries({"commands": st.lists(TEXT)}, optional={"timeout_ms": COUNTS}),
    "local_shell": st.fixed_dictionaries(
        {"command": st.lists(TEXT)},
        optional={"env": st.dictionaries(TEXT, TEXT, min_size=1), "working_directory": TEXT},
    ),
    "apply_patch": st.fixed_dictionaries({"type": st.just("update_file"), "path": TEXT, "diff": TEXT}),
    "tool_search": st.dictionaries(TEXT, TEXT),
}


@given(st.data(), st.sampled_from(sorted(ARGUMENTS)))
@settings(deadline=None, max_examples=150)
def test_a_call_that_comes_back_is_the_call_that_the_model_made(data: st.DataObject, name: str) -> None:
    arguments = data.draw(ARGUMENTS[name])
    writer = call_writer(name, read_tools(dumped(list(OFFERED))).calls)
    text = dumped(arguments).decode()
    writer.delta(text)
    ended = writer.ended(b"it_1", "call_1", text, COMPLETED)
    assert ended is not None
    (made,) = messages(json.loads(ended.item), tools=OFFERED)
    (call,) = made["tool_calls"]
    assert (call["id"], call["function"]["name"]) == ("call_1", name)
    assert json.loads(call["function"]["arguments"]) == arguments
