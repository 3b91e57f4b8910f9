"""One connection between a transport and whoever reads: how little is done for each write, read and wait."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from proxy.errors import Kind, LooplineError
from proxy.http_client import HttpRequest
from proxy.upstream.connection import Connection
from proxy.upstream.request_bytes import PIECE_BYTES

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class Wire(asyncio.Transport):
    """A transport that records; it says that it is full after each write if `narrow`."""

    def __init__(self, connection: Connection, *, narrow: bool = False) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.reading = True
        self.closed = False
        self.buffered = 0
        self._narrow = narrow
        self._connection = connection
        connection.connection_made(self)

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))
        if self._narrow:
            self._connection.pause_writing()

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def abort(self) -> None:
        self.closed = True


def at_once(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """What it returns, if it returns without a suspension."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    coroutine.close()
    raise AssertionError("it waited")


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@pytest.fixture
async def connection() -> Connection:
    return Connection(lambda _: None, buffer_bytes=1000)


async def asked(
    connection: Connection, answer: bytes = CHUNKED, body: tuple[bytes, ...] = (b"{", b"}"), **options: Any
) -> None:
    """A request is sent and the head of its answer has come."""
    request = HttpRequest("POST", "http://a/", body=body, **options)
    asking = asyncio.ensure_future(connection.ask(b"HEAD\r\n\r\n", request, sum(map(len, body)), 0.0))
    await asyncio.sleep(0)
    connection.data_received(answer)
    await asking


async def test_a_small_request_is_one_write(connection: Connection) -> None:
    wire = Wire(connection)
    await asked(connection)
    assert wire.writes == [b"HEAD\r\n\r\n{}"]


async def test_a_large_one_goes_on_when_there_is_room(connection: Connection) -> None:
    wire = Wire(connection, narrow=True)
    body = (b"a" * 10, b"b" * (2 * PIECE_BYTES), b"c" * 10)
    await asked(connection, body=body, first_byte_s=1e9)
    assert len(wire.writes) == 1
    for written in (2, 3, 4, 4):
        connection.resume_writing()
        assert len(wire.writes) == written
    assert b"".join(wire.writes) == b"HEAD\r\n\r\n" + b"".join(body)


async def test_what_arrived_since_is_one_read_without_waiting(connection: Connection) -> None:
    Wire(connection)
    await asked(connection)
    connection.data_received(chunk(b"one") + chunk(b"two"))
    connection.data_received(chunk(b"three"))
    assert at_once(connection.read()) == b"onetwothree"
    connection.data_received(chunk(b"four") + b"0\r\n\r\n")
    assert connection.answers.complete
    assert at_once(connection.read()) == b"four"
    assert at_once(connection.read()) == b""
    assert at_once(connection.read()) == b""
    assert connection.finish()


async def test_reading_stops_while_nobody_reads_and_goes_on_when_they_do(connection: Connection) -> None:
    wire = Wire(connection)
    await asked(connection)
    for _ in range(9):
        connection.data_received(chunk(b"x" * 90))
    assert wire.reading
    connection.data_received(chunk(b"x" * 200))
    assert not wire.reading
    assert len(at_once(connection.read())) == 1010
    assert wire.reading


async def test_reading_goes_on_for_the_next_exchange(connection: Connection) -> None:
    wire = Wire(connection)
    await asked(connection)
    connection.data_received(chunk(b"x" * 2000))
    assert not wire.reading
    connection.data_received(b"0\r\n\r\n")  # was on its way
    assert connection.finish()
    assert wire.reading
    await asked(connection, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    assert at_once(connection.read()) == b"ok"


async def test_no_timer_is_made_for_a_read_or_for_another_request(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    Wire(connection)
    loop = asyncio.get_running_loop()
    made, call_at = [], loop.call_at

    def counted(when: float, *rest: Any, **options: Any) -> asyncio.TimerHandle:
        made.append(when)
        return call_at(when, *rest, **options)

    monkeypatch.setattr(loop, "call_at", counted)
    for _ in range(5):
        await asked(connection, first_byte_s=1e9, idle_s=60)
        for _ in range(20):
            reading = asyncio.ensure_future(connection.read())
            await asyncio.sleep(0)
            connection.data_received(chunk(b"x"))
            assert await reading == b"x"
        connection.data_received(b"0\r\n\r\n")
        assert connection.finish()
    assert len(made) == 2  # one for the head, an earlier one for the first read
    connection.connection_lost(None)


async def test_a_head_alone_wakes_and_an_unfinished_chunk_does_not_end_a_read(connection: Connection) -> None:
    Wire(connection)
    await asked(connection)
    reading = asyncio.ensure_future(connection.read())
    for byte in b"3\r\n":
        await asyncio.sleep(0)
        connection.data_received(bytes([byte]))
    await asyncio.sleep(0)
    assert not reading.done()
    connection.data_received(b"a")
    assert await reading == b"a"


@pytest.mark.parametrize("error", [None, ConnectionResetError(104, "reset")])
async def test_what_came_before_the_end_is_read_before_it_is_told(
    connection: Connection, error: Exception | None
) -> None:
    Wire(connection)
    await asked(connection)
    connection.data_received(chunk(b"one"))
    connection.connection_lost(error)
    assert at_once(connection.read()) == b"one"
    for _ in range(2):
        with pytest.raises(LooplineError, match="in the middle of its answer") as caught:
            at_once(connection.read())
        assert caught.value.kind is Kind.UPSTREAM_CLOSED
    assert not connection.finish()


async def test_a_reset_is_not_the_end_of_a_body(connection: Connection) -> None:
    Wire(connection)
    await asked(connection, b"HTTP/1.1 200 OK\r\n\r\nsome")
    connection.connection_lost(ConnectionResetError(104, "reset"))
    assert at_once(connection.read()) == b"some"
    with pytest.raises(LooplineError):
        at_once(connection.read())


async def test_a_request_that_has_not_left_whole_ends_the_use(connection: Connection) -> None:
    wire = Wire(connection)
    await asked(connection, b"HTTP/1.1 413 Large\r\nContent-Length: 0\r\n\r\n")
    wire.buffered = 1
    assert not connection.finish()
    assert wire.closed


async def test_a_connection_that_is_closing_is_not_asked(connection: Connection) -> None:
    wire = Wire(connection)
    wire.closed = True
    with pytest.raises(LooplineError, match="before it answered") as caught:
        at_once(connection.ask(b"", HttpRequest("GET", "http://a/"), 0, 0.0))
    assert caught.value.kind is Kind.UPSTREAM_CLOSED
    assert not connection.answers.touched
    assert not wire.writes
