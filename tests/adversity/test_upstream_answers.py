"""Odd answers over real sockets, read by both clients: the same bytes, the same kind of failure."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from proxy.errors import Kind, LooplineError
from proxy.http_client import HttpRequest
from proxy.upstream.aiohttp_client import AiohttpClient
from proxy.upstream.http import Http1Client
from tests.odd_answers import ODD, Made

_OK = Made(200, b"ok")
_GARBLED = Made(0, b"", Kind.UPSTREAM_GARBLED)
# Where aiohttp makes something else of an answer that comes in one write; the reason is ours for doing otherwise.
OTHERWISE = {
    "101 unasked": Made(101, b""),  # nobody asked to leave HTTP
    "garbage behind it": _GARBLED,  # the answer is whole: it is the next one that would be garbled
    "a bad chunk": _GARBLED,  # what came before it is told
    "a bad first chunk": _GARBLED,
    "endless trailers": _GARBLED,
    "endless interim answers": Made(0, b"", Kind.UPSTREAM_CLOSED),  # it waits for the last of them
    "status 99": Made(99, b"ok"),  # no status
    "a longer header": _GARBLED,  # gateways send them; the head as a whole is bounded
    "no gzip": Made(200, b"", Kind.UPSTREAM_CLOSED),  # nothing was closed
    "gzip cut off": _OK,  # what is cut off is not whole
}


async def read(client: Http1Client | AiohttpClient, answer: bytes) -> Made:
    """What a client makes of a server that answers so, then closes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n{}")
        with contextlib.suppress(OSError):
            writer.write(answer)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    status, body = 0, b""
    try:
        async with client.open(HttpRequest("POST", url, body=(b"{}",), first_byte_s=10, idle_s=10)) as response:
            status = response.status
            while data := await response.read():
                body += data
    except LooplineError as error:
        return Made(status, body, error.kind)
    finally:
        await client.aclose()
        server.close()
    return Made(status, body)


@pytest.mark.parametrize("name", ODD)
async def test_on_the_road_of_turns(name: str) -> None:
    answer, made = ODD[name]
    assert await read(Http1Client(keepalive_s=3, connect_s=1), answer) == made


@pytest.mark.parametrize("name", ODD)
async def test_as_aiohttp_reads_it(name: str) -> None:
    answer, made = ODD[name]
    assert await read(AiohttpClient(keepalive_s=3, connect_s=1), answer) == OTHERWISE.get(name, made)
