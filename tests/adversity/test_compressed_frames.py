"""The cases of Autobahn's sections 12 and 13: permessage-deflate (RFC 7692).

What a client offers is agreed to or left out; either way it is served. Frames to clients always go uncompressed, which
the extension allows for each message.
"""

from __future__ import annotations

import asyncio
import tracemalloc
import zlib
from collections.abc import AsyncIterator

import pytest
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory

from proxy.wire.message_inflater import PIECE_BYTES, MessageInflater
from tests.house import House, open_house
from tests.raw_socket import (
    BINARY,
    CLOSE,
    CONTINUATION,
    ECHO_LEAST,
    PING,
    PONG,
    TEXT,
    RawSocket,
    close,
    connection,
    echo,
    echo_of,
    frame,
    raw_socket,
    upgrade,
)

KIB, MIB = 1024, 1024 * 1024
PLAIN = "permessage-deflate"
RSV1 = 4
TRAILER = b"\x00\x00\xff\xff"
WORDS = b"the same words again and again, and a few others; "


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with open_house("chat") as opened:
        yield opened


class Deflater:
    """Compresses messages as a client does."""

    def __init__(self, *, takeover: bool = True, bits: int = 15, level: int = 6) -> None:
        self._takeover = takeover
        self._arguments = (level, zlib.DEFLATED, -bits)
        self._deflate = zlib.compressobj(*self._arguments)

    def __call__(self, message: bytes) -> bytes:
        if not self._takeover:
            self._deflate = zlib.compressobj(*self._arguments)
        return (self._deflate.compress(message) + self._deflate.flush(zlib.Z_SYNC_FLUSH)).removesuffix(TRAILER)


def text(size: int) -> bytes:
    return (WORDS * (size // len(WORDS) + 1))[:size]


def offering(extensions: str) -> dict[str, str]:
    return {"Sec-WebSocket-Extensions": extensions}


# --- 12: sizes and takeover ------------------------------------------------------------------------------------------

SIZES = [0, 16, 64, 256, KIB, 4 * KIB, 8 * KIB, 16 * KIB, 32 * KIB, 64 * KIB, 128 * KIB]


@pytest.mark.parametrize("takeover", [True, False])
@pytest.mark.parametrize("size", SIZES)
async def test_12_many_messages_of_a_size(size: int, takeover: bool, house: House) -> None:
    wanted = "echo " + text(size).decode()
    async with raw_socket(house.url, offering(PLAIN)) as raw:
        deflate = Deflater(takeover=takeover)
        for _ in range(20):
            await raw.send(frame(TEXT, deflate(echo(text(size))), rsv=RSV1))
            assert await raw.outcome() == wanted
        await raw.lives()  # a message that is not compressed among those that are


@pytest.mark.parametrize("size", [1, 64, 256, 4 * KIB])
async def test_12_a_compressed_message_in_fragments_with_pings_between(size: int, house: House) -> None:
    data = Deflater(level=1)(echo(text(128 * KIB)))
    cuts = [data[at : at + size] for at in range(0, len(data), size)]
    frames = [frame(TEXT, cuts[0], fin=False, rsv=RSV1), *(frame(CONTINUATION, cut, fin=False) for cut in cuts[1:])]
    async with raw_socket(house.url, offering(PLAIN)) as raw:
        await raw.send(b"".join([*frames[:1], frame(PING), *frames[1:], frame(CONTINUATION)]))
        assert await raw.outcome() == "pong"
        assert await raw.outcome() == "echo " + text(128 * KIB).decode()
        await raw.lives()


async def test_12_what_does_not_compress(house: House) -> None:
    async with raw_socket(house.url, offering(PLAIN)) as raw:
        await raw.send(frame(TEXT, Deflater(level=0)(echo_of(256 * KIB)), rsv=RSV1))
        assert (await raw.outcome()).startswith("echo xxx")
        await raw.lives()


# --- 13: offers ------------------------------------------------------------------------------------------------------

FACTORIES = {
    "13.1": {},
    "13.2": {"server_no_context_takeover": True},
    "13.3": {"client_no_context_takeover": True},
    "13.4": {"server_no_context_takeover": True, "client_no_context_takeover": True},
    "13.5 client bits 9": {"client_max_window_bits": 9},
    "13.5 client bits 15": {"client_max_window_bits": 15},
    "13.5 client bits at will": {"client_max_window_bits": True},
    "13.6 server bits 9": {"server_max_window_bits": 9},
    "13.6 server bits 14": {"server_max_window_bits": 14},
    "13.6 server bits 15": {"server_max_window_bits": 15},
    "13.7 everything": {
        "server_no_context_takeover": True,
        "client_no_context_takeover": True,
        "server_max_window_bits": 9,
        "client_max_window_bits": 9,
    },
}


@pytest.mark.parametrize("number", FACTORIES)
async def test_13_what_websockets_offers(number: str, house: House) -> None:
    factory = ClientPerMessageDeflateFactory(**FACTORIES[number])  # type: ignore[arg-type]
    async with house.connect(extensions=[factory]) as client:
        for size in (16, KIB, 64 * KIB):
            await client.send({"type": "response.inject", "input": text(size).decode()})
            event = await client.event()
            assert event["input"] == text(size).decode()
        await client.works()


OFFERS = {
    "an unknown parameter": f"{PLAIN}; surprise=1",
    "the most bits": f"{PLAIN}; server_max_window_bits=15",
    "bits that are none": f"{PLAIN}; server_max_window_bits=banana",
    "bits too few": f"{PLAIN}; server_max_window_bits=7",
    "bits too many": f"{PLAIN}; client_max_window_bits=16",
    "a parameter twice": f"{PLAIN}; client_no_context_takeover; client_no_context_takeover",
    "a flag with a value": f"{PLAIN}; server_no_context_takeover=1",
    "another extension first": f"x-other, {PLAIN}",
    "a choice": f"{PLAIN}; server_max_window_bits=10, {PLAIN}",
    "a bad choice and a good one": f"{PLAIN}; surprise, {PLAIN}",
    "a quoted value": f'{PLAIN}; server_max_window_bits="10"',
}


async def opened(house: House, raw: RawSocket, offer: str) -> str:
    await raw.send(upgrade(house.url, offering(offer)))
    status, headers = await raw.head()
    assert status == 101
    return headers.get("sec-websocket-extensions", "")


@pytest.mark.parametrize("name", OFFERS)
async def test_13_an_odd_offer_is_agreed_to_or_left_out_and_the_socket_works(name: str, house: House) -> None:
    async with connection(house.url) as raw:
        agreed = await opened(house, raw, OFFERS[name])
        assert agreed == "" or agreed.startswith(PLAIN)
        assert "surprise" not in agreed
        if agreed:
            await raw.send(frame(TEXT, Deflater(bits=9)(echo(b"Hello")), rsv=RSV1))
            assert await raw.outcome() == "echo Hello"
        await raw.lives()


# --- What is broken --------------------------------------------------------------------------------------------------

COMPRESSED = Deflater()(echo(b"Hello"))
BROKEN = {
    "no deflate data": ([frame(TEXT, b"\xff" * 20, rsv=RSV1)], 1007),
    "no deflate data in fragments": (
        [frame(TEXT, b"\xff" * 20, fin=False, rsv=RSV1), frame(CONTINUATION, b"\xff" * 20)],
        1007,
    ),
    "binary that is no deflate data": ([frame(BINARY, b"\xff" * 20, rsv=RSV1)], 1007),
    "streams without end": ([frame(TEXT, b"\x03\x00" * 100, rsv=RSV1)], 1007),
    "reserved bit on a ping": ([frame(PING, rsv=RSV1)], 1002),
    "reserved bit on a pong": ([frame(PONG, b"x", rsv=RSV1)], 1002),
    "reserved bit on a close": ([frame(CLOSE, b"\x03\xe8", rsv=RSV1)], 1002),
    "reserved bit on a ping inside a message": (
        [frame(TEXT, COMPRESSED[:5], fin=False, rsv=RSV1), frame(PING, rsv=RSV1)],
        1002,
    ),
    "reserved bit on a continuation after nothing": (
        [frame(TEXT, b"", fin=False), frame(CONTINUATION, COMPRESSED, rsv=RSV1)],
        1002,
    ),
    "a new message after a compressed one of nothing": (
        [frame(TEXT, b"", fin=False, rsv=RSV1), frame(TEXT, COMPRESSED, rsv=RSV1)],
        1002,
    ),
    "not masked": ([frame(TEXT, COMPRESSED, rsv=RSV1, mask=None)], 1002),
    "reserved bit on a continuation": (
        [frame(TEXT, COMPRESSED[:5], fin=False, rsv=RSV1), frame(CONTINUATION, COMPRESSED[5:], rsv=RSV1)],
        1002,
    ),
    "another reserved bit": ([frame(TEXT, COMPRESSED, rsv=RSV1 | 2)], 1002),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_what_is_broken_closes_the_socket_alone(name: str, house: House) -> None:
    frames, code = BROKEN[name]
    async with raw_socket(house.url, offering(PLAIN)) as raw, house.connect() as client:
        await raw.send(b"".join(frames))
        assert await raw.outcomes() == [f"close {code}", "end"]
        await client.works()
    await house.empty()


async def test_what_follows_data_that_is_not_deflated_is_not_looked_at(house: House) -> None:
    create = b'{"type":"response.create","model":"simulated","input":"x"}'
    async with raw_socket(house.url, offering(PLAIN)) as raw:
        await raw.send(frame(TEXT, b"\xff" * 20, rsv=RSV1) + frame(TEXT, create))
        assert await raw.outcomes() == ["close 1007", "end"]
    await house.empty()
    assert not house.watcher.turns
    assert house.watcher.sessions[-1].close_code == 1007


def zeros(mebibytes: int) -> bytes:
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    return b"".join(deflate.compress(bytes(MIB)) for _ in range(mebibytes)) + deflate.flush(zlib.Z_SYNC_FLUSH)


BOUNDS = {"limits.frame_bytes": 4 * MIB, "limits.frame_hard_bytes": 8 * MIB}


@pytest.mark.parametrize("mebibytes", [9, 256])
@pytest.mark.slow
async def test_a_bomb_is_told_of_and_closed_with_1009_and_was_never_whole(mebibytes: int) -> None:
    bomb = zeros(mebibytes)
    assert len(bomb) < mebibytes * KIB * 1.1
    async with open_house("chat", BOUNDS) as house:
        tracemalloc.start()
        try:
            async with raw_socket(house.url, offering(PLAIN)) as raw, house.connect() as client:
                await raw.send(frame(TEXT, bomb, rsv=RSV1))
                assert [await raw.outcome() for _ in range(2)] == ["message_too_large", "close 1009"]
                await raw.send(frame(TEXT, bomb, rsv=RSV1) + close(1009))
                assert await raw.outcome() == "end"
                await client.works()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 2 * 4 * MIB + 2 * len(bomb) + 4 * MIB
        await house.empty()
        assert house.server.gate.accounts.whole.budget.used == 0


async def test_a_bomb_whose_client_has_left_is_inflated_no_further(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces, begun, inflate = [0], asyncio.Event(), MessageInflater._inflate

    def counted(self: MessageInflater, data: bytes) -> bytes:
        pieces[0] += 1
        begun.set()
        return inflate(self, data)

    monkeypatch.setattr(MessageInflater, "_inflate", counted)
    async with raw_socket(house.url, offering(PLAIN)) as raw:
        await raw.send(frame(TEXT, zeros(60), rsv=RSV1))
        await asyncio.wait_for(begun.wait(), 5)
        raw.writer.transport.abort()
        await house.empty(10)
    assert pieces[0] * PIECE_BYTES < 30 * MIB
    assert house.server.gate.accounts.whole.budget.used == 0


async def test_between_the_limits_what_it_inflates_to_is_refused_and_the_next_may_refer_to_it() -> None:
    async with open_house("chat", BOUNDS) as house, raw_socket(house.url, offering(PLAIN)) as raw:
        deflate = Deflater()
        for size, wanted in ((4 * MIB, "echo xxx"), (4 * MIB + 1, "message_too_large"), (8 * MIB, "message_too_large")):
            await raw.send(frame(TEXT, deflate(echo_of(size)), rsv=RSV1))
            assert (await raw.outcome()).startswith(wanted)
        await raw.send(frame(TEXT, deflate(echo_of(100)), rsv=RSV1))
        assert (await raw.outcome()).startswith("echo xxx")
        await raw.send(frame(BINARY, deflate(echo_of(100)), rsv=RSV1) + frame(TEXT, deflate(echo_of(99)), rsv=RSV1))
        assert await raw.outcome() == "unsupported_binary_frame"
        assert (await raw.outcome()).startswith("echo xxx")
        await raw.lives()


@pytest.mark.slow  # seven seconds of a core
async def test_what_shrinks_a_thousandfold_is_taken_up_to_the_limit_of_any_message(house: House) -> None:
    compressed = Deflater(level=9)(echo_of(48 * MIB))
    assert len(compressed) * 900 < 48 * MIB
    async with raw_socket(house.url, offering(PLAIN)) as raw:
        await raw.send(frame(TEXT, compressed, rsv=RSV1))
        assert len(await raw.outcome()) == len("echo ") + 48 * MIB - ECHO_LEAST
        await raw.lives()


async def test_what_a_message_inflates_to_is_memory() -> None:
    small = {"limits.frame_bytes": 4 * MIB, "limits.frame_hard_bytes": 8 * MIB, "limits.memory_bytes": 8 * MIB}
    async with open_house("chat", small) as house:
        budget = house.server.gate.accounts.whole.budget
        async with raw_socket(house.url, offering(PLAIN)) as raw:
            deflate = Deflater()
            with budget.hold(6 * MIB):
                await raw.send(frame(TEXT, deflate(echo_of(4 * MIB)), rsv=RSV1))
                assert await raw.outcome() == "server_error"
            await raw.send(frame(TEXT, deflate(echo_of(4 * MIB)), rsv=RSV1))
            assert (await raw.outcome()).startswith("echo xxx")
            await raw.lives()
        await house.empty()
        assert budget.used == 0
