"""What is done without Loopline: one keep-alive HTTP connection, the whole history in each request, the answer
streamed. The items are encoded once and joined, so that what is compared is the way of sending, not a client's JSON.
"""

from __future__ import annotations

import io
import time
from collections.abc import Sequence
from typing import Any

import aiohttp
import msgspec

from proxy.wire.sse import SseDecoder

from .turns import BenchError, Fields, Item, Turn, encode, message
from .websocket import TURN_S, reason

_MAX_EVENT_BYTES = 1024 * 1024 * 1024
_KEEPALIVE_S = 3600.0
_DONE = b"[DONE]"


class _Item(msgspec.Struct):
    type: str = ""
    call_id: str = ""


class _Response(msgspec.Struct):
    output: list[msgspec.Raw] = []


class _Event(msgspec.Struct):
    type: str = ""
    response: _Response | None = None


class _Delta(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta = msgspec.field(default_factory=_Delta)


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    error: Any = None


_TYPE = msgspec.json.Decoder(_Item)
_EVENT = msgspec.json.Decoder(_Event)
_CHUNK = msgspec.json.Decoder(_Chunk)
_BAD = frozenset({"error", "response.failed"})
_GOOD = frozenset({"response.completed", "response.incomplete"})


class _Reading:
    """What one streamed answer has brought so far."""

    def __init__(self, *, watch: bool) -> None:
        self._watch = watch
        self.events = self.bytes = 0
        self.first_s: float | None = None
        self.ended_s: float | None = None
        self.tokens: list[tuple[float, bytes]] = []
        self.answer: list[Item] = []
        self.call = ""
        self.text: list[str] = []

    def token(self, now: float, event: bytes) -> None:
        if self.first_s is None:
            self.first_s = now
        if self._watch:
            self.tokens.append((now, event))

    def responses(self, event: bytes, now: float) -> None:
        if len(event) < 4096 and b'.delta"' in event:
            self.token(now, event)
            return
        kind = _TYPE.decode(event).type if event != _DONE else ""
        if kind in _BAD:
            raise BenchError(reason(event))
        response = _EVENT.decode(event).response if kind in _GOOD else None
        if response is not None:
            self.ended_s = now
            for raw in response.output:
                item = _TYPE.decode(raw)
                self.call = item.call_id if item.type == "function_call" else self.call
                self.answer.append(Item(bytes(raw), b""))

    def chat(self, event: bytes, now: float) -> None:
        if event == _DONE:
            self.ended_s = now
            self.answer = [message("assistant", "".join(self.text))]
            return
        chunk = _CHUNK.decode(event)
        if chunk.error is not None:
            raise BenchError(reason(event))
        for choice in chunk.choices:
            if choice.delta.content:
                self.token(now, event)
                self.text.append(choice.delta.content)


class FullResend:
    """A conversation by HTTP. `connect_s` is 0: the first request connects, so it is in the first turn's time."""

    connect_s = 0.0

    def __init__(self, base_url: str, key: str, fields: Fields, dialect: str) -> None:
        self._chat = dialect == "chat"
        self._url = f"{base_url}/chat/completions" if self._chat else f"{base_url}/responses"
        self._fields = fields.chat() if self._chat else b'"stream":true,' + fields.responses()
        self._history: list[bytes] = []
        self._headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        if self._chat and fields.instructions:
            self._system = [encode({"role": "system", "content": fields.instructions})]
        else:
            self._system = []
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(keepalive_timeout=_KEEPALIVE_S),
            timeout=aiohttp.ClientTimeout(total=TURN_S),
            read_bufsize=1 << 18,
            trust_env=False,
        )

    def restart(self) -> None:
        """The next turn begins a new conversation, on the same connection."""
        self._history.clear()

    async def turn(self, new: Sequence[Item], *, watch: bool = False) -> Turn:
        """Send everything so far and the new items, and wait for the answer's end. Raises BenchError."""
        self._keep(new)
        name = b',"messages":[' if self._chat else b',"input":['
        body = b"{" + self._fields + name + b",".join([*self._system, *self._history]) + b"]}"
        reading = _Reading(watch=watch)
        started_s = time.monotonic()
        try:
            # A BytesIO goes out in parts; aiohttp warns of bytes as large as a long history.
            async with self._http.post(self._url, data=io.BytesIO(body), headers=self._headers) as response:
                if response.status != 200:
                    raise BenchError(f"{self._url}: {response.status}: {reason(await response.read())}")
                await self._read(response, reading)
        except TimeoutError:
            raise BenchError(f"{self._url}: a turn did not end within {TURN_S:g} s") from None
        except (aiohttp.ClientError, msgspec.DecodeError) as error:
            raise BenchError(f"{self._url}: {error or type(error).__name__}") from error
        if reading.ended_s is None:
            raise BenchError(f"{self._url}: the answer ended without its terminal event")
        self._keep(reading.answer)
        return Turn(
            started_s, reading.first_s, reading.ended_s, reading.events, len(body), reading.bytes, reading.call,
            reading.tokens,
        )  # fmt: skip

    async def _read(self, response: aiohttp.ClientResponse, reading: _Reading) -> None:
        """To the stream's end: what follows the terminal event is read too, or the connection could not be reused."""
        decoder = SseDecoder(_MAX_EVENT_BYTES)
        take = reading.chat if self._chat else reading.responses
        async for data in response.content.iter_any():
            now = time.monotonic()
            reading.bytes += len(data)
            for event in decoder.feed(data):
                reading.events += event != _DONE
                take(event, now)

    def _keep(self, items: Sequence[Item]) -> None:
        self._history += [item.chat if self._chat else item.responses for item in items]

    async def close(self) -> None:
        """Close the connection."""
        await self._http.close()
