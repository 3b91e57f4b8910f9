"""A client that leaves while nothing is read from it: its end stands behind what it has sent, and nobody sees it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

_LOOK_EVERY_S = 0.4
# tcpi_state of Linux: CLOSE, CLOSE_WAIT, LAST_ACK.
_GONE = frozenset({7, 8, 9})
_TCP_INFO: int | None = getattr(socket, "TCP_INFO", None)


@contextmanager
def noticing_departure(request: web.Request) -> Iterator[None]:
    """While open, a client whose body waits for the upstream is disconnected once it has left, as others are at once.

    The system is asked for the state of the connection, where it can be (Linux); elsewhere, and where the client's own
    system still has bytes to send for it, the upstream's next read shows it.
    """
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle

    def look() -> None:
        nonlocal timer
        transport = request.transport
        if transport is None:
            return
        if request.protocol._reading_paused and _has_left(transport):
            transport.abort()
        else:
            timer = loop.call_later(_LOOK_EVERY_S, look)

    timer = loop.call_later(_LOOK_EVERY_S, look)
    try:
        yield
    finally:
        timer.cancel()


def _has_left(transport: asyncio.Transport) -> bool:
    raw = transport.get_extra_info("socket")
    if raw is None or _TCP_INFO is None:
        return False
    try:
        return raw.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 1)[0] in _GONE
    except OSError:
        return True
