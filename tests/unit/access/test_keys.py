from __future__ import annotations

import contextlib
import itertools
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.access.keys import (
    BadKey,
    Key,
    KeyLimits,
    Keys,
    holds_key,
    make_key,
    parse_span,
    read_lines,
    token_hash,
    write_lines,
)
from tests.unit.access.encoded import encoded, plain_text

NOW = datetime(2026, 1, 1, tzinfo=UTC)
_NUMBERS = itertools.count()


def randomly(size: int) -> bytes:
    return next(_NUMBERS).to_bytes(size)


def made(name: str = "alice", **options: Any) -> tuple[Key, str]:
    return make_key(name, NOW, randomly, **options)


def test_a_token_is_256_bits_and_only_its_hash_is_kept() -> None:
    key, token = made()
    assert token.startswith("llk_")
    assert len(token) == 4 + 43
    assert key.hash == token_hash(token)
    assert token not in write_lines([key])
    assert token not in repr(key)
    assert key.hash not in repr(key)


def test_a_store_finds_by_token_and_forgets_at_once() -> None:
    key, token = made()
    keys = Keys([key])
    assert keys.find(token) is key
    assert keys.get(key.id) is key
    assert keys.find(token + "x") is None
    assert keys.find("") is None
    assert keys.find(key.hash) is None, "the hash is no token"
    keys.replace([])
    assert keys.find(token) is None
    assert keys.get(key.id) is None


def test_an_unknown_token_costs_the_same_look_ups_as_a_known_one() -> None:
    class Counting(dict[str, Key]):
        looked = 0

        def get(self, *args: Any) -> Any:
            Counting.looked += 1
            return super().get(*args)

    key, token = made()
    keys = Keys([key])
    keys._by_hash = Counting(keys._by_hash)
    for asked in (token, token[:-1] + "!", "llk_", "", "sk-other", "llk_" + "x" * 5000):
        Counting.looked = 0
        keys.find(asked)
        assert Counting.looked == 1


def test_a_key_ends_at_its_time() -> None:
    key, _ = made(expires=timedelta(days=1))
    ends = (NOW + timedelta(days=1)).timestamp()
    assert not key.expired(ends - 1)
    assert key.expired(ends)
    assert not made()[0].expired(10**12)


@pytest.mark.parametrize(
    ("models", "name", "allowed"),
    [
        ((), "anything", True),
        (("gpt-*",), "gpt-5", True),
        (("gpt-*",), "o3", False),
        (("qwen-3", "gpt-?"), "qwen-3", True),
        (("qwen-3",), "QWEN-3", False),
        (("qwen-3",), "qwen-3x", False),
    ],
)
def test_patterns_say_which_models_it_may_use(models: tuple[str, ...], name: str, allowed: bool) -> None:
    assert made(models=models)[0].allows(name) is allowed


keys_of_any_kind = st.builds(
    lambda n, tenant, models, days, turns: made(
        f"k{n}", tenant=tenant, models=models, expires=days and timedelta(days=days), limits=KeyLimits(turns=turns)
    )[0],
    st.integers(0, 10**6),
    st.sampled_from(["", "team-a"]),
    st.lists(st.sampled_from(["gpt-*", "qwen"]), max_size=2),
    st.one_of(st.none(), st.integers(1, 900)),
    st.integers(0, 9),
)


@given(st.lists(keys_of_any_kind, max_size=5, unique_by=lambda key: key.name))
def test_what_is_written_is_read(keys: list[Key]) -> None:
    assert read_lines(write_lines(keys)) == keys


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda line: line[:-3], "not a JSON object"),
        (lambda line: "[]", "line 1"),
        (lambda line: line.replace('"name"', '"nmae"'), "nmae"),
        (lambda line: line.replace('"alice"', '"a b"'), "name"),
        (lambda line: line.replace('"hash":"', '"hash":"Z'), "hash"),
        (lambda line: line.replace("Z", "", 1) if "Z" in line else line, "time zone"),
        (lambda line: line[:-1] + ',"limits":{"turns":-1}}', "below 0"),
        (lambda line: line[:-1] + ',"models":[""]}', "models"),
        (lambda line: line + "\n" + line, "same id"),
    ],
)
def test_a_line_that_is_no_key_is_named_and_not_shown(change: Any, says: str) -> None:
    key, _ = made()
    with pytest.raises(BadKey, match=says) as caught:
        read_lines(change(write_lines([key]).rstrip()))
    assert key.hash not in str(caught.value)


@given(st.text(max_size=200))
def test_any_text_is_keys_or_a_bad_file(text: str) -> None:
    with contextlib.suppress(BadKey):
        read_lines(text)


@pytest.mark.parametrize(("text", "hours"), [("12h", 12), ("90d", 2160), ("1w", 168), ("1y", 8760)])
def test_a_time_to_live(text: str, hours: int) -> None:
    assert parse_span(text) == timedelta(hours=hours)


@pytest.mark.parametrize("text", ["", "d", "0d", "-1d", "1m", "1.5d", "9999999d"])
def test_no_time_to_live(text: str) -> None:
    with pytest.raises(BadKey, match="90d"):
        parse_span(text)


@given(encoded(made()[1]), plain_text, plain_text)
def test_a_token_is_found_wherever_it_stands_and_however_it_is_encoded(token: str, before: str, after: str) -> None:
    assert holds_key(before + token + after)
    assert holds_key(before + token.swapcase() + after)


@given(plain_text, plain_text)
def test_a_text_without_a_token_is_not_taken_for_one(text: str, other: str) -> None:
    assert not holds_key(text)
    assert not holds_key(quote(quote(f"{text}?a={other}")))


@pytest.mark.parametrize(
    "text",
    ["", "llk", "llk-abc", "100%", "%", "%zz", "%25" * 5, "l%6ck", "llk%5", "%5F%6C%6C%6B", "\udcff%ff", "a+b%20c"],
)
def test_texts_that_hold_none(text: str) -> None:
    assert not holds_key(text)


def test_what_is_encoded_beyond_telling_counts_as_holding_one() -> None:
    text = "%20"
    for _ in range(6):
        text = quote(text)
    assert not holds_key(text)
    assert holds_key(quote(text))
    assert holds_key("%" + "25" * 30_000)
