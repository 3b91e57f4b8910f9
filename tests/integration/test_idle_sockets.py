"""What a socket keeps while it says nothing, in bytes that Python and uvloop have allocated for it.

Counted in a process of its own, in which nothing else allocates. What it is in resident memory says `loopline bench
--scenes idle`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from proxy.app import Loopline
from proxy.server.connection import Connection
from tests.house import settings_for
from tests.raw_socket import PING, TEXT, frame, upgrade

ROOT = Path(__file__).parents[2]
SOCKETS = 100
# Half of the 20 kB that a quiet socket may take; it takes 8, of which its headers are one.
QUIET_BYTES = 10_000
# A third of the 64 kB that one may take after a compressed message: zlib's window is 32 kB, its state 8.
INFLATED_BYTES = 48_000
SILENT = b'{"type":"response.processed"}'  # a message that is read and not answered
AGENT = {f"X-Agent-{number}": f"what agent says, {number}" for number in range(10)}

Measure = Callable[[], float]
Scene = Callable[[list[socket.socket], Measure], Awaitable[Any]]


def deflated(message: bytes) -> bytes:
    machine = zlib.compressobj(wbits=-15)
    return (machine.compress(message) + machine.flush(zlib.Z_SYNC_FLUSH)).removesuffix(b"\x00\x00\xff\xff")


async def heard(client: socket.socket, end: bytes) -> None:
    said = b""
    while not said.endswith(end):
        said += await asyncio.get_running_loop().sock_recv(client, 4096)


async def say(clients: list[socket.socket], message: bytes) -> None:
    """Each client sends a frame; returns when the server has taken them all."""
    loop = asyncio.get_running_loop()
    for client in clients:
        await loop.sock_sendall(client, message + frame(PING, b"taken"))
        await heard(client, b"taken")


async def play(scene: Scene) -> Any:
    """`scene` gets sockets that are open, and how many bytes each of them holds now."""
    settings = settings_for("http://127.0.0.1:9/v1", "chat", {"server.ping_interval_s": 600})
    loop = asyncio.get_running_loop()
    clients = [socket.socket() for _ in range(2 * SOCKETS)]
    request = upgrade("http://127.0.0.1", {"Sec-WebSocket-Extensions": "permessage-deflate", **AGENT})

    async def open_all(some: list[socket.socket]) -> None:
        for client in some:
            client.setblocking(False)
            await loop.sock_connect(client, ("127.0.0.1", server.port))
            await loop.sock_sendall(client, request)
            await heard(client, b"\r\n\r\n")
        assert len(server.sockets.sessions) >= len(some)

    def each() -> float:
        gc.collect()
        return (tracemalloc.get_traced_memory()[0] - before) / SOCKETS

    async with Loopline(settings) as server:
        try:
            await open_all(clients[SOCKETS:])  # what is made once is there then
            await say(clients[SOCKETS:], frame(TEXT, SILENT))
            gc.collect()
            tracemalloc.start()
            before = tracemalloc.get_traced_memory()[0]
            await open_all(clients[:SOCKETS])
            return await scene(clients[:SOCKETS], each)
        finally:
            tracemalloc.stop()
            for client in clients:
                client.close()


async def quiet(clients: list[socket.socket], each: Measure) -> list[float]:
    """Before the first message, and after it."""
    before = each()
    await say(clients, frame(TEXT, SILENT))
    return [before, each()]


async def compressed(clients: list[socket.socket], each: Measure) -> float:
    await say(clients, frame(TEXT, deflated(SILENT), rsv=4))
    return each()


async def upgraded(clients: list[socket.socket], _: Measure) -> list[str]:
    """What is left of the upgrade."""
    await say(clients, frame(TEXT, SILENT))  # so the last of their handlers has ended
    kinds = (Connection, web.Request, web.WebSocketResponse)
    return [type(thing).__name__ for thing in gc.get_objects() if issubclass(type(thing), kinds)]


_PROGRAM = """
import gc, json, uvloop
from tests.integration import test_idle_sockets as scenes
gc.disable()
seen = {scene.__name__: uvloop.run(scenes.play(scene)) for scene in (scenes.quiet, scenes.compressed, scenes.upgraded)}
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    """What each scene sees, in a process in which no collector runs by itself."""
    command = [sys.executable, "-c", _PROGRAM]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return found


@pytest.mark.slow
def test_a_quiet_socket_is_small_before_its_first_message_and_after_it(seen: dict[str, Any]) -> None:
    before, after = seen["quiet"]
    assert before < QUIET_BYTES
    assert after < before + 500


@pytest.mark.slow
def test_after_a_compressed_message_a_socket_keeps_the_window_that_the_next_may_refer_to(seen: dict[str, Any]) -> None:
    assert seen["compressed"] < QUIET_BYTES + INFLATED_BYTES


@pytest.mark.slow
def test_of_the_upgrade_that_brought_a_socket_nothing_is_kept(seen: dict[str, Any]) -> None:
    """Nor does it wait for the collector, which would find it among thousands."""
    assert seen["upgraded"] == []
