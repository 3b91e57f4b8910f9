"""What aiohttp raises becomes a failure that says whose fault it was."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import Mock

import aiohttp
import pytest
from aioresponses import aioresponses
from yarl import URL

from proxy.errors import Kind, LooplineError
from proxy.http_client import HttpRequest, read_all
from proxy.upstream.http import PIECE_BYTES, AiohttpClient

CHAT_URL = "http://upstream.test/v1/chat/completions"


class FakeResponse(aiohttp.ClientResponse):
    """aioresponses builds responses without the writer that aiohttp 3.14 asks for."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, stream_writer=Mock(output_size=0), **options)


@pytest.fixture
async def client() -> AsyncIterator[AiohttpClient]:
    made = AiohttpClient(keepalive_s=3, connect_s=1)
    yield made
    await made.aclose()


def request(body: tuple[bytes, ...] = (b"{", b"}"), **options: Any) -> HttpRequest:
    return HttpRequest("POST", options.pop("url", CHAT_URL), body=body, **options)


async def test_an_answer_is_handed_over(client: AiohttpClient) -> None:
    with aioresponses() as upstream:
        upstream.post(CHAT_URL, status=429, body=b"slow", headers={"Retry-After": "2"}, response_class=FakeResponse)
        async with client.open(request()) as response:
            assert response.status == 429
            assert response.headers["retry-after"] == "2"
            assert response.attempts == 1
            assert await read_all(response, 100) == b"slow"


async def test_a_body_is_cut_at_the_limit(client: AiohttpClient) -> None:
    with aioresponses() as upstream:
        upstream.post(CHAT_URL, body=b"x" * 1000, response_class=FakeResponse)
        async with client.open(request()) as response:
            assert await read_all(response, 10) == b"x" * 10


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (aiohttp.ServerDisconnectedError(), Kind.UPSTREAM_CLOSED),
        (aiohttp.ClientOSError(104, "reset"), Kind.UPSTREAM_CLOSED),
        (aiohttp.ClientConnectorError(Mock(), OSError(111, "refused")), Kind.UPSTREAM_UNREACHABLE),
        (aiohttp.ServerTimeoutError("connect"), Kind.UPSTREAM_UNREACHABLE),
        (aiohttp.InvalidURL("http://"), Kind.UPSTREAM_UNREACHABLE),
        (aiohttp.ClientResponseError(Mock(), (), message="bad line"), Kind.UPSTREAM_GARBLED),
        (TimeoutError(), Kind.UPSTREAM_TIMEOUT),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
async def test_every_way_to_fail_has_a_kind(client: AiohttpClient, raised: Exception, kind: Kind) -> None:
    with aioresponses() as upstream:
        upstream.post(CHAT_URL, exception=raised)
        with pytest.raises(LooplineError) as failure:
            async with client.open(request()):
                pass
    assert failure.value.kind is kind


async def test_headers_query_and_body_are_sent(client: AiohttpClient) -> None:
    url = CHAT_URL + "?api-version=1"
    with aioresponses() as upstream:
        upstream.post(url, body=b"ok", response_class=FakeResponse)
        headers = [("authorization", "Bearer key"), ("content-type", "application/json")]
        async with client.open(request((b"a", b"b"), headers=headers, query={"api-version": "1"})):
            pass
        sent = upstream.requests["POST", URL(url)][0].kwargs
    assert sent["data"] == b"ab"
    assert dict(sent["headers"]) == dict(headers)
    assert sent["allow_redirects"] is False


class Server:
    """A raw upstream: each connection is served by the next of `scripts`, each a list of answers to requests."""

    def __init__(self, *scripts: list[bytes | None]) -> None:
        self.bodies: list[bytes] = []
        self.connections = 0
        self._scripts = list(scripts)

    async def __aenter__(self) -> Server:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 26)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        script = self._scripts.pop(0) if self._scripts else []
        for answer in script:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            self.bodies.append(await reader.readexactly(length))
            if answer is None:
                break
            writer.write(answer)
        writer.close()


OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


async def test_a_dead_kept_connection_is_replaced_once(client: AiohttpClient) -> None:
    async with Server([OK, None], [OK]) as server:
        for attempts in (1, 2):
            async with client.open(request(url=server.url)) as response:
                assert await read_all(response, 10) == b"ok"
                assert response.attempts == attempts
    assert server.connections == 2


async def test_what_may_not_be_repeated_is_not(client: AiohttpClient) -> None:
    async with Server([OK, None], [OK]) as server:
        async with client.open(request(url=server.url)) as response:
            await read_all(response, 10)
        with pytest.raises(LooplineError) as failure:
            async with client.open(request(url=server.url, repeatable=False)):
                pass
    assert failure.value.kind is Kind.UPSTREAM_CLOSED
    assert server.connections == 1


async def test_a_fresh_connection_that_ends_is_a_failure(client: AiohttpClient) -> None:
    async with Server([None], [OK]) as server:
        with pytest.raises(LooplineError) as failure:
            async with client.open(request(url=server.url)):
                pass
    assert failure.value.kind is Kind.UPSTREAM_CLOSED
    assert server.connections == 1


async def test_a_body_cut_off_is_the_upstreams_fault(client: AiohttpClient) -> None:
    async with Server([b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf"]) as server:
        async with client.open(request(url=server.url)) as response:
            assert await response.read() == b"half"
            with pytest.raises(LooplineError) as failure:
                await response.read()
    assert failure.value.kind is Kind.UPSTREAM_CLOSED


async def test_silence_ends_the_wait(client: AiohttpClient) -> None:
    release = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf")
        await release.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    async with client.open(request(url=url, idle_s=0.05)) as response:
        assert await response.read() == b"half"
        with pytest.raises(LooplineError) as failure:
            await response.read()
    release.set()
    server.close()
    assert failure.value.kind is Kind.UPSTREAM_TIMEOUT
    assert "0.05 s" in failure.value.message


async def test_no_answer_ends_the_wait(client: AiohttpClient) -> None:
    release = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await release.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    with pytest.raises(LooplineError) as failure:
        async with client.open(request(url=url, first_byte_s=0.05)):
            pass
    release.set()
    server.close()
    assert failure.value.kind is Kind.UPSTREAM_TIMEOUT


async def test_a_large_body_goes_whole_and_without_a_warning(client: AiohttpClient) -> None:
    body = tuple(bytes([n]) * (PIECE_BYTES // 2 + 1) for n in range(9))
    async with Server([OK]) as server, client.open(request(body, url=server.url)) as response:
        await read_all(response, 10)
    assert server.bodies == [b"".join(body)]
