"""The two ways of sending a turn: by HTTP with everything so far, by WebSocket with what is new.

Both are on aiohttp and as lean as a client can be, keep one connection, and compress nothing.
"""

from __future__ import annotations

import io
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import aiohttp
import msgspec

from proxy.wire.codec import encode
from proxy.wire.sse import SseDecoder

from .accounting import Timed
from .agent import Item

_TERMINAL = frozenset({"response.completed", "response.incomplete", "response.failed", "error"})
_MAX_EVENT_BYTES = 1024 * 1024 * 1024
_KEEPALIVE_S = 3600.0  # a slow tool must not cost the HTTP run its connection
# Messages stay bytes, as they are by HTTP.
_Socket: TypeAlias = "aiohttp.ClientWebSocketResponse[Literal[False]]"
_JSON = {"Content-Type": "application/json"}


class DemoError(Exception):
    """The demonstration cannot go on. The message is one line."""


class Answer(NamedTuple):
    """What a turn returned."""

    timed: Timed
    output: Sequence[Item]


class Sender(Protocol):
    """A way of sending. `connect_s` went to connecting before the first turn."""

    connect_s: float

    async def turn(self, history: Sequence[Item], new: Sequence[Item]) -> Answer:
        """Send `new`, the end of `history`, and wait for the terminal event. Raises `DemoError`."""
        ...


class _Event(msgspec.Struct):
    type: str = ""


_EVENT = msgspec.json.Decoder(_Event)


def _is_terminal(event: bytes) -> bool:
    return _EVENT.decode(event).type in _TERMINAL


class HttpSender:
    """`POST /v1/responses`, the whole history each time, the answer streamed."""

    connect_s = 0.0  # the first request connects, so it is in the first turn's time

    def __init__(self, http: aiohttp.ClientSession, url: str, fields: Mapping[str, Any]) -> None:
        self._http = http
        self._url = url
        self._fields = fields

    async def turn(self, history: Sequence[Item], new: Sequence[Item]) -> Answer:
        body = encode({**self._fields, "stream": True, "input": history})
        started_s = time.monotonic()
        try:
            # A BytesIO goes out in parts; aiohttp warns of bytes as large as a long history.
            async with self._http.post(self._url, data=io.BytesIO(body), headers=_JSON) as response:
                if response.status != 200:
                    raise DemoError(_refusal(response.status, await response.read()))
                event, ended_s = await _last_event(response)
        except aiohttp.ClientError as error:
            raise DemoError(f"the connection broke: {error}") from error
        return _answer(event, started_s, ended_s)


async def _last_event(response: aiohttp.ClientResponse) -> tuple[bytes, float]:
    """The terminal event and when it was read. What follows it is read too, or the connection could not be reused."""
    decoder = SseDecoder(_MAX_EVENT_BYTES)
    last, ended_s = b"", 0.0
    async for data in response.content.iter_any():
        for event in decoder.feed(data):
            if not last and _is_terminal(event):
                last, ended_s = event, time.monotonic()
    if not last:
        raise DemoError("the answer ended without its terminal event")
    return last, ended_s


class WebSocketSender:
    """`response.create` on one socket: `previous_response_id` and the new items."""

    def __init__(self, socket: _Socket, connect_s: float, fields: Mapping[str, Any]) -> None:
        self._socket = socket
        self._fields = fields
        self._previous: str | None = None
        self.connect_s = connect_s

    async def turn(self, history: Sequence[Item], new: Sequence[Item]) -> Answer:
        message = {"type": "response.create", **self._fields, "previous_response_id": self._previous, "input": new}
        text = encode(message)
        started_s = time.monotonic()
        try:
            await self._socket.send_frame(text, aiohttp.WSMsgType.TEXT)
            event = await self._last_event()
        except (aiohttp.ClientError, ConnectionError) as error:
            raise DemoError(f"the connection broke: {error}") from error
        answer = _answer(event, started_s, time.monotonic())
        self._previous = answer.timed.response
        return answer

    async def _last_event(self) -> bytes:
        while True:
            message = await self._socket.receive()
            if message.type is not aiohttp.WSMsgType.TEXT:
                raise DemoError(f"the WebSocket was closed in the middle of a turn ({self._socket.close_code})")
            event: bytes = message.data
            if _is_terminal(event):
                return event


@asynccontextmanager
async def over_http(base_url: str, fields: Mapping[str, Any]) -> AsyncIterator[Sender]:
    """A client with a connection of its own."""
    async with _session() as http:
        yield HttpSender(http, f"{base_url}/responses", fields)


@asynccontextmanager
async def over_websocket(base_url: str, fields: Mapping[str, Any]) -> AsyncIterator[Sender]:
    """A client with a socket of its own. Raises `DemoError` where there is none to be had."""
    started_s = time.monotonic()
    async with _session() as http:
        try:
            socket = await http.ws_connect(f"{base_url}/responses", max_msg_size=0, decode_text=False)
        except aiohttp.ClientError as error:
            raise DemoError(f"no WebSocket: {error}") from error
        async with socket:
            yield WebSocketSender(socket, time.monotonic() - started_s, fields)


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(keepalive_timeout=_KEEPALIVE_S),
        timeout=aiohttp.ClientTimeout(total=None),  # Loopline bounds how long an upstream may be silent
        trust_env=False,
    )


def _answer(event: bytes, started_s: float, ended_s: float) -> Answer:
    last = msgspec.json.decode(event)
    if last["type"] in ("error", "response.failed"):
        raise DemoError(_message(last))
    response = last["response"]
    return Answer(Timed(response["id"], started_s, ended_s), response["output"])


def _refusal(status: int, body: bytes) -> str:
    try:
        return _message(msgspec.json.decode(body))
    except msgspec.DecodeError:
        return f"HTTP status {status}"


def _message(failure: Mapping[str, Any]) -> str:
    """The reason, from an error body, an `error` event or a failed response."""
    error = failure.get("error") or failure.get("response", {}).get("error") or {}
    return " ".join(str(error.get("message", "no reason given")).split())
