from __future__ import annotations

import contextlib
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.message_inflater import PIECE_BYTES, MessageInflater, NotDeflated

MIB = 2**20


class Deflater:
    """A sender of messages."""

    def __init__(self, bits: int = 15, flush: int = zlib.Z_SYNC_FLUSH) -> None:
        self._machine = zlib.compressobj(6, zlib.DEFLATED, -bits)
        self._flush = flush

    def __call__(self, message: bytes) -> bytes:
        return (self._machine.compress(message) + self._machine.flush(self._flush)).removesuffix(b"\x00\x00\xff\xff")


def whole(inflater: MessageInflater, message: bytes) -> bytes:
    return b"".join(inflater.feed(message))


@given(st.lists(st.binary(max_size=2000)), st.sampled_from([9, 12, 15]))
def test_messages_come_back_each_as_it_was(messages: list[bytes], bits: int) -> None:
    deflate, inflater = Deflater(bits), MessageInflater()
    assert [whole(inflater, deflate(message)) for message in messages] == messages


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 20 * MIB])
def test_whatever_the_ratio_pieces_are_small_and_nothing_is_missing(size: int) -> None:
    inflater, deflate = MessageInflater(), Deflater()
    pieces = list(inflater.feed(deflate(bytes(size))))
    assert sum(map(len, pieces)) == size
    assert all(0 < len(piece) <= PIECE_BYTES for piece in pieces)
    assert whole(inflater, deflate(b"next")) == b"next"


# RFC 7692, section 7.2.3.
HELLO = "f2 48 cd c9 c9 07 00"
EXAMPLES = {
    "one block": [(HELLO, b"Hello")],
    "with what stood before": [(HELLO, b"Hello"), ("f2 00 11 00 00", b"Hello")],
    "no compression": [("00 05 00 fa ff 48 65 6c 6c 6f 00", b"Hello")],
    "a last block": [("f3 48 cd c9 c9 07 00 00", b"Hello"), (HELLO, b"Hello")],
    "a last block and no more": [("f3 48 cd c9 c9 07 00", b"Hello"), (HELLO, b"Hello")],
    "two blocks": [("f2 48 05 00 00 00 ff ff ca c9 c9 07 00", b"Hello")],
    "nothing": [("00", b""), (HELLO, b"Hello"), ("00", b""), ("", b""), ("f2 00 11 00 00", b"Hello")],
    "two streams": [("f3 48 cd c9 c9 07 00" * 2 + "00", b"HelloHello"), (HELLO, b"Hello")],
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_of_the_rfc(name: str) -> None:
    inflater = MessageInflater()
    for message, wanted in EXAMPLES[name]:
        assert whole(inflater, bytes.fromhex(message)) == wanted


@pytest.mark.parametrize("message", [b"\xff" * 20, b"\xf2\x00\x11\x00\x00", bytes.fromhex("0300" * 20)])
def test_what_is_not_deflated_or_ends_too_often_is_refused(message: bytes) -> None:
    with pytest.raises(NotDeflated):
        whole(MessageInflater(), message)


@given(st.binary(max_size=500))
def test_any_bytes_are_inflated_or_refused(message: bytes) -> None:
    inflater = MessageInflater()
    with contextlib.suppress(NotDeflated):
        whole(inflater, message)
