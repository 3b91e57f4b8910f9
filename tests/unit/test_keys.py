"""Keys as text: what is read, what is refused and how, and that nothing of a key is ever in a message."""

from __future__ import annotations

import base64
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.settings.keys import BadKeys, format_keys, format_secret, parse_keys, parse_secret, rotated

ONE, TWO = bytes(range(32)), bytes([255] * 31 + [62])
IDS = st.text("abcXYZ019_-", min_size=1, max_size=32)
KEYS = st.dictionaries(IDS, st.binary(min_size=32, max_size=32), min_size=1, max_size=6)


def text_of(key: bytes) -> str:
    return base64.b64encode(key).decode()


@given(KEYS)
def test_what_is_written_is_read_in_the_same_order(keys: dict[str, bytes]) -> None:
    assert list(parse_keys(format_keys(keys)).items()) == list(keys.items())


@given(st.binary(min_size=32, max_size=32))
def test_a_secret_is_read_as_it_was_written(secret: bytes) -> None:
    assert parse_secret(format_secret(secret)) == secret


@pytest.mark.parametrize(
    "text",
    [
        f"a:{text_of(ONE)}\nb:{text_of(TWO)}",
        f"\n  a:{text_of(ONE)}\r\n\r\nb: {text_of(TWO)}  \n\n",
        f"a:{text_of(ONE)},b:{text_of(TWO)}",
        f"a:{text_of(ONE).rstrip('=')}\nb:{base64.urlsafe_b64encode(TWO).decode()}\n",
    ],
)
def test_forms_that_are_taken(text: str) -> None:
    assert list(parse_keys(text).items()) == [("a", ONE), ("b", TWO)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there is none; write id:key"),
        (" \n,\n", "there is none; write id:key"),
        (text_of(ONE), "line 1 is not id:key"),
        (f"a b:{text_of(ONE)}", "line 1 is not id:key"),
        (f"a.b:{text_of(ONE)}", "line 1 is not id:key"),
        (f"{'a' * 33}:{text_of(ONE)}", "an id of 1 to 32 letters"),
        (f":{text_of(ONE)}", "line 1 is not id:key"),
        (f"a:{text_of(ONE)}\na:{text_of(TWO)}", "line 2 has the id of a line before it"),
        (f"a:{text_of(ONE)}\nb:", "the key of line 2 is not the base64 of 32 bytes (`openssl rand -base64 32`"),
        (f"a:{text_of(ONE[:31])}", "the key of line 1 is not the base64 of 32 bytes"),
        (f"a:{text_of(ONE + b'1')}", "the key of line 1 is not the base64 of 32 bytes"),
        (f"a:{'é' * 43}", "the key of line 1 is not the base64 of 32 bytes"),
        (f"a:{ONE.hex()}", "the key of line 1 is not the base64 of 32 bytes"),
    ],
)
def test_refusals_say_which_line_and_why_and_show_nothing_of_it(text: str, message: str) -> None:
    with pytest.raises(BadKeys) as caught:
        parse_keys(text)
    assert message in str(caught.value)
    assert text_of(ONE)[:20] not in str(caught.value)


@pytest.mark.parametrize("text", ["", "short", text_of(ONE)[:-4], f"a:{text_of(ONE)}"])
def test_a_secret_is_the_base64_of_32_bytes(text: str) -> None:
    with pytest.raises(BadKeys, match="it is not the base64 of 32 bytes"):
        parse_secret(text)


@given(st.text())
def test_no_text_fails_in_another_way(text: str) -> None:
    for parse in (parse_keys, parse_secret):
        with suppress(BadKeys):
            parse(text)


def test_a_new_key_goes_in_front_and_the_oldest_leave() -> None:
    keys = {"b": ONE, "a": ONE}
    assert list(rotated(keys, "c", TWO, keep=3).items()) == [("c", TWO), ("b", ONE), ("a", ONE)]
    assert list(rotated(keys, "c", TWO, keep=2)) == ["c", "b"]
    assert list(rotated(keys, "c", TWO, keep=1)) == ["c"]
