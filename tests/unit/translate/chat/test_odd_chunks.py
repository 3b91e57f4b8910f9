"""Chunks that number, name and type things in ways of their own: what is plain is taken."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.schema import check_turn
from tests.unit.translate.turns import DONE, Event, calls, chat, chunk, create, output, play, sse, text

TOOLS = [{"type": "function", "name": name} for name in ("a", "b", "ab_long")]


def told(*chunks: Event) -> list[Event]:
    made = create(tools=TOOLS)
    played = play(chat(made), [sse(*chunks, DONE)], made)
    check_turn(played)
    return played


def piece(arguments: Any = None, name: str | None = None, **call: Any) -> Event:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return chunk(tool_calls=[{**call, "function": function}])


END = chunk("tool_calls")


@pytest.mark.parametrize("numbered", [{}, {"index": 0}])
def test_pieces_are_told_apart_by_their_ids(numbered: Event) -> None:
    begun = [piece("", "a", id="A", **numbered), piece("", "b", id="B", **numbered)]
    grown = [piece('{"x":1}', id="A", **numbered), piece('{"y":2}', id="B", **numbered)]
    assert calls(told(*begun, *grown, END)) == [("A", "a", '{"x":1}'), ("B", "b", '{"y":2}')]


def test_calls_of_one_id_are_told_apart_by_their_numbers() -> None:
    pieces = [piece("", "a", id="A", index=0), piece("", "b", id="A", index=1)]
    more = [piece('{"x":1}', id="A", index=0), piece('{"y":2}', id="A", index=1)]
    assert [call[1:] for call in calls(told(*pieces, *more, END))] == [("a", '{"x":1}'), ("b", '{"y":2}')]


def test_another_name_begins_another_call_although_no_arguments_come_with_it() -> None:
    pieces = [piece("{}", "a", index=0), piece("", "b", index=0), piece('{"x":1}', index=0)]
    assert [call[1:] for call in calls(told(*pieces, END))] == [("a", "{}"), ("b", '{"x":1}')]


def test_more_of_a_name_is_the_same_call() -> None:
    pieces = [piece("", "ab", index=0), piece("", "_long", index=0), piece("{}", index=0)]
    assert [call[1:] for call in calls(told(*pieces, END))] == [("ab_long", "{}")]


@pytest.mark.parametrize("first", ["{}", {}])
def test_an_empty_object_before_the_arguments_is_none_of_them(first: Any) -> None:
    pieces = [piece(first, "a", id="A", index=0), piece('{"x":1}', index=0)]
    assert calls(told(*pieces, END)) == [("A", "a", '{"x":1}')]


@pytest.mark.parametrize(
    ("odd", "call"),
    [
        ({"index": "0", "id": "A", "function": {"name": "a", "arguments": "{}"}}, ("A", "a", "{}")),
        ({"index": None, "id": 5, "function": {"name": "a", "arguments": "{}"}}, ("5", "a", "{}")),
        ({"index": 0, "id": "A", "function": {"name": "a", "arguments": False}}, ("A", "a", "{}")),
        ({"index": 0, "id": "A", "function": {"name": "a", "arguments": [1]}}, ("A", "a", "[1]")),
    ],
)
def test_odd_members_of_a_call_are_read(odd: Event, call: tuple[str, str, str]) -> None:
    assert calls(told(chunk(tool_calls=[None, odd]), END)) == [call]


@pytest.mark.parametrize(
    "odd",
    [
        {"id": 7, "choices": [{"index": 0, "delta": {"content": "x"}}]},
        {"choices": [{"index": None, "delta": {"content": "x"}}]},
        {"choices": [{"index": "0", "delta": {"content": "x"}}]},
        {"choices": [None, {"delta": {"content": "x", "tool_calls": [None]}}]},
        {"choices": [{"delta": {"content": "x", "refusal": False}, "finish_reason": False}]},
        {"choices": [{"delta": {"content": {"type": "text", "text": "x"}, "reasoning": False}}]},
        {"choices": [{"delta": {"content": ["x", None, {"type": None, "text": 5}], "tool_calls": False}}]},
        {"choices": {"delta": "x"}},
    ],
)
def test_an_odd_member_does_not_cost_the_answer(odd: Event) -> None:
    played = told(odd, chunk("stop"))
    assert played[-1]["type"] == "response.completed"
    assert text(played).startswith("x")


@pytest.mark.parametrize(
    "odd", [[{"type": "text", "text": "hm"}], {"text": "hm"}, ["h", {"content": "m"}], {"summary": [{"text": "hm"}]}]
)
@pytest.mark.parametrize("member", ["reasoning", "reasoning_content"])
def test_reasoning_in_parts_is_read(odd: Any, member: str) -> None:
    (item,) = output(told(chunk("stop", **{member: odd})))
    assert item["content"][0]["text"] == "hm"


@pytest.mark.parametrize("later", ["stop", "tool_calls"])
def test_a_later_reason_does_not_undo_a_cut(later: str) -> None:
    played = told(chunk("length", content="x"), chunk(later))
    assert played[-1]["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
