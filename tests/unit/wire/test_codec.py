import pytest
from hypothesis import given, settings

from proxy.errors import Kind, LooplineError
from proxy.wire.codec import MAX_MEMBERS, NULL, Raw, decode_array, decode_object, encode, is_null
from tests.unit.strategies import dumped, json_values

TOO_DEEP = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


def refused(data: bytes) -> LooplineError:
    with pytest.raises(LooplineError) as raised:
        decode_object(data)
    assert raised.value.status == 400
    return raised.value


def test_members_keep_the_bytes_they_came_in() -> None:
    members = decode_object(b'{"a" : [1, 2.50] ,"b":"\\u00e9", "c":99999999999999999999999.10}')
    assert {name: bytes(raw) for name, raw in members.items()} == {
        "a": b"[1, 2.50]",
        "b": b'"\\u00e9"',
        "c": b"99999999999999999999999.10",
    }


@pytest.mark.parametrize(
    "data",
    [b"", b" ", b"{", b'{"a":1', b'{"a":1} x', b'{"a":1}\0', b"{'a':1}", b'{"a":01}', b'{"a":1.}',
     b'{"a":"\n"}', b"\xef\xbb\xbf{}"],
)  # fmt: skip
def test_what_is_no_json_is_called_so(data: bytes) -> None:
    assert refused(data).kind is Kind.INVALID_JSON


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity", b"nan"])
def test_numbers_that_json_does_not_know_are_refused(number: bytes) -> None:
    assert refused(b'{"a":%b}' % number).kind is Kind.INVALID_JSON


@pytest.mark.parametrize("data", [b"[]", b"null", b'"x"', b"7", b"true"])
def test_what_is_no_object_is_refused(data: bytes) -> None:
    assert refused(data).kind is Kind.INVALID_REQUEST


@pytest.mark.parametrize("data", [b'{"a":"\xff"}', b'{"\xc3":1}', b'{"a":{"b":"\xed\xa0\x80"}}', b"\xff\xfe{"])
def test_bytes_that_are_no_utf8_are_refused_wherever_they_stand(data: bytes) -> None:
    assert refused(data).kind is Kind.INVALID_UNICODE


@pytest.mark.parametrize("text", ["\\ud800", "\\udc00", "\\ud800\\ud800", "\\ud83dx", "a\\ud800\\n", "\\\\\\ud800"])
def test_an_unpaired_surrogate_has_its_own_name_wherever_it_stands(text: str) -> None:
    for shape in ('{"a":"%s"}', '{"a":{"b":["%s"]}}', '{"%s":1}'):
        assert refused((shape % text).encode()).kind is Kind.INVALID_UNICODE


def test_a_paired_surrogate_and_an_escaped_backslash_are_fine() -> None:
    assert decode_object(b'{"a":"\\ud83d\\ude00","b":"\\\\ud800"}')
    assert refused(b'{"a":"\\ud83d\\ude00","b":"\\\\ud800').kind is Kind.INVALID_JSON


def test_nesting_has_an_end() -> None:
    assert decode_object(b'{"a":' + b"[" * 200 + b"]" * 200 + b"}")
    assert refused(TOO_DEEP).kind is Kind.TOO_DEEP


def test_the_last_of_two_equal_members_counts() -> None:
    assert bytes(decode_object(b'{"a":1,"a":2}')["a"]) == b"2"


@pytest.mark.parametrize(("raw", "null"), [(b"null", True), (b"nul", False), (b'"null"', False), (b"0", False)])
def test_null_is_told_from_everything_else(raw: bytes, null: bool) -> None:
    assert is_null(Raw(raw)) is null
    assert is_null(NULL)


def test_an_array_is_taken_apart_and_named_when_it_is_none() -> None:
    assert [bytes(each) for each in decode_array(b'[ {"a": 1} , 2 ]', "'tools'")] == [b'{"a": 1}', b"2"]
    with pytest.raises(LooplineError, match="'tools' is invalid") as raised:
        decode_array(b"{}", "'tools'", "tools")
    assert raised.value.param == "tools"


@given(json_values())
@settings(deadline=None, max_examples=100)
def test_what_was_taken_apart_can_be_put_together_again(value: object) -> None:
    data = dumped({"value": value})
    members = decode_object(data)
    assert encode(members) == b'{"value":' + dumped(value) + b"}"


def members(number: int, inside: int) -> bytes:
    return b'{"input":[%b],"type":"x",%b}' % (
        b",".join([b'{"a":1,"b":2}'] * inside),
        b",".join(b'"k%d":%d' % (at, at) for at in range(number - 2)),
    )


@pytest.mark.parametrize("inside", [1, 10_000])  # a small body, and a large one
def test_an_object_has_so_many_members_and_no_more(inside: int) -> None:
    most = decode_object(members(MAX_MEMBERS, inside))
    assert len(most) == MAX_MEMBERS
    assert {type(name) for name in most} == {str}
    assert bytes(most["k7"]) == b"7"
    for number in (MAX_MEMBERS + 1, 100_000):
        with pytest.raises(LooplineError, match="more than 512 members") as caught:
            decode_object(members(number, inside))
        assert caught.value.kind is Kind.INVALID_REQUEST
