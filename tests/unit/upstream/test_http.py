"""Both clients on real sockets: the road of turns on llhttp, and aiohttp's where a forward proxy is asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from proxy.errors import Kind, LooplineError
from proxy.http_client import HttpRequest, read_all
from proxy.upstream.aiohttp_client import AiohttpClient
from proxy.upstream.http import Http1Client
from proxy.upstream.request_bytes import PIECE_BYTES

Client = Http1Client | AiohttpClient


@pytest.fixture(params=[Http1Client, AiohttpClient])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    made: Client = request.param(keepalive_s=3, connect_s=1)
    yield made
    await made.aclose()


def request(body: tuple[bytes, ...] = (b"{", b"}"), *, url: str, **options: Any) -> HttpRequest:
    return HttpRequest("POST", url, body=body, **options)


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


async def test_a_dead_kept_connection_is_replaced_once(client: Client) -> None:
    async with Server([OK, None], [OK]) as server:
        for attempts in (1, 2):
            async with client.open(request(url=server.url)) as response:
                assert await read_all(response, 10) == b"ok"
                assert response.attempts == attempts
    assert server.connections == 2


async def test_what_may_not_be_repeated_is_not(client: Client) -> None:
    async with Server([OK, None], [OK]) as server:
        async with client.open(request(url=server.url)) as response:
            await read_all(response, 10)
        with pytest.raises(LooplineError) as failure:
            async with client.open(request(url=server.url, repeatable=False)):
                pass
    assert failure.value.kind is Kind.UPSTREAM_CLOSED
    assert server.connections == 1


async def test_a_fresh_connection_that_ends_is_a_failure(client: Client) -> None:
    async with Server([None], [OK]) as server:
        with pytest.raises(LooplineError) as failure:
            async with client.open(request(url=server.url)):
                pass
    assert failure.value.kind is Kind.UPSTREAM_CLOSED
    assert server.connections == 1


async def test_a_body_cut_off_is_the_upstreams_fault(client: Client) -> None:
    async with Server([b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf"]) as server:
        async with client.open(request(url=server.url)) as response:
            assert await response.read() == b"half"
            with pytest.raises(LooplineError) as failure:
                await response.read()
    assert failure.value.kind is Kind.UPSTREAM_CLOSED


async def test_silence_ends_the_wait(client: Client) -> None:
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


async def test_no_answer_ends_the_wait(client: Client) -> None:
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


async def test_a_large_body_goes_whole_and_without_a_warning(client: Client) -> None:
    body = tuple(bytes([n]) * (PIECE_BYTES // 2 + 1) for n in range(9))
    async with Server([OK]) as server, client.open(request(body, url=server.url)) as response:
        await read_all(response, 10)
    assert server.bodies == [b"".join(body)]
