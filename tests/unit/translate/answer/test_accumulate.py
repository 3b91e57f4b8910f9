from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from functools import partial
from types import FrameType
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.errors import Kind, LooplineError
from proxy.translate.answer import accumulate
from proxy.translate.answer.accumulate import COMPLETED, INCOMPLETE, MAX_CALLS, Answer
from proxy.translate.answer.parts import Marks
from proxy.wire import server_events as events
from tests.conformance.schema import check_turn
from tests.unit.strategies import TEXT
from tests.unit.translate.turns import RESPONSE, SEED, create


class Say(NamedTuple):
    """One piece of an answer; `key` and the rest are a call's."""

    kind: str
    delta: str
    key: int = 0
    call_id: str = ""
    name: str = ""


def told(says: list[Say], status: bytes = COMPLETED, batch: int = 1) -> list[dict[str, Any]]:
    """The turn that an answer makes, checked against OpenAI's types and the lifecycle of items."""
    answer = Answer(SEED, 2)
    shot = events.Snapshot(RESPONSE, create(), "m", b"[]", 1)
    started = b'"response":' + shot.render(b"in_progress")
    out = [events.event(b"response.created", 0, started), events.event(b"response.in_progress", 1, started)]
    for number, say in enumerate(says):
        if say.kind == "call":
            answer.call(say.key, say.call_id, say.name, say.delta)
        else:
            {"text": answer.text, "refusal": answer.refusal, "reasoning": answer.reasoning}[say.kind](say.delta)
        if number % batch == 0:
            out += answer.take()
    answer.close(status)
    out += answer.take()
    incomplete = b'{"reason":"max_output_tokens"}' if status == INCOMPLETE else b"null"
    ended = shot.render(
        status, output=answer.output(), incomplete=incomplete, completed_at=2 if status == COMPLETED else None
    )
    out.append(events.event(b"response." + status, answer.sequence, b'"response":' + ended))
    turn = [json.loads(event) for event in out]
    check_turn(turn)
    return turn


def kinds(turn: list[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in turn[2:-1]]


def done(turn: list[dict[str, Any]]) -> list[dict[str, Any]]:
    output: list[dict[str, Any]] = turn[-1]["response"]["output"]
    return output


def said(turn: list[dict[str, Any]], kind: str) -> str:
    parts = [part for item in done(turn) for part in item.get("content", ())]
    return "".join(part["text"] for part in parts if part["type"] == kind)


def test_text_is_one_message_in_the_documented_order() -> None:
    turn = told([Say("text", "Hel"), Say("text", "lo")])
    assert kinds(turn) == [
        "output_item.added", "content_part.added", "output_text.delta", "output_text.delta", "output_text.done",
        "content_part.done", "output_item.done",
    ]  # fmt: skip
    assert said(turn, "output_text") == "Hello"
    assert [event["delta"] for event in turn if event["type"].endswith("delta")] == ["Hel", "lo"]


def test_reasoning_then_text_then_a_call_are_three_items() -> None:
    turn = told([Say("reasoning", "hm"), Say("text", "hi"), Say("call", '{"a":1}', 0, "c1", "f")])
    assert [item["type"] for item in done(turn)] == ["reasoning", "message", "function_call"]
    assert done(turn)[2] == {
        "type": "function_call", "id": done(turn)[2]["id"], "call_id": "c1", "name": "f", "arguments": '{"a":1}',
        "status": "completed",
    }  # fmt: skip
    assert kinds(turn)[-4:] == [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
    ]


def test_an_answer_without_anything_is_an_empty_message() -> None:
    (item,) = done(told([]))
    assert (item["type"], item["content"][0]["text"]) == ("message", "")


@pytest.mark.parametrize(
    "says", [[], [Say("text", "cut")], [Say("call", '{"a', 0, "c", "f")], [Say("reasoning", "so")]]
)
def test_what_a_limit_cut_is_marked(says: list[Say]) -> None:
    turn = told(says, INCOMPLETE)
    assert [item["status"] for item in done(turn)] == ["incomplete"]


def test_only_the_last_item_is_cut() -> None:
    turn = told([Say("text", "a"), Say("call", "{}", 0, "c1", "f"), Say("call", '{"x', 1, "c2", "g")], INCOMPLETE)
    assert [item["status"] for item in done(turn)] == ["completed", "completed", "incomplete"]


def test_a_call_cut_off_is_kept_as_one_that_nobody_can_answer() -> None:
    answer = Answer(SEED, 0)
    answer.call(0, "c1", "f", '{"x')
    answer.close(INCOMPLETE)
    assert [(item.kind, item.call_id, item.unfinished) for item in answer.items] == [("function_call", "c1", True)]


def test_interleaved_calls_never_mix_their_arguments() -> None:
    turn = told([
        Say("call", '{"a', 0, "c1", "f"), Say("call", '{"b', 1, "c2", "g"),
        Say("call", '":1}', 0), Say("call", '":2}', 1),
    ])  # fmt: skip
    assert [(item["call_id"], item["name"], item["arguments"]) for item in done(turn)] == [
        ("c1", "f", '{"a":1}'),
        ("c2", "g", '{"b":2}'),
    ]


def test_a_name_may_come_after_the_arguments() -> None:
    turn = told([Say("call", '{"a"', 0, "c1"), Say("call", ":1}", 0), Say("call", "", 0, "", "f")])
    assert [(item["name"], item["arguments"]) for item in done(turn)] == [("f", '{"a":1}')]


def test_a_call_that_is_never_named_is_the_upstreams_fault() -> None:
    answer = Answer(SEED, 0)
    answer.call(0, "c1", "", "{}")
    with pytest.raises(LooplineError) as raised:
        answer.close()
    assert raised.value.kind is Kind.UPSTREAM_GARBLED


def test_a_function_without_parameters_gets_what_clients_can_parse() -> None:
    turn = told([Say("call", "", 0, "c1", "f")])
    assert [item["arguments"] for item in done(turn)] == ["{}"]
    assert [event["delta"] for event in turn if event["type"].endswith("arguments.delta")] == ["{}"]
    cut = told([Say("call", "", 0, "c1", "f")], INCOMPLETE)
    assert [item["arguments"] for item in done(cut)] == [""]


@pytest.mark.parametrize("given_ids", [["", ""], ["same", "same"], ["x" * 65, "y" * 200]])
def test_call_ids_that_clients_cannot_use_are_replaced(given_ids: list[str]) -> None:
    turn = told([Say("call", "{}", key, given, "f") for key, given in enumerate(given_ids)])
    made = [item["call_id"] for item in done(turn)]
    assert len(set(made)) == 2
    assert all(0 < len(each) <= 64 for each in made)


def test_a_call_id_is_the_upstreams_own_where_it_can_be() -> None:
    assert done(told([Say("call", "{}", 0, "call_" + "x" * 59, "f")]))[0]["call_id"] == "call_" + "x" * 59


def test_nothing_of_an_open_item_is_called_finished() -> None:
    answer = Answer(SEED, 0)
    answer.text("a")
    answer.reasoning("b")
    assert [item.kind for item in answer.items] == ["message"]
    assert json.loads(answer.output())["content"][0]["text"] == "a"


def test_ids_of_items_are_told_from_those_of_other_responses() -> None:
    first, second = Answer(SEED, 0), Answer("f" * 32, 0)
    for answer in (first, second):
        answer.text("a")
        answer.reasoning("b")
        answer.close()
    ids = [json.loads(item.raw)["id"] for answer in (first, second) for item in answer.items]
    assert len(set(ids)) == 4
    assert all(len(each) <= 64 for each in ids)


def test_the_end_of_a_call_that_is_closed_holds_nothing_up() -> None:
    """Some servers send an empty last piece for each call after all of them."""
    answer = Answer(SEED, 0)
    for key in (0, 1):
        answer.call(key, f"c{key}", "f", "{}")
    for key in (0, 1):
        answer.call(key, "", "", "")
    answer.take()
    answer.text("a")
    answer.text("b")
    assert [json.loads(event)["delta"] for event in answer.take() if b"output_text.delta" in event] == ["a", "b"]


def test_what_waited_for_a_late_name_comes_before_what_follows() -> None:
    turn = told([
        Say("call", "{", 0, "c1", "f"), Say("reasoning", "1"), Say("call", "{}", 1, "c2"), Say("reasoning", "2"),
        Say("call", "}", 0), Say("reasoning", "3"), Say("reasoning", "4"), Say("call", "", 1, "", "g"),
    ])  # fmt: skip
    assert said(turn, "reasoning_text") == "1234"
    assert [item["name"] for item in done(turn) if item["type"] == "function_call"] == ["f", "g"]


# --- any interleaving ---


class Call(NamedTuple):
    name: str
    call_id: str
    pieces: list[str]
    name_at: int


ARGUMENTS = st.dictionaries(TEXT, st.one_of(TEXT, st.integers(), st.lists(TEXT, max_size=2)), max_size=3).map(
    lambda value: json.dumps(value, ensure_ascii=False)
)


@st.composite
def call_pieces(draw: st.DrawFn) -> Call:
    """A whole call cut into pieces; its name comes with one of them, its id once or never."""
    whole = draw(ARGUMENTS)
    cut = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=3)))
    pieces = [whole[a:b] for a, b in zip([0, *cut], [*cut, len(whole)], strict=True)]
    name_at = draw(st.integers(0, len(pieces) - 1))
    return Call(
        draw(st.sampled_from(["f", "g", "é\u2028"])), draw(st.sampled_from(["", "c1", "c2", "x" * 70])), pieces, name_at
    )


@st.composite
def conversations(draw: st.DrawFn) -> list[Say]:
    """Text, reasoning, refusals and calls in any order, calls also woven into one another."""
    made = draw(st.lists(call_pieces(), max_size=3))
    tracks: list[list[Say]] = [
        [
            Say("call", piece, key, call.call_id if number == 0 else "", call.name if number == call.name_at else "")
            for number, piece in enumerate(call.pieces)
        ]
        for key, call in enumerate(made)
    ]
    for kind in ("text", "reasoning", "refusal"):
        tracks.append([Say(kind, delta) for delta in draw(st.lists(TEXT.filter(bool), max_size=4))])
    woven: list[Say] = []
    while any(tracks):
        ready = [track for track in tracks if track]
        woven.append(ready[draw(st.integers(0, len(ready) - 1))].pop(0))
    return woven


@given(conversations(), st.integers(1, 5), st.sampled_from([COMPLETED, INCOMPLETE]))
@settings(deadline=None, max_examples=100)
def test_any_interleaving_is_told_as_nested_items_and_loses_nothing(says: list[Say], batch: int, status: bytes) -> None:
    turn = told(says, status, batch)
    for kind, part in (("text", "output_text"), ("reasoning", "reasoning_text")):
        assert said(turn, part) == "".join(say.delta for say in says if say.kind == kind)
    refusals = [part["refusal"] for item in done(turn) for part in item.get("content", ()) if part["type"] == "refusal"]
    assert "".join(refusals) == "".join(say.delta for say in says if say.kind == "refusal")
    whole: dict[int, list[str]] = {}
    for say in says:
        if say.kind == "call":
            arguments, name = whole.get(say.key, ["", ""])
            whole[say.key] = [arguments + say.delta, name or say.name]
    got = [[item["arguments"], item["name"]] for item in done(turn) if item["type"] == "function_call"]
    assert sorted(got) == sorted(whole.values())


def test_a_long_answer_behind_an_unfinished_call_is_not_lost_and_not_slow() -> None:
    says = [Say("call", "", 0, "c", "f"), *[Say("text", "x") for _ in range(20_000)]]
    answer = Answer(SEED, 0)
    for say in says:
        if say.kind == "call":
            answer.call(say.key, say.call_id, say.name, say.delta)
        else:
            answer.text(say.delta)
    answer.close()
    assert json.loads(answer.items[1].raw)["content"][0]["text"] == "x" * 20_000


# --- work, counted ---


def lines_run(work: Callable[[], object]) -> int:
    """Lines of accumulate.py that `work` runs: each step of a comprehension or a loop is one."""
    count = 0

    def tracer(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal count
        if frame.f_code.co_filename != accumulate.__file__:
            return None
        count += event == "line"
        return tracer

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def feed(says: Iterable[Say]) -> Answer:
    answer = Answer(SEED, 0)
    for say in says:
        if say.kind == "call":
            answer.call(say.key, say.call_id, say.name, say.delta)
        else:
            answer.text(say.delta)
    answer.close()
    return answer


def behind_an_open_call(size: int) -> list[Say]:
    return [Say("call", '{"a":{}', 0, "c", "f"), *(Say("call", "{}", key, f"c{key}", "f") for key in range(1, size))]


def named_last(size: int) -> list[Say]:
    return [*(Say("call", "x", 0) for _ in range(size)), Say("call", "", 0, "c", "f")]


def pieces_of_many_calls(size: int) -> list[Say]:
    return [Say("call", "{", key % 9, f"c{key % 9}", "f") for key in range(size)]


def texts_and_calls(size: int) -> list[Say]:
    said = [Say("call", "{", 0, "c", "f")]
    for key in range(1, size):
        said += [Say("text", "a"), Say("call", "{}", key, f"c{key}", "f")]
    return said


@pytest.mark.parametrize("says", [behind_an_open_call, named_last, pieces_of_many_calls, texts_and_calls])
def test_what_waits_costs_as_much_as_it_is_long(says: Callable[[int], list[Say]]) -> None:
    short, long = (lines_run(partial(feed, says(size))) for size in (50, 500))
    assert long < 12 * short


def test_arguments_are_decoded_once_however_many_pieces_end_like_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []

    class Json:
        @staticmethod
        def decode(text: str) -> Any:
            decoded.append(len(text))
            return json.loads(text)

    monkeypatch.setattr(msgspec, "json", Json)
    pieces = ['{"a":[{"b":"}"}', *([',{"b":"}"}'] * 300), "]", "}"]
    whole = "".join(pieces)
    says = [Say("call", pieces[0], 0, "c", "f"), Say("call", "{}", 1, "d", "g")]
    for piece in pieces[1:]:
        says += [Say("call", piece, 0), Say("call", "", 1)]
    feed(says)
    assert sum(decoded) <= len(whole) + 2


@given(ARGUMENTS, st.integers(1, 3))
@settings(deadline=None, max_examples=100)
def test_an_object_is_whole_with_its_last_piece_and_not_before(arguments: str, size: int) -> None:
    """What waits behind a call is written as soon as more comes after the call is whole."""
    answer = Answer(SEED, 0)
    answer.call(0, "c", "f", "")
    answer.text("after")
    pieces = [arguments[at : at + size] for at in range(0, len(arguments), size)]
    for piece in pieces:
        assert answer.items == []
        answer.call(0, "", "", piece)
        answer.text("x")
    assert [json.loads(item.raw)["arguments"] for item in answer.items] == [arguments]


@pytest.mark.parametrize(
    "pieces", [["{}", "}"], ["{", "]", "{}"], ["1", "{}"], ["{} x", "{}"], ["[1]"], ['{"a" ', "}"]]
)
def test_what_is_no_object_is_kept_until_the_end(pieces: list[str]) -> None:
    answer = Answer(SEED, 0)
    for number, piece in enumerate(pieces):
        answer.call(0, "c", "f" if number == 0 else "", piece)
    answer.call(1, "d", "", "")  # without a name it closes nothing
    answer.text("after")
    answer.call(1, "", "g", "")
    answer.close()
    assert json.loads(answer.items[0].raw)["arguments"] == "".join(pieces)


def test_every_annotation_costs_the_same_however_many_there_were() -> None:
    answer = Answer(SEED, 0)
    looked_at = 0

    class Counted(tuple[bytes, ...]):
        def __len__(self) -> int:
            nonlocal looked_at
            looked_at += 1
            return super().__len__()

    for _ in range(300):
        answer.marked_text("a", Marks(annotations=Counted((b"{}",))))
    indices = [json.loads(event).get("annotation_index") for event in answer.take()]
    assert [index for index in indices if index is not None] == list(range(300))
    assert looked_at <= 900


def test_calls_without_end_are_the_upstreams_fault() -> None:
    answer = Answer(SEED, 0)
    for key in range(MAX_CALLS):
        answer.call(key, "", "f", "{}")
    with pytest.raises(LooplineError) as raised:
        answer.call(MAX_CALLS, "", "f", "{}")
    assert raised.value.kind is Kind.UPSTREAM_GARBLED
    answer.call(MAX_CALLS - 1, "", "", " ")  # one that is there already may go on
