from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.errors import Kind, LooplineError
from proxy.translate.tool_choice import chat_tools
from proxy.translate.tools import EMPTY, ToolMemo, Tools, left_out_tools, read_tools
from tests.unit.strategies import dumped, json_values

WEATHER = {"type": "function", "name": "weather", "description": "d", "parameters": {"type": "object"}, "strict": True}
CLOCK = {"type": "function", "name": "clock"}
HOSTED: list[dict[str, Any]] = [
    {"type": "web_search"},
    {"type": "file_search", "vector_store_ids": ["v"]},
    {"type": "shell", "environment": {"type": "container_auto"}},
    {"type": "tool_search"},
]


def read(*tools: dict[str, Any]) -> Tools:
    return read_tools(dumped(list(tools)))


def asked(tools: Tools, choice: Any = None) -> dict[str, Any]:
    raw = None if choice is None else dumped(choice)
    members: dict[str, Any] = json.loads(b"{" + b",".join(chat_tools(tools, raw, strict=True, named=True)) + b"}")
    return members


def names(members: dict[str, Any]) -> list[str]:
    return [each["function"]["name"] for each in members.get("tools", [])]


def test_functions_are_wrapped_as_chat_wants_them_and_absent_stays_absent() -> None:
    assert asked(read(WEATHER, CLOCK))["tools"] == [
        {
            "type": "function",
            "function": {"name": "weather", "description": "d", "parameters": {"type": "object"}, "strict": True},
        },
        {"type": "function", "function": {"name": "clock"}},
    ]
    assert asked(read({**CLOCK, "strict": None, "description": None}))["tools"][0]["function"] == {"name": "clock"}


def test_tools_that_cannot_run_are_dropped_and_counted_and_still_echoed() -> None:
    tools = read(*HOSTED, CLOCK)
    assert names(asked(tools)) == ["clock"]
    assert left_out_tools(tools) == [("tool", "web_search"), ("tool", "file_search"), ("tool", "shell")]
    assert json.loads(tools.echo)[:4] == HOSTED


def test_no_tools_are_no_members() -> None:
    assert asked(EMPTY) == asked(EMPTY, "auto") == asked(EMPTY, "none") == asked(read(*HOSTED), "auto") == {}
    assert EMPTY.echo == b"[]"


@pytest.mark.parametrize("choice", ["auto", "none", "required"])
def test_a_mode_goes_along(choice: str) -> None:
    assert asked(read(CLOCK), choice)["tool_choice"] == choice


def test_a_named_function_goes_along() -> None:
    assert asked(read(CLOCK), {"type": "function", "name": "clock"})["tool_choice"] == {
        "type": "function",
        "function": {"name": "clock"},
    }


def test_allowed_tools_are_a_hard_limit() -> None:
    only = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "clock"}]}
    members = asked(read(WEATHER, CLOCK), only)
    assert (names(members), members["tool_choice"]) == (["clock"], "required")
    assert asked(read(WEATHER), {**only, "mode": "auto"}) == {}


@pytest.mark.parametrize(
    ("tools", "choice"),
    [
        ([], "required"),
        ([HOSTED[0]], "required"),
        ([CLOCK], "sometimes"),
        ([CLOCK], {"type": "function", "name": "weather"}),
        ([CLOCK], {"type": "function"}),
        ([HOSTED[0], CLOCK], {"type": "web_search"}),
        ([WEATHER], {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "clock"}]}),
        ([CLOCK], 7),
        ([CLOCK], {}),
    ],
)
def test_a_choice_that_cannot_be_met_is_refused(tools: list[dict[str, Any]], choice: Any) -> None:
    with pytest.raises(LooplineError) as raised:
        asked(read(*tools), choice)
    assert (raised.value.kind, raised.value.param) == (Kind.INVALID_REQUEST, "tool_choice")


@pytest.mark.parametrize(
    ("tools", "param"),
    [
        ([{"type": "web_search"}, {"type": "function"}], "tools[1].name"),
        ([{"type": "function", "name": ""}], "tools[0].name"),
        ([{"name": "f"}], "tools[0]"),
        ([{"type": "function", "name": 7}], "tools[0]"),
        ([7], "tools[0]"),
    ],
)
def test_a_tool_that_is_none_is_named_with_its_place(tools: list[Any], param: str) -> None:
    with pytest.raises(LooplineError) as raised:
        read_tools(dumped(tools))
    assert (raised.value.status, raised.value.param) == (400, param)


def test_the_memo_gives_back_what_it_read() -> None:
    memo = ToolMemo()
    raw = dumped([WEATHER])
    first = memo.read("t", raw)
    assert memo.read("t", bytes(bytearray(raw))) is first
    assert memo.read("other tenant", raw) is not first
    assert memo.read("t", None) is EMPTY


def test_the_memo_stays_within_its_budget() -> None:
    memo = ToolMemo(budget_bytes=10_000)
    small, large = dumped([CLOCK]), dumped([{**CLOCK, "description": "x" * 10_000}])
    kept = memo.read("t", small)
    assert memo.read("t", large).raw == large
    assert memo.read("t", small) is kept
    for number in range(100):
        memo.read("t", dumped([{**CLOCK, "description": f"{number}" * 100}]))
    assert memo.read("t", small) is not kept


def test_deep_tools_are_an_error_wherever_the_limit_is_met() -> None:
    outcomes = set()
    for depth in (10, *range(850, 1050, 3), 100_000):
        raw = b'[{"type":"function","name":"f","parameters":' + b"[" * depth + b"]" * depth + b"}]"
        try:
            chat_tools(read_tools(raw), None, strict=True, named=True)
            outcomes.add("fine")
        except LooplineError as error:
            outcomes.add(error.kind.value)
    assert outcomes == {"fine", "too_deep"}


WORDS = ("type", "function", "name", "clock", "parameters", "strict", "allowed_tools", "mode", "tools", "required")


@given(st.lists(json_values(*WORDS), max_size=3), json_values(*WORDS))
@settings(deadline=None, max_examples=80)
def test_any_tools_and_choice_are_members_or_an_error_that_names_them(tools: list[Any], choice: Any) -> None:
    try:
        read_ = read_tools(dumped(tools))
        members = asked(read_, choice)
    except LooplineError as error:
        fine = (error.param or "").startswith("tool")
    else:
        fine = len(json.loads(read_.echo)) == len(tools) and len(members.get("tools", [])) <= len(tools)
    assert fine
