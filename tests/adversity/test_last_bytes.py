"""A client that closes its socket and reads nothing of what it is still sent: it is let go of in time."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest

from proxy.server import client_socket
from proxy.server.client_socket import ClientSocket
from tests.house import House, open_house
from tests.raw_socket import PONG, TEXT, TIMEOUT_S, close, echo_of, frame, upgrade

OUTBOX = 64 * 1024
ECHO = 60_000
MOST = 1_000  # 60 MB: the kernel's buffers on the way take less
NO_PINGS = {"server.ping_interval_s": 600, "limits.outbox_bytes": OUTBOX}


class Seen:
    """The latest socket of the server, and whether its connection is lost."""

    def __init__(self) -> None:
        self.socket: ClientSocket | None = None
        self.begun, self.lost = asyncio.Event(), asyncio.Event()

    @property
    def unsent(self) -> int:
        """Bytes that wait with its transport."""
        assert self.socket is not None
        return self.socket._transport.get_write_buffer_size()


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    seen, began, lost = Seen(), ClientSocket.__init__, ClientSocket.connection_lost

    def init(self: ClientSocket, *args: object, **options: object) -> None:
        began(self, *args, **options)  # type: ignore[arg-type]
        seen.socket = self
        seen.begun.set()

    def connection_lost(self: ClientSocket, exc: Exception | None) -> None:
        lost(self, exc)
        seen.lost.set()

    monkeypatch.setattr(ClientSocket, "__init__", init)
    monkeypatch.setattr(ClientSocket, "connection_lost", connection_lost)
    return seen


@asynccontextmanager
async def deaf(server: House) -> AsyncIterator[asyncio.StreamWriter]:
    """A connection whose client reads nothing."""
    parts = urlsplit(server.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=1)
    try:
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        yield writer
    finally:
        writer.transport.abort()


@pytest.mark.parametrize("half_closed", [True, False])
async def test_a_client_that_closes_and_does_not_read_is_let_go_of(
    seen: Seen, monkeypatch: pytest.MonkeyPatch, half_closed: bool
) -> None:
    monkeypatch.setattr(client_socket, "_CLOSE_TIMEOUT_S", 0.1)
    async with open_house("chat", extra=NO_PINGS) as server, deaf(server) as writer, asyncio.timeout(TIMEOUT_S):
        writer.write(upgrade(server.url))
        await seen.begun.wait()
        [session] = server.server.sockets.sessions
        for sent in range(1, MOST):
            writer.write(frame(TEXT, echo_of(ECHO)))
            while session.record.messages_in < sent:
                await asyncio.sleep(0)
            if seen.unsent:
                break
        assert 0 < seen.unsent <= OUTBOX, "the client's close would not be read"
        # At once, and behind so many others that the server has seen the connection's end before it looks at the close.
        with socket.socket(fileno=os.dup(writer.get_extra_info("socket").fileno())) as raw:
            assert raw.send(frame(PONG) * 100 + close(1000))
            if half_closed:
                raw.shutdown(socket.SHUT_WR)
        await seen.lost.wait()
