"""One turn's events on their way to a client by HTTP, as server-sent events or to be waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from aiohttp import web

from proxy.access.budget import Held
from proxy.errors import LooplineError
from proxy.server.door import error_response
from proxy.server.sending import HIGH_BYTES, write
from proxy.wire.sse import DONE_FRAME, append_frame

_COMMENT = b": keepalive\n\n"


class Follower:
    """The subscriber that keeps a turn's events until the handler has written them."""

    def __init__(self, held: Held) -> None:
        self._held = held
        self.error: LooplineError | None = None
        self.done = False
        self.last = b""
        self._frames: list[bytes] = []
        self._size = 0  # of the events in the frames
        self._taken = 0  # of those that were taken and are not written
        self._spoke_s = 0.0
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    def deliver(self, events: Sequence[bytes]) -> None:
        for event in events:
            append_frame(self._frames, event)
            self._size += len(event)
        self._held.set(self._size + self._taken)
        self.last = events[-1]
        self._spoke_s = asyncio.get_running_loop().time()
        if self._size > HIGH_BYTES:
            self._room.clear()
        self._news.set()

    def refused(self, error: LooplineError) -> None:
        self.error = error
        self._news.set()

    def ended(self) -> None:
        self.done = True
        self._news.set()

    @property
    def congested(self) -> bool:
        return not self._room.is_set()

    async def drained(self) -> None:
        await self._room.wait()

    @contextmanager
    def kept_alive(self, every_s: float) -> Iterator[None]:
        """While open, a comment stands in for events that do not come for `every_s` (0: never)."""
        if not every_s:
            yield
            return
        self._spoke_s = asyncio.get_running_loop().time()
        self._look_in(every_s, every_s)
        try:
            yield
        finally:
            self._timer.cancel()

    def _look_in(self, after_s: float, every_s: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(after_s, self._look, every_s)

    def _look(self, every_s: float) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._spoke_s >= every_s:
            self._frames.append(_COMMENT)
            self._news.set()
            self._spoke_s = now
        self._look_in(every_s - (now - self._spoke_s), every_s)

    async def wait(self) -> None:
        """Until there is something to take, or the turn is over."""
        await self._news.wait()
        if not self.done:
            self._news.clear()

    def take(self) -> list[bytes]:
        """What came since the last take, as frames; it counts until it is `written`."""
        taken, self._frames = self._frames, []
        self._taken, self._size = self._size, 0
        self._held.set(self._taken)
        self._room.set()
        return taken

    def written(self) -> None:
        """What was taken last is with the client, or is not for it."""
        self._taken = 0
        self._held.set(self._size)

    def release(self) -> None:
        """Nobody reads any more."""
        self._held.release()


async def stream(
    request: web.Request,
    follower: Follower,
    stall_s: float,
    keepalive_s: float,
    times: Callable[[], Mapping[str, str]] = dict,
) -> web.StreamResponse:
    """Answer with the follower's events until the last. Raises `LooplineError` (client_stalled).

    `times` gives headers that tell what the turn took so far.
    """
    await follower.wait()
    if follower.error is not None:
        # Nothing was sent yet: a status is worth more to a client's retries than an event.
        return error_response(follower.error, times())
    headers = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache", **times()}
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)
    with follower.kept_alive(keepalive_s):
        while not follower.done:
            await write(request, response, follower.take(), stall_s)
            follower.written()
            await follower.wait()
    await write(request, response, [*follower.take(), DONE_FRAME], stall_s)
    await response.write_eof()
    return response
