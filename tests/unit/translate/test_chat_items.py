from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.errors import Kind, LooplineError
from proxy.translate import chat_items
from proxy.translate.chat_items import encode_items
from tests.unit.strategies import dumped, json_values
from tests.unit.translate.turns import Event, items

PNG = "data:image/png;base64,iVBORw0KGgo="


def messages(*members: Event) -> list[Event]:
    made: list[Event] = json.loads(b"[" + encode_items(items(*members)) + b"]")
    return made


def refused(*members: Event) -> LooplineError:
    with pytest.raises(LooplineError) as raised:
        encode_items(items(*members))
    assert raised.value.kind is Kind.INVALID_REQUEST
    return raised.value


def said(text: str, role: str = "assistant") -> Event:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def thought(text: str) -> Event:
    return {"type": "reasoning", "id": "rs", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}


def called(call_id: str, name: str = "f", arguments: str = "{}", **members: Any) -> Event:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, **members}


def returned(call_id: str, output: Any = "ok") -> Event:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def tool_call(call_id: str, name: str = "f", arguments: str = "{}") -> Event:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize(
    ("role", "wanted"), [("user", "user"), ("system", "system"), ("developer", "system"), ("assistant", "assistant")]
)
@pytest.mark.parametrize("content", ["a", [{"type": "input_text", "text": "a"}]])
def test_a_message_is_plain_text_in_its_role(role: str, wanted: str, content: Any) -> None:
    assert messages({"role": role, "content": content}) == [{"role": wanted, "content": "a"}]


@pytest.mark.parametrize("content", [None, "", []])
def test_an_empty_message_is_empty_text(content: Any) -> None:
    assert messages({"role": "user", "content": content}) == [{"role": "user", "content": ""}]


def test_an_image_stays_an_image() -> None:
    parts = [{"type": "input_text", "text": "what?"}, {"type": "input_image", "image_url": PNG, "detail": "low"}]
    assert messages({"role": "user", "content": parts})[0]["content"] == [
        {"type": "text", "text": "what?"},
        {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
    ]
    odd = {"type": "input_image", "image_url": PNG, "detail": "original"}
    assert messages({"role": "user", "content": [odd]})[0]["content"][0]["image_url"] == {"url": PNG}


def test_files_and_audio_go_along_with_their_data() -> None:
    parts = [
        {"type": "input_file", "file_data": "data:x", "filename": "a.pdf"},
        {"type": "input_audio", "input_audio": {"data": "x", "format": "wav"}},
    ]
    assert messages({"role": "user", "content": parts})[0]["content"] == [
        {"type": "file", "file": {"file_data": "data:x", "filename": "a.pdf"}},
        {"type": "input_audio", "input_audio": {"data": "x", "format": "wav"}},
    ]


def test_an_answer_is_one_message() -> None:
    assert messages(thought("hm"), said("hi"), called("a"), called("b", "g", '{"x":1}')) == [
        {
            "role": "assistant",
            "content": "hi",
            "reasoning_content": "hm",
            "tool_calls": [tool_call("a"), tool_call("b", "g", '{"x":1}')],
        }
    ]


def test_calls_alone_have_no_content() -> None:
    assert messages(called("a")) == [{"role": "assistant", "content": None, "tool_calls": [tool_call("a")]}]


@pytest.mark.parametrize(
    "answer",
    [
        [called("a"), said("hi"), called("b")],
        [thought("hm"), called("a"), thought("m"), called("b"), said("hi")],
        [said("h"), called("a"), said("i"), called("b")],
    ],
)
def test_nothing_stands_between_calls_and_their_outputs(answer: list[Event]) -> None:
    """Engines refuse a history in which another message follows a call."""
    made = messages(*answer, returned("a"), returned("b"))
    assert [each["role"] for each in made] == ["assistant", "tool", "tool"]
    assert made[0]["tool_calls"] == [tool_call("a"), tool_call("b")]
    assert made[0]["content"] == "hi"


def test_another_answer_is_another_message() -> None:
    made = messages(said("one"), said("two"), thought("hm"), said("three"))
    assert [(each["content"], each.get("reasoning_content")) for each in made] == [
        ("one", None),
        ("two", None),
        ("three", "hm"),
    ]
    rounds = messages(called("a"), returned("a"), called("b"), returned("b"), said("end"))
    assert [each["role"] for each in rounds] == ["assistant", "tool", "assistant", "tool", "assistant"]


def test_what_an_answer_says_in_pieces_is_joined_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adding each piece to the text so far would copy all of it, each time."""
    added: list[int] = []

    class Text(str):
        __slots__ = ()

        def __radd__(self, before: str) -> str:
            added.append(len(before))
            return Text("".join((before, self)))

    flat = chat_items._flat
    monkeypatch.setattr(chat_items, "_flat", lambda *given_: Text(flat(*given_)))
    (made, _) = messages(called("a"), *[said("x" * 100)] * 50, returned("a"))
    assert made["content"] == "x" * 5000
    assert sum(added) <= 5000


def test_a_refusal_in_the_history_is_text() -> None:
    refusal = {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}
    assert messages(refusal) == [{"role": "assistant", "content": "no"}]


def test_encrypted_reasoning_and_summaries() -> None:
    assert messages({"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "gAAA"}) == []
    summary = {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "so"}]}
    assert messages(summary, said("x"))[0]["reasoning_content"] == "so"


def test_a_call_that_was_cut_off_is_dropped() -> None:
    assert messages(said("hi"), called("a", arguments='{"x', status="incomplete")) == [
        {"role": "assistant", "content": "hi"}
    ]
    assert encode_items(items(called("a", status="incomplete"))) == b""


@pytest.mark.parametrize(("given_arguments", "sent"), [("", "{}"), ("{}", "{}"), ('{"a": 1}', '{"a": 1}')])
def test_arguments_are_json_that_engines_can_parse(given_arguments: str, sent: str) -> None:
    assert messages(called("a", arguments=given_arguments))[0]["tool_calls"] == [tool_call("a", arguments=sent)]


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ("ok", "ok"),
        ("", ""),
        ([], ""),
        ([{"type": "input_text", "text": "o"}, {"type": "output_text", "text": "k"}], "ok"),
    ],
)
def test_an_output_is_text(output: Any, text: str) -> None:
    assert messages(called("a"), returned("a", output))[1] == {"role": "tool", "tool_call_id": "a", "content": text}


def test_images_in_outputs_follow_all_of_them_in_a_users_message() -> None:
    picture = {"type": "input_image", "image_url": PNG}
    made = messages(
        called("a"), called("b"),
        returned("a", [{"type": "input_text", "text": "see"}, picture]), returned("b", [picture]),
        {"role": "user", "content": "go on"},
    )  # fmt: skip
    assert [each["role"] for each in made] == ["assistant", "tool", "tool", "user", "user"]
    assert (made[1]["content"], made[2]["content"]) == ("see", "")
    assert made[3]["content"] == [{"type": "image_url", "image_url": {"url": PNG}}] * 2
    assert PNG not in json.dumps(made[:3])


def test_images_come_before_the_next_answer_and_at_the_end() -> None:
    seen = returned("a", [{"type": "input_image", "image_url": PNG}])
    assert [each["role"] for each in messages(called("a"), seen)] == ["assistant", "tool", "user"]
    assert [each["role"] for each in messages(called("a"), seen, said("x"))] == [
        "assistant",
        "tool",
        "user",
        "assistant",
    ]


@pytest.mark.parametrize("kind", ["custom_tool_call", "item_reference", "compaction", "web_search_call", "", "é"])
def test_an_item_that_chat_cannot_say_is_named_with_its_place(kind: str) -> None:
    error = refused({"role": "user", "content": "a"}, {"type": kind, "id": "x"})
    assert error.param == "input[1]"
    assert f"'input[1]' is an item of type '{kind}'" in error.message


@pytest.mark.parametrize(
    "broken",
    [
        {"type": "message", "content": "x"},
        {"role": "tool", "content": "x"},
        {"role": "user", "content": 7},
        {"role": "user", "content": [{"type": "input_image", "file_id": "file_1"}]},
        {"role": "user", "content": [{"type": "input_text"}]},
        {"role": "user", "content": [{"type": "hologram"}]},
        {"type": "function_call", "call_id": "a"},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": {}},
        {"type": "function_call_output", "output": "x"},
        {"type": "function_call_output", "call_id": "a", "output": 7},
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


WORDS = ("type", "role", "content", "text", "message", "user", "assistant", "call_id", "name", "arguments", "output")
KINDS = ("function_call", "function_call_output", "reasoning", "input_text", "input_image", "image_url", "summary")


@given(st.lists(st.dictionaries(st.sampled_from(WORDS), json_values(*WORDS, *KINDS), max_size=6), max_size=3))
@settings(deadline=None, max_examples=80)
def test_any_items_are_messages_or_a_named_error(members: list[Event]) -> None:
    try:
        made = encode_items(items(*members))
    except LooplineError as error:
        named = (error.param or "").startswith("input[")
    else:
        named = all(each["role"] in ("system", "user", "assistant", "tool") for each in json.loads(b"[" + made + b"]"))
    assert named, dumped(members)
