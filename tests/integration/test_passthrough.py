"""What is passed on is equal on both sides; what must not be is refused before anything is sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
from openai import AsyncOpenAI, NotFoundError
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from proxy.server.relayed import reset
from tests.house import House, house_before
from tests.integration.passing_cases import CASES, OK, TE, Case, H, chunked, get, post
from tests.recording_upstream import (
    Answer,
    Exchange,
    Message,
    RawClient,
    RecordingUpstream,
    answering,
    raw_client,
    read_body,
    read_head,
    recording_upstream,
)

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n" + TE + b"\r\n"


@asynccontextmanager
async def passing(
    answer: Answer, extra: Mapping[str, object] | None = None
) -> AsyncIterator[tuple[House, RecordingUpstream, RawClient]]:
    """A server before an upstream that answers so, and a client's connection to it."""
    async with recording_upstream(answer) as upstream, house_before(upstream.url, "chat", extra) as house:
        async with raw_client(house.server.port) as client, asyncio.timeout(20):
            yield house, upstream, client


async def parsed(data: bytes, method: bytes = b"") -> Message:
    """A message of the table, as its reader would take it."""
    reader = asyncio.StreamReader(limit=1 << 18)
    reader.feed_data(data)
    reader.feed_eof()
    message = await read_head(reader)
    while method and message.start[1].startswith(b"1"):
        message = await read_head(reader)
    if not (method == b"HEAD" or message.start[1] in (b"204", b"304")):
        await read_body(reader, message, until_close=bool(method))
    return message


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_both_sides_see_the_same(case: Case) -> None:
    sent = await parsed(case.request)
    given = await parsed(case.answer, sent.start[0])
    closes = not (given.chunked or given.values(b"content-length")) and given.start[1] not in (b"204", b"304")

    async def answer(exchange: Exchange) -> None:
        await exchange.read()
        exchange.writer.write(case.answer)
        if closes or b"close" in b"".join(given.values(b"connection")):
            exchange.writer.close()

    async with passing(answer) as (_, upstream, client):
        await client.send(case.request)
        got = await client.answer(sent.start[0])
    [came] = upstream.requests
    assert came.start[:2] == sent.start[:2]
    assert came.end_to_end((b"host",)) == sent.end_to_end((b"host",))
    assert came.values(b"host") == [upstream.url.split("/")[2].encode()]
    assert came.body == sent.body
    assert came.chunked == sent.chunked
    assert got.start[1:] == given.start[1:]
    ours = () if given.values(b"x-request-id") else (b"x-request-id",)
    assert sorted(got.end_to_end(ours)) == sorted(given.end_to_end())
    assert got.body == given.body
    assert got.values(b"x-request-id")


async def test_a_name_that_is_spelled_in_two_ways_loses_neither_value() -> None:
    async with passing(answering(OK)) as (_, upstream, client):
        await client.send(get(head=b"X-A: 1\r\nX-B: 2\r\nx-a: 3\r\n"))
        await client.answer()
        assert upstream.requests[0].values(b"x-a") == [b"1", b"3"]


async def test_a_connection_carries_one_request_after_another() -> None:
    async with passing(answering(OK)) as (_, upstream, client):
        for number in range(5):
            await client.send(get(b"/v1/files/%d" % number) if number % 2 else post(b"x" * number))
            assert (await client.answer()).body == b"ok"
        assert len(upstream.requests) == 5


async def test_a_client_that_waits_for_a_100_gets_it_before_it_sends() -> None:
    async with passing(answering(OK)) as (_, upstream, client):
        await client.send(post(b"", b"Expect: 100-continue\r\n").replace(b"Length: 0", b"Length: 3"))
        assert (await read_head(client.reader)).start[1] == b"100"
        await client.send(b"abc")
        assert (await client.answer()).body == b"ok"
        assert upstream.requests[0].body == b"abc"
        assert not upstream.requests[0].values(b"expect")


# --- Streams ---------------------------------------------------------------------------------------------------------


async def test_pieces_pass_at_once_both_ways() -> None:
    """Each side sends a piece only when it has read the other's: one that is held back would be waited for for ever."""

    async def answer(exchange: Exchange) -> None:
        exchange.writer.write(STREAM)
        for _ in range(5):
            assert await exchange.reader.readline() == b"4\r\n"
            piece = (await exchange.reader.readexactly(6))[:4]
            exchange.writer.write(b"4\r\n%b\r\n" % piece)
        assert await exchange.reader.readexactly(5) == b"0\r\n\r\n"
        exchange.writer.write(b"0\r\n\r\n")

    async with passing(answer) as (_, _, client):
        await client.send(b"POST /v1/chat/completions HTTP/1.1\r\n" + H + TE + b"\r\n")
        assert (await client.head()).chunked
        for number in range(5):
            piece = b"4\r\n%04d\r\n" % number
            await client.send(piece)
            assert await client.reader.readexactly(len(piece)) == piece
        await client.send(b"0\r\n\r\n")
        assert await client.reader.readexactly(5) == b"0\r\n\r\n"


async def test_an_answer_waits_for_a_client_that_reads_slowly() -> None:
    written = 0
    stuck = asyncio.Event()

    async def answer(exchange: Exchange) -> None:
        nonlocal written
        await exchange.read()
        exchange.writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (64 << 20))
        for _ in range(64):
            exchange.writer.write(b"x" * (1 << 20))
            try:
                async with asyncio.timeout(0.5):
                    await exchange.writer.drain()
            except TimeoutError:
                stuck.set()
                await exchange.writer.drain()
            written += 1

    async with passing(answer) as (_, _, client):
        await client.send(get())
        await stuck.wait()
        assert written < 32
        message = await client.answer()
        assert len(message.body) == 64 << 20


async def test_a_body_waits_for_an_upstream_that_reads_slowly() -> None:
    go_on = asyncio.Event()

    async def answer(exchange: Exchange) -> None:
        await go_on.wait()
        await exchange.read()
        exchange.writer.write(OK)

    async with passing(answer) as (_, _, client):
        await client.send(b"POST /v1/files HTTP/1.1\r\n" + H + b"Content-Length: %d\r\n\r\n" % (64 << 20))
        sent = 0

        async def send_all() -> None:
            nonlocal sent
            for _ in range(64):
                async with asyncio.timeout(0.5):
                    await client.send(b"x" * (1 << 20))
                sent += 1

        with pytest.raises(TimeoutError):
            await send_all()
        assert sent < 32
        go_on.set()
        for _ in range(63 - sent):  # the piece that got stuck is on its way
            await client.send(b"x" * (1 << 20))
        assert (await client.answer()).body == b"ok"


@pytest.mark.parametrize(
    ("request_head", "head"),
    [
        (get(), STREAM + b"5\r\nabcde\r\n"),
        (get(), b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nabcde"),
        (b"GET /v1/files HTTP/1.0\r\n" + H + b"\r\n", STREAM + b"5\r\nabcde\r\n"),
    ],
    ids=["chunks", "length", "until the close"],
)
async def test_an_answer_that_is_cut_does_not_end(request_head: bytes, head: bytes) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.read()
        exchange.writer.write(head)
        await exchange.writer.drain()
        exchange.writer.close()

    async with passing(answer) as (house, _, client):
        await client.send(request_head)
        message = await client.head()
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            async with asyncio.timeout(1):
                await read_body(client.reader, message, until_close=True)
        await house.watcher.wait_for(lambda: house.left() == (0, 0, 0))


async def test_a_body_that_stops_coming_is_given_up() -> None:
    async with passing(answering(OK), {"server.receive_s": 0.3}) as (_, upstream, client):
        await client.send(b"POST /v1/files HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\nhalf")
        message = await client.answer()
        assert message.start[1] == b"408"
        assert b"server.receive_s" in message.body
        async with asyncio.timeout(5):
            await upstream.exchanges[0].closed.wait()
        assert not upstream.requests[0].whole


async def test_an_upstream_that_closes_before_it_answers_is_a_502() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.read()
        exchange.writer.close()

    async with passing(answer) as (_, _, client):
        await client.send(post(b"{}"))
        message = await client.answer()
        assert message.start[1] == b"502"
        assert b'"type":"server_error"' in message.body


NO_HTTP = {
    "another protocol": b"SSH-2.0-odd\r\n\r\n",
    "a header that is cut": b"HTTP/1.1 200 OK\r\nX-A: 1\rSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n",
    "a header with a null": b"HTTP/1.1 200 OK\r\nX-A: 1\0\r\nContent-Length: 0\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Length: 2\r\n\r\nok",
    "a length and chunks": b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n" + TE + b"\r\n" + chunked(b"abc"),
    "a length that is none": b"HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\nok",
    "too large a head": b"HTTP/1.1 200 OK\r\nX-A: " + b"a" * 100_000 + b"\r\nContent-Length: 0\r\n\r\n",
}


@pytest.mark.parametrize("answer", NO_HTTP.values(), ids=NO_HTTP)
async def test_what_is_no_http_is_a_502(answer: bytes) -> None:
    async with passing(answering(answer)) as (_, _, client):
        await client.send(get())
        assert (await client.answer()).start[1] == b"502"


async def test_an_answer_before_the_whole_request_is_passed_on() -> None:
    async def answer(exchange: Exchange) -> None:
        exchange.writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig")
        await exchange.writer.drain()

    async with passing(answer) as (_, _, client):
        await client.send(b"POST /v1/files HTTP/1.1\r\n" + H + b"Content-Length: 100\r\n\r\nabc")
        message = await client.answer()
        assert (message.start[1], message.body) == (b"413", b"big")


CUTS = {
    "before the answer": (get(), b""),
    "within the answer": (get(), STREAM + b"1\r\na\r\n"),
    "within the body": (b"POST /v1/files HTTP/1.1\r\n" + H + b"Content-Length: 9\r\n\r\nabc", b""),
    "within chunks": (b"POST /v1/files HTTP/1.1\r\n" + H + TE + b"\r\n1\r\na\r\n", b""),
    "within both": (b"POST /v1/files HTTP/1.1\r\n" + H + TE + b"\r\n1\r\na\r\n", STREAM),
}


@pytest.mark.parametrize(("sent", "head"), CUTS.values(), ids=CUTS)
async def test_a_client_that_leaves_ends_the_upstreams_work_within_a_second(sent: bytes, head: bytes) -> None:
    gone = asyncio.Event()

    async def answer(exchange: Exchange) -> None:
        exchange.writer.write(head)
        try:
            while await exchange.reader.read(1000):
                pass
        except ConnectionError:
            pass
        gone.set()

    async with passing(answer) as (house, upstream, client):
        await client.send(sent)
        await upstream.arrived.wait()
        if head:
            await client.head()
        client.writer.transport.abort()
        async with asyncio.timeout(1):
            await gone.wait()
        assert not upstream.requests[0].whole
        await house.watcher.wait_for(lambda: house.left() == (0, 0, 0))


async def test_a_client_that_breaks_off_while_its_body_waits_is_noticed_too() -> None:
    """The end of its connection stands behind what nobody reads."""

    async def answer(exchange: Exchange) -> None:
        while not exchange.writer.is_closing():
            await asyncio.sleep(0.01)

    async with passing(answer) as (house, _, client):
        await client.send(b"POST /v1/files HTTP/1.1\r\n" + H + b"Content-Length: %d\r\n\r\n" % (64 << 20))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await client.send(b"x" * (64 << 20))
        reset(client.writer.transport)
        client.writer.transport.abort()
        await house.watcher.wait_for(lambda: house.left() == (0, 0, 0), 1)
        await house.watcher.wait_for(lambda: bool(house.watcher.passed_on))
        assert house.watcher.passed_on[0].outcome == "cancelled"


async def test_a_client_that_reads_nothing_is_disconnected() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.read()
        exchange.writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (64 << 20))
        exchange.writer.write(b"x" * (64 << 20))
        await exchange.reader.read()

    async with passing(answer, {"server.client_stall_s": 0.5}) as (house, upstream, client):
        await client.send(get())
        await upstream.arrived.wait()
        await upstream.exchanges[0].closed.wait()
        assert [record.outcome for record in house.watcher.passed_on] == ["cancelled"]


async def test_a_drain_lets_what_is_passed_on_end() -> None:
    go_on = asyncio.Event()

    async def answer(exchange: Exchange) -> None:
        await exchange.read()
        exchange.writer.write(STREAM + b"1\r\na\r\n")
        await go_on.wait()
        exchange.writer.write(b"1\r\nb\r\n0\r\n\r\n")

    async with passing(answer) as (house, _, client):
        await client.send(get())
        message = await client.head()
        draining = asyncio.ensure_future(house.server.drain())
        async with raw_client(house.server.port) as late:
            await late.send(get())
            assert (await late.answer()).start[1] == b"503"
        go_on.set()
        await read_body(client.reader, message)
        assert message.body == b"ab"
        await draining


# --- What is refused -------------------------------------------------------------------------------------------------

REFUSED = [
    b"/v1/../healthz", b"/v1/files/..", b"/v1/files/..;/x", b"/v1/%2e%2e/x", b"/v1/%2E/x", b"/v1/a%2eb",
    b"/v1/%252e%252e/x", b"/v1/%25252e%25252e/x", b"/v1/%2525252525252e/x", b"/v1//files", b"//v1/files",
    b"/v1/files//", b"/v1/%2f/x", b"/v1/a%2f%2fb", b"/v1/a\\b", b"/v1/a%5cb", b"/v1/a%5C..%5Cb", b"/v1/a%255cb",
    b"/v1/./files", b"/v1/files/.", b"/v1/a%00b", b"/v1/a%0d%0ab", b"/v1/a?b\\c", b"/v1/a?b#c", b"/v1/a..b",
    b"http://127.0.0.1/v1/files", b"http://evil.example/v1/files", b"*",
]  # fmt: skip


@pytest.mark.parametrize("target", REFUSED)
async def test_targets_that_could_mean_something_else_are_refused(target: bytes) -> None:
    async with passing(answering(OK)) as (_, upstream, client):
        await client.send(get(target))
        message = await client.answer()
        assert message.start[1] == b"400"
        assert not upstream.requests


async def test_connect_is_refused_and_its_connection_ends() -> None:
    async with passing(answering(OK)) as (_, upstream, client):
        await client.send(b"CONNECT 127.0.0.1:80 HTTP/1.1\r\n" + H + b"\r\n")
        assert (await client.answer()).start[1] == b"400"
        assert await client.reader.read() == b""
        assert not upstream.requests


@pytest.mark.parametrize(
    "target",
    [
        b"/v1/responses/resp_1/nothing", b"/v1/responses/", b"/v1/Responses", b"/v1/RESPONSES/x", b"/v1/responses%2fx",
        b"/v1/%72esponses/x/y", b"/v1/models/", b"/v1/Models/x", b"/v1/responses;a=b", b"/v1/codex/x", b"/v2/files",
        b"/files", b"/%76%31/files", b"/V1/files",
    ],
)  # fmt: skip
async def test_what_is_served_here_and_what_is_not_under_v1_never_reaches_an_upstream(target: bytes) -> None:
    async with passing(answering(OK)) as (_, upstream, client):
        await client.send(get(target))
        message = await client.answer()
        assert message.start[1] in (b"404", b"405")
        assert not upstream.requests


SMUGGLED = {
    "two lengths": post(b"abc", b"Content-Length: 5\r\n"),
    "one length twice": post(b"abc", b"Content-Length: 3\r\n"),
    "a length and chunks": post(b"0\r\n\r\n", TE),
    "chunked twice": b"POST /v1/files HTTP/1.1\r\n" + H + TE + TE + b"\r\n0\r\n\r\n",
    "chunked and then something": b"POST /v1/files HTTP/1.1\r\n" + H + b"Transfer-Encoding: chunked, x\r\n\r\n",
    "a space before the colon": b"POST /v1/files HTTP/1.1\r\n" + H + b"Content-Length : 3\r\n\r\nabc",
    "a signed length": b"POST /v1/files HTTP/1.1\r\n" + H + b"Content-Length: +3\r\n\r\nabc",
    "a chunk's size that is none": b"POST /v1/files HTTP/1.1\r\n" + H + TE + b"\r\n0x1\r\na\r\n0\r\n\r\n",
    "a folded header": b"GET /v1/files HTTP/1.1\r\n" + H + b"X-A: 1\r\n  Content-Length: 9\r\n\r\n",
    "a header beyond UTF-8": get(head=b"X-A: \xff\r\n"),
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}


@pytest.mark.parametrize("sent", SMUGGLED.values(), ids=SMUGGLED)
async def test_a_request_that_two_servers_read_differently_is_refused(sent: bytes) -> None:
    async with passing(answering(OK)) as (_, upstream, client):
        await client.send(sent)
        message = await client.answer()
        assert message.start[1] == b"400"
        assert not any(request.whole for request in upstream.requests)


async def test_a_length_that_connection_names_still_frames_the_body() -> None:
    async with passing(answering(OK)) as (_, upstream, client):
        await client.send(post(b"GET /v1/x HTTP/1.1\r\n\r\n", b"Connection: Content-Length, Host\r\n"))
        assert (await client.answer()).body == b"ok"
        assert [request.body for request in upstream.requests] == [b"GET /v1/x HTTP/1.1\r\n\r\n"]


async def test_a_strangers_origin_or_host_is_refused() -> None:
    async with passing(answering(OK)) as (_, upstream, client):
        await client.send(get(head=b"Sec-Fetch-Site: cross-site\r\n"))
        assert (await client.answer()).start[1] == b"403"
        await client.send(get(head=b"Origin: https://evil.example\r\n"))
        assert (await client.answer()).start[1] == b"403"
        await client.send(get().replace(b"Host: 127.0.0.1", b"Host: evil.example"))
        assert (await client.answer()).start[1] == b"403"
        assert not upstream.requests


# --- Credentials and forwarded headers -------------------------------------------------------------------------------

CREDENTIALS = b"Authorization: Bearer mine\r\nx-api-key: mine\r\nCookie: mine\r\n"


async def test_an_endpoints_own_key_stands_alone(tmp_path_factory: pytest.TempPathFactory) -> None:
    key = tmp_path_factory.mktemp("key") / "key"
    key.write_text("theirs")
    extra = {"endpoints[0].api_key_file": str(key), "endpoints[0].headers": {"X-Team": "a"}}
    async with passing(answering(OK), {**extra, "endpoints[0].query": {"api-version": "1 2"}}) as (_, upstream, client):
        await client.send(get(b"/v1/files?a=b", CREDENTIALS + b"X-Team: mine\r\nAccept: a/b\r\n"))
        await client.answer()
    [came] = upstream.requests
    assert came.start[1] == b"/v1/files?a=b&api-version=1+2"
    assert came.values(b"authorization") == [b"Bearer theirs"]
    assert came.values(b"x-team") == [b"a"]
    assert b"mine" not in b"".join(value for _, value in came.headers)


FORWARDED = (
    b"X-Forwarded-For: 10.1.1.1\r\nX_Forwarded_For: 10.1.1.1\r\nForwarded: for=10.1.1.1\r\nX-Real-IP: 10.1.1.1\r\n"
)


async def test_what_a_stranger_says_of_its_way_is_neither_believed_nor_passed_on() -> None:
    async with passing(answering(OK)) as (house, upstream, client):
        await client.send(get(head=FORWARDED + b"X-Forwarded-Host: evil.example\r\n"))
        assert (await client.answer()).start[1] == b"200"
        assert house.watcher.passed_on[-1].client == "127.0.0.1"
    assert not {name.lower() for name, _ in upstream.requests[0].headers} & {b"x-forwarded-for", b"forwarded"}
    assert b"10.1.1.1" not in b"".join(value for _, value in upstream.requests[0].headers)


async def test_what_a_trusted_proxy_says_is_believed_and_passed_on() -> None:
    extra = {"server.trusted_proxies": ("127.0.0.0/8",)}
    async with passing(answering(OK), extra) as (house, upstream, client):
        await client.send(get(head=FORWARDED))
        assert (await client.answer()).start[1] == b"200"
        assert house.watcher.passed_on[-1].client == "10.1.1.1"
        assert upstream.requests[0].values(b"x-forwarded-for") == [b"10.1.1.1"]
        await client.send(get(head=b"X-Forwarded-Host: evil.example\r\n"))
        assert (await client.answer()).start[1] == b"403"


# --- Upgrades --------------------------------------------------------------------------------------------------------

UPGRADE = get(
    b"/v1/realtime?model=m",
    b"Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: realtime\r\n",
)
SWITCH = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSec-WebSocket-Protocol: realtime\r\n\r\n"
)
TUNNEL = {"passthrough.upgrades": "tunnel"}


async def test_an_upgrade_is_refused_with_426() -> None:
    async with passing(answering(OK)) as (_, upstream, client):
        await client.send(UPGRADE)
        message = await client.answer()
        assert message.start[1] == b"426"
        assert b"passthrough.upgrades" in message.body
        assert await client.reader.read() == b""
        assert not upstream.requests


async def echo(exchange: Exchange) -> None:
    """Switches, says hello in the same write, and sends back what comes until it is told to end."""
    exchange.writer.write(SWITCH + b"hello")
    while data := await exchange.reader.read(1 << 16):
        exchange.writer.write(data)
        await exchange.writer.drain()
        if data.endswith(b"bye"):
            exchange.writer.close()
            return


async def test_a_tunnel_passes_bytes_both_ways_until_the_upstream_ends_it() -> None:
    async with passing(echo, TUNNEL) as (house, upstream, client):
        await client.send(UPGRADE + b"early")
        message = await client.head()
        given = await parsed(SWITCH)
        assert message.start[1:] == given.start[1:]
        assert sorted(message.end_to_end((b"x-request-id",))) == sorted(given.end_to_end())
        assert message.values(b"upgrade") == [b"websocket"]
        assert await client.reader.readexactly(10) == b"helloearly"
        blob = bytes(range(256)) * 4096 * 4

        async def all_of_it() -> bytes:
            return await client.reader.readexactly(len(blob))

        _, back = await asyncio.gather(client.send(blob), all_of_it())
        assert back == blob
        await client.send(b"bye")
        assert await client.reader.read() == b"bye"
        sent = await parsed(UPGRADE)
        assert upstream.requests[0].end_to_end((b"host",)) == sent.end_to_end((b"host",))
        assert upstream.requests[0].values(b"upgrade") == [b"WebSocket"]
        await house.watcher.wait_for(lambda: bool(house.watcher.passed_on))
        assert house.watcher.passed_on[0].bytes_in == len(blob) + 8


async def test_a_tunnel_ends_with_its_client() -> None:
    async with passing(echo, TUNNEL) as (house, upstream, client):
        await client.send(UPGRADE)
        await client.head()
        client.writer.transport.abort()
        async with asyncio.timeout(1):
            await upstream.exchanges[0].closed.wait()
        await house.watcher.wait_for(lambda: house.left() == (0, 0, 0))


async def test_an_upstream_that_does_not_switch_answers() -> None:
    answer = b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}"
    async with passing(answering(answer), TUNNEL) as (_, _, client):
        await client.send(UPGRADE)
        message = await client.answer()
        assert (message.start[1], message.body) == (b"404", b"{}")


async def test_a_switch_that_nobody_asked_for_is_a_502() -> None:
    async with passing(answering(SWITCH), TUNNEL) as (_, _, client):
        await client.send(get())
        assert (await client.answer()).start[1] == b"502"


async def test_chunks_of_a_post_are_counted_and_named_in_the_record() -> None:
    async with passing(answering(OK)) as (house, _, client):
        await client.send(b"POST /v1/files?secret=1 HTTP/1.1\r\n" + H + TE + b"\r\n" + chunked(b"abc", b"de"))
        await client.answer()
        await house.watcher.wait_for(lambda: bool(house.watcher.passed_on))
        [record] = house.watcher.passed_on
        assert (record.method, record.path, record.outcome, record.status) == ("POST", "/v1/files", "passed", 200)
        assert (record.bytes_in, record.bytes_out) == (5, 2)
        async with house.http.get(house.root + "/metrics") as response:
            assert 'loopline_passthrough_total{outcome="passed",status="2xx"} 1.0' in await response.text()


# --- Clients and servers as they are ---------------------------------------------------------------------------------


async def test_the_openai_sdk_gets_chat_completions_through_it(house: House) -> None:
    async with AsyncOpenAI(base_url=house.url, api_key="test", max_retries=0) as openai:
        whole = await openai.chat.completions.create(
            model="simulated", messages=[{"role": "user", "content": "[[say 3]]"}]
        )
        assert whole.choices[0].message.content
        stream = await openai.chat.completions.create(
            model="simulated", messages=[{"role": "user", "content": "[[say 3]]"}], stream=True
        )
        said = "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])
        assert said == whole.choices[0].message.content
        with pytest.raises(NotFoundError):
            await openai.embeddings.create(model="simulated", input="x")
    assert house.upstream.requests[0].headers["authorization"] == "Bearer test"


async def test_websockets_talk_through_a_tunnel() -> None:
    async def repeat(socket: ServerConnection) -> None:
        async for message in socket:
            await socket.send(message)

    async with serve(repeat, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with house_before(f"http://127.0.0.1:{port}/v1", "chat", TUNNEL) as house:
            async with connect(f"{house.url.replace('http', 'ws')}/realtime?model=m") as socket:
                for message in ("hello", b"x" * 300_000, "é" * 1000):
                    await socket.send(message)
                    assert await socket.recv() == message
                await socket.close(4000, "enough")
            assert socket.close_code == 4000
