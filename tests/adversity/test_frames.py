"""The cases of Autobahn's fuzzing client, sections 1 to 7 and 9, frame by frame.

`CASES` says what each sends and what must come back. What is well-formed as a WebSocket gets an event and the socket
goes on: text of a JSON that Loopline says back (`echo`), binary a typed error, text that is not UTF-8 a typed error in
the place of a close with 1007. What breaks the protocol is closed with RFC 6455's code.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import NamedTuple

import pytest

from tests.house import House, open_house
from tests.raw_socket import (
    BINARY,
    CLOSE,
    CONTINUATION,
    ECHO_LEAST,
    PING,
    PONG,
    PROBE,
    TEXT,
    close,
    echo,
    echo_of,
    frame,
    pieces,
    raw_socket,
)

KIB, MIB = 1024, 1024 * 1024


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with open_house("chat") as opened:
        yield opened


class Case(NamedTuple):
    """Frames; what must be heard, in order; `chop`: bytes in one write (0: everything)."""

    sent: Sequence[bytes]
    heard: Sequence[str]
    chop: int = 0


LIVES = "lives"


def closed(code: int) -> list[str]:
    return [f"close {code}", "end"]


BROKEN = closed(1002)  # what breaks the protocol
NOT_UTF8 = ["invalid_unicode", LIVES]
HELLO = frame(TEXT, echo(b"Hello"))
HEARD = "echo Hello"


def texts(sizes: Mapping[str, int], chop: int = 0) -> dict[str, Case]:
    return {
        number: Case([frame(TEXT, echo_of(size))], [f"echo {'x' * (size - len(echo(b'')))}", LIVES], chop)
        for number, size in sizes.items()
    }


def binaries(sizes: Mapping[str, int], chop: int = 0) -> dict[str, Case]:
    return {
        number: Case([frame(BINARY, b"\xfe" * size)], ["unsupported_binary_frame", LIVES], chop)
        for number, size in sizes.items()
    }


SIZES = {1: 0, 2: 125, 3: 126, 4: 127, 5: 128, 6: 65535, 7: 65536}
FRAMING = {
    "1.1.1": Case([frame(TEXT)], ["invalid_json", LIVES]),
    **texts({f"1.1.{number}": size for number, size in SIZES.items() if size}),
    **texts({"1.1.8": 65536}, chop=997),
    **binaries({f"1.2.{number}": size for number, size in SIZES.items()}),
    **binaries({"1.2.8": 65536}, chop=997),
}


def pong(payload: bytes) -> str:
    return f"pong {payload.hex()}".rstrip()


ODD_BYTES = b"\x00\xff\xfe\xfd\xfc\xfb\x00\xff"
LONG = b"\xfe" * 125
TEN = [b"payload-%d" % number for number in range(10)]
PINGS = {
    "2.1": Case([frame(PING)], ["pong", LIVES]),
    "2.2": Case([frame(PING, b"Hello")], [pong(b"Hello"), LIVES]),
    "2.3": Case([frame(PING, ODD_BYTES)], [pong(ODD_BYTES), LIVES]),
    "2.4": Case([frame(PING, LONG)], [pong(LONG), LIVES]),
    "2.5": Case([frame(PING, b"\xfe" * 126)], BROKEN),
    "2.6": Case([frame(PING, LONG)], [pong(LONG), LIVES], chop=1),
    "2.7": Case([frame(PONG)], [LIVES]),
    "2.8": Case([frame(PONG, b"unsolicited")], [LIVES]),
    "2.9": Case([frame(PONG, b"unsolicited"), frame(PING, b"ping")], [pong(b"ping"), LIVES]),
    "2.10": Case([frame(PING, payload) for payload in TEN], [*map(pong, TEN), LIVES]),
    "2.11": Case([frame(PING, payload) for payload in TEN], [*map(pong, TEN), LIVES], chop=1),
}

RESERVED_BITS = {
    "3.1": Case([frame(TEXT, echo(b"x"), rsv=1)], BROKEN),
    "3.2": Case([HELLO, frame(TEXT, echo(b"x"), rsv=2), frame(PING)], [HEARD, *BROKEN]),
    "3.3": Case([HELLO, frame(TEXT, echo(b"x"), rsv=3), frame(PING)], [HEARD, *BROKEN], chop=31),
    "3.4": Case([HELLO, frame(TEXT, echo(b"x"), rsv=4), frame(PING)], [HEARD, *BROKEN], chop=1),
    "3.5": Case([frame(BINARY, ODD_BYTES, rsv=5)], BROKEN),
    "3.6": Case([frame(PING, b"x", rsv=6)], BROKEN),
    "3.7": Case([frame(CLOSE, rsv=7)], BROKEN),
}

RESERVED_OPCODES = {
    **{f"4.1.{n}": Case([frame(opcode)], BROKEN) for n, opcode in enumerate(range(3, 8), 1)},
    **{f"4.2.{n}": Case([frame(opcode)], BROKEN) for n, opcode in enumerate(range(11, 16), 1)},
    **{f"4.1.{n} after text": Case([HELLO, frame(n + 2, b"x"), frame(PING)], [HEARD, *BROKEN]) for n in range(1, 6)},
    **{f"4.2.{n} after text": Case([HELLO, frame(n + 10, b"x"), frame(PING)], [HEARD, *BROKEN]) for n in range(1, 6)},
}


WHOLE = echo(b"Hello")
A, B = WHOLE[:20], WHOLE[20:]
FIVE = [WHOLE[:9], WHOLE[9:18], WHOLE[18:27], WHOLE[27:36], WHOLE[36:]]


def first(payload: bytes) -> bytes:
    return frame(TEXT, payload, fin=False)


def more(payload: bytes) -> bytes:
    return frame(CONTINUATION, payload, fin=False)


def last(payload: bytes) -> bytes:
    return frame(CONTINUATION, payload)


PINGED = frame(PING, b"ping")
PONGED = pong(b"ping")
FRAGMENTS = {
    "5.1": Case([frame(PING, b"a", fin=False), last(b"b")], BROKEN),
    "5.2": Case([frame(PONG, b"a", fin=False), last(b"b")], BROKEN),
    "5.3": Case([first(A), last(B)], [HEARD, LIVES]),
    "5.4": Case([first(A), last(B)], [HEARD, LIVES], chop=len(first(A))),
    "5.5": Case([first(A), last(B)], [HEARD, LIVES], chop=1),
    "5.6": Case([first(A), PINGED, last(B)], [PONGED, HEARD, LIVES]),
    "5.7": Case([first(A), PINGED, last(B)], [PONGED, HEARD, LIVES], chop=len(first(A))),
    "5.8": Case([first(A), PINGED, last(B)], [PONGED, HEARD, LIVES], chop=1),
    "5.9": Case([last(A), HELLO], BROKEN),
    "5.10": Case([last(A), HELLO], BROKEN, chop=len(last(A))),
    "5.11": Case([last(A), HELLO], BROKEN, chop=1),
    "5.12": Case([more(A), HELLO], BROKEN),
    "5.13": Case([more(A), HELLO], BROKEN, chop=len(more(A))),
    "5.14": Case([more(A), HELLO], BROKEN, chop=1),
    "5.15": Case([first(A), last(B), more(A), HELLO], [HEARD, *BROKEN]),
    "5.16": Case([more(A), first(A), last(B)] * 2, BROKEN),
    "5.17": Case([last(A), first(A), last(B)] * 2, BROKEN),
    "5.18": Case([first(A), frame(TEXT, B)], BROKEN),
    "5.18 unfinished": Case([first(A), first(B)], BROKEN),
    "5.18 binary": Case([first(A), frame(BINARY, B)], BROKEN),
    "5.19": Case(
        [first(FIVE[0]), more(FIVE[1]), PINGED, more(FIVE[2]), more(FIVE[3]), PINGED, last(FIVE[4])],
        [PONGED, PONGED, HEARD, LIVES],
    ),
    "5.20": Case(
        [first(FIVE[0]), more(FIVE[1]), PINGED, more(FIVE[2]), more(FIVE[3]), PINGED, last(FIVE[4])],
        [PONGED, PONGED, HEARD, LIVES],
        chop=3,
    ),
    "5 binary": Case([frame(BINARY, A, fin=False), last(B)], ["unsupported_binary_frame", LIVES]),
    "5 empty fragments": Case([first(b""), more(WHOLE), more(b""), last(b"")], [HEARD, LIVES]),
}


# Autobahn's sequences (Markus Kuhn's list), valid and not. U+0000 and quotes would not be JSON as they are.
KAPPA = "κόσμε"
VALID_UTF8 = {
    "6.2": f"Hello-µ@ßöäüàá-{KAPPA}-UTF-8!!",
    "6.5": KAPPA,
    "6.6": "\x7f \u0080 \u07ff \u0800 \uffff \U00010000",
    "6.7": "\x7f \u07ff \uffff \U0010ffff",
    "6.9": "\U0010ffff",
    "6.11": "\ud7ff \ue000 \ufffd \U0010ffff",
    "6.22": " ".join(chr(plane << 16 | low) for plane in range(17) for low in (0xFFFE, 0xFFFF)),
    "6.23": "\ufffd \ufff0 \ufff9",
}
GREEK = KAPPA.encode()
INVALID_UTF8 = {
    "6.3.1": GREEK + b"\xed\xa0\x80edited",
    "6.4.1": GREEK + b"\xf4\x90\x80\x80edited",
    "6.8.1": b"\xf8\x88\x80\x80\x80",
    "6.8.2": b"\xfc\x84\x80\x80\x80\x80",
    "6.10.1": b"\xf7\xbf\xbf\xbf",
    "6.10.2": b"\xfb\xbf\xbf\xbf\xbf",
    "6.10.3": b"\xfd\xbf\xbf\xbf\xbf\xbf",
    "6.11.5": b"\xf4\x90\x80\x80",
    "6.12.1": b"\x80",
    "6.12.2": b"\xbf",
    "6.12.8": bytes(range(0x80, 0xC0)),
    "6.13.1": b"".join(bytes([lead, 0x20]) for lead in range(0xC0, 0xE0)),
    "6.13.2": b"".join(bytes([lead, 0x20]) for lead in range(0xE0, 0xF0)),
    "6.13.3": b"".join(bytes([lead, 0x20]) for lead in range(0xF0, 0xF8)),
    "6.13.4": b"".join(bytes([lead, 0x20]) for lead in range(0xF8, 0xFC)),
    "6.13.5": b"\xfc \xfd ",
    "6.14.1": b"\xc0",
    "6.14.2": b"\xe0\x80",
    "6.14.3": b"\xf0\x80\x80",
    "6.14.6": b"\xdf",
    "6.14.7": b"\xef\xbf",
    "6.14.8": b"\xf7\xbf\xbf",
    "6.15.1": b"\xc0\xe0\x80\xf0\x80\x80\xf8\x80\x80\x80\xfc\x80\x80\x80\x80\xdf\xef\xbf",
    "6.16.1": b"\xfe",
    "6.16.2": b"\xff",
    "6.16.3": b"\xfe\xfe\xff\xff",
    "6.17.1": b"\xc0\xaf",
    "6.17.2": b"\xe0\x80\xaf",
    "6.17.3": b"\xf0\x80\x80\xaf",
    "6.17.4": b"\xf8\x80\x80\x80\xaf",
    "6.17.5": b"\xfc\x80\x80\x80\x80\xaf",
    "6.18.1": b"\xc1\xbf",
    "6.18.2": b"\xe0\x9f\xbf",
    "6.18.3": b"\xf0\x8f\xbf\xbf",
    "6.18.4": b"\xf8\x87\xbf\xbf\xbf",
    "6.19.1": b"\xc0\x80",
    "6.19.2": b"\xe0\x80\x80",
    "6.19.3": b"\xf0\x80\x80\x80",
    "6.20.1": b"\xed\xa0\x80",
    "6.20.2": b"\xed\xad\xbf",
    "6.20.3": b"\xed\xae\x80",
    "6.20.4": b"\xed\xaf\xbf",
    "6.20.5": b"\xed\xb0\x80",
    "6.20.6": b"\xed\xbe\x80",
    "6.20.7": b"\xed\xbf\xbf",
    "6.21.1": b"\xed\xa0\x80\xed\xb0\x80",
    "6.21.8": b"\xed\xaf\xbf\xed\xbf\xbf",
}


def whole(payload: bytes) -> list[bytes]:
    return [frame(TEXT, payload)]


def by_byte(payload: bytes) -> list[bytes]:
    return pieces(payload, 1)


UTF8 = {
    "6.1.1": Case([frame(TEXT)], ["invalid_json", LIVES]),
    "6.1.2": Case([first(b""), more(b""), last(b"")], ["invalid_json", LIVES]),
    "6.1.3": Case([first(b""), more(WHOLE), last(b"")], [HEARD, LIVES]),
    **{
        f"{number} {how}": Case(sent(echo(text.encode())), [f"echo {text}", LIVES], chop)
        for number, text in VALID_UTF8.items()
        for how, sent, chop in (
            ("whole", whole, 0),
            ("byte fragments", by_byte, 0),
            ("chopped", whole, 1),
        )
    },
    **{
        f"{number} {how}": Case(sent(echo(text)), NOT_UTF8)
        for number, text in INVALID_UTF8.items()
        for how, sent in (
            ("whole", whole),
            ("byte fragments", by_byte),
        )
    },
    # A character cut by the message's end, its rest in the next message: two messages that are both wrong.
    "6.4 cut by the end": Case([frame(TEXT, GREEK[:-1]), frame(TEXT, GREEK[-1:])], ["invalid_unicode"] * 2 + [LIVES]),
}

VALID_CODES = (1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 3999, 4000, 4999)
INVALID_CODES = (0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999)
NORMAL = closed(1000)
CLOSING = {
    "7.1.1": Case([HELLO, close(1000)], [HEARD, *NORMAL]),
    "7.1.2": Case([close(1000), close(1000)], NORMAL),
    "7.1.3": Case([close(1000), PINGED], NORMAL),
    "7.1.4": Case([close(1000), HELLO], NORMAL),
    "7.1.5": Case([first(A), close(1000), last(B)], NORMAL),
    "7.1.6": Case(
        [frame(TEXT, echo_of(256 * KIB)), HELLO, close(1000)],
        ["echo " + "x" * (256 * KIB - ECHO_LEAST), HEARD, *NORMAL],
    ),
    "7.3.1": Case([close()], NORMAL),
    "7.3.2": Case([frame(CLOSE, b"a")], BROKEN),
    "7.3.3": Case([close(1000)], NORMAL),
    "7.3.4": Case([close(1000, b"Hello World!")], NORMAL),
    "7.3.5": Case([close(1000, b"*" * 123)], NORMAL),
    "7.3.6": Case([close(1000, b"*" * 124)], BROKEN),
    "7.5.1": Case([close(1000, b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited")], closed(1007)),
    **{f"7.7 {code}": Case([close(code)], closed(code)) for code in VALID_CODES},
    **{f"7.9 {code}": Case([close(code)], BROKEN) for code in INVALID_CODES},
    **{f"7.13 {code}": Case([close(code)], BROKEN) for code in (5000, 65535)},
}

MASKING = {
    "mask of zeros": Case([frame(TEXT, WHOLE, mask=bytes(4))], [HEARD, LIVES]),
    "mask of ones": Case([frame(TEXT, WHOLE, mask=b"\xff" * 4)], [HEARD, LIVES]),
    "masks that differ": Case([frame(TEXT, A, fin=False, mask=b"abcd"), frame(CONTINUATION, B)], [HEARD, LIVES]),
    "masked wrongly": Case([frame(TEXT, WHOLE, mask=bytes(4))[:6] + b"\xff" * len(WHOLE)], NOT_UTF8),
    "not masked": Case([HELLO, frame(TEXT, WHOLE, mask=None), HELLO], [HEARD, *BROKEN]),
    "not masked, byte by byte": Case([HELLO, frame(TEXT, WHOLE, mask=None)], [HEARD, *BROKEN], chop=1),
    "nothing, not masked": Case([frame(TEXT, mask=None)], BROKEN),
    "ping not masked": Case([frame(PING, b"ping", mask=None)], BROKEN),
    "pong not masked": Case([frame(PONG, mask=None)], BROKEN),
    "close not masked": Case([frame(CLOSE, b"\x03\xe8", mask=None)], BROKEN),
    "the last fragment not masked": Case([first(A), frame(CONTINUATION, B, mask=None)], BROKEN),
    "data inside a message that has begun with nothing": Case([first(b""), HELLO], BROKEN),
    "the same, after more of nothing": Case([first(b""), more(b""), PINGED, first(A)], [PONGED, *BROKEN]),
}

SECTIONS = {
    "1 framing": FRAMING,
    "2 pings": PINGS,
    "3 reserved bits": RESERVED_BITS,
    "4 reserved opcodes": RESERVED_OPCODES,
    "5 fragments": FRAGMENTS,
    "6 UTF-8": UTF8,
    "7 closing": CLOSING,
    "masks and lengths": MASKING,
}


async def heard(house: House, case: Case) -> list[str]:
    async with raw_socket(house.url) as raw:
        heard = asyncio.create_task(raw.outcomes())  # beside the sending: a reset would take what was not read yet
        probe = [frame(TEXT, PROBE)] if LIVES in case.heard else []
        with contextlib.suppress(ConnectionError):
            await raw.send(b"".join((*case.sent, *probe)), chop=case.chop)
        return await heard


@pytest.mark.parametrize("section", SECTIONS)
async def test_the_cases_of(section: str, house: House) -> None:
    got = {number: await heard(house, case) for number, case in SECTIONS[section].items()}
    wrong = {
        number: f"{short(got[number])}, not {short(case.heard)}"
        for number, case in SECTIONS[section].items()
        if got[number] != list(case.heard)
    }
    assert not wrong
    await house.empty()


def short(outcomes: Sequence[str]) -> list[str]:
    return [outcome[:60] for outcome in outcomes]


# --- 9: limits -------------------------------------------------------------------------------------------------------

BIG = {"limits.frame_bytes": 32 * MIB, "limits.frame_hard_bytes": 64 * MIB}


@pytest.mark.parametrize("size", [64 * KIB, 256 * KIB, MIB, 4 * MIB, 8 * MIB, 16 * MIB])
async def test_9_1_a_large_message_in_one_frame(size: int) -> None:
    async with open_house("chat", BIG) as house, raw_socket(house.url) as raw:
        await raw.send(frame(TEXT, echo_of(size)))
        assert len(await raw.outcome()) == len("echo ") + size - ECHO_LEAST
        await raw.send(frame(BINARY, bytes(size)))
        assert await raw.outcome() == "unsupported_binary_frame"
        await raw.lives()


@pytest.mark.parametrize("size", [64, 256, KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB])
async def test_9_3_four_mebibytes_in_fragments(size: int, house: House) -> None:
    async with raw_socket(house.url) as raw:
        await raw.send(b"".join(pieces(echo_of(4 * MIB), size)))
        assert len(await raw.outcome()) == len("echo ") + 4 * MIB - ECHO_LEAST
        await raw.lives()


@pytest.mark.parametrize("chop", [64, 128, 256, 512, KIB, 2 * KIB])
async def test_9_5_a_mebibyte_in_small_writes(chop: int, house: House) -> None:
    async with raw_socket(house.url) as raw:
        await raw.send(frame(TEXT, echo_of(MIB)), chop=chop)
        assert len(await raw.outcome()) == len("echo ") + MIB - ECHO_LEAST
        await raw.lives()


@pytest.mark.parametrize("size", [0, 16, 64, 256, KIB, 4 * KIB])
async def test_9_7_a_thousand_messages(size: int, house: House) -> None:
    async with raw_socket(house.url) as raw:
        await raw.send(frame(TEXT, echo(b"x" * size)) * 1000)
        assert {await raw.outcome() for _ in range(1000)} == {"echo " + "x" * size}
        await raw.lives()


LARGE = {"limits.frame_bytes": 64 * KIB, "limits.frame_hard_bytes": 128 * KIB}
TOO_LARGE = {
    "whole": [frame(TEXT, b"x" * (128 * KIB + 1))],
    "in fragments": [first(b"x" * (64 * KIB)), more(b"x" * (64 * KIB)), last(b"x")],
    "binary": [frame(BINARY, b"x" * (128 * KIB + 1))],
    "said only": [b"\x81\xff" + (129 * KIB).to_bytes(8) + b"mask"],
    "said only, beyond any": [b"\x81\xff" + b"\xff" * 8 + b"mask"],
    "said only, in a fragment": [first(A), b"\x80\xff" + (128 * KIB).to_bytes(8) + b"mask"],
}


@pytest.mark.parametrize("chop", [0, 1021])
@pytest.mark.parametrize("name", TOO_LARGE)
async def test_a_message_above_the_hard_limit_is_told_of_then_the_socket_is_closed(name: str, chop: int) -> None:
    async with open_house("chat", LARGE) as house:
        async with raw_socket(house.url) as raw, house.connect() as client:
            await raw.send(HELLO + b"".join(TOO_LARGE[name]), chop=chop)
            assert [await raw.outcome() for _ in range(3)] == [HEARD, "message_too_large", "close 1009"]
            await client.works()
            if "said" not in name:
                await raw.send(HELLO + PINGED + frame(TEXT, WHOLE, mask=None) + close(1016))  # heard no more
                assert await raw.outcome() == "end"
        await house.empty()
        codes = {session.close_code for session in house.watcher.sessions}
        assert codes == {1000, 1009}


async def test_it_is_told_of_even_where_the_client_closes_at_once() -> None:
    async with open_house("chat", LARGE) as house, raw_socket(house.url) as raw:
        await raw.send(TOO_LARGE["whole"][0] + close(1000))
        assert await raw.outcomes() == ["message_too_large", "close 1009", "end"]


async def test_a_slow_sender_is_told_while_it_still_sends() -> None:
    """A connection that is closed at once would be reset, and what was said before lost with it."""
    async with open_house("chat", {"server.receive_s": 0.2}) as house, raw_socket(house.url) as raw:
        message = frame(TEXT, echo_of(100_000))
        await raw.send(message[:1000])
        assert await raw.outcome() == "request_timeout"
        await raw.send(message[1000:] + HELLO + close(1008))
        assert await raw.outcomes() == ["close 1008", "end"]
        await house.empty()
        assert house.watcher.sessions[-1].close_code == 1008


async def test_between_the_limits_a_message_is_refused_and_the_socket_lives() -> None:
    async with open_house("chat", LARGE) as house, raw_socket(house.url) as raw:
        for size, wanted in ((64 * KIB, "echo"), (64 * KIB + 1, "message_too_large"), (128 * KIB, "message_too_large")):
            await raw.send(frame(TEXT, echo_of(size)))
            assert (await raw.outcome()).startswith(wanted)
        await raw.lives()


async def test_a_turn_that_runs_ends_with_an_event_before_the_close() -> None:
    async with open_house("chat", LARGE) as house, raw_socket(house.url) as raw:
        await raw.send(frame(TEXT, b'{"type":"response.create","model":"simulated","input":"[[stall 1]]"}'))
        await house.upstream.wait_for(lambda upstream: bool(upstream.requests), 5)
        await raw.send(TOO_LARGE["whole"][0])
        heard: list[str] = []
        while not heard or not heard[-1].startswith("close"):
            heard.append(await raw.outcome())
        assert heard[-2:] == ["message_too_large", "close 1009"]
        assert heard[-3] in ("response.failed", "message_too_large")


async def test_what_breaks_the_protocol_is_counted_as_that(house: House) -> None:
    async with raw_socket(house.url) as raw:
        await raw.send(frame(TEXT, WHOLE, mask=None))
        assert await raw.outcomes() == BROKEN
    await house.empty()
    assert house.watcher.sessions[-1].close_code == 1002


async def test_many_fragments_without_content_are_no_message(house: House) -> None:
    async with raw_socket(house.url) as raw:
        await raw.send(first(A) + more(b"") * 100_000 + PINGED)
        assert await raw.outcome() == PONGED
        await raw.send(last(B))
        assert await raw.outcome() == HEARD


# --- Half frames -----------------------------------------------------------------------------------------------------

CUTS = {
    "one byte of a header": HELLO[:1],
    "a header without its length": frame(TEXT, echo_of(300))[:3],
    "a header without its mask": HELLO[:4],
    "half a payload": HELLO[:20],
    "half a message": first(A),
    "half a close": close(1000)[:7],
}


@pytest.mark.parametrize("cut", CUTS)
async def test_half_a_frame_then_nothing_holds_up_nobody(cut: str) -> None:
    quick = {"server.ping_interval_s": 0.1}
    async with open_house("chat", quick) as house:
        async with raw_socket(house.url) as silent, house.connect() as client:
            await silent.send(CUTS[cut])
            await client.works()
            # It answers no ping either, and is given up.
            await asyncio.wait_for(silent.ended(), 10)
        await house.empty()


@pytest.mark.parametrize("cut", CUTS)
async def test_half_a_frame_then_the_end(cut: str, house: House) -> None:
    async with raw_socket(house.url) as raw:
        await raw.send(CUTS[cut])
        raw.writer.write_eof()
        await raw.ended()
    await house.empty()


async def test_others_have_their_turn_within_a_flood_of_small_frames(house: House) -> None:
    loop, taken = asyncio.get_running_loop(), [0]
    async with raw_socket(house.url) as raw:
        (session,) = house.server.sockets.sessions

        def look() -> None:
            taken.append(session.record.messages_in)
            looking[0] = loop.call_soon(look)

        looking = [loop.call_soon(look)]
        await raw.send(frame(TEXT, b"{}") * 3000 + (frame(PING) * 20 + frame(TEXT, b"{}")) * 300)
        for _ in range(3300):
            while (await raw.outcome()).startswith("pong"):
                pass
        looking[0].cancel()
        await raw.lives()
    steps = [after - before for before, after in itertools.pairwise(taken)]
    assert sum(steps) == 3300
    assert max(steps) <= 16
    # A ping is a message as any other: what comes between two of them is no more either.
    behind = steps[next(at for at, seen in enumerate(taken) if seen > 3016) :]
    assert max(behind) == 1
