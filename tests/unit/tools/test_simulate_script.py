"""The notation alone: what parses to what, and which mistakes are named."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.tools.simulate.script import DIRECTIVES, Fail, Fault, Part, ScriptError, parse
from proxy.tools.simulate.tokens import PrefixCache, filler, prompt_tokens, split


def test_text_without_directives_is_no_script() -> None:
    assert parse("hello [[ -f x ]] [[Wiki]] [[1]]").steps == ()


def test_directives_of_one_message_make_one_step_in_order() -> None:
    (step,) = parse('please [[think "hm"]] and [[say 3]] [[call f {"a": "]]"}]] [[call g]]').steps
    assert step.parts == (
        Part("think", "hm"),
        Part("say", filler(3)),
        Part("call", '{"a": "]]"}', "f"),
        Part("call", "{}", "g"),
    )


def test_then_and_loop_make_steps() -> None:
    steps = parse('[[loop 2 f {"a":1}]] [[then]] [[say "x"]]').steps
    assert [[part.kind for part in step.parts] for step in steps] == [["call"], ["call"], ["say"], ["say"]]


def test_fail_takes_words_and_named_arguments() -> None:
    (step,) = parse('[[fail 429 "slow" text once retry-after=2 code=c type=t]]').steps
    assert step.fail == Fail(429, "slow", type="t", code="c", retry_after="2", plain=True, once=True)


def test_fault_once() -> None:
    assert parse("[[stall 4 once]]").steps[0].fault == Fault("stall", 4, once=True)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[[sya 20]]", "there is no directive 'sya'"),
        ("[[say]]", "exactly one argument"),
        ("[[say 1 2]]", "exactly one argument"),
        ("[[say word]]", "a number of tokens"),
        ("[[say 99999999999]]", "a number of 0"),
        ("[[say 3", "]] is missing"),
        ('[[say "open]]', "invalid JSON"),
        ("[[say {]]", "invalid JSON"),
        ("[[say -1]]", "a number of tokens"),
        ("[[call]]", "a tool's name"),
        ("[[call f 3]]", "a JSON object"),
        ('[[call "f" {}]]', "a tool's name"),
        ("[[loop f {}]]", "a number of 1"),
        ("[[loop 0 f {}]]", "a number of 1"),
        ("[[fail 200]]", "a status of 400 to 599"),
        ("[[fail 500 colour=red]]", "knows no 'colour='"),
        ("[[drop]]", "exactly one argument"),
        ("[[drop x]]", "a number of 0"),
        ("[[then 3]]", "takes no argument"),
        ("[[json =]]", "unexpected '='"),
    ],
)
def test_a_mistake_is_named_and_quoted(text: str, named: str) -> None:
    with pytest.raises(ScriptError) as caught:
        parse("do " + text)
    assert named in str(caught.value)
    assert str(caught.value).startswith(text[:6])


@given(st.text(alphabet=st.sampled_from('[]{}" =sayfilcthen0123456789-\n')))
def test_any_text_parses_or_is_refused(text: str) -> None:
    with contextlib.suppress(ScriptError):
        parse(text)


@given(st.sampled_from(sorted(DIRECTIVES)), st.text(max_size=20))
def test_any_arguments_parse_or_are_refused(name: str, text: str) -> None:
    with contextlib.suppress(ScriptError):
        assert parse(f"[[{name} {text}]]").steps


@given(st.text())
def test_tokens_are_lossless(text: str) -> None:
    assert "".join(split(text)) == text


@pytest.mark.parametrize("count", [0, 1, 5, 1_000])
def test_filler_has_exactly_as_many_tokens(count: int) -> None:
    assert len(split(filler(count))) == count


def test_the_prefix_cache_counts_whole_blocks_and_never_the_whole_prompt() -> None:
    cache = PrefixCache(100)
    first = prompt_tokens(filler(40))
    assert cache.admit(first).cached_tokens == 0
    assert cache.admit(first).cached_tokens == 32
    exact = prompt_tokens(filler(32))
    assert cache.admit(exact).cached_tokens == 16
    assert cache.admit(first, salt="other").cached_tokens == 0


def test_the_prefix_cache_holds_what_was_generated() -> None:
    cache = PrefixCache(100)
    admitted = cache.admit(prompt_tokens(filler(40)))
    cache.extend(admitted, prompt_tokens(" x" * 10))
    assert cache.admit(prompt_tokens(filler(40)) + prompt_tokens(" x" * 30)).cached_tokens == 48


def test_the_prefix_cache_is_bounded() -> None:
    cache = PrefixCache(2)
    cache.admit(prompt_tokens(filler(80)))
    assert len(cache) == 2
    off = PrefixCache(0)
    off.admit(prompt_tokens(filler(80)))
    assert off.admit(prompt_tokens(filler(80))).cached_tokens == 0
