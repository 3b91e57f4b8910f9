"""`tool_choice` in all of its forms, against tools of all kinds."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from proxy.errors import Kind, LooplineError
from proxy.translate.tools.choice import chat_tools
from proxy.translate.tools.listed import Tools, read_tools
from tests.unit.strategies import dumped

TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": "list"},
    {"type": "custom", "name": "patch"},
    {"type": "shell"},
    {"type": "local_shell"},
    {"type": "apply_patch"},
    {"type": "web_search"},
    {"type": "namespace", "name": "mcp", "description": "", "tools": [
        {"type": "function", "name": "list"}, {"type": "custom", "name": "run"},
    ]},
]  # fmt: skip
READ = read_tools(dumped(TOOLS))


def asked(choice: Any, tools: Tools = READ, *, named: bool = True) -> tuple[list[str], Any]:
    """The names that are offered, and the choice as the server gets it."""
    members = json.loads(b"{" + b",".join(chat_tools(tools, dumped(choice), strict=True, named=named)) + b"}")
    return [each["function"]["name"] for each in members.get("tools", [])], members.get("tool_choice")


def refused(choice: Any, tools: Tools = READ) -> str:
    with pytest.raises(LooplineError) as raised:
        asked(choice, tools)
    assert (raised.value.kind, raised.value.param) == (Kind.INVALID_REQUEST, "tool_choice")
    return raised.value.message


ALL = ["list", "patch", "shell", "local_shell", "apply_patch", "mcp__list", "mcp__run"]
CHOICES: list[tuple[dict[str, Any], str]] = [
    ({"type": "function", "name": "list"}, "list"),
    ({"type": "function", "name": "list", "namespace": "mcp"}, "mcp__list"),
    ({"type": "custom", "name": "patch"}, "patch"),
    ({"type": "custom", "name": "run", "namespace": "mcp"}, "mcp__run"),
    ({"type": "custom", "name": "run"}, "mcp__run"),
    ({"type": "shell"}, "shell"),
    ({"type": "local_shell"}, "local_shell"),
    ({"type": "apply_patch"}, "apply_patch"),
]


@pytest.mark.parametrize(("choice", "name"), CHOICES)
def test_a_choice_of_one_tool_names_its_function(choice: dict[str, Any], name: str) -> None:
    assert asked(choice) == (ALL, {"type": "function", "function": {"name": name}})


@pytest.mark.parametrize(("choice", "name"), CHOICES)
def test_where_a_server_cannot_be_told_a_name_that_tool_alone_is_offered(choice: dict[str, Any], name: str) -> None:
    assert asked(choice, named=False) == ([name], "required")


def test_a_choice_of_a_namespace_offers_what_is_in_it() -> None:
    assert asked({"type": "namespace", "name": "mcp"}) == (["mcp__list", "mcp__run"], "required")


@pytest.mark.parametrize("kind", ["web_search", "file_search", "mcp", "code_interpreter", "computer", "new_kind"])
def test_a_tool_that_only_its_own_server_runs_cannot_be_demanded(kind: str) -> None:
    assert kind in refused({"type": kind})
    assert kind in refused({"type": kind, "name": "n", "server_label": "s"})


@pytest.mark.parametrize(
    ("choice", "named"),
    [
        ({"type": "function", "name": "gone"}, "gone"),
        ({"type": "function", "name": "list", "namespace": "gone"}, "list"),
        ({"type": "custom", "name": "list"}, "list"),
        ({"type": "namespace", "name": "gone"}, "gone"),
        ({"type": "tool_search"}, "tool_search"),
        ({"type": "function"}, "function"),
    ],
)
def test_a_tool_that_is_not_there_is_named(choice: dict[str, Any], named: str) -> None:
    assert f"'{named}' is not one of 'tools'" in refused(choice)


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_allowed_tools_may_be_of_any_kind_and_hosted_ones_are_passed_over(mode: str) -> None:
    chosen = [each for each, _ in CHOICES] + [{"type": "web_search"}, {"type": "mcp", "server_label": "s"}]
    names, told = asked({"type": "allowed_tools", "mode": mode, "tools": chosen})
    assert (sorted(names), told) == (sorted(ALL), mode)
    only = {"type": "allowed_tools", "mode": mode, "tools": [{"type": "shell"}, {"type": "web_search"}]}
    assert asked(only) == (["shell"], mode)
    spaces = {"type": "allowed_tools", "mode": mode, "tools": [{"type": "namespace", "name": "mcp"}]}
    assert asked(spaces) == (["mcp__list", "mcp__run"], mode)


def test_allowed_tools_of_which_none_can_run_offer_none_and_cannot_be_demanded() -> None:
    hosted = {"type": "allowed_tools", "tools": [{"type": "web_search"}]}
    assert asked({**hosted, "mode": "auto"}) == ([], None)
    refused({**hosted, "mode": "required"})


@pytest.mark.parametrize("mode", ["none", "sometimes", ""])
def test_another_mode_of_allowed_tools_is_refused_or_the_default(mode: str) -> None:
    choice = {"type": "allowed_tools", "mode": mode, "tools": [{"type": "shell"}]}
    if mode:
        assert mode in refused(choice)
    else:
        assert asked(choice) == (["shell"], "auto")


def test_a_name_that_stands_in_two_namespaces_is_not_guessed() -> None:
    spaces = [{"type": "namespace", "name": n, "tools": [{"type": "function", "name": "f"}]} for n in ("a", "b")]
    assert "'f' is not one of 'tools'" in refused({"type": "function", "name": "f"}, read_tools(dumped(spaces)))


def test_many_allowed_tools_of_many_cost_as_much_as_they_are() -> None:
    many = read_tools(dumped([{"type": "function", "name": f"f{number}"} for number in range(1000)]))
    wanted = [{"type": "function", "name": f"f{number}"} for number in range(20_000)]
    wanted += [{"type": "namespace", "name": f"n{number}"} for number in range(20_000)]
    started = time.process_time()
    assert "'f1000' is not one of 'tools'" in refused({"type": "allowed_tools", "mode": "auto", "tools": wanted}, many)
    names, _ = asked({"type": "allowed_tools", "mode": "auto", "tools": wanted[:1000] * 40}, many)
    assert len(names) == 1000
    assert time.process_time() - started < 5  # a product of both takes minutes


def test_names_may_stand_where_chat_completions_has_them() -> None:
    nested = {"type": "function", "function": {"name": "list"}}
    assert asked({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [nested]}})[1] == "required"
    assert asked({"type": "allowed_tools", "mode": "auto", "tools": [nested]}) == asked(
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "list"}]}
    )
    assert asked(nested) == asked({"type": "function", "name": "list"})


@pytest.mark.parametrize(
    "gone",
    [{"type": "function", "name": "gone"}, {"type": "namespace", "name": "gone"}, {"type": "custom", "name": "gone"}],
)
def test_an_allowed_tool_that_is_not_there_is_named(gone: dict[str, Any]) -> None:
    there = {"type": "shell"}
    assert "'gone' is not one of 'tools'" in refused({"type": "allowed_tools", "mode": "auto", "tools": [there, gone]})


def test_a_tool_that_waits_for_a_search_may_be_allowed_and_not_demanded() -> None:
    late = {"type": "function", "name": "late", "defer_loading": True}
    tools = read_tools(dumped([{"type": "tool_search", "execution": "client"}, late]))
    assert asked({"type": "allowed_tools", "mode": "auto", "tools": [late]}, tools) == ([], None)
    assert "'late' is not one of 'tools'" in refused(late, tools)
