"""Events that are alike, taken apart undecoded: what is read is what decoding gives, and nothing else is read."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.translate.alike import Alike

BEHIND = b'{"delta":"%b","item_id":"x","sequence_number":%d,"type":"t"}'
BEFORE = b'{"type": "t", "sequence_number": %d, "delta": "%b"}'
WITHOUT = b'{"type":"t","delta":"%b","item_id":"100%%"}'


def made(form: bytes, text: bytes, number: int) -> bytes:
    """An event in one of the forms."""
    if form is WITHOUT:
        return form % text
    return form % ((text, number) if form is BEHIND else (number, text))


def taught(payload: bytes, text: bytes = b'"a"') -> Alike:
    alike = Alike()
    alike.learn_from(payload, b'"delta"', text)
    return alike


@pytest.mark.parametrize("form", [BEHIND, BEFORE, WITHOUT])
def test_events_like_the_first_are_read_whatever_their_numbers(form: bytes) -> None:
    alike = taught(made(form, b"a", 5))
    said = [b" b", b'\\"\\n', "é".encode(), b"d"]
    assert alike.read([made(form, text, 7 - at) for at, text in enumerate(said)], 0) == said


@pytest.mark.parametrize("form", [BEHIND, BEFORE])
def test_a_number_may_get_one_more_digit(form: bytes) -> None:
    alike = taught(made(form, b"a", 8))
    payloads = [made(form, b"b", number) for number in range(9, 102)]
    at, reads = 0, 0
    while at < len(payloads):
        read = alike.read(payloads, at)
        assert read
        at, reads = at + len(read), reads + 1
    assert reads == 4  # 9; 10 to 73, as many as are looked at together; up to 99; 100 and 101


@pytest.mark.parametrize("form", [BEHIND, BEFORE, WITHOUT])
def test_reading_stops_at_another_form(form: bytes) -> None:
    alike = taught(made(form, b"a", 5))
    like, other = made(form, b"b", 6), made(form, b"b", 6).replace(b'"t"', b'"u"')
    assert alike.read([other, like, other, like], 1) == [b"b"]
    assert alike.read([other, like], 0) == []


@pytest.mark.parametrize(
    "payload",
    [
        b'{"delta":"a","delta":"a"}',
        b'{"delta":"a","d\\u0065lta":"a"}',
        b'{"delta":"a","x":{"delta":"a"}}',
        b'{"x":"delta","delta":"a"}',
        b'{"delta" :"a"}',
        b'{"delta":"b"}',
    ],
)
def test_what_does_not_show_which_string_was_read_teaches_nothing(payload: bytes) -> None:
    alike = Alike()
    assert not alike.learn_from(payload, b'"delta"', b'"a"')
    assert alike.read([payload], 0) == []


@pytest.mark.parametrize("number", [b"06", b"6 ", b"6,", b"-6", b"6.", b"0x", b'"6', b"", b"6e", b"\xd9\xa6"])
@pytest.mark.parametrize("digits", [1, 2])
def test_what_is_no_number_is_left_to_the_decoder(number: bytes, digits: int) -> None:
    alike = taught(made(BEHIND, b"a", 10 ** (digits - 1)))
    odd = made(BEHIND, b"b", 0).replace(b":0,", b":" + number + b",")
    assert alike.read([odd], 0) == []


@given(st.binary(max_size=12) | st.text(max_size=12).map(lambda text: msgspec.json.encode(text)[1:-1]))
def test_what_is_read_is_a_string_as_our_encoder_writes_it(text: bytes) -> None:
    for form in (BEHIND, BEFORE, WITHOUT):
        for read in taught(made(form, b"a", 5)).read([made(form, text, 6)], 0):
            assert read == text != b""
            assert msgspec.json.encode(msgspec.json.decode(b'"' + read + b'"')) == b'"' + read + b'"'
            msgspec.json.decode(made(form, text, 6))


def test_a_server_whose_events_never_repeat_is_not_looked_at_for_ever() -> None:
    alike = Alike()
    assert [alike.learn_from(made(BEHIND, b"a", 5), b'"delta"', b'"a"') for _ in range(40)].count(True) == 16


def test_a_server_whose_events_repeat_may_teach_any_number_of_forms() -> None:
    alike = Alike()
    for number in range(100):
        payload = b'{"delta":"a","n":%d}' % number
        assert alike.learn_from(payload, b'"delta"', b'"a"')
        assert alike.read([payload], 0) == [b"a"]


def test_nothing_is_read_after_it_was_told_to_forget() -> None:
    alike = taught(made(BEHIND, b"a", 5))
    alike.forget()
    assert alike.read([made(BEHIND, b"a", 6)], 0) == []
