"""Both ends of a session, played by hand: a socket without a network, and an upstream that answers step by step."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any

from proxy.errors import Kind, LooplineError
from proxy.http_client import HttpRequest
from tests.session.scripted import ANSWER, MODELS, chunk

DONE = b"data: [DONE]\n\n"


class PlaySocket:
    """A `Socket` (session/outbox.py) without a network. `events` are what was sent, in order."""

    def __init__(self) -> None:
        self.incoming: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.events: list[dict[str, Any]] = []
        self.close_code: int | None = None
        self.on_end: Callable[[], None] | None = None  # called once, in the moment in which a response completes
        self._room = asyncio.Event()
        self._room.set()
        self._lost = False

    @property
    def congested(self) -> bool:
        return not self._room.is_set()

    def stop_reading(self) -> None:
        """The client stops reading: nothing more fits."""
        if not self._lost:
            self._room.clear()

    def read_on(self) -> None:
        """The client reads again."""
        self._room.set()

    def put(self, message: dict[str, Any] | bytes) -> None:
        """The client sends something."""
        self.incoming.put_nowait(message if isinstance(message, bytes) else json.dumps(message).encode())

    def lose(self) -> None:
        """The client is gone."""
        self._lost = True
        self.close_code = self.close_code or 1006
        self._room.set()
        self.incoming.put_nowait(None)

    async def receive(self) -> bytes | None:
        return await self.incoming.get()

    def write(self, data: bytes) -> None:
        if not self._lost:
            self.events += [json.loads(payload) for payload in _payloads(data)]
            if self.on_end is not None and self.events[-1]["type"] == "response.completed":
                told, self.on_end = self.on_end, None
                told()

    async def drained(self) -> None:
        await self._room.wait()

    async def close(self, code: int, reason: str) -> None:
        assert len(reason.encode()) <= 123, "a close frame holds no more"
        self.close_code = self.close_code or code
        self.lose()

    def abort(self) -> None:
        self.lose()


def _payloads(data: bytes) -> list[bytes]:
    """The messages in a write of whole frames, each one put together from its fragments."""
    messages: list[bytes] = []
    parts: list[bytes] = []
    at = 0
    while at < len(data):
        final, size = data[at] & 0x80, data[at + 1]
        at += 2
        if size in (126, 127):
            width = 2 if size == 126 else 8
            size = int.from_bytes(data[at : at + width])
            at += width
        parts.append(data[at : at + size])
        at += size
        if final:
            messages.append(b"".join(parts))
            parts = []
    assert at == len(data), "not whole frames"
    assert not parts
    return messages


def _call(number: int) -> bytes:
    made = b'{"tool_calls":[{"index":0,"id":"call_%d","type":"function","function":{"name":"f","arguments":"{}"}}]}'
    return made % number


def _answer(script: str, number: int) -> Iterator[bytes]:
    """An answer in the reads that it arrives in. Raises what goes wrong on the way."""
    if script == "call":
        yield from (chunk(_call(number)), chunk(b"{}", b'"tool_calls"') + DONE)
    elif script == "length":
        yield from (chunk(b'{"content":"too"}'), chunk(b"{}", b'"length"') + DONE)
    elif script == "long":
        yield from (chunk(b'{"content":"word %d "}' % word) for word in range(6))
        yield chunk(b"{}", b'"stop"') + DONE
    elif script == "drop":
        yield chunk(b'{"content":"never"}')
        raise LooplineError(Kind.UPSTREAM_CLOSED, "gone")
    elif script == "eof":
        yield chunk(b'{"content":"never"}')
    elif script == "garbage":
        yield from (chunk(b'{"content":"never"}'), b"data: {nonsense\n\n")
    else:
        yield from ANSWER


SCRIPTS = ("say", "call", "length", "long", "drop", "eof", "garbage", "fail", "unreachable")


class PlayUpstream:
    """An `HttpClient`. The last message of a request names its script; each step is one that `step` allows."""

    def __init__(self) -> None:
        self.waiting: list[asyncio.Event] = []
        self.open_exchanges = 0
        self.posts = 0
        self._free = False
        self._numbers = itertools.count(1)

    def open(self, request: HttpRequest) -> _Played:
        """Models at once; answers by their script."""
        if request.method == "GET":
            return _Played(self, "models", iter((MODELS,)))
        self.posts += 1
        said = json.loads(b"".join(request.body))["messages"][-1]["content"]
        script = said if said in SCRIPTS else "say"
        return _Played(self, script, _answer(script, next(self._numbers)))

    def step(self, pick: int) -> None:
        """Let one of those that wait go on."""
        if self.waiting:
            self.waiting.pop(pick % len(self.waiting)).set()

    def free(self) -> None:
        """Nobody waits any more."""
        self._free = True
        while self.waiting:
            self.step(0)

    async def allowed(self) -> None:
        """Wait for a step."""
        if self._free:
            await asyncio.sleep(0)
            return
        mine = asyncio.Event()
        self.waiting.append(mine)
        try:
            await mine.wait()
        finally:
            if mine in self.waiting:
                self.waiting.remove(mine)


class _Played:
    def __init__(self, upstream: PlayUpstream, script: str, reads: Iterator[bytes]) -> None:
        self.status = 500 if script == "fail" else 200
        self.headers: Mapping[str, str] = {}
        self.attempts = 1
        self.is_ready = False
        self._upstream = upstream
        self._script = script
        self._reads = reads

    async def __aenter__(self) -> _Played:
        if self._script != "models":
            await self._upstream.allowed()
        if self._script == "unreachable":
            raise LooplineError(Kind.UPSTREAM_UNREACHABLE, "nobody there")
        self._upstream.open_exchanges += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._upstream.open_exchanges -= 1

    async def read(self) -> bytes:
        if self._script != "models":
            await self._upstream.allowed()
        return next(self._reads, b"")
