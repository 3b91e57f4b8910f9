from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.errors import Kind, LooplineError
from proxy.translate.tools.choice import chat_tools
from proxy.translate.tools.listed import (
    EMPTY,
    MAX_FUNCTIONS,
    MAX_NAME_CHARS,
    Called,
    ToolMemo,
    Tools,
    left_out_tools,
    read_tools,
    upstream_name,
)
from proxy.wire.items import Item
from tests.unit.strategies import TEXT, dumped, json_values

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
    with pytest.raises(LooplineError, match="'clock' is not one of 'tools'"):
        asked(read(WEATHER), {**only, "mode": "auto"})


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


def test_the_memo_lets_go_of_what_nobody_has_asked_for_for_a_while() -> None:
    now = 0.0
    memo, raw = ToolMemo(ttl_s=300, clock=lambda: now), dumped([WEATHER])
    first = memo.read("t", raw)
    now = 299.0
    assert memo.read("t", raw) is first
    now = 598.0
    assert memo.read("t", raw) is first  # each use makes it young again
    now = 898.0
    assert memo.read("t", raw) is not first
    assert memo.counts.old == 1


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


# --- names, there and back ---

NAMES = st.one_of(
    st.sampled_from(["a", "a__b", "b", "shell", "apply_patch", "é", "x" * 64, "x" * 65, "x" * 300, "a b", "\n", "a\n"]),
    TEXT.filter(bool),
)
INNER = st.builds(lambda kind, name: {"type": kind, "name": name}, st.sampled_from(["function", "custom"]), NAMES)
ANY_TOOL = st.one_of(
    INNER,
    st.sampled_from([{"type": "shell"}, {"type": "local_shell"}, {"type": "apply_patch"}, {"type": "web_search"}]),
    st.just({"type": "tool_search", "execution": "client"}),
    st.builds(lambda name, of: {"type": "namespace", "name": name, "tools": of}, NAMES, st.lists(INNER, max_size=3)),
)  # fmt: skip


def wanted(tools: list[dict[str, Any]]) -> set[Called]:
    """What a client may be told that it has been called."""
    found = set()
    for tool in tools:
        for inner in tool["tools"] if tool["type"] == "namespace" else [tool]:
            if inner["type"] != "web_search":
                namespace = tool["name"] if tool["type"] == "namespace" else None
                found.add(Called(inner["type"], inner.get("name", inner["type"]), namespace))
    return found


@given(st.lists(ANY_TOOL, max_size=6))
@settings(deadline=None, max_examples=150)
def test_every_name_is_one_that_servers_take_and_means_one_tool(tools: list[dict[str, Any]]) -> None:
    made = read_tools(dumped(tools))
    offered = [function.name for function in made.functions()]
    assert len(set(offered)) == len(offered)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in offered)
    assert {made.calls[name] for name in offered} == wanted(tools)
    assert all(made.name_of(*made.calls[name]) == name for name in offered)
    alone = {upstream_name(called) for called in wanted(tools)}
    if len(alone) == len(wanted(tools)):  # no two would share a name
        assert alone == set(offered)


def test_names_that_collide_even_when_they_are_changed_are_told_apart() -> None:
    taken = read({"type": "namespace", "name": "a", "tools": [{"type": "function", "name": "b"}]}, FIRST)
    (second,) = [name for name, called in taken.calls.items() if called.namespace == "a"]
    tools = read({**FIRST, "name": second}, *taken_tools())
    assert len(set(tools.calls)) == len(tools.functions()) == 3


FIRST = {"type": "function", "name": "a__b"}


def taken_tools() -> list[dict[str, Any]]:
    return [{"type": "namespace", "name": "a", "tools": [{"type": "function", "name": "b"}]}, FIRST]


def test_a_later_tool_of_one_name_replaces() -> None:
    tools = read({**CLOCK, "description": "old"}, WEATHER, {**CLOCK, "description": "new"})
    assert [(each["function"]["name"], each["function"]["description"]) for each in asked(tools)["tools"]] == [
        ("weather", "d"),
        ("clock", "new"),
    ]


def item(kind: str, *tools: dict[str, Any]) -> Item:
    return Item(kind, dumped({"type": kind, "tools": list(tools)}))


def with_items(tools: list[dict[str, Any]], *brought: Item) -> Tools:
    return ToolMemo().read("t", dumped(tools), brought)


def test_tools_of_items_are_offered_beside_those_of_the_request() -> None:
    brought = item("additional_tools", CLOCK, {**WEATHER, "description": "later"}), item("message")
    tools = with_items([WEATHER], *brought)
    assert [(each["function"]["name"], each["function"].get("description")) for each in asked(tools)["tools"]] == [
        ("clock", None),
        ("weather", "later"),
    ]
    assert [tool["name"] for tool in json.loads(tools.echo)] == ["weather"]
    assert names(asked(ToolMemo().read("t", None, [brought[0]]))) == ["clock", "weather"]


SEARCH = {"type": "tool_search", "execution": "client"}
LATER = {**CLOCK, "defer_loading": True}
SPACE = {
    "type": "namespace",
    "name": "n",
    "description": "about n",
    "tools": [LATER, {"type": "function", "name": "f"}],
}


def test_deferred_tools_wait_for_a_search_that_the_client_runs() -> None:
    assert names(asked(read(SEARCH, LATER, SPACE))) == ["tool_search", "n__f"]
    assert left_out_tools(read(SEARCH, LATER)) == []
    found = with_items([SEARCH, LATER, SPACE], item("tool_search_output", LATER, SPACE))
    assert names(asked(found)) == ["tool_search", "clock", "n__clock", "n__f"]
    added = with_items([SEARCH], item("additional_tools", LATER))
    assert names(asked(added)) == ["tool_search"]


def test_deferred_tools_are_offered_where_no_client_would_search_for_them() -> None:
    for search in ([], [{"type": "tool_search"}], [{"type": "tool_search", "execution": "server"}]):
        assert names(asked(read(*search, LATER, SPACE))) == ["clock", "n__clock", "n__f"]


def test_what_a_namespace_is_about_is_told_once() -> None:
    tools = [{"type": "function", "name": "f", "description": "does f"}, {"type": "custom", "name": "g"}]
    made = asked(read({**SPACE, "tools": tools}))["tools"]
    assert made[0]["function"]["description"] == "about n\n\ndoes f"
    assert "about n" not in made[1]["function"]["description"]


def test_what_a_namespace_holds_that_cannot_run_is_said() -> None:
    tools = read({**SPACE, "tools": [CLOCK, {"type": "web_search"}, {"type": "shell"}]})
    assert names(asked(tools)) == ["n__clock"]
    assert left_out_tools(tools) == [("tool", "web_search"), ("tool", "shell")]
    assert left_out_tools(tools, ["namespace"]) == []


@pytest.mark.parametrize(
    ("inner", "param"),
    [
        (7, "tools[0].tools[1]"),
        ({}, "tools[0].tools[1]"),
        ({"type": "function"}, "tools[0].tools[1].name"),
        ({"type": "custom", "name": "c", "format": 7}, "tools[0].tools[1].format"),
        ({"type": "custom", "name": "c", "description": 7}, "tools[0].tools[1].description"),
        ({"type": "function", "name": "x" * (MAX_NAME_CHARS + 1)}, "tools[0].tools[1].name"),
    ],
)
def test_a_tool_in_a_namespace_that_is_none_is_named_with_its_place(inner: Any, param: str) -> None:
    with pytest.raises(LooplineError) as raised:
        read({**SPACE, "tools": [CLOCK, inner]})
    assert (raised.value.status, raised.value.param) == (400, param)
    assert param in raised.value.message


def test_work_on_tools_is_bounded() -> None:
    many = [{"type": "function", "name": f"f{number}"} for number in range(MAX_FUNCTIONS)]
    assert len(asked(read(*many))["tools"]) == MAX_FUNCTIONS
    with pytest.raises(LooplineError, match=str(MAX_FUNCTIONS)) as raised:
        read({**SPACE, "tools": [{"type": "function", "name": f"f{number}"} for number in range(100_000)]})
    assert raised.value.param == "tools[0].tools"
    with pytest.raises(LooplineError, match=str(MAX_FUNCTIONS)) as raised:
        read(*many, CLOCK)
    assert raised.value.param == f"tools[{MAX_FUNCTIONS}]"
    with pytest.raises(LooplineError, match=str(MAX_NAME_CHARS)) as raised:
        read({**SPACE, "name": "n" * 1_000_000})
    assert raised.value.param == "tools[0].name"
    with pytest.raises(LooplineError, match=str(MAX_FUNCTIONS)):
        with_items([], item("additional_tools", *many, CLOCK))


def test_the_memo_keeps_tools_of_items_apart_and_counts_what_it_made_of_small_tools() -> None:
    memo = ToolMemo(budget_bytes=100_000)
    one, other = item("additional_tools", CLOCK), item("additional_tools", WEATHER)
    first = memo.read("t", None, [one])
    assert memo.read("t", None, [one]) is first
    assert names(asked(memo.read("t", None, [other]))) == ["weather"]
    assert names(asked(memo.read("t", None, [one, other]))) == ["clock", "weather"]
    many = dumped([{"type": "custom", "name": f"c{number}"} for number in range(100)])
    assert len(many) < 5000
    assert memo.read("t", many) is not memo.read("t", many)  # more than the budget, made of few bytes


def names_of(*tools: dict[str, Any]) -> dict[Called, str]:
    return dict(read(*tools).names)


def test_a_tool_has_the_same_name_wherever_it_stands() -> None:
    tools: list[dict[str, Any]] = [
        {"type": "namespace", "name": "a", "tools": [{"type": "function", "name": "b__c"}]},
        {"type": "namespace", "name": "a__b", "tools": [CLOCK, {"type": "function", "name": "c"}]},
        {"type": "function", "name": "a__b__clock"},
        {"type": "custom", "name": "clock"},
        CLOCK,
    ]
    assert names_of(*tools) == names_of(*tools[::-1])
    assert names_of(*tools)[Called("function", "a__b__clock")] == "a__b__clock"
    assert names_of(*tools)[Called("function", "c", "a__b")] == names_of(tools[1])[Called("function", "c", "a__b")]
    assert names_of(*tools)[Called("function", "b__c", "a")] == names_of(tools[0])[Called("function", "b__c", "a")]
    assert len(set(names_of(*tools).values())) == 6


def test_a_tool_that_waits_for_a_search_is_known_when_it_is_called() -> None:
    late = {"type": "function", "name": "f", "defer_loading": True}
    tools = read({"type": "tool_search", "execution": "client"}, {"type": "namespace", "name": "n", "tools": [late]})
    assert [function.name for function in tools.functions()] == ["tool_search"]
    assert tools.calls["n__f"] == Called("function", "f", "n")


def test_skills_of_a_local_shell_are_told_to_the_model() -> None:
    skill = {"name": "pdf", "description": "Reads PDFs.", "path": "/skills/pdf"}
    tools = read({"type": "shell", "environment": {"type": "local", "skills": [skill]}})
    described = asked(tools)["tools"][0]["function"]["description"]
    assert "- pdf (/skills/pdf/SKILL.md): Reads PDFs." in described
