"""The one writer of a socket: events become frames, and what is ready together leaves in one write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from proxy.wire.frames import append_message


class Socket(Protocol):
    """A WebSocket after its upgrade, as a session uses it; `server/websocket.py` has the real one."""

    async def receive(self) -> bytes | None:
        """The next text message, or None once the socket is closed or lost.

        Raises `LooplineError` (binary_frame) for a message that is not text; the socket goes on.
        """
        ...

    def write(self, data: bytes) -> None:
        """Send whole frames; does nothing once the socket is lost."""
        ...

    @property
    def congested(self) -> bool:
        """Is more unsent than the socket should hold?"""
        ...

    async def drained(self) -> None:
        """Returns when there is room again or the socket is lost."""
        ...

    async def close(self, code: int, reason: str) -> None:
        """Send a close frame and wait for the other side's, within a bound."""
        ...

    def abort(self) -> None:
        """Drop the connection."""
        ...

    @property
    def close_code(self) -> int | None:
        """How the socket was closed; None while it is open, 1006 where the connection was lost."""
        ...


class Outbox:
    """Frames events for one socket. `stream_id` tags the events of a named lane and of no other."""

    __slots__ = ("_socket", "bytes_out")

    def __init__(self, socket: Socket) -> None:
        self._socket = socket
        self.bytes_out = 0

    def send(self, events: Sequence[bytes], stream_id: str | None = None) -> None:
        """Send events in order, in one write."""
        tag = b"" if stream_id is None else b',"stream_id":"%b"}' % stream_id.encode()
        out: list[bytes] = []
        for event in events:
            append_message(out, event[:-1] + tag if tag else event)
        data = b"".join(out)
        self.bytes_out += len(data)
        self._socket.write(data)
