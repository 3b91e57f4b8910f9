import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.errors import Kind, LooplineError
from proxy.translate.intake import Intake
from tests.unit.strategies import cuts

PLENTY = 1 << 20


def taken(reads: list[bytes], limit: int = PLENTY) -> tuple[list[bytes], bool]:
    intake = Intake(limit)
    payloads = [payload for read in reads for payload in intake.feed(read)]
    return payloads + intake.end(), intake.is_document


@given(st.sampled_from([b"", b" ", b"\r\n\t"]), st.data())
@settings(deadline=None, max_examples=60)
def test_a_document_is_one_payload_however_it_is_cut(space: bytes, data: st.DataObject) -> None:
    body = space + b'{"a": "data: x\\n\\n",\n\n "b": 1}\n\n'
    payloads, is_document = taken(data.draw(cuts(body)))
    assert (payloads, is_document) == ([body], True)


@given(st.sampled_from([b"", b"\n\n", b"\xef\xbb\xbf", b": ping\n\n", b"\r\n"]), st.data())
@settings(deadline=None, max_examples=60)
def test_a_stream_is_its_events_however_it_is_cut(start: bytes, data: st.DataObject) -> None:
    stream = start + b'data: {"a":1}\n\ndata: {"b":2}\n\ndata: {"c":3}'
    assert taken(data.draw(cuts(stream))) == ([b'{"a":1}', b'{"b":2}', b'{"c":3}'], False)


def test_events_are_given_out_as_they_end() -> None:
    intake = Intake(PLENTY)
    assert [intake.feed(read) for read in (b"", b"\n", b"data: a\n", b"\ndata: b", b"\n\n")] == [
        [],
        [],
        [],
        [b"a"],
        [b"b"],
    ]


def test_nothing_is_no_payload() -> None:
    assert taken([]) == ([], False)
    assert taken([b" \n", b"\n"]) == ([], False)


@pytest.mark.parametrize("reads", [[b"{" + b" " * 100], [b"{"] + [b" "] * 100, [b" "] * 100, [b"data: " + b"x" * 100]])
def test_an_answer_without_an_end_has_a_bound(reads: list[bytes]) -> None:
    with pytest.raises(LooplineError, match=r"upstream\.max_event_bytes") as raised:
        taken(reads, limit=50)
    assert raised.value.kind is Kind.UPSTREAM_GARBLED
