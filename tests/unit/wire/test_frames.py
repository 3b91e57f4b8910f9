import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode
from websockets.protocol import CLIENT, OPEN, Protocol

from proxy.wire.frames import FRAGMENT_BYTES, close_frame
from proxy.wire.frames import frames as made

BORDERS = [
    0,
    1,
    125,
    126,
    127,
    65535,
    65536,
    FRAGMENT_BYTES - 1,
    FRAGMENT_BYTES,
    FRAGMENT_BYTES + 1,
    FRAGMENT_BYTES + 1000,
    3 * FRAGMENT_BYTES + 7,
]


def framed(*payloads: bytes) -> bytes:
    return b"".join(made(payloads))


def frames(data: bytes) -> list[Frame]:
    """As a client of the `websockets` library reads them; it fails on whatever breaks the RFC."""
    client = Protocol(CLIENT, state=OPEN, max_size=None)
    client.receive_data(data)
    assert client.parser_exc is None
    return [event for event in client.events_received() if isinstance(event, Frame)]


def messages(data: bytes) -> list[bytes]:
    out: list[bytes] = []
    for frame in frames(data):
        assert (frame.rsv1, frame.rsv2, frame.rsv3) == (False, False, False)
        if frame.opcode is Opcode.TEXT:
            out.append(b"")
        out[-1] += frame.data
    return out


@pytest.mark.parametrize("size", BORDERS)
def test_a_message_of_any_size_arrives_as_it_left(size: int) -> None:
    payload = b"x" * size
    assert messages(framed(payload)) == [payload]


@pytest.mark.parametrize("size", BORDERS)
def test_a_pong_waits_behind_at_most_one_fragment(size: int) -> None:
    got = frames(framed(b"x" * size))
    assert max(len(frame.data) for frame in got) <= FRAGMENT_BYTES
    assert [frame.fin for frame in got] == [False] * (len(got) - 1) + [True]
    assert [frame.opcode for frame in got] == [Opcode.TEXT] + [Opcode.CONT] * (len(got) - 1)


def test_a_length_is_written_in_its_shortest_form() -> None:
    headers = {
        125: b"\x81\x7d",
        126: b"\x81\x7e\x00\x7e",
        65535: b"\x81\x7e\xff\xff",
        65536: b"\x81\x7f" + (65536).to_bytes(8, "big"),
    }
    for size, header in headers.items():
        assert framed(b"x" * size)[:-size] == header


@given(st.lists(st.one_of(st.binary(max_size=300), st.sampled_from(BORDERS).map(lambda size: b"y" * size)), max_size=6))
@settings(deadline=None, max_examples=40)
def test_many_messages_in_one_write_stay_apart(payloads: list[bytes]) -> None:
    assert messages(framed(*payloads)) == payloads


def test_a_close_has_its_code_and_as_much_of_its_reason_as_there_is_room_for() -> None:
    assert close_frame(1007) == b"\x88\x02\x03\xef"
    assert close_frame(1009, "too large") == b"\x88\x0b\x03\xf1too large"
    long = close_frame(1000, "é" * 100)
    assert len(long) <= 2 + 125
    assert long[4:].decode() == "é" * 61
