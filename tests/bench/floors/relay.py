"""What both floors share: a WebSocket server that reads creates, asks an upstream by HTTP, and writes frames.

The floors do the work of a turn and nothing else: text alone, no errors, no limits, no cancellation, no metrics. What
they cost is what the work costs in this language with these libraries, so that a server's own share can be told.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import msgspec
import uvloop
from aiohttp import web

Turn = Callable[["Relay", "Create", Callable[[bytes], None]], Awaitable[None]]
_JSON = {"content-type": "application/json"}


class Create(msgspec.Struct):
    """The fields of a `response.create` that a relay acts on."""

    input: list[msgspec.Raw]
    previous_response_id: str | None = None


_CREATE = msgspec.json.Decoder(Create)


class Relay:
    """A relay in front of one URL, whose turns are `turn`: it gets the create and a function that writes frames."""

    def __init__(self, url: str, turn: Turn) -> None:
        self._url = url
        self._turn = turn

    async def serve(self, port: int) -> None:
        """Listen on loopback until the process ends."""
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as self._http:
            app = web.Application()
            app.router.add_get("/v1/responses", self._client)
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", port, backlog=1024).start()
            await asyncio.Event().wait()

    async def _client(self, request: web.Request) -> web.WebSocketResponse:
        client = web.WebSocketResponse(max_msg_size=1 << 27, compress=False)
        await client.prepare(request)
        transport = request.transport
        assert transport is not None
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        async for message in client:
            await self._turn(self, _CREATE.decode(message.data), transport.write)
        return client

    async def blocks(self, body: bytes) -> AsyncIterator[list[bytes]]:
        """Send a request; the events of its answer, as many as each read has brought."""
        rest = b""
        async with self._http.post(self._url, data=body, headers=_JSON) as response:
            while data := await response.content.readany():
                *whole, rest = (rest + data).split(b"\n\n")
                yield whole


def frame(payload: bytes) -> bytes:
    """A text frame, whole and uncompressed (RFC 6455, 5.2)."""
    length = len(payload)
    if length < 126:
        return bytes((0x81, length)) + payload
    if length < 65536:
        return b"\x81\x7e" + length.to_bytes(2, "big") + payload
    return b"\x81\x7f" + length.to_bytes(8, "big") + payload


def run(path: str, turn: Turn) -> None:
    """`python -m tests.bench.floors.chat PORT BASE_URL`."""
    port, base_url = int(sys.argv[1]), sys.argv[2]
    uvloop.run(Relay(base_url + path, turn).serve(port))
