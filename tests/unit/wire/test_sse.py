from __future__ import annotations

import json
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.errors import Kind, LooplineError
from proxy.wire.sse import DONE, DONE_FRAME, SseDecoder, append_frame, event_type
from tests.unit.strategies import cuts

BOM = b"\xef\xbb\xbf"
PLENTY = 1 << 20


def decoded(reads: list[bytes], limit: int = PLENTY) -> list[bytes]:
    decoder = SseDecoder(limit)
    return [payload for read in reads for payload in decoder.feed(read)] + decoder.end()


def reference(stream: bytes) -> list[bytes]:
    """The standard's algorithm, line by line; the unfinished last event counts as one."""
    out: list[bytes] = []
    data: list[bytes] = []
    for line in [*re.split(rb"\r\n|\r|\n", stream.removeprefix(BOM)), b""]:
        if not line:
            out += [b"\n".join(data)] if data else []
            data = []
        name, _, value = line.partition(b":")
        if name == b"data":
            data.append(value.removeprefix(b" "))
    return out


LINES = st.sampled_from(
    [b"data: a", b"data:b", b"data:  c", b"data", b"data:", b"data: ", b"data: d:e", b"data: \xc3\xa9", b"datax: f",
     b" data: g", b": ping", b":", b"event: data", b"event:x", b"id: 1", b"retry: 5", b"", b"", b"", b"data: [DONE]"]
)  # fmt: skip
BREAKS = st.sampled_from([b"\n", b"\n", b"\r\n", b"\r"])


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    lines = draw(st.lists(st.tuples(LINES, BREAKS), max_size=14))
    start, tail = draw(st.sampled_from([b"", BOM])), draw(st.sampled_from([b"", b"data: tail", b"dat", b"\r"]))
    return start + b"".join(line + end for line, end in lines) + tail


@given(streams(), st.data())
@settings(deadline=None, max_examples=200)
def test_payloads_are_the_standards_however_the_reads_fall(stream: bytes, data: st.DataObject) -> None:
    expected = reference(stream)
    assert decoded([stream]) == expected
    assert decoded([stream[i : i + 1] for i in range(len(stream))]) == expected
    assert decoded(data.draw(cuts(stream))) == expected


@given(
    st.lists(
        st.sampled_from(
            [
                "data: a",
                "event: e\ndata: b",
                "event: f",
                "event: g\ndata: c\ndata: d",
                "data: e\nid: 1",
                "id: 2\ndata: f",
            ]
        ),
        min_size=1,
        max_size=6,
    )
)
@example(["event: a\ndata: b", "data: z\ndata: c"])
@example(["event: a\ndata: b\ndata: c", "data: d"])
@settings(deadline=None, max_examples=200)
def test_the_short_cuts_for_plain_streams_take_nothing_else_for_plain(blocks: list[str]) -> None:
    stream = "".join(block + "\n\n" for block in blocks).encode()
    assert decoded([stream]) == reference(stream)


def test_an_event_is_given_out_as_soon_as_its_blank_line_is_there() -> None:
    decoder = SseDecoder(PLENTY)
    assert decoder.feed(b"data: a\r\n") == []
    assert decoder.feed(b"\r") == [b"a"]
    assert decoder.feed(b"\ndata: b\n\n") == [b"b"]
    assert decoder.feed(b"") == []


def test_comments_and_blank_lines_alone_give_nothing() -> None:
    assert decoded([b": keep-alive\n\n", b"\n\n\n", b":\r\n\r\n", b"event: ping\n\n"]) == []


@pytest.mark.parametrize(
    "reads", [[b"data: " + b"x" * 100 + b"\n\n"], [b"data: " + b"x" * 50, b"x" * 50], [b"x" * 60] * 2]
)
def test_an_event_above_the_limit_is_an_upstreams_fault(reads: list[bytes]) -> None:
    with pytest.raises(LooplineError, match=r"more than 80 bytes \(upstream.max_event_bytes\)") as raised:
        decoded(reads, limit=80)
    assert raised.value.kind is Kind.UPSTREAM_GARBLED


def test_the_limit_is_an_events_and_not_a_reads_or_a_streams() -> None:
    events = b"data: 0123456789\n\n" * 50
    assert decoded([events, events[:-1], b"\n"], limit=20) == [b"0123456789"] * 100


def test_a_large_event_in_small_reads_is_joined_once() -> None:
    reads = [b"data: ", *[b"x" * 1000] * 1000, b"\n\n"]
    assert decoded(reads, limit=2_000_000) == [b"x" * 1_000_000]


def test_a_frame_is_one_event_line_and_one_data_line() -> None:
    out: list[bytes] = []
    append_frame(out, b'{"type":"response.created","x":1}')
    assert b"".join(out) == b'event: response.created\ndata: {"type":"response.created","x":1}\n\n'


@pytest.mark.parametrize("line_break", ["\n", "\r", "\r\n"])
def test_line_breaks_between_tokens_do_not_end_the_data_line(line_break: str) -> None:
    event = '{"type":"response.created","response":{"metadata":{"a": "b\\n"},"n":[1,2]}}'
    out: list[bytes] = []
    append_frame(out, event.replace("[", "[" + line_break).replace('"metadata"', line_break + '"metadata"').encode())
    frame = b"".join(out)
    assert re.fullmatch(rb"event: response.created\ndata: [^\r\n]+\n\n", frame)
    assert json.loads(decoded([frame])[0]) == json.loads(event)


def test_our_events_name_their_type_first() -> None:
    assert event_type(b'{"type":"error","code":null}') == b"error"


def test_typed_events_may_end_with_done() -> None:
    events = [b'{"type":"a","n":%d}' % number for number in range(5)]
    stream = b"".join(b"event: a\ndata: " + event + b"\n\n" for event in events) + DONE_FRAME
    assert SseDecoder(1000).feed(stream) == [*events, DONE]
    for cut in range(len(stream)):
        decoder = SseDecoder(1000)
        assert [*decoder.feed(stream[:cut]), *decoder.feed(stream[cut:])] == [*events, DONE]


def test_an_end_that_is_told_very_often_ends_as_often() -> None:
    stream = b"event: a\ndata: {}\n\n" + DONE_FRAME * 3000
    assert SseDecoder(1000).feed(stream) == [b"{}", *[DONE] * 3000]
