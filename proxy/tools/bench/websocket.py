"""A WebSocket client as lean as Python allows: what the bench costs beside the server it measures.

It knows what a Responses server sends and no more: text messages, pings, a close, permessage-deflate where it was
offered. Whatever breaks the contract ends the turn with a `BenchError`.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import ssl
import time
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

import msgspec

from .turns import BenchError, Fields, Item, Turn

_TEXT, _CLOSE, _PING, _PONG, _CONTINUATION = 1, 8, 9, 10, 0
_FIN, _RSV1, _MASKED = 0x80, 0x40, 0x80
_TERMINAL = frozenset({"response.completed", "response.incomplete", "response.failed", "error"})
_DELTA = b'.delta"'
# No delta is as long; a terminal event may hold text that looks like one.
_DELTA_BYTES = 4096
_DEFLATE = "permessage-deflate; client_no_context_takeover"
_ACCEPTED = re.compile(rb"\r\nsec-websocket-extensions:[^\r]*permessage-deflate", re.IGNORECASE)
_CONNECT_S = 30.0
TURN_S = 180.0


class _Output(msgspec.Struct):
    type: str = ""
    call_id: str = ""


class _Response(msgspec.Struct):
    id: str = ""
    output: list[_Output] = []


class _Event(msgspec.Struct):
    type: str = ""
    response: _Response | None = None


class _Type(msgspec.Struct):
    type: str = ""


_EVENT, _TYPE = msgspec.json.Decoder(_Event), msgspec.json.Decoder(_Type)


class Address(NamedTuple):
    """Where a Responses server listens; read from a base URL, http, https, ws or wss."""

    host: str
    port: int
    path: str
    tls: bool

    @classmethod
    def of(cls, url: str) -> Address:
        """Raises BenchError for what is no such URL."""
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = 0
        if parts.scheme not in ("http", "https", "ws", "wss") or not parts.hostname or port == 0:
            raise BenchError(f"{url} is not the URL of a server: write http://host:port/v1")
        tls = parts.scheme in ("https", "wss")
        path = parts.path.rstrip("/")
        return cls(
            parts.hostname, port or (443 if tls else 80), path + "/responses" * (not path.endswith("/responses")), tls
        )


class Socket(asyncio.Protocol):
    """One WebSocket. `opened` is set by the upgrade; `turn` sends one create and waits for its terminal event."""

    def __init__(self, address: Address, key: str, *, deflate: bool = False) -> None:
        self._address = address
        self._key = key
        self._offers = deflate
        self._buffer = bytearray()
        self._message = bytearray()
        self._compressed = False
        self._inflater: Any = None
        self._upgraded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting: asyncio.Future[Turn] | None = None
        self.deflates = False
        self.previous = ""

    @classmethod
    async def open(cls, address: Address, key: str, *, deflate: bool = False) -> Socket:
        """Connect and upgrade. Raises BenchError."""
        socket = cls(address, key, deflate=deflate)
        context = ssl.create_default_context() if address.tls else None
        try:
            async with asyncio.timeout(_CONNECT_S):
                loop = asyncio.get_running_loop()
                await loop.create_connection(lambda: socket, address.host, address.port, ssl=context)
                await socket._upgraded
        except (OSError, TimeoutError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or "no answer"
            raise BenchError(f"no WebSocket at {address.host}:{address.port}: {why}") from error
        return socket

    # ------------------------------------------------------------------------------------------------------- sending

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one, but for its class
        extension = f"Sec-WebSocket-Extensions: {_DEFLATE}\r\n" if self._offers else ""
        credential = f"Authorization: Bearer {self._key}\r\n" if self._key else ""
        self._transport.write(
            f"GET {self._address.path} HTTP/1.1\r\nHost: {self._address.host}:{self._address.port}\r\n"
            "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}\r\n{extension}{credential}\r\n".encode()
        )

    async def turn(self, create: bytes, *, watch: bool = False, compress: bool = False) -> Turn:
        """Send one `response.create`; with `watch` keep when each token came. Raises BenchError."""
        self._waiting = asyncio.get_running_loop().create_future()
        self._events = self._bytes_down = 0
        self._bytes_up = len(create)
        self._first_s: float | None = None
        self._tokens: list[tuple[float, bytes]] = []
        self._watch = watch
        if self._transport.is_closing():
            raise BenchError("the server closed the WebSocket")
        self._started_s = time.monotonic()
        self._send(_TEXT, create, compress=compress)
        try:
            async with asyncio.timeout(TURN_S):
                return await self._waiting
        except TimeoutError:
            raise BenchError(f"a turn did not end within {TURN_S:g} s") from None

    def _send(self, opcode: int, payload: bytes, *, compress: bool = False) -> None:
        first = _FIN | opcode
        if compress:
            packer = zlib.compressobj(wbits=-15)
            payload = (packer.compress(payload) + packer.flush(zlib.Z_SYNC_FLUSH))[:-4]
            first |= _RSV1
        length = len(payload)
        if length < 126:
            head = bytes((first, _MASKED | length))
        elif length < 65536:
            head = bytes((first, _MASKED | 126)) + length.to_bytes(2, "big")
        else:
            head = bytes((first, _MASKED | 127)) + length.to_bytes(8, "big")
        # A mask of zeros changes nothing: the server unmasks all the same, and the client has no work.
        self._transport.write(head + b"\0\0\0\0" + payload)

    def close(self) -> None:
        """Close the connection at once."""
        self._transport.abort()

    # ----------------------------------------------------------------------------------------------------- receiving

    def data_received(self, data: bytes) -> None:
        self._now = time.monotonic()
        self._buffer += data
        if not self._upgraded.done() and not self._read_head():
            return
        try:
            self._read_frames()
        except (msgspec.DecodeError, zlib.error) as error:
            self._fail(f"the server sent what cannot be read: {error}")

    def _read_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        head = bytes(self._buffer[:end])
        del self._buffer[: end + 4]
        status = head.split(b"\r\n", 1)[0].split(b" ", 1)[-1].decode("latin-1")
        if not status.startswith("101"):
            self._upgraded.set_exception(BenchError(f"the server refused the WebSocket: {status}"))
            return False
        self.deflates = bool(_ACCEPTED.search(head))
        self._inflater = zlib.decompressobj(wbits=-15) if self.deflates else None
        self._upgraded.set_result(None)
        return True

    def _read_frames(self) -> None:
        buffer, at, held = self._buffer, 0, len(self._buffer)
        while held - at >= 2:
            first, length, body = buffer[at], buffer[at + 1] & 127, at + 2
            if length > 125:
                body += 2 if length == 126 else 8
                if held < body:
                    break
                length = int.from_bytes(buffer[at + 2 : body], "big")
            if held < body + length:
                break
            at = body + length
            self._take(first, bytes(buffer[body:at]))
        del buffer[:at]

    def _take(self, first: int, payload: bytes) -> None:
        opcode = first & 15
        if first == _FIN | _TEXT:  # by far the most frequent: whole and uncompressed
            self._take_event(payload)
        elif opcode in (_TEXT, _CONTINUATION):
            if opcode == _TEXT:
                self._compressed = bool(first & _RSV1)
            self._message += payload
            if first & _FIN:
                whole = bytes(self._message)
                self._message.clear()
                if self._compressed:
                    whole = self._inflater.decompress(whole + b"\0\0\xff\xff")
                self._take_event(whole)
        elif opcode == _PING:
            self._send(_PONG, payload)
        elif opcode == _CLOSE:
            self._fail(f"the server closed the WebSocket: {int.from_bytes(payload[:2], 'big')} {payload[2:].decode()}")
            self._transport.close()

    def _take_event(self, event: bytes) -> None:
        self._events += 1
        self._bytes_down += len(event)
        if len(event) < _DELTA_BYTES and _DELTA in event:
            if self._first_s is None:
                self._first_s = self._now
            if self._watch:
                self._tokens.append((self._now, event))
        elif _TYPE.decode(event).type in _TERMINAL:
            self._end(event)

    def _end(self, event: bytes) -> None:
        last = _EVENT.decode(event)
        if last.type in ("error", "response.failed") or last.response is None:
            self._fail(reason(event))
            return
        self.previous = last.response.id
        call = next((item.call_id for item in last.response.output if item.type == "function_call"), "")
        self._result(
            Turn(
                self._started_s, self._first_s, self._now, self._events, self._bytes_up, self._bytes_down,
                call, self._tokens,
            )
        )  # fmt: skip

    def _result(self, turn: Turn) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(turn)

    def _fail(self, why: str) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(BenchError(why))

    def connection_lost(self, error: Exception | None) -> None:
        self._fail("the server closed the connection in the middle of a turn")
        if not self._upgraded.done():
            self._upgraded.set_exception(BenchError("the server closed the connection instead of opening a WebSocket"))


def reason(failure: bytes) -> str:
    """What an `error` event, a failed response or an error body says, in one line."""
    try:
        told = msgspec.json.decode(failure)
        error = told.get("error") or (told.get("response") or {}).get("error") or {}
        words = error.get("message", "no reason given") if isinstance(error, dict) else error
    except (msgspec.DecodeError, AttributeError):
        words = failure[:200].decode("utf-8", "replace")
    return " ".join(str(words).split())


class Deltas:
    """A conversation on one WebSocket: each turn sends what is new. `connect_s` went to connecting."""

    def __init__(self, socket: Socket, fields: Fields, connect_s: float) -> None:
        self._socket = socket
        self._fields = fields.responses()
        self.connect_s = connect_s

    @classmethod
    async def open(cls, address: Address, key: str, fields: Fields) -> Deltas:
        """Open the socket. Raises BenchError."""
        started_s = time.monotonic()
        socket = await Socket.open(address, key)
        return cls(socket, fields, time.monotonic() - started_s)

    def restart(self) -> None:
        """The next turn begins a new conversation, on the same socket."""
        self._socket.previous = ""

    async def turn(self, new: Sequence[Item], *, watch: bool = False) -> Turn:
        """Send the new items and wait for the answer's end. Raises BenchError."""
        return await self._socket.turn(create(self._fields, new, self._socket.previous), watch=watch)

    async def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def create(fields: bytes, new: Sequence[Item], previous: str = "") -> bytes:
    """A `response.create` message. `fields` as `Fields.responses` writes them."""
    parent = b'"previous_response_id":"' + previous.encode() + b'",' if previous else b""
    joined = b",".join([item.responses for item in new])
    return b'{"type":"response.create",' + parent + fields + b',"input":[' + joined + b"]}"
