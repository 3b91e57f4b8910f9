"""The input of a custom tool, taken out of what a model wrote, wherever that was cut."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.translate.answer.raw_input import RawInput
from tests.unit.strategies import TEXT

ANY_TEXT = st.text(
    st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from('"\\{}:,\n\t 😀/u')), max_size=40
)


def fed(pieces: list[str]) -> str:
    """What is said of arguments in pieces; the deltas are all of it."""
    taken = RawInput()
    deltas = [taken.feed(piece) for piece in pieces] + [taken.end()]
    assert "".join(deltas) == taken.said
    assert taken.end() == ""
    taken.said.encode()
    return taken.said


def said(arguments: str) -> str:
    """What is said of arguments: the same whole, by characters, and in threes."""
    made = {
        fed([arguments]),
        fed(list(arguments)),
        fed([arguments[at : at + 3] for at in range(0, len(arguments), 3)]),
        fed(["", *arguments, ""]),
    }
    assert len(made) == 1
    return made.pop()


@st.composite
def cut(draw: st.DrawFn, whole: str) -> list[str]:
    places = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    return [whole[a:b] for a, b in zip([0, *places], [*places, len(whole)], strict=True)]


@given(ANY_TEXT, st.booleans(), st.sampled_from([None, 0, 2, "\t"]), st.data())
@settings(deadline=None, max_examples=200)
def test_any_input_comes_out_as_it_was_meant(
    text: str, ascii_only: bool, indent: int | str | None, data: st.DataObject
) -> None:
    arguments = json.dumps({"input": text}, ensure_ascii=ascii_only, indent=indent)
    assert fed(data.draw(cut(arguments))) == text
    assert fed(data.draw(cut(f" \n{arguments}\n "))) == text


@given(ANY_TEXT, st.data())
@settings(deadline=None, max_examples=200)
def test_any_arguments_give_the_same_wherever_they_are_cut(arguments: str, data: st.DataObject) -> None:
    for whole in (arguments, '{"input":"' + arguments, '{"input":"' + arguments + '"}'):
        assert fed(data.draw(cut(whole))) == fed([whole])


@given(ANY_TEXT.filter(lambda text: text.strip()[:1] not in ("", '"', "{")))
@example("*** Begin Patch\n+{}")
def test_bare_text_is_the_input_and_streams(text: str) -> None:
    taken = RawInput()
    assert taken.feed(text) == text
    assert taken.end() == ""


@pytest.mark.parametrize("arguments", ['{"input":"Hello"}', '{ "input" : "Hello" }', '{"input":"Hello","note":[1]}'])
def test_the_input_streams_before_the_arguments_end(arguments: str) -> None:
    taken = RawInput()
    at = arguments.index("Hello") + 3
    assert taken.feed(arguments[:at]) == "Hel"
    assert taken.feed(arguments[at:]) + taken.end() == "lo"


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        ("{}", ""),
        ("", ""),
        ('{"input":""}', ""),
        ('"just text"', "just text"),
        ('{"patch":"a"}', "a"),
        ('{"patch":"a\nb"}', "a\nb"),
        ('{"\\u0069nput":"a"}', "a"),
        ('{"note":"n","input":"a"}', "a"),
        ('{"a":"1","b":"2"}', '{"a":"1","b":"2"}'),
        ('{"input":5}', '{"input":5}'),
        ('{"input":{"a":1}}', '{"input":{"a":1}}'),
        ("[1]", "[1]"),
        ("null", "null"),
        ("123", "123"),
        ('{"a', '{"a'),
        ('{"x":"\\ud800"}', "\ufffd"),
    ],
)
def test_other_arguments_than_were_asked_for_lose_nothing(arguments: str, meant: str) -> None:
    assert said(arguments) == meant


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("a\nb", "a\nb"),
        (r"\d+\s\.", r"\d+\s\."),
        (r"\u12", r"\u12"),
        (r"\uzzzz\u", r"\uzzzz\u"),
        (r"\ud83d\ude00", "😀"),
        (r"\ud83d", "\ufffd"),
        (r"\ud83d\ud83d\ude00", "\ufffd😀"),
        (r"\ude00a", "\ufffda"),
        (r"\ud83da", "\ufffda"),
        (r"\ud83d\n", "\ufffd\n"),
        (r"C:\new \"q\" \/", 'C:\new "q" /'),
        (r"\\\"", '\\"'),
    ],
)
def test_escapes_that_are_none_stand_as_they_are(written: str, meant: str) -> None:
    assert said('{"input":"' + written + '"}') == meant


@pytest.mark.parametrize("text", ['print("hi")', 'f("")', 'x = {"a": "b"}', 'say "one" and "two"', 'a "b'])
def test_quotes_that_a_model_forgot_to_escape_are_part_of_the_input(text: str) -> None:
    assert said('{"input":"' + text + '"}') == text


@pytest.mark.parametrize("tail", ["", "}", "}}", "} \n", ',"n":1}', ',"n":"v"}', ', "n', '}{"input":"b"}'])
def test_what_follows_the_input_is_no_input(tail: str) -> None:
    assert said('{"input":"a"' + tail) == "a"


@pytest.mark.parametrize("cut_at", range(1, 22))
def test_arguments_cut_off_anywhere_are_taken_as_far_as_they_went(cut_at: int) -> None:
    whole = '{"input":"ab\\n\\u00e9c"}'
    taken = RawInput()
    streamed = "".join(taken.feed(piece) for piece in whole[:cut_at])
    assert "ab\néc".startswith(streamed)


def test_many_pieces_cost_as_much_as_they_are_long() -> None:
    for start in ("x", '{"other":"', '{"input":"', "{" + " " * 1000):
        assert len(fed([start, *("ab " for _ in range(100_000))])) >= 300_000
    assert said('{"input":"' + r"\u" * 5000 + '"}') == r"\u" * 5000


@given(st.lists(TEXT, max_size=5))
def test_a_text_in_a_string_of_json_is_the_text(texts: list[str]) -> None:
    assert said(json.dumps("".join(texts))) == "".join(texts)


@pytest.mark.parametrize("written", ["\\n", "\\\\", "\\d\\\\d", "\\u00e9", "\\ud83d\\ude00"])
def test_an_input_full_of_escapes_is_read_at_once(written: str) -> None:
    started = time.process_time()
    raw = RawInput()
    raw.feed('{"input":"' + written * 200_000 + '"}')
    assert time.process_time() - started < 1.5  # one escape after another takes many times that
    one = RawInput()
    one.feed('{"input":"' + written + '"}')
    assert raw.said == one.said * 200_000
