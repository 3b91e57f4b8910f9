from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.models.profile import Chat
from tests.unit.translate.encoded import (
    CHAT_PICTURE,
    PNG,
    called,
    encoder,
    messages,
    returned,
    roles,
    said,
    thought,
)
from tests.unit.translate.turns import Event, items

UNKNOWN = "(status completed; its results are not kept in the conversation)"
SOURCES = [{"type": "url", "url": "http://a"}]
RESULTS = [{"file_id": "f1", "filename": "a.md", "score": 0.5, "text": "é", "attributes": {"k": 1}}]

HOSTED: list[tuple[Event, str, Any, str]] = [
    (
        {"type": "web_search_call", "action": {"type": "search", "query": "q", "queries": None, "sources": SOURCES}},
        "web_search",
        {"type": "search", "query": "q"},
        "sources: " + json.dumps(SOURCES),
    ),
    (
        {"type": "web_search_call", "action": {"type": "open_page", "url": "u"}},
        "web_search",
        {"type": "open_page", "url": "u"},
        UNKNOWN,
    ),
    (
        {"type": "file_search_call", "queries": ["q"], "results": RESULTS},
        "file_search",
        {"queries": ["q"]},
        json.dumps(RESULTS, ensure_ascii=False),
    ),
    ({"type": "file_search_call", "queries": ["q"], "results": None}, "file_search", {"queries": ["q"]}, UNKNOWN),
    (
        {"type": "code_interpreter_call", "code": "1+1", "outputs": [{"type": "logs", "logs": "2"}]},
        "code_interpreter",
        {"code": "1+1"},
        "2",
    ),
    (
        {"type": "code_interpreter_call", "code": "pass", "outputs": None, "container_id": "c"},
        "code_interpreter",
        {"code": "pass"},
        UNKNOWN,
    ),
    (
        {"type": "mcp_call", "server_label": "git", "name": "log", "arguments": '{"n":1}', "output": "abc"},
        "git__log",
        {"n": 1},
        "abc",
    ),
    (
        {"type": "mcp_call", "server_label": "git", "name": "log", "arguments": "", "error": {"code": 7}},
        "git__log",
        {},
        'error: {"code": 7}',
    ),
    (
        {"type": "image_generation_call", "result": None, "revised_prompt": "a cat", "error": {"message": "no"}},
        "image_generation",
        {"prompt": "a cat"},
        'error: {"message": "no"}',
    ),
]


@pytest.mark.parametrize(("item", "name", "arguments", "output"), HOSTED, ids=lambda each: str(each)[:40])
def test_what_another_server_ran_is_a_call_with_its_output(item: Event, name: str, arguments: Any, output: str) -> None:
    asked, answered = messages({"id": "x_1", "status": "completed", **item})
    (call,) = asked["tool_calls"]
    assert (call["id"], call["function"]["name"]) == ("x_1", name)
    assert json.loads(call["function"]["arguments"]) == arguments
    assert answered == {"role": "tool", "tool_call_id": "x_1", "content": output}


def image(**members: Any) -> Event:
    data = PNG.partition(",")[2]
    return {"type": "image_generation_call", "id": "ig", "status": "completed", "result": data, **members}


@pytest.mark.parametrize(
    ("output_format", "media_type"), [(None, "png"), ("jpeg", "jpeg"), ("svg", "svg+xml"), ("odd", "png")]
)
def test_an_image_that_was_made_stays_one(output_format: str | None, media_type: str) -> None:
    made = messages(image(output_format=output_format), said("there"))
    assert roles(made) == ["assistant", "tool", "user", "assistant"]
    assert made[1]["content"] == "The image of this output: see the next message."
    assert made[2]["content"][0]["image_url"]["url"] == PNG.replace("image/png", f"image/{media_type}")


def test_images_of_code_stay_images() -> None:
    outputs = [{"type": "logs", "logs": "drawn"}, {"type": "image", "url": PNG}]
    item = {"type": "code_interpreter_call", "id": "ci", "code": "plot()", "outputs": outputs}
    assert [each["content"] for each in messages(item)] == [None, "drawn", [CHAT_PICTURE]]
    kept = messages(item, profile=Chat(tool_images="tool"))
    assert kept[1]["content"] == [{"type": "text", "text": "drawn"}, CHAT_PICTURE]


def search(item_id: str | None = "ws") -> Event:
    return {"type": "web_search_call", "id": item_id, "status": "completed", "action": {"type": "search", "query": "q"}}


def test_what_was_said_after_an_answer_comes_after_it() -> None:
    made = messages(thought("look"), search(), thought("found"), said("so"), search("ws_2"), said("and"))
    assert roles(made) == ["assistant", "tool", "assistant", "tool", "assistant"]
    assert [each.get("reasoning_content") for each in made] == ["look", None, "found", None, None]
    assert [each.get("content") for each in made[::2]] == [None, "so", "and"]


def test_it_does_not_come_between_calls_and_outputs_of_the_client() -> None:
    made = messages(called("a"), search(), called("b"), returned("a"), returned("b"))
    assert roles(made) == ["assistant", "tool", "tool", "tool"]
    assert [each["id"] for each in made[0]["tool_calls"]] == ["a", "ws", "b"]
    assert {each["tool_call_id"] for each in made[1:]} == {"a", "ws", "b"}


@pytest.mark.parametrize("item_id", [None, "", "ws", "x" * 65])
def test_every_call_has_an_id_of_its_own_that_every_server_takes(item_id: str | None) -> None:
    made = messages(search(item_id), search(item_id), search("ws"))
    asked = [each["tool_calls"][0]["id"] for each in made[::2]]
    assert asked == [each["tool_call_id"] for each in made[1::2]]
    assert len(set(asked)) == 3
    assert all(0 < len(each) <= 64 for each in asked)
    # The same each time: an engine's cache of the prefix depends on it.
    assert messages(search(item_id), search(item_id), search("ws")) == made


@pytest.mark.parametrize("item", [each[0] for each in HOSTED], ids=lambda each: str(each["type"]))
def test_what_was_cut_off_is_dropped(item: Event) -> None:
    assert encoder().encode(items({**item, "status": "incomplete"})) == b""
