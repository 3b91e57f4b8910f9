"""A simulated link: a TCP relay on loopback with a round trip and a rate each way.

A byte that enters a direction waits for the bytes before it, takes its time at the direction's rate, and arrives half
a round trip later. Connecting through loopback costs nothing, so the relay charges the round trip of TCP's handshake
itself: what a client sends first waits for it. TLS, slow start and loss are not simulated.

Deadlines are absolute, so that late wake-ups do not add up. Memory is bounded: a direction holds at most
`HELD_PIECES` pieces, and stops reading beyond them or beyond what the rate has let through.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Self

from proxy.session.tasks import Tasks

PIECE_BYTES = 16 * 1024
HELD_PIECES = 512  # 8 MiB: as much as is under way at 1 Gbit/s and 60 ms
# Reading goes on while this much still waits for its turn: were it 0, each late wake-up would leave the link idle.
_AHEAD_S = 0.05

HOST = "127.0.0.1"
_Queue = asyncio.Queue[tuple[float, bytes]]


class Passage(NamedTuple):
    """When the last byte of a piece has left the sender, and when it arrives. Seconds of the caller's clock."""

    left_s: float
    arrives_s: float


class Direction:
    """One direction of a link, shared by its connections: its rate, its delay, and what went through. No I/O.

    A rate of 0 has no limit. `bytes` counts what entered, `held_bytes` what is under way; `entered_s` and `arrived_s`
    are when the latest piece entered and when the latest arrived.
    """

    def __init__(self, bytes_per_s: float, delay_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._delay_s = delay_s
        self._free_s = float("-inf")
        self.bytes = 0
        self.held_bytes = 0
        self.entered_s = 0.0
        self.arrived_s = 0.0

    def enter(self, size: int, now: float) -> Passage:
        """A piece of `size` bytes enters."""
        takes_s = size / self._bytes_per_s if self._bytes_per_s else 0.0
        self._free_s = max(now, self._free_s) + takes_s
        self.entered_s = now
        self.bytes += size
        self.held_bytes += size
        return Passage(self._free_s, self._free_s + self._delay_s)

    def arrive(self, size: int, now: float) -> None:
        """A piece leaves at the other end."""
        self.held_bytes -= size
        self.arrived_s = now


class Link:
    """Relays every connection to `target_port`: `async with Link(port, up, down, rtt_s) as link`.

    Clients connect to `port`. `crashed` is told of what must not happen.
    """

    def __init__(
        self,
        target_port: int,
        up: Direction,
        down: Direction,
        rtt_s: float,
        *,
        crashed: Callable[[str, BaseException], None],
        target_host: str = HOST,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.up, self.down = up, down
        self.port = 0
        self._target_host, self._target_port = target_host, target_port
        self._rtt_s = rtt_s
        self._clock = clock
        self._sleep = sleep
        self._tasks = Tasks(crashed)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, HOST, 0, limit=PIECE_BYTES)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._tasks.aclose()
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _ = self._tasks.spawn(self._relay(reader, writer), "link connection")

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected_s = self._clock() + self._rtt_s
        try:
            far_reader, far_writer = await asyncio.open_connection(
                self._target_host, self._target_port, limit=PIECE_BYTES
            )
        except OSError:
            writer.transport.abort()
            return
        up: _Queue = asyncio.Queue(HELD_PIECES)
        down: _Queue = asyncio.Queue(HELD_PIECES)
        end: Callable[[asyncio.StreamWriter], None] = _abort
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._send(self.up, reader, up, connected_s))
                group.create_task(self._arrive(self.up, up, far_writer))
                group.create_task(self._send(self.down, far_reader, down, 0.0))
                group.create_task(self._arrive(self.down, down, writer))
            end = asyncio.StreamWriter.close
        except* ConnectionError:
            pass  # one side reset the connection; the other sees the same
        finally:
            end(writer)
            end(far_writer)

    async def _send(self, way: Direction, reader: asyncio.StreamReader, queue: _Queue, connected_s: float) -> None:
        """From the sender onto the link, until the sender has ended its stream; an empty piece says so."""
        data = b" "
        while data:
            data = await reader.read(PIECE_BYTES)
            await self._until(connected_s)
            passage = way.enter(len(data), self._clock())
            await queue.put((passage.arrives_s, data))
            await self._until(passage.left_s - _AHEAD_S)

    async def _arrive(self, way: Direction, queue: _Queue, writer: asyncio.StreamWriter) -> None:
        """From the link to the receiver."""
        while True:
            arrives_s, data = await queue.get()
            await self._until(arrives_s)
            if writer.is_closing():
                raise ConnectionResetError
            if not data:
                writer.write_eof()
                return
            writer.write(data)
            way.arrive(len(data), self._clock())
            await writer.drain()

    async def _until(self, due_s: float) -> None:
        left_s = due_s - self._clock()
        if left_s > 0:
            await self._sleep(left_s)


def _abort(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
