"""Turns of one session without sockets: what everything between the client's bytes and the upstream's takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import uvloop

from proxy.session.limits import SessionLimits
from proxy.session.registry import Registry
from proxy.session.services import Caller
from proxy.session.session import Session
from proxy.session.tasks import Tasks
from proxy.telemetry.metrics import Metrics
from tests.session.scripted import Checkpoints, ScriptedClient, WaitingStore, services

_ID = b'"id":"resp_'


class _Socket:
    """A `Socket` that is fed by hand."""

    congested = False
    close_code: int | None = None

    def __init__(self) -> None:
        self.incoming: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.turn_over = asyncio.Event()
        self.last = b""

    async def receive(self) -> bytes | None:
        return await self.incoming.get()

    def write(self, data: bytes) -> None:
        if b'"type":"response.completed"' in data:
            self.last = data
            self.turn_over.set()

    async def drained(self) -> None:
        pass

    async def close(self, code: int, reason: str) -> None:
        pass

    def abort(self) -> None:
        pass


class Turns:
    """One session; `ten` is a chain of ten turns, each a continuation of the one before."""

    def __init__(self, answer: bytes, create: Callable[..., bytes]) -> None:
        self._loop = uvloop.new_event_loop()
        self._answer, self._create = answer, create
        self._socket = _Socket()
        self._loop.run_until_complete(self._open())

    def ten(self) -> None:
        """Ten turns."""
        self._loop.run_until_complete(self._chain())

    async def _open(self) -> None:
        checkpoints = Checkpoints()
        client = ScriptedClient(checkpoints, (self._answer,), is_ready=True)
        made = replace(services(client, WaitingStore(checkpoints)), observer=Metrics("bench"))
        session = Session(self._socket, Caller("t", {}), made, Registry(Tasks(lambda *_: None)), SessionLimits())
        self._reader = asyncio.ensure_future(session.run())

    async def _chain(self) -> None:
        socket, parent = self._socket, None
        for _ in range(10):
            socket.turn_over.clear()
            socket.incoming.put_nowait(self._create(previous_response_id=parent))
            await socket.turn_over.wait()
            at = socket.last.rindex(_ID) + 6
            parent = socket.last[at : socket.last.index(b'"', at)].decode()

    def close(self) -> None:
        """The client leaves."""
        self._socket.incoming.put_nowait(None)
        self._loop.run_until_complete(self._reader)
        self._loop.close()
