from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.frame_watch import Content, FrameWatch

MOST = 1_000_000
BREAKS = b"\xf0\x80"  # what no parser takes
TEXT, BINARY, MORE, CLOSE, PING, PONG = 1, 2, 0, 8, 9, 10
COMPRESSED = 0x40


def frame(opcode: int, size: int, *, fin: bool = True, masked: bool = True) -> bytes:
    first = (0x80 if fin else 0) | opcode
    mask = 0x80 if masked else 0
    if size < 126:
        head = bytes([first, mask | size])
    elif size < 65536:
        head = bytes([first, mask | 126]) + size.to_bytes(2)
    else:
        head = bytes([first, mask | 127]) + size.to_bytes(8)
    return head + (b"\xff\x81\x00\x7f" if masked else b"") + b"\x81" * size


sizes = st.one_of(st.integers(0, 130), st.sampled_from([125, 126, 127, 65535, 65536, 70_000]))


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """One message in fragments, pings between them."""
    parts = draw(st.lists(sizes, min_size=1, max_size=4))
    out = b""
    for number, size in enumerate(parts):
        out += frame(0 if number else 1, size, fin=number == len(parts) - 1)
        if number < len(parts) - 1 and draw(st.booleans()):
            out += frame(9, draw(st.integers(0, 125)))
    return out


steps = st.lists(st.one_of(st.integers(1, 20), st.integers(65_520, 65_560)), max_size=40)


@given(st.lists(st.tuples(messages(), steps), max_size=4))
def test_it_knows_after_every_byte_what_is_whole_and_hands_on_all(
    sent: list[tuple[bytes, list[int]]],
) -> None:
    watch, handed = FrameWatch(MOST), b""
    for message, cuts in sent:
        at = 0
        for step in [*cuts, len(message)]:
            if at >= len(message):
                break
            handed += watch.feed(message[at : at + step])
            at += step
            assert watch.begun == (at < len(message))
            assert watch.bytes == (at if at < len(message) else 0)
    assert handed == b"".join(message for message, _ in sent)
    assert list(watch.contents) == [Content.PLAIN] * len(sent)
    assert not watch.broken
    assert not watch.deaf


def test_messages_that_come_together_leave_only_what_is_not_whole() -> None:
    watch = FrameWatch(MOST)
    watch.feed(frame(1, 10) + frame(10, 4) + frame(1, 5)[:-2])
    assert watch.begun
    assert watch.bytes == len(frame(1, 5)) - 2
    watch.feed(frame(1, 5)[-2:])
    assert not watch.begun


@given(st.binary(max_size=300))
def test_it_takes_any_bytes(data: bytes) -> None:
    watch = FrameWatch(MOST)
    watch.feed(data)
    assert watch.bytes <= len(data)


def chopped(watch: FrameWatch, data: bytes, step: int) -> bytes:
    return b"".join(watch.feed(data[at : at + step]) for at in range(0, len(data), step))


WHOLE = frame(TEXT, 300) + frame(PING, 3)
BROKEN = {
    "text without a mask": frame(TEXT, 5, masked=False),
    "nothing without a mask": frame(TEXT, 0, masked=False),
    "a ping without a mask": frame(PING, 2, masked=False),
    "a close without a mask": frame(CLOSE, 2, masked=False),
    "a fragment without a mask": frame(TEXT, 5, fin=False) + frame(MORE, 5, masked=False),
    "text inside a message": frame(TEXT, 5, fin=False) + frame(TEXT, 5),
    "text inside a message without content": frame(TEXT, 0, fin=False) + frame(TEXT, 5),
    "the same begun twice": frame(TEXT, 0, fin=False) + frame(BINARY, 0, fin=False),
    "the same after more of nothing": frame(TEXT, 0, fin=False) + frame(MORE, 0, fin=False) + frame(BINARY, 5),
}


@pytest.mark.parametrize("step", [1, 3, 1000])
@pytest.mark.parametrize("name", BROKEN)
def test_what_must_not_be_is_replaced_by_what_no_parser_takes(name: str, step: int) -> None:
    watch = FrameWatch(MOST, deflate=True)
    handed = chopped(watch, WHOLE + BROKEN[name] + WHOLE, step)
    assert watch.broken
    assert not watch.begun
    good = handed.removeprefix(WHOLE).removesuffix(BREAKS)
    assert len(WHOLE) + len(good) + len(BREAKS) == len(handed)
    assert BROKEN[name].startswith(good)
    assert len(good) < len(BROKEN[name])
    assert watch.feed(WHOLE) == b""


@pytest.mark.parametrize("step", [1, 2, 1000])
def test_a_compressed_message_is_handed_on_as_one_that_is_not_and_told_of(step: int) -> None:
    plain, squeezed = frame(TEXT, 4), frame(TEXT | COMPRESSED, 200)
    begun, ended = frame(BINARY | COMPRESSED, 5, fin=False), frame(MORE, 70_000)
    watch = FrameWatch(MOST, deflate=True)
    handed = chopped(watch, plain + squeezed + begun + frame(PING, 1) + ended + plain, step)
    assert handed == plain + frame(TEXT, 200) + frame(BINARY, 5, fin=False) + frame(PING, 1) + ended + plain
    assert list(watch.contents) == [Content.PLAIN, Content.DEFLATED, Content.DEFLATED, Content.PLAIN]


def test_the_first_reserved_bit_stays_where_it_says_nothing_of_compression() -> None:
    sent = frame(PING | COMPRESSED, 1) + frame(TEXT, 1, fin=False) + frame(MORE | COMPRESSED, 1)
    assert FrameWatch(MOST, deflate=True).feed(sent) == sent
    sent = frame(TEXT | COMPRESSED, 1)
    assert FrameWatch(MOST).feed(sent) == sent


ENDS, NOTHING, CLOSES = b"\x80\x80mask", b"\x81\x80mask", b"\x88\x80mask"


@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_a_message_that_is_too_large_ends_there_and_nothing_but_a_close_follows(step: int) -> None:
    watch = FrameWatch(1000)
    begun = frame(TEXT, 1000) + frame(TEXT, 600, fin=False) + frame(PING, 2)
    assert chopped(watch, begun, step) == begun
    assert not watch.deaf
    after = frame(PONG, 1) + frame(TEXT, 5) + frame(PING, 1, masked=False) + frame(CLOSE, 1) + frame(PING, 1)
    assert chopped(watch, frame(MORE, 401) + after, step) == ENDS + CLOSES
    assert list(watch.contents) == [Content.PLAIN, Content.CUT]
    assert watch.deaf
    assert not watch.broken


@pytest.mark.parametrize("large", [frame(BINARY, 1001), b"\x81\xff" + b"\xff" * 8 + b"mask" + bytes(1000)])
def test_one_that_is_too_large_from_its_first_frame_on_is_nothing(large: bytes) -> None:
    watch = FrameWatch(1000)
    assert watch.feed(frame(TEXT, 5) + large) == frame(TEXT, 5) + NOTHING
    assert list(watch.contents) == [Content.PLAIN, Content.CUT]


def test_once_told_to_be_deaf_it_hands_on_what_has_begun_and_a_close() -> None:
    watch = FrameWatch(1000)
    whole = frame(TEXT, 50)
    handed = watch.feed(whole[:20])
    watch.deaf = True
    handed += watch.feed(whole[20:] + frame(TEXT, 5) + frame(PING, 1) + frame(CLOSE, 2))
    assert handed == whole + CLOSES


def test_of_a_flood_it_takes_a_part_at_a_time() -> None:
    flood = frame(PING, 0) * 2000 + frame(TEXT, 70_000)
    watch, handed, data = FrameWatch(MOST), [], flood
    while data:
        handed.append(watch.feed(data))
        data, watch.unread = watch.unread, b""
    assert b"".join(handed) == flood
    assert max(map(len, handed[:-1])) <= 512 * len(frame(PING, 0))
    assert len(watch.contents) == 1
    assert not watch.begun
