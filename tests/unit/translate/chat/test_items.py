from __future__ import annotations

import json
import typing
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses.response_input_item import ResponseInputItem

from proxy.errors import LooplineError
from proxy.models.profile import Chat
from proxy.translate.chat import items as chat_items
from proxy.wire.items import parse_item
from tests.unit.strategies import dumped, json_values
from tests.unit.translate.encoded import (
    CHAT_PICTURE,
    PICTURE,
    PNG,
    called,
    encoder,
    messages,
    refused,
    returned,
    said,
    thought,
    tool_call,
)
from tests.unit.translate.turns import Event, items


@pytest.mark.parametrize(
    ("role", "wanted"), [("user", "user"), ("system", "system"), ("developer", "system"), ("assistant", "assistant")]
)
@pytest.mark.parametrize("content", ["a", [{"type": "input_text", "text": "a"}]])
def test_a_message_is_plain_text_in_its_role(role: str, wanted: str, content: Any) -> None:
    assert messages({"role": role, "content": content}) == [{"role": wanted, "content": "a"}]


def test_a_developer_is_one_where_the_server_knows_it() -> None:
    made = messages(said("a", "developer"), said("b", "user"), said("c", "system"), profile=Chat(developer="developer"))
    assert [each["role"] for each in made] == ["developer", "user", "system"]


@pytest.mark.parametrize("content", [None, "", []])
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_an_empty_message_is_empty_text(role: str, content: Any) -> None:
    assert messages({"role": role, "content": content}) == [{"role": role, "content": ""}]


@pytest.mark.parametrize("content", [None, "", [], [{"type": "input_text", "text": ""}]])
def test_an_empty_system_message_does_not_take_the_place_of_a_templates_own(content: Any) -> None:
    assert messages({"role": "developer", "content": content}, said("a", "user")) == [{"role": "user", "content": "a"}]


def test_several_texts_of_a_user_stay_several() -> None:
    parts = [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]
    assert messages({"role": "user", "content": parts})[0]["content"] == [
        {"type": "text", "text": "a"},
        {"type": "text", "text": "b"},
    ]


def test_a_system_message_is_one_text_and_its_images_are_the_users() -> None:
    parts = [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}, PICTURE]
    assert messages({"role": "developer", "content": parts}) == [
        {"role": "system", "content": "a\n\nb"},
        {"role": "user", "content": [CHAT_PICTURE]},
    ]


def test_an_image_stays_an_image() -> None:
    parts = [{"type": "input_text", "text": "what?"}, {**PICTURE, "detail": "low"}]
    assert messages({"role": "user", "content": parts})[0]["content"] == [
        {"type": "text", "text": "what?"},
        {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
    ]
    odd = {**PICTURE, "detail": "odd"}
    assert messages({"role": "user", "content": [odd]})[0]["content"] == [CHAT_PICTURE]
    (part,) = messages({"role": "user", "content": [{**PICTURE, "detail": "original"}]})[0]["content"]
    assert part["image_url"] == {"url": PNG, "detail": "high"}


def test_files_and_audio_go_along_with_their_data() -> None:
    parts = [
        {"type": "input_file", "file_data": "data:x", "filename": "a.pdf"},
        {"type": "input_audio", "input_audio": {"data": "x", "format": "wav"}},
    ]
    assert messages({"role": "user", "content": parts})[0]["content"] == [
        {"type": "file", "file": {"file_data": "data:x", "filename": "a.pdf"}},
        {"type": "input_audio", "input_audio": {"data": "x", "format": "wav"}},
    ]


@pytest.mark.parametrize(
    ("part", "given_by", "remedy"),
    [
        ({"type": "input_image", "file_id": "file_1"}, "'file_id' (file_1)", "send its data as 'image_url'"),
        ({"type": "input_file", "file_id": "file_1"}, "'file_id' (file_1)", "send its data as 'file_data'"),
        ({"type": "input_file", "file_url": "http://a/b"}, "'file_url' (http://a/b)", "send its data as 'file_data'"),
    ],
)
@pytest.mark.parametrize("where", ["message", "output"])
def test_what_would_have_to_be_fetched_is_named_with_the_remedy(
    part: Event, given_by: str, remedy: str, where: str
) -> None:
    given_item = {"role": "user", "content": [part]} if where == "message" else returned("a", [part])
    error = refused(said("a", "user"), given_item)
    assert error.param == "input[1]"
    assert given_by in error.message
    assert remedy in error.message


def test_a_refusal_and_annotated_text_in_the_history_are_text() -> None:
    refusal = {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}
    assert messages(refusal) == [{"role": "assistant", "content": "no"}]
    cited = {
        "type": "output_text",
        "text": "so",
        "annotations": [{"type": "url_citation", "url": "u"}],
        "logprobs": [1],
    }
    spoken = {"role": "assistant", "id": "msg", "phase": "commentary", "content": [cited, {**cited, "text": "!"}]}
    assert messages(spoken) == [{"role": "assistant", "content": "so!"}]


def test_an_image_that_an_assistant_said_is_told_to_be_left_out() -> None:
    made = encoder()
    assert json.loads(made.encode(items({"role": "assistant", "content": [PICTURE]}))) == {
        "role": "assistant",
        "content": "",
    }
    assert made.left_out == [("part", "input_image")]


SEALED = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "gAAA"}
SUMMARY = [{"type": "summary_text", "text": "one"}, {"type": "summary_text", "text": "two"}]


@pytest.mark.parametrize(
    ("reasoning", "text"),
    [
        (thought("raw"), "raw"),
        ({**thought("raw"), "summary": SUMMARY, "encrypted_content": "ours"}, "raw"),
        ({**SEALED, "encrypted_content": "ours"}, "opened"),
        ({**SEALED, "encrypted_content": "ours", "summary": SUMMARY, "content": []}, "opened"),
        ({**SEALED, "summary": SUMMARY}, "one\n\ntwo"),
        ({"type": "reasoning", "summary": SUMMARY, "content": None}, "one\n\ntwo"),
    ],
)
def test_reasoning_goes_to_the_message_and_the_calls_it_belongs_to(reasoning: Event, text: str) -> None:
    made = encoder(Chat(reasoning="reasoning"), opened={"ours": "opened"}.get)
    encoded = made.encode(items(reasoning, said("hi"), called("a"), called("b")))
    assert json.loads(encoded) == {
        "role": "assistant",
        "content": "hi",
        "reasoning": text,
        "tool_calls": [tool_call("a"), tool_call("b")],
    }
    assert made.left_out == []


@pytest.mark.parametrize(
    ("reasoning", "member", "left_out"),
    [
        (SEALED, "reasoning_content", [("reasoning", "encrypted_content")]),
        (SEALED, "", [("reasoning", "encrypted_content")]),
        (thought("raw"), "", [("reasoning", "text")]),
        ({"type": "reasoning", "summary": []}, "reasoning_content", []),
    ],
)
def test_reasoning_that_cannot_be_told_is_said(reasoning: Event, member: Any, left_out: Any) -> None:
    made = encoder(Chat(reasoning=member))
    assert made.encode(items(reasoning)) == b""
    assert made.left_out == left_out


def test_thoughts_one_after_another_are_of_one_answer() -> None:
    (made,) = messages(thought("a"), thought("b"), said("c"))
    assert made["reasoning_content"] == "a\n\nb"


LEFT_OUT = ("mcp_list_tools", "mcp_approval_request", "mcp_approval_response")
SILENT = ("additional_tools", "configuration_update")
REFUSED = {
    "compaction": "send the items",
    "compaction_trigger": "leave the item out",
    "item_reference": "send the item itself",
    "hologram": "leave it out",
}


@pytest.mark.parametrize("kind", [*LEFT_OUT, *SILENT])
def test_what_no_message_can_say_is_told_unless_it_works_elsewhere(kind: str) -> None:
    made = encoder()
    assert made.encode(items({"type": kind, "id": "x", "tools": [], "role": "developer"})) == b""
    assert made.left_out == ([("item", kind)] if kind in LEFT_OUT else [])


@pytest.mark.parametrize("kind", [*REFUSED, "", "é"])
def test_an_item_that_chat_cannot_say_is_named_with_its_place_and_the_remedy(kind: str) -> None:
    error = refused({"role": "user", "content": "a"}, {"type": kind, "id": "x"})
    assert error.param == "input[1]"
    assert f"'input[1]' is an item of type '{kind}'" in error.message
    assert REFUSED.get(kind, "leave it out") in error.message


def test_every_item_that_the_sdk_knows_has_its_fate() -> None:
    """A new member of the union fails here: decide what becomes of it, and say so in `chat_items`."""
    union = typing.get_args(typing.get_args(ResponseInputItem)[0])
    assert len(union) > 30
    known = {kind for member in union for kind in _literals(member.model_fields["type"].annotation)}
    assert known == set(chat_items.WRITERS) | REFUSED.keys() - {"hologram"}


def _literals(annotation: Any) -> set[str]:
    """`Literal["a"]` or `Optional[Literal["a"]]` → a."""
    if typing.get_origin(annotation) is typing.Literal:
        return set(typing.get_args(annotation))
    return {kind for inner in typing.get_args(annotation) for kind in _literals(inner)}


@pytest.mark.parametrize(
    "broken",
    [
        {"type": "message", "content": "x"},
        {"role": "tool", "content": "x"},
        {"role": "user", "content": 7},
        {"role": "user", "content": [{"type": "input_image"}]},
        {"role": "user", "content": [{"type": "input_text"}]},
        {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "x"}}]},
        {"role": "user", "content": [{"type": "hologram"}]},
        {"role": "assistant", "content": [{"type": "hologram"}]},
        {"role": "system", "content": [{"type": "hologram"}]},
        {"type": "function_call", "call_id": "a"},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": {}},
        {"type": "function_call_output", "output": "x"},
        {"type": "function_call_output", "call_id": "a", "output": 7},
        {"type": "custom_tool_call", "call_id": "a"},
        {"type": "shell_call", "call_id": "a", "action": {}},
        {"type": "local_shell_call", "call_id": "a", "action": {"command": "ls"}},
        {"type": "apply_patch_call", "call_id": "a", "operation": {"type": "delete_file"}},
        {"type": "computer_call_output", "call_id": "a", "output": {"type": "computer_screenshot", "file_id": "f"}},
        {"type": "tool_search_output", "call_id": "a", "tools": [7]},
        {"type": "mcp_call", "id": "a"},
        {"type": "reasoning", "content": "x"},
    ],
)
def test_a_broken_item_is_named_with_its_place(broken: Event) -> None:
    error = refused({"role": "user", "content": "a"}, broken)
    assert error.param == "input[1]"
    assert "input[1]" in error.message


def test_what_we_do_not_know_of_an_item_does_not_reach_a_strict_server() -> None:
    odd = {"role": "user", "id": "msg_1", "status": "completed", "internal_chat_message_metadata_passthrough": 1}
    assert messages({**odd, "content": "a"}) == [{"role": "user", "content": "a"}]


KINDS = sorted({*chat_items.WRITERS, *REFUSED})
WORDS = (
    "role", "content", "text", "user", "assistant", "system", "call_id", "id", "name", "arguments", "output", "outputs",
    "action", "commands", "operation", "input", "input_text", "input_image", "image_url", "summary", "tools", "result",
    "results", "queries", "code", "error", "status", "incomplete", "execution", "server", "namespace",
)  # fmt: skip


@given(
    st.lists(
        st.builds(
            lambda kind, members: {**members, "type": kind},
            st.sampled_from(KINDS),
            st.dictionaries(st.sampled_from(WORDS), json_values(*WORDS), max_size=6),
        ),
        max_size=4,
    ),
    st.sampled_from([Chat(), Chat(reasoning="", developer="developer", late_system="user", tool_images="tool")]),
)
@settings(deadline=None, max_examples=150)
def test_any_items_are_messages_or_a_named_error(members: list[Event], profile: Chat) -> None:
    try:
        made = encoder(profile).encode(items(*members))
    except LooplineError as error:
        named = (error.param or "").startswith("input[")
    else:
        known = ("system", "developer", "user", "assistant", "tool")
        named = all(each["role"] in known for each in json.loads(b"[" + made + b"]"))
    assert named, dumped(members)


@pytest.mark.parametrize(
    "kind", ["function_call_output", "shell_call_output", "apply_patch_call_output", "local_shell_call_output"]
)
def test_an_output_that_says_not_what_it_answers_is_told_so(kind: str) -> None:
    error = refused({"type": kind, "name": "f", "output": "x"})
    assert error.message.startswith("'input[0]' lacks 'call_id'")


@pytest.mark.parametrize("role", ["user", "assistant"])
@pytest.mark.parametrize(
    "text",
    ["hello", "", 'a "quoted"\n\tline \\ and more', "é😀", "\u2028 / </script>", "\x00\x1f\x7f"],
)
def test_a_text_alone_is_written_as_among_others(role: str, text: str) -> None:
    kind = "input_text" if role == "user" else "output_text"
    for content in (text, [{"type": kind, "text": text}]):
        for spelled in (json.dumps(content), json.dumps(content, ensure_ascii=False), msgspec.json.encode(content)):
            raw = spelled.encode() if isinstance(spelled, str) else spelled
            item = parse_item(b'{"role":"' + role.encode() + b'","content":' + raw + b"}")
            written = msgspec.json.encode({"role": role, "content": text})
            assert encoder().encode([item]) == written
            other = parse_item(b'{"role":"user","content":"other"}')
            assert encoder().encode([other, item]).endswith(b"," + written)
