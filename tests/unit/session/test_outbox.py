"""What a socket has no room for waits in pieces, in order, and control frames never wait behind more than one."""

from __future__ import annotations

import asyncio

from websockets.frames import Frame
from websockets.streams import StreamReader

from proxy.session.outbox import PIECE_BYTES, Outbox
from proxy.session.tasks import Tasks


class Socket:
    """A `Socket` that is congested after each write until the test makes room."""

    close_code: int | None = None

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.congested = False
        self._room = asyncio.Event()

    async def receive(self) -> bytes | None:
        return None

    def write(self, data: bytes) -> None:
        self.writes.append(data)
        self.congested = True
        self._room.clear()

    def make_room(self) -> None:
        self.congested = False
        self._room.set()

    async def drained(self) -> None:
        if self.congested:
            await self._room.wait()

    async def close(self, code: int, reason: str) -> None: ...

    def abort(self) -> None: ...


def outbox_of(socket: Socket) -> Outbox:
    return Outbox(socket, socket.drained, Tasks(lambda *_: None).spawn)


def messages(data: bytes) -> list[bytes]:
    """The messages in a byte stream of unmasked frames."""
    reader = StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    out: list[bytes] = []
    while True:
        parser = Frame.parse(reader.read_exact, mask=False)
        try:
            while True:
                next(parser)
        except StopIteration as stop:
            frame = stop.value
        except EOFError:
            return out
        if frame.opcode:
            out.append(b"")
        out[-1] += bytes(frame.data)


async def test_what_fits_leaves_in_one_write() -> None:
    socket = Socket()
    outbox_of(socket).send([b'{"type":"a"}', b'{"type":"b"}'])
    assert [messages(write) for write in socket.writes] == [[b'{"type":"a"}', b'{"type":"b"}']]


async def test_what_does_not_fit_leaves_piece_by_piece_in_order() -> None:
    socket = Socket()
    outbox = outbox_of(socket)
    sent = [b'{"type":"%d","x":"%b"}' % (number, b"x" * PIECE_BYTES) for number in range(5)]
    outbox.send(sent[:3])
    outbox.send(sent[3:])
    outbox.send([b'{"type":"last"}'])
    assert outbox.congested
    draining = asyncio.ensure_future(outbox.drained())
    while not draining.done():
        assert len(socket.writes) == 0 or len(socket.writes[-1]) <= 2 * PIECE_BYTES
        socket.make_room()
        await asyncio.sleep(0)
    assert messages(b"".join(socket.writes)) == [*sent, b'{"type":"last"}']
    assert outbox.bytes_out == sum(map(len, socket.writes))
    assert not outbox.congested


async def test_nothing_is_written_while_there_is_no_room() -> None:
    socket = Socket()
    outbox = outbox_of(socket)
    outbox.send([b'{"type":"a"}'])
    for _ in range(100):
        outbox.send([b'{"type":"b"}'])
        await asyncio.sleep(0)
    assert len(socket.writes) == 1
    socket.make_room()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(socket.writes) == 2


async def test_a_lost_socket_keeps_nothing() -> None:
    socket = Socket()
    outbox = outbox_of(socket)
    outbox.send([b'{"type":"a"}' + b" " * 10])
    outbox.send([b'{"type":"b"}' + b" " * PIECE_BYTES])
    outbox.close()
    socket.make_room()
    await outbox.drained()
    assert len(socket.writes) == 1
    assert not outbox.congested
