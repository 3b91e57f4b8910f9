"""What a Responses server is sent: everything where it takes everything, else in the forms that its profile lists."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.conversation import chain
from proxy.errors import LooplineError
from proxy.models.profile import Profile, profiles, read_profile
from proxy.translate.base import Brief
from proxy.translate.left_out import LeftOut
from proxy.translate.responses.translator import ResponsesTranslator
from proxy.translate.tools.listed import ToolMemo
from tests.unit.translate.turns import LIMIT, SEED, Event, create, items, responses, sent

SEALED = "sealed:"
LOST = "lpr1.old.AAAA"  # sealed here, for a key or a tenant that is gone
FUNCTION: Event = {"type": "function", "name": "f", "parameters": {"type": "object"}, "x_new": 1}
CUSTOM: Event = {"type": "custom", "name": "run", "description": "Runs."}
NAMESPACE: Event = {"type": "namespace", "name": "geo", "tools": [{"type": "function", "name": "find"}]}
REASONING: Event = {"type": "reasoning", "id": "rs_1", "summary": []}
FUNCTIONS = b'title = "t"\n[responses]\ntools = ["function"]\nitems = ["message", "reasoning", "function_call", '
FUNCTIONS += b'"function_call_output"]\n'


def profile(more: bytes = b"", start: bytes = FUNCTIONS) -> Profile:
    return read_profile(start + more, "mine")


def translator(made: Any, kind: Profile) -> ResponsesTranslator:
    lasting = chain.lasting(None, made.items)
    tools = ToolMemo().read("t", made.raw("tools"), lasting)
    opened = lambda text: text.removeprefix(SEALED) if text.startswith(SEALED) else None  # noqa: E731
    ours = lambda text: text.startswith((SEALED, "lpr"))  # noqa: E731
    return ResponsesTranslator(Brief(made, "up", tools, kind, SEED, 2, LIMIT, lasting, opened, is_sealed_here=ours))


def told(kind: Profile, *given: Event, **members: Any) -> tuple[Event, list[LeftOut]]:
    """The body, and what is said to be left out."""
    made = create(input=[*given, {"type": "message", "role": "user", "content": "go"}], **members)
    made_by = translator(made, kind)
    return sent(made_by), list(made_by.left_out)


def inputs(kind: Profile, *given: Event, **members: Any) -> list[Event]:
    made: list[Event] = told(kind, *given, **members)[0]["input"][:-1]
    return made


# --- everything passes where everything is taken ---


@pytest.mark.parametrize("name", ["generic", "openai"])
def test_what_nobody_here_knows_arrives_byte_for_byte(name: str) -> None:
    unknown: Event = {"type": "x_new", "deep": [{"a": 1.5}], "id": None}
    given: list[Event] = [
        unknown,
        {"type": "custom_tool_call", "call_id": "c", "name": "run", "input": "ls"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "a"},
        {"type": "additional_tools", "role": "developer", "tools": [CUSTOM]},
        {"type": "configuration_update", "reasoning": {"effort": "low"}},
        {"type": "web_search_call", "id": "ws", "status": "completed"},
        {**REASONING, "encrypted_content": "gAAAA"},
        {"type": "message", "role": "developer", "content": "d"},
    ]
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "custom", "name": "run"}]}
    members = {"x_field": {"y": [1]}, "tools": [CUSTOM, NAMESPACE, {"type": "web_search"}], "tool_choice": choice}
    body, left_out = told(profiles()[name], *given, **members)
    assert {key: body[key] for key in members} == members
    assert body["input"][:-1] == given
    assert (body["model"], body["stream"], body["store"], left_out) == ("up", True, False, [])


# --- tools ---


def tools_told(kinds: bytes, tools: list[Event], **members: Any) -> Event:
    start = b'title = "t"\n[responses]\ntools = [%b]\n' % kinds
    body, _ = told(profile(start=start), tools=tools, **members)
    return {name: body[name] for name in ("tools", "tool_choice") if name in body}


def test_tools_that_a_server_does_not_know_become_functions() -> None:
    body, left_out = told(profile(), tools=[FUNCTION, CUSTOM, NAMESPACE, {"type": "web_search"}])
    assert body["tools"][0] == FUNCTION
    assert [(each["type"], each["name"]) for each in body["tools"]] == [
        ("function", "f"),
        ("function", "run"),
        ("function", "geo__find"),
    ]
    assert body["tools"][1]["parameters"]["required"] == ["input"]
    assert "tool_choice" not in body
    assert left_out == [LeftOut("tool", "web_search")]


def test_kinds_of_tools_that_a_server_knows_pass_as_they_are() -> None:
    tools = [CUSTOM, NAMESPACE, {"type": "web_search", "x": 1}]
    assert tools_told(b'"function", "custom", "namespace", "web_search"', tools)["tools"] == tools


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [
        ("auto", "auto"),
        ("none", "none"),
        ({"type": "function", "name": "f"}, {"type": "function", "name": "f"}),
        ({"type": "custom", "name": "run"}, {"type": "function", "name": "run"}),
        ({"type": "function", "name": "find", "namespace": "geo"}, {"type": "function", "name": "geo__find"}),
    ],
)
def test_a_choice_speaks_of_functions_by_their_names_upstream(choice: Any, wanted: Any) -> None:
    body, _ = told(profile(), tools=[FUNCTION, CUSTOM, NAMESPACE], tool_choice=choice)
    assert body["tool_choice"] == wanted
    assert len(body["tools"]) == 3


def test_a_choice_keeps_its_own_words_where_the_tool_is_known() -> None:
    for tool, choice in ((CUSTOM, {"type": "custom", "name": "run"}), ({"type": "web_search"}, {"type": "web_search"})):
        body = tools_told(b'"function", "custom", "web_search"', [FUNCTION, tool], tool_choice=choice)
        assert body == {"tools": [FUNCTION, tool], "tool_choice": choice}


def test_a_server_that_cannot_be_told_a_name_is_offered_that_function_alone() -> None:
    kind = profile(b'[chat]\nnamed_choice = "required"\n')
    body, _ = told(kind, tools=[FUNCTION, CUSTOM], tool_choice={"type": "function", "name": "f"})
    assert (body["tools"], body["tool_choice"]) == ([FUNCTION], "required")


def test_allowed_tools_are_the_only_ones_offered() -> None:
    choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "custom", "name": "run"}]}
    body, _ = told(profile(), tools=[FUNCTION, CUSTOM], tool_choice=choice)
    assert [each["name"] for each in body["tools"]] == ["run"]
    assert body["tool_choice"] == "required"
    choice["tools"] = [{"type": "web_search"}, {"type": "function", "name": "f"}]
    tools = [FUNCTION, CUSTOM, {"type": "web_search"}, {"type": "file_search"}]
    body = tools_told(b'"function", "custom", "web_search", "file_search"', tools, tool_choice=choice)
    assert body == {"tools": [FUNCTION, {"type": "web_search"}], "tool_choice": "required"}


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "web_search"},
        {"type": "function", "name": "gone"},
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}]},
    ],
)
def test_a_choice_that_demands_a_tool_nobody_can_run_is_the_clients_error(choice: Event) -> None:
    with pytest.raises(LooplineError) as raised:
        told(profile(), tools=[FUNCTION, {"type": "web_search"}], tool_choice=choice)
    assert (raised.value.status, raised.value.param) == (400, "tool_choice")


def test_a_tool_that_waits_for_a_search_is_not_offered() -> None:
    waiting = {**FUNCTION, "defer_loading": True}
    search = {"type": "tool_search", "execution": "client"}
    body, _ = told(profile(), tools=[waiting, search])
    assert [each["name"] for each in body["tools"]] == ["tool_search"]


# --- items ---


@pytest.mark.parametrize(
    ("call", "name", "arguments"),
    [
        ({"type": "custom_tool_call", "name": "run", "input": 'say "hi"'}, "run", {"input": 'say "hi"'}),
        ({"type": "function_call", "name": "find", "namespace": "geo", "arguments": '{"a":1}'}, "geo__find", {"a": 1}),
        ({"type": "function_call", "name": "two words", "arguments": ""}, None, {}),
        (
            {"type": "shell_call", "action": {"commands": ["ls"], "timeout_ms": 5, "max_output_length": None}},
            "shell",
            {"commands": ["ls"], "timeout_ms": 5},
        ),
        (
            {"type": "local_shell_call", "id": "l", "action": {"type": "exec", "command": ["ls"], "env": {"A": "b"}}},
            "local_shell",
            {"command": ["ls"], "env": {"A": "b"}},
        ),
        (
            {"type": "apply_patch_call", "operation": {"type": "delete_file", "path": "a"}},
            "apply_patch",
            {"type": "delete_file", "path": "a"},
        ),
        (
            {"type": "tool_search_call", "arguments": {"query": "q"}, "execution": "client"},
            "tool_search",
            {"query": "q"},
        ),
    ],
    ids=lambda value: value.get("type") if isinstance(value, dict) else None,
)
def test_calls_go_back_as_calls_of_their_functions(call: Event, name: str | None, arguments: Event) -> None:
    (made,) = inputs(profile(), {"call_id": "c1", "status": "completed", **call})
    assert (made["type"], made["call_id"], json.loads(made["arguments"])) == ("function_call", "c1", arguments)
    assert "namespace" not in made
    assert made["name"] == name or (name is None and made["name"].startswith("two_words_"))


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ({"type": "custom_tool_call_output", "output": "done"}, "done"),
        (
            {"type": "custom_tool_call_output", "output": [{"type": "input_image", "image_url": "data:x", "x": 1.5}]},
            [{"type": "input_image", "image_url": "data:x", "x": 1.5}],
        ),
        (
            {"type": "shell_call_output", "output": [
                {"stdout": "a", "stderr": "b", "outcome": {"type": "exit", "exit_code": 1}},
                {"stdout": "", "outcome": {"type": "timeout"}}]},
            "stdout:\na\nstderr:\nb\nexit code: 1\n\noutcome: timeout",
        ),
        ({"type": "local_shell_call_output", "output": "{}"}, "{}"),
        ({"type": "apply_patch_call_output", "status": "failed", "output": "no such file"}, "failed\nno such file"),
        (
            {"type": "tool_search_output", "tools": [{"type": "namespace", "name": "geo", "tools": [
                {"type": "function", "name": "find", "description": "Finds."}]}]},
            "Tools found:\n- geo__find: Finds.",
        ),
    ],
    ids=lambda value: value.get("type") if isinstance(value, dict) else None,
)  # fmt: skip
def test_outputs_go_back_as_outputs_of_functions(output: Event, said: Any) -> None:
    (made,) = inputs(profile(), {"call_id": "c1", **output})
    assert made == {"type": "function_call_output", "call_id": "c1", "output": said}


def test_calls_that_a_server_knows_and_items_that_nobody_knows_pass() -> None:
    given: list[Event] = [
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "x_new": 1},
        {"type": "function_call_output", "call_id": "c", "output": "o", "x_new": 1},
        {"type": "x_new_item", "a": 1.5},
    ]
    assert inputs(profile(), *given) == given


@pytest.mark.parametrize("name", ["generic", "openai", "xai", "vllm", "llamacpp"])
@pytest.mark.parametrize("kind", ["function_call", "custom_tool_call", "local_shell_call", "apply_patch_call"])
def test_a_call_that_was_cut_is_not_sent_and_said_to_be_left_out(name: str, kind: str) -> None:
    cut = {"type": kind, "call_id": "c", "name": "f", "arguments": '{"a', "input": "a", "status": "incomplete"}
    body, left_out = told(profiles()[name], cut)
    assert (len(body["input"]), left_out) == (1, [LeftOut("item", kind)])


def test_what_was_cut_and_is_no_call_is_sent() -> None:
    given: list[Event] = [
        {"type": "message", "role": "assistant", "status": "incomplete", "content": [OUTPUT_TEXT]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "o", "status": "incomplete"},
        {"type": "web_search_call", "id": "w", "status": "incomplete"},
    ]
    assert inputs(profiles()["generic"], *given) == given


# --- what an upstream answered in words that nobody here knows ---

ODD: list[Event] = [
    {"type": "file_search_call", "id": "w", "queries": None},
    {"type": "mcp_call", "id": "w", "server_label": "s"},
    {"type": "web_search_call", "id": "w", "action": "x"},
    {"type": "code_interpreter_call", "id": "w", "outputs": [{"logs": ["a"]}]},
    {"type": "local_shell_call", "id": "w", "action": {"type": "exec", "command": "ls"}},
    {"type": "computer_call", "id": "w"},
]


@pytest.mark.parametrize("item", ODD, ids=lambda item: item["type"])
def test_an_item_that_nobody_here_can_read_is_left_out_and_said_to_be(item: Event) -> None:
    body, left_out = told(profile(), item)
    assert (len(body["input"]), left_out) == (1, [LeftOut("item", item["type"])])
    made = translator(create(), profile())
    assert made.encode(items(item)) == b""
    assert made.left_out == [LeftOut("item", item["type"])]
    assert inputs(profiles()["generic"], item) == [item]


@pytest.mark.parametrize(
    ("call", "name", "arguments"),
    [
        (
            {"type": "local_shell_call", "action": {"type": "exec", "command": "ls"}},
            "local_shell", {"action": {"type": "exec", "command": "ls"}},
        ),
        ({"type": "shell_call", "action": {"command": ["ls"]}}, "shell", {"action": {"command": ["ls"]}}),
        ({"type": "apply_patch_call", "operation": "*** Begin"}, "apply_patch", {"operation": "*** Begin"}),
    ],
)  # fmt: skip
def test_a_call_in_odd_words_keeps_them_so_that_its_output_fits(call: Event, name: str, arguments: Event) -> None:
    (made,) = inputs(profile(), {"id": "l", "call_id": "c", "status": "completed", **call})
    assert (made["type"], made["call_id"], made["name"]) == ("function_call", "c", name)
    assert json.loads(made["arguments"]) == arguments


@pytest.mark.parametrize(
    "item",
    [
        {"type": "message", "role": "assistant", "content": [7]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": {"a": 1}},
        {"type": "custom_tool_call", "call_id": "c"},
    ],
)
def test_what_is_kept_raises_nothing(item: Event) -> None:
    assert json.loads(translator(create(), profiles()["vllm"]).encode(items(item))) == item


def test_reasoning_that_nobody_here_can_read_never_takes_a_seal_with_it() -> None:
    odd = {**REASONING, "content": "hm", "encrypted_content": LOST}
    for name in ("generic", "openai", "vllm"):
        made = translator(create(), profiles()[name])
        assert made.encode(items(odd)) == b""
        assert made.left_out == [LeftOut("item", "reasoning")]


@pytest.mark.parametrize(
    ("item", "name", "arguments", "said"),
    [
        (
            {"type": "web_search_call", "action": {"type": "search", "query": "q", "sources": [{"url": "u"}]}},
            "web_search", {"type": "search", "query": "q"}, 'sources: [{"url": "u"}]',
        ),
        (
            {"type": "mcp_call", "server_label": "git", "name": "log", "arguments": "", "output": "abc"},
            "git__log", {}, "abc",
        ),
        (
            {"type": "code_interpreter_call", "code": "1+1", "outputs": [{"type": "image", "url": "data:x"}]},
            "code_interpreter", {"code": "1+1"}, [{"type": "input_image", "image_url": "data:x"}],
        ),
        (
            {"type": "file_search_call", "queries": ["q"]},
            "file_search", {"queries": ["q"]}, "(status completed; its results are not kept in the conversation)",
        ),
    ],
)  # fmt: skip
def test_what_another_server_ran_is_a_call_with_its_output(item: Event, name: str, arguments: Event, said: Any) -> None:
    call, output = inputs(profile(), {"id": "x_1", **item})
    assert (call["type"], call["name"], json.loads(call["arguments"])) == ("function_call", name, arguments)
    assert output == {"type": "function_call_output", "call_id": call["call_id"], "output": said}
    assert inputs(profile(), {"id": "x_1", **item}) == [call, output]
    assert inputs(profile(), {"id": "x_1", **item, "status": "incomplete"}) == []


def test_a_search_of_a_servers_own_is_a_call_with_what_it_found() -> None:
    search = {"type": "tool_search_call", "execution": "server", "arguments": {"query": "w"}, "id": "t"}
    found = {"type": "tool_search_output", "execution": "server", "id": "o", "tools": [FUNCTION]}
    call, output = inputs(profile(), search, found)
    assert (call["name"], json.loads(call["arguments"])) == ("tool_search", {"query": "w"})
    assert output == {"type": "function_call_output", "call_id": call["call_id"], "output": "Tools found:\n- f"}


def test_what_means_nothing_to_another_server_is_left_out_and_said_to_be() -> None:
    body, left_out = told(profile(), {"type": "mcp_list_tools"})
    assert len(body["input"]) == 1
    assert left_out == [LeftOut("item", "mcp_list_tools")]


@pytest.mark.parametrize("kind", ["compaction", "compaction_trigger"])
def test_what_stands_for_a_whole_conversation_is_never_left_out(kind: str) -> None:
    with pytest.raises(LooplineError, match=kind) as raised:
        told(profile(), {"type": kind, "encrypted_content": "g"})
    assert (raised.value.status, raised.value.param) == (400, "input[0]")


def test_a_computers_screenshot_stays_an_image() -> None:
    shot = {"type": "computer_screenshot", "image_url": "data:x", "detail": "original"}
    call, output = inputs(
        profile(),
        {"type": "computer_call", "call_id": "c", "action": {"type": "click", "x": 1}},
        {"type": "computer_call_output", "call_id": "c", "output": shot},
    )
    assert (call["name"], json.loads(call["arguments"])) == ("computer", {"action": {"type": "click", "x": 1}})
    assert output["output"] == [{"type": "input_image", "image_url": "data:x", "detail": "original"}]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ('{"a": 1}', '{"a": 1}'),
        ("", "{}"),
        ("[1]", '{"arguments":"[1]"}'),
        ('{"a": ', '{"arguments":"{\\"a\\": "}'),
    ],
)
def test_arguments_are_a_json_object_where_items_are_listed(given: str, wanted: str) -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": given, "x_new": 1}
    assert inputs(profile(), call) == [{**call, "arguments": wanted}]
    as_it_is = inputs(profiles()["generic"], call)
    assert as_it_is == [call]


def test_items_that_last_work_through_the_requests_own_members() -> None:
    body, left_out = told(
        profile(),
        {"type": "additional_tools", "role": "developer", "tools": [CUSTOM]},
        {"type": "configuration_update", "reasoning": {"effort": "low"}},
        {"type": "configuration_update", "reasoning": {"effort": "high"}},
        reasoning={"effort": "medium", "summary": "auto"},
    )
    assert len(body["input"]) == 1
    assert [each["name"] for each in body["tools"]] == ["run"]
    assert body["reasoning"] == {"effort": "high", "summary": "auto"}
    assert left_out == []


def test_messages_get_what_a_server_wants_of_them() -> None:
    kind = profile(b'needs_status = true\ndeveloper = "system"\n')
    answer: Event = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a", "x": 1}]}
    whole = {**answer, "id": "m", "status": "completed", "content": [{"type": "output_text", "text": "a"} | {
        "annotations": []}]}  # fmt: skip
    made = inputs(kind, {"type": "message", "role": "developer", "content": "d", "x": 1}, answer, whole, answer)
    assert made[0] == {"type": "message", "role": "system", "content": "d", "x": 1}
    assert made[1]["id"].startswith("msg_")
    assert made[1] == {**answer, "id": made[1]["id"], "status": "completed", "content": [
        {"type": "output_text", "text": "a", "x": 1, "annotations": []}]}  # fmt: skip
    assert made[2] == whole
    assert made[3] == made[1]
    call = {"type": "custom_tool_call", "call_id": "c", "name": "run", "input": ""}
    assert {"id", "status"} <= set(inputs(kind, call)[0])


OUTPUT_TEXT: Event = {"type": "output_text", "text": "a", "annotations": [], "x": 1}


@pytest.mark.parametrize("content", [[], "", None, [{"type": "output_text", "text": ""}]])
def test_an_answer_of_nothing_is_not_told_where_items_are_listed(content: Any) -> None:
    empty = {"type": "message", "role": "assistant", "content": content}
    body, left_out = told(profile(), empty)
    assert (len(body["input"]), left_out) == (1, [])
    assert inputs(profiles()["generic"], empty) == [empty]


def test_an_answer_of_several_parts_is_one_text_where_items_are_listed() -> None:
    parts = [OUTPUT_TEXT, {"type": "refusal", "refusal": "b"}, {"type": "input_text", "text": "c"}, {"type": "x_new"}]
    answer = {"type": "message", "role": "assistant", "phase": "commentary", "content": parts}
    body, left_out = told(profile(), answer)
    (part,) = body["input"][0]["content"]
    assert part == {"type": "output_text", "text": "abc", "annotations": []}
    assert body["input"][0]["phase"] == "commentary"
    assert left_out == [LeftOut("part", "x_new")]
    assert inputs(profiles()["generic"], answer) == [answer]
    single = {**answer, "content": [OUTPUT_TEXT]}
    assert inputs(profile(), single) == [single]


def test_a_turn_of_which_nothing_is_told_leaves_no_hole() -> None:
    made = translator(create(input="go"), profile())
    assert len(sent(made, [b"", b'{"type":"x_new"}', b""])["input"]) == 2


def test_images_get_the_detail_that_a_server_wants() -> None:
    image: Event = {"type": "input_image", "image_url": "data:x", "x": 1}
    parts = [{"type": "input_text", "text": "t"}, image, {**image, "detail": "low"}]
    wanted = [parts[0], {**image, "detail": "auto"}, parts[2]]
    given: list[Event] = [
        {"type": "message", "role": "user", "content": parts},
        {"type": "function_call_output", "call_id": "c", "output": parts},
    ]
    made = inputs(profile(b"needs_detail = true\n"), *given)
    assert [made[0]["content"], made[1]["output"]] == [wanted, wanted]
    made = inputs(
        profile(b"needs_detail = true\n"), {"type": "custom_tool_call_output", "call_id": "c", "output": parts}
    )
    assert made[0]["output"] == wanted
    assert inputs(profile(), *given) == given
    assert inputs(profile(b"needs_detail = true\n", b'title = "t"\n[responses]\n'), given[0])[0]["content"] == wanted


def test_texts_of_an_output_are_input_where_items_are_listed() -> None:
    output = {"type": "function_call_output", "call_id": "c", "output": [{"type": "output_text", "text": "a", "x": 1}]}
    (made,) = inputs(profile(), output)
    assert made["output"] == [{"type": "input_text", "text": "a"}]


# --- fields ---


def test_only_values_of_include_that_a_server_knows_are_sent() -> None:
    given = ["reasoning.encrypted_content", "web_search_call.action.sources", "message.output_text.logprobs", "x_new"]
    body, left_out = told(profiles()["vllm"], include=given)
    assert (body["include"], left_out) == (["message.output_text.logprobs"], [])
    body, left_out = told(profiles()["vllm"], include=given[:1])
    assert ("include" in body, left_out) == (False, [])
    body, left_out = told(profiles()["llamacpp"], include=given)
    assert ("include" in body, left_out) == (False, [LeftOut("field", "message.output_text.logprobs")])
    assert told(profiles()["generic"], include=given)[0]["include"] == given


def test_a_member_that_a_server_refuses_is_left_out_and_said_to_be() -> None:
    body, left_out = told(profiles()["llamacpp"], top_logprobs=2, temperature=1)
    assert ("top_logprobs" in body, body["temperature"]) == (False, 1)
    assert left_out == [LeftOut("field", "top_logprobs")]


def test_a_function_has_no_null_where_tools_are_listed() -> None:
    nulls = {**FUNCTION, "description": None, "strict": None}
    body, _ = told(profile(), tools=[nulls, CUSTOM])
    assert body["tools"][0] == FUNCTION
    assert told(profiles()["generic"], tools=[nulls])[0]["tools"] == [nulls]


@pytest.mark.parametrize("name", ["generic", "vllm", "llamacpp"])
def test_a_member_that_is_null_is_not_sent(name: str) -> None:
    body, _ = told(profiles()[name], tools=None, truncation=None, service_tier=None, tool_choice=None)
    assert not body.keys() & {"tools", "truncation", "service_tier", "tool_choice"}


# --- reasoning ---


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ({"encrypted_content": "gAAAA", "x": 1}, "as it is"),
        ({"content": [{"type": "reasoning_text", "text": "hm"}], "encrypted_content": "gAAAA"}, "as it is"),
        ({"content": [{"type": "reasoning_text", "text": "hm"}]}, "left out"),
        ({"encrypted_content": SEALED + "hm"}, "left out"),
        ({}, "left out"),
    ],
)
def test_a_server_that_reads_only_its_own_reasoning_gets_no_other(more: Event, wanted: str) -> None:
    body, left_out = told(profiles()["openai"], {**REASONING, **more})
    assert body["input"][:-1] == ([{**REASONING, **more}] if wanted == "as it is" else [])
    assert left_out == ([] if wanted == "as it is" else [LeftOut("reasoning", "text")])


def test_reasoning_that_was_sealed_here_is_opened_for_other_servers() -> None:
    sealed = {**REASONING, "encrypted_content": SEALED + "hm"}
    opened = {**REASONING, "content": [{"type": "reasoning_text", "text": "hm"}]}
    for name in ("generic", "vllm", "llamacpp"):
        assert inputs(profiles()[name], sealed) == [opened]
        assert inputs(profiles()[name], {**sealed, "content": opened["content"]}) == [opened]
        assert inputs(profiles()[name], opened) == [opened]


def test_reasoning_that_nobody_here_can_open_passes_where_it_is_taken() -> None:
    foreign = {**REASONING, "encrypted_content": "gAAAA", "x": 1}
    assert inputs(profiles()["generic"], foreign) == [foreign]
    body, left_out = told(profile(b"sealed_reasoning = false\n"), foreign)
    assert (len(body["input"]), left_out) == (1, [LeftOut("reasoning", "encrypted_content")])
    summed = {**foreign, "summary": [{"type": "summary_text", "text": "in short"}]}
    (made,) = inputs(profile(b"sealed_reasoning = false\n"), summed)
    assert made["content"] == [{"type": "reasoning_text", "text": "in short"}]
    assert "encrypted_content" not in made


@pytest.mark.parametrize("name", ["generic", "openai", "xai", "vllm", "llamacpp", "transformers"])
def test_a_seal_of_ours_that_does_not_open_never_leaves(name: str) -> None:
    kind = profiles()[name]
    lost = {**REASONING, "encrypted_content": LOST, "x": 1}
    body, left_out = told(kind, lost)
    assert (len(body["input"]), left_out) == (1, [LeftOut("reasoning", "encrypted_content")])
    takes_text = kind.responses.bare_reasoning
    text = [{"type": "reasoning_text", "text": "hm"}]
    body, left_out = told(kind, {**lost, "content": text})
    assert body["input"][:-1] == ([{**REASONING, "x": 1, "content": text}] if takes_text else [])
    assert left_out == ([] if takes_text else [LeftOut("reasoning", "text")])
    summed = {**lost, "summary": [{"type": "summary_text", "text": "in short"}]}
    body, left_out = told(kind, summed)
    assert LOST not in json.dumps(body)
    assert "in short" in json.dumps(body) or not takes_text
    assert left_out == [LeftOut("reasoning", "encrypted_content")]


# --- ids that some servers want ---


def test_an_id_stays_whatever_the_order_of_the_members() -> None:
    kind = profiles()["vllm"]
    given: list[Event] = [
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
        {"type": "custom_tool_call", "call_id": "c", "name": "run", "input": "ls"},
        {"type": "function_call", "call_id": "d", "name": "f", "arguments": "{}"},
        {"type": "web_search_call", "id": "w", "action": {"type": "search", "query": "q"}, "status": "completed"},
        {"type": "code_interpreter_call", "code": "1", "outputs": [{"type": "image", "url": "data:x"}]},
    ]
    turned = [dict(reversed([*each.items(), ("x_new", 1)])) for each in given]
    chained = json.loads(b"[" + translator(create(), kind).encode(items(*given)) + b"]")
    resent = inputs(kind, *turned)
    ids = [(each.get("id"), each.get("call_id")) for each in chained]
    assert [(each.get("id"), each.get("call_id")) for each in resent] == ids
    assert len({made for made, _ in ids if made}) == 5


# --- fields ---


def test_a_server_that_takes_only_some_fields_gets_no_others() -> None:
    kind = profile(b'fields = ["temperature", "tools"]\ndeveloper = "system"\n')
    body, left_out = told(
        kind, temperature=0.5, top_p=0.9, metadata={"a": "b"}, user="u", include=["x"], truncation="disabled",
        instructions="Be brief.", reasoning={"effort": "low", "summary": "auto"}, x_new=1, tools=[FUNCTION],
        text={"format": {"type": "text"}, "verbosity": "low"}, parallel_tool_calls=True, tool_choice="auto",
    )  # fmt: skip
    assert set(body) == {"model", "input", "stream", "temperature", "tools"}
    assert body["input"][0] == {"type": "message", "role": "system", "content": "Be brief."}
    names = ["top_p", "reasoning.effort", "x_new", "text.verbosity"]
    assert left_out == [LeftOut("field", name) for name in names]


def test_a_template_of_another_server_cannot_be_left_out() -> None:
    with pytest.raises(LooplineError) as raised:
        told(profile(b'fields = ["temperature"]\n'), prompt={"id": "pmpt_1"})
    assert raised.value.param == "prompt"


def test_fields_that_a_server_takes_and_does_not_obey_are_said_to_be() -> None:
    kind = profile(b'ignored = ["text.format", "truncation", "reasoning.effort"]\n')
    schema = {"type": "json_schema", "name": "s", "schema": {}}
    body, left_out = told(kind, text={"format": schema}, truncation="disabled", reasoning={"effort": "low"})
    assert body["text"] == {"format": schema}
    assert left_out == [LeftOut("field", "text.format"), LeftOut("field", "reasoning.effort")]


def test_an_encoding_is_one_servers() -> None:
    assert responses(profile="vllm").encoding != responses(profile="llamacpp").encoding


def test_an_item_that_is_none_is_named() -> None:
    with pytest.raises(LooplineError) as raised:
        told(profile(), {"type": "message", "role": "user"}, {"type": "custom_tool_call", "call_id": "c", "input": 7})
    assert raised.value.param == "input[1]"
