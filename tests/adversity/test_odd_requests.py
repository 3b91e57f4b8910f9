"""Requests that no good client sends, byte by byte: odd handshakes, and bodies that two readers could cut differently.

What cannot be read with certainty is refused and the connection closed, so that nothing that follows it is taken for
a request.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence

import pytest

from tests.house import House, open_house
from tests.raw_socket import KEY, PROBE, TEXT, connection, frame, upgrade


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with open_house("chat") as opened:
        yield opened


# --- Handshakes ------------------------------------------------------------------------------------------------------

# Headers that replace the good ones (None: left out), further lines → status.
HANDSHAKES: dict[str, tuple[Mapping[str, str | None], Sequence[str], int]] = {
    "a good one": ({}, (), 101),
    "other cases": ({"Upgrade": "WebSocket", "Connection": "keep-alive, UPGRADE"}, (), 101),
    "a version of the future": ({"Sec-WebSocket-Version": "14"}, (), 426),
    "a version of the past": ({"Sec-WebSocket-Version": "0"}, (), 426),
    "no version": ({"Sec-WebSocket-Version": None}, (), 426),
    "two versions": ({}, ("Sec-WebSocket-Version: 8",), 426),
    "two versions in one": ({"Sec-WebSocket-Version": "13, 8"}, (), 426),
    "no key": ({"Sec-WebSocket-Key": None}, (), 400),
    "an empty key": ({"Sec-WebSocket-Key": ""}, (), 400),
    "a short key": ({"Sec-WebSocket-Key": "AAAA"}, (), 400),
    "a long key": ({"Sec-WebSocket-Key": KEY * 2}, (), 400),
    "a key that is not base64": ({"Sec-WebSocket-Key": "!" * 24}, (), 400),
    "a key with a stranger in it": ({"Sec-WebSocket-Key": KEY[:8] + "*" + KEY[8:]}, (), 400),
    "a key beyond ASCII": ({"Sec-WebSocket-Key": "é" * 24}, (), 400),
    "two keys": ({}, (f"Sec-WebSocket-Key: {KEY}",), 400),
    "no Upgrade": ({"Upgrade": None}, (), 426),
    "Upgrade to another protocol": ({"Upgrade": "h2c"}, (), 426),
    "Upgrade to much like it": ({"Upgrade": "websockets"}, (), 426),
    "no Connection": ({"Connection": None}, (), 400),
    "Connection of another kind": ({"Connection": "close"}, (), 400),
    "no Host": ({"Host": None}, (), 400),
    "two Hosts": ({}, ("Host: other",), 400),
    "a body": ({}, ("Content-Length: 5",), 400),
    "a chunked body": ({}, ("Transfer-Encoding: chunked",), 400),
    "a length of nothing": ({}, ("Content-Length: 0",), 101),
    "an unknown subprotocol": ({"Sec-WebSocket-Protocol": "chat, superchat"}, (), 101),
    "unknown extensions": ({"Sec-WebSocket-Extensions": "x-webkit-deflate-frame; a=b, foo"}, (), 101),
    "garbled extensions": ({"Sec-WebSocket-Extensions": ";;,,=;permessage-deflate;=;"}, (), 101),
}


@pytest.mark.parametrize("name", HANDSHAKES)
async def test_a_handshake(name: str, house: House) -> None:
    headers, extra, wanted = HANDSHAKES[name]
    async with connection(house.url) as raw:
        await raw.send(upgrade(house.url, headers, extra))
        status, told = await raw.head()
        assert status == wanted
        if "version" in name:
            assert (told["sec-websocket-version"], told["upgrade"]) == ("13", "websocket")
    async with house.connect() as client:
        await client.works()


@pytest.mark.parametrize("line", ["GET /v1/responses HTTP/1.0", "POST /v1/responses HTTP/1.1"])
async def test_an_upgrade_by_another_method_or_version_is_none(line: str, house: House) -> None:
    async with connection(house.url) as raw:
        await raw.send(upgrade(house.url).replace(b"GET /v1/responses HTTP/1.1", line.encode()))
        status, _ = await raw.head()
        assert 400 <= status < 500
    await house.empty()


async def test_frames_may_come_with_the_handshake(house: House) -> None:
    async with connection(house.url) as raw:
        await raw.send(upgrade(house.url) + frame(TEXT, PROBE))
        assert (await raw.head())[0] == 101
        assert await raw.outcomes() == ["lives"]


# --- Bodies that two readers could cut differently -------------------------------------------------------------------

BODY = json.dumps({"model": "simulated", "input": "[[say 1]]"}).encode()
CHUNKED = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
SMUGGLED = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
TE = b"Transfer-Encoding: chunked\r\n"


def post(headers: bytes, body: bytes, end: bytes = b"\r\n") -> bytes:
    head = b"POST /v1/responses HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer test\r\n"
    return head + b"Content-Type: application/json\r\n" + headers + end + body


REFUSED: dict[str, bytes] = {
    "length and chunked": post(LENGTH + TE, CHUNKED),
    "chunked and length": post(TE + LENGTH, CHUNKED),
    "two lengths that differ": post(LENGTH + b"Content-Length: 5\r\n", BODY),
    "two lengths in one": post(b"Content-Length: %d, 5\r\n" % len(BODY), BODY),
    "a length with a sign": post(b"Content-Length: +%d\r\n" % len(BODY), BODY),
    "a negative length": post(b"Content-Length: -1\r\n", BODY),
    "a length in hexadecimal": post(b"Content-Length: 0x10\r\n", BODY),
    "a length with an underscore": post(b"Content-Length: 1_0\r\n", BODY),
    "a length beyond any": post(b"Content-Length: " + b"9" * 40 + b"\r\n", BODY),
    "an empty length": post(b"Content-Length:\r\n", BODY),
    "chunked twice": post(b"Transfer-Encoding: chunked, chunked\r\n", CHUNKED),
    "chunked, then identity": post(b"Transfer-Encoding: chunked, identity\r\n", CHUNKED),
    "another encoding": post(b"Transfer-Encoding: xchunked\r\n", CHUNKED),
    "an encoding with a tab before": post(b"Transfer-Encoding: \x0bchunked\r\n", CHUNKED),
    "a space before the colon": post(b"Transfer-Encoding : chunked\r\n", CHUNKED),
    "a folded header": post(b"X-Folded: a\r\n b\r\n" + LENGTH, BODY),
    "a folded encoding": post(b"Transfer-Encoding:\r\n chunked\r\n", CHUNKED),
    "a folded line first": post(b"", b"").replace(b"Host:", b" Host:"),
    "a header without a name": post(b": x\r\n" + LENGTH, BODY),
    "a header without a colon": post(b"X-None\r\n" + LENGTH, BODY),
    "a NUL in a header": post(b"X-Nul: a\x00b\r\n" + LENGTH, BODY),
    "a bare CR in a header": post(b"X-Bare: a\rb\r\n" + LENGTH, BODY),
    "a chunk's size with a sign": post(TE, b"+" + CHUNKED),
    "a chunk's size in 0x": post(TE, b"0x" + CHUNKED),
    "a chunk's size with an underscore": post(TE, b"1_" + CHUNKED),
    "a chunk's size beyond any": post(TE, b"f" * 40 + b"\r\n" + BODY),
    "a chunk longer than its size": post(TE, b"5\r\n" + BODY + b"\r\n0\r\n\r\n"),
    "a chunk that ends in no line": post(TE, CHUNKED.replace(b"}\r\n0", b"}0")),
    "a chunk extension that swallows a request": post(TE, b"5;" + b"x" * 20_000),
    "no method": b" /v1/responses HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "no version": b"GET /healthz\r\nHost: 127.0.0.1\r\n\r\n",
    "a version of its own": b"GET /healthz HTTP/1.1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "HTTP/2's preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
    "a line that has no end": b"GET /" + b"a" * 200_000,
    "a header that has no end": post(b"X-Long: " + b"a" * 200_000, b""),
}


# A head that is too large for us is told so (RFC 6585, section 5).
TOO_LARGE = {
    "a line that has no end": REFUSED.pop("a line that has no end"),
    "a header that has no end": REFUSED.pop("a header that has no end"),
    "a header's name that has no end": post(b"X" * 200_000, b""),
    "too many headers": post(b"X-A: 1\r\n" * 1000, b""),
}
STATUSES = {**dict.fromkeys(REFUSED, 400), **dict.fromkeys(TOO_LARGE, 431)}


def answers(heard: bytes) -> list[tuple[int, dict[str, str], bytes]]:
    """Every answer of a connection, whole."""
    found = []
    while heard:
        head, _, rest = heard.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        size = int(headers["content-length"])
        found.append((int(first.split()[1]), headers, rest[:size]))
        heard = rest[size:]
    return found


def assert_plain_error(answer: tuple[int, dict[str, str], bytes], status: int) -> None:
    """An error in the API's shape, named, that quotes nothing of what was sent."""
    got, headers, body = answer
    assert got == status
    assert headers["content-type"].startswith("application/json")
    assert re.fullmatch(r"req_[0-9a-f]{24}", headers["x-request-id"])
    assert headers["x-content-type-options"] == "nosniff"
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert not any(part in error["message"] for part in ("127.0.0.1", "healthz", "simulated", "0x", "aaa", "xxx", "b'"))


@pytest.mark.parametrize("name", STATUSES)
async def test_what_could_be_cut_differently_is_refused_with_what_follows(name: str, house: House) -> None:
    async with connection(house.url) as raw:
        await raw.send({**REFUSED, **TOO_LARGE}[name] + SMUGGLED)
        heard = answers(await raw.ended())
    assert len(heard) == 1
    assert_plain_error(heard[0], STATUSES[name])
    assert not house.upstream.requests
    reason = "too_large" if STATUSES[name] == 431 else "malformed"
    wanted = f'loopline_http_unreadable_total{{reason="{reason}"}} 1.0'
    assert wanted in house.server.metrics.render()[0].decode()
    async with house.connect() as client:
        await client.works()


# What shows only once the head was read and whoever serves it waits for the body.
LATE = {
    "a chunk's size that is none": [b"5\r\nabcde\r\n", b"zz\r\n"],
    "a chunk longer than its size": [b"5\r\nabcdefgh\r\n"],
    "a trailer that is none": [b"5\r\nabcde\r\n", b"0\r\nX Y\r\n\r\n"],
    "a trailer that has no end": [b"5\r\nabcde\r\n0\r\nX: " + b"a" * 200_000],
    "a request in the place of a chunk": [b"5\r\nabcde\r\n", SMUGGLED],
}


@pytest.mark.parametrize("name", LATE)
async def test_a_body_that_turns_out_to_be_malformed_is_answered_once_and_ends_the_connection(
    name: str, house: House
) -> None:
    expecting = post(TE + b"Expect: 100-continue\r\n", b"")
    async with connection(house.url) as raw:
        await raw.send(expecting)
        assert (await raw.head())[0] == 100  # it is being read
        for part in LATE[name]:
            await raw.send(part)
        heard = answers(await raw.ended())
    assert len(heard) == 1
    assert_plain_error(heard[0], 400)
    assert not house.upstream.requests
    await house.empty()


async def test_a_malformed_body_that_is_passed_on_is_given_up_upstream_too(house: House) -> None:
    async with connection(house.url) as raw:
        await raw.send(post(TE + b"Expect: 100-continue\r\n", b"").replace(b"/v1/responses", b"/v1/embeddings"))
        assert (await raw.head())[0] == 100
        await raw.send(b"5\r\nabcde\r\nzz\r\n")
        heard = answers(await raw.ended())
    assert [status for status, _, _ in heard] == [400]
    await house.watcher.wait_for(lambda: bool(house.watcher.passed_on))
    await house.empty()


async def test_requests_before_the_malformed_one_have_their_answers(house: House) -> None:
    async with connection(house.url) as raw:
        for _ in range(2):
            await raw.send(SMUGGLED)
            assert (await raw.answer())[0] == 200
        await raw.send(REFUSED["length and chunked"])
        (last,) = answers(await raw.ended())
    assert_plain_error(last, 400)


async def test_what_was_wrong_is_told_in_the_parsers_words(house: House) -> None:
    async with connection(house.url) as raw:
        await raw.send(REFUSED["two lengths that differ"])
        ((_, _, body),) = answers(await raw.ended())
    assert json.loads(body)["error"]["message"] == "The request is malformed: Duplicate Content-Length."


# Odd, yet there is one way to read them.
ACCEPTED: dict[str, bytes] = {
    "chunked": post(TE, CHUNKED),
    "chunked in other letters": post(b"tRANSFER-eNCODING: CHUNKed\r\n", CHUNKED),
    "chunked by single bytes": post(TE, b"".join(b"1\r\n%c\r\n" % byte for byte in BODY) + b"0\r\n\r\n"),
    "a chunk extension": post(TE, CHUNKED.replace(b"\r\n", b";name=value\r\n", 1)),
    "trailers": post(TE, CHUNKED.replace(b"0\r\n\r\n", b"0\r\nX-Trailer: 1\r\n\r\n")),
    "a size with leading zeros": post(TE, b"0000" + CHUNKED),
    "an empty line before": b"\r\n" + post(LENGTH, BODY),
}


@pytest.mark.parametrize("name", ACCEPTED)
async def test_what_is_odd_and_clear_is_served_and_so_is_what_follows(name: str, house: House) -> None:
    async with connection(house.url) as raw:
        await raw.send(ACCEPTED[name] + SMUGGLED)
        status, _, _ = await raw.answer()
        assert status == 200
        assert (await raw.answer())[2].startswith(b'{"status":"ok"')
    assert len(house.upstream.requests) == 1


# --- Slow ------------------------------------------------------------------------------------------------------------


async def test_a_head_and_a_body_that_trickle_hold_up_nobody(house: House) -> None:
    request = post(LENGTH, BODY)
    async with connection(house.url) as slow, house.connect() as client:
        for at in range(len(request) - 1):
            await slow.send(request[at : at + 1])
            if at % 50 == 0:
                await client.works()
        await slow.send(request[-1:])
        assert (await slow.answer())[0] == 200


async def test_a_connection_without_a_whole_head_is_closed() -> None:
    async with open_house("chat", {"server.head_s": 0.2}) as house, connection(house.url) as nothing:
        async with connection(house.url) as half, connection(house.url) as kept:
            await half.send(b"GET /healthz HTTP/1.1\r\nHost: 127.0")
            await kept.send(SMUGGLED)
            assert (await kept.answer())[0] == 200
            await kept.send(b"GET /")
            await asyncio.gather(nothing.ended(), half.ended(), kept.ended())


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/embeddings", "/nowhere"])
async def test_an_expectation_that_nobody_knows_is_told_as_every_error(path: str, house: House) -> None:
    async with house.http.get(house.root + path, headers={"Expect": "a pony"}) as response:
        assert response.status == 417
        assert response.headers["x-request-id"]
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert (await response.json())["error"] == {
            "message": "417: Expectation Failed.",
            "type": "invalid_request_error",
            "param": None,
            "code": None,
        }
