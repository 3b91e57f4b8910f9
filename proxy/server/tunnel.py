"""Bytes both ways after a switch of protocols, unread, no faster than the slower side takes them."""

from __future__ import annotations

import asyncio

from aiohttp.base_protocol import BaseProtocol
from aiohttp.client_proto import ResponseHandler
from aiohttp.web_protocol import RequestHandler


class _Pipe:
    """What `source` reads is written to `sink`. Stands where aiohttp has the parser of a WebSocket."""

    def __init__(self, source: BaseProtocol, sink: BaseProtocol, ended: asyncio.Event) -> None:
        self._source = source
        self._sink = sink
        self._ended = ended
        self._full = asyncio.Event()
        self.bytes = 0

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        transport = self._sink.transport
        if transport is not None and not transport.is_closing():
            self.bytes += len(data)
            transport.write(data)
            if self._sink.writing_paused:
                self._source.pause_reading()
                self._full.set()
        return False, b""

    def feed_eof(self) -> None:
        self._ended.set()

    async def make_room(self, stall_s: float) -> None:
        """Read on whenever the other side has taken what it was sent; end the tunnel if it does not."""
        while True:
            await self._full.wait()
            self._full.clear()
            try:
                async with asyncio.timeout(stall_s):
                    await self._sink._drain_helper()
            except (TimeoutError, ConnectionError):
                self._ended.set()
                return
            self._source.resume_reading()


async def tunnel(client: RequestHandler, upstream: ResponseHandler, stall_s: float) -> tuple[int, int]:
    """Until one side ends. Returns how many bytes came from the client, and from the upstream."""
    ended = asyncio.Event()
    up, down = _Pipe(client, upstream, ended), _Pipe(upstream, client, ended)
    client.keep_alive(False)
    upstream.set_parser(down, None)
    client.set_parser(up)  # type: ignore[arg-type]
    if upstream.transport is None:
        ended.set()
    async with asyncio.TaskGroup() as group:
        making_room = [group.create_task(pipe.make_room(stall_s)) for pipe in (up, down)]
        await ended.wait()
        for task in making_room:
            task.cancel()
    return up.bytes, down.bytes
