from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.frame_watch import FrameWatch


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
        out += frame(0 if number else 1, size, fin=number == len(parts) - 1, masked=draw(st.booleans()))
        if number < len(parts) - 1 and draw(st.booleans()):
            out += frame(9, draw(st.integers(0, 125)))
    return out


@given(st.lists(messages(), max_size=4), st.data())
def test_it_knows_after_every_byte_whether_a_message_is_whole(sent: list[bytes], data: st.DataObject) -> None:
    watch = FrameWatch()
    for message in sent:
        at = 0
        while at < len(message):
            step = data.draw(st.one_of(st.integers(1, 20), st.just(len(message))))
            watch.feed(message[at : at + step])
            at += step
            assert watch.begun == (at < len(message))
            assert watch.bytes == (at if at < len(message) else 0)


def test_messages_that_come_together_leave_only_what_is_not_whole() -> None:
    watch = FrameWatch()
    watch.feed(frame(1, 10) + frame(10, 4) + frame(1, 5)[:-2])
    assert watch.begun
    assert watch.bytes == len(frame(1, 5)) - 2
    watch.feed(frame(1, 5)[-2:])
    assert not watch.begun


@given(st.binary(max_size=300))
def test_it_takes_any_bytes(data: bytes) -> None:
    watch = FrameWatch()
    watch.feed(data)
    assert watch.bytes <= len(data)
