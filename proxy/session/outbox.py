"""The one writer of a socket: events become frames, and what is ready together leaves in one write."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any, Protocol

from proxy.access.budget import Budget, Held
from proxy.wire.frames import FRAGMENT_BYTES, frames

PIECE_BYTES = FRAGMENT_BYTES
_TOGETHER = 64  # frames whose size is looked at together


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
    """Frames events for one socket. `stream_id` tags the events of a named lane and of no other.

    What the socket has no room for waits here, in pieces, so that a pong or a ping, which goes to the socket itself,
    stands behind one piece and not behind everything. `make_room` returns once the socket has room, or is lost or
    given up; `spawn` runs the task that writes the pieces, alive only while there are some. `held` counts what waits.
    """

    __slots__ = ("_held", "_make_room", "_pieces", "_socket", "_spawn", "_writing", "bytes_out")

    def __init__(
        self,
        socket: Socket,
        make_room: Callable[[], Awaitable[None]],
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
        held: Held | None = None,
    ) -> None:
        self.bytes_out = 0
        self._socket = socket
        self._make_room = make_room
        self._spawn = spawn
        self._held = held or Held(Budget())
        self._pieces: list[bytes] = []  # few: each is large
        self._writing: asyncio.Task[None] | None = None

    def send(self, events: Sequence[bytes], stream_id: str | None = None) -> None:
        """Send events in order, in one write where there is room for it."""
        if stream_id is not None:
            tag = b',"stream_id":"%b"}' % stream_id.encode()
            events = [event[:-1] + tag for event in events]
        out = frames(events)
        data = b"".join(out)
        size = len(data)
        self.bytes_out += size
        if size <= PIECE_BYTES and not self._pieces and not self._socket.congested:
            self._socket.write(data)
            return
        self._pieces.extend(_pieces(out))
        self._held.grow(size)
        if self._writing is None:
            self._writing = self._spawn(self._write_pieces(), "write to a slow client")

    @property
    def congested(self) -> bool:
        """Is there more than the socket has room for?"""
        return bool(self._pieces) or self._socket.congested

    async def drained(self) -> None:
        """Returns when everything is with the socket and the socket has room, or nobody is left to make room."""
        if self._writing is not None:
            await asyncio.wait([self._writing])
        await self._make_room()

    def close(self) -> None:
        """The socket is lost: what waits will not be sent."""
        self._pieces.clear()
        self._held.set(0)

    async def _write_pieces(self) -> None:
        while self._pieces:
            if self._socket.close_code is not None:
                self.close()
            elif self._socket.congested:
                await self._make_room()
            else:
                piece = self._pieces.pop(0)
                self._held.grow(-len(piece))
                self._socket.write(piece)
        self._writing = None


def _pieces(ready: Sequence[bytes]) -> Iterator[bytes]:
    """Frames joined into pieces: never cut inside, where a pong would break it."""
    piece: list[bytes] = []
    size = 0
    for group in (ready[start : start + _TOGETHER] for start in range(0, len(ready), _TOGETHER)):
        together = sum(map(len, group))
        if size + together <= PIECE_BYTES:
            piece += group
            size += together
            continue
        for frame in group:
            if piece and size + len(frame) > PIECE_BYTES:
                yield b"".join(piece)
                piece, size = [], 0
            piece.append(frame)
            size += len(frame)
    yield b"".join(piece)
