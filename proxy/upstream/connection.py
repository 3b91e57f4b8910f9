"""One connection to an upstream: requests out, answers in, one after another. The I/O around `answers`.

Nothing here is made for each read: no task, no timer. Whoever waits does so on one future; a body that does not fit the
socket goes on from the transport's own call when there is room again, whether or not the answer has begun.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import cast

from proxy.errors import Kind, LooplineError, kind_of
from proxy.http_client import HttpRequest
from proxy.upstream.answers import Answers
from proxy.upstream.request_bytes import PIECE_BYTES, pieces


class Connection(asyncio.Protocol):
    """Lent to one exchange at a time: `ask`, `read` until empty, `finish`; or `abort`, at any time.

    `on_gone` is told once that it can serve no more. More than `buffer_bytes` unread stop the reading.
    """

    def __init__(self, on_gone: Callable[[Connection], object], buffer_bytes: int) -> None:
        self.answers = Answers()
        self._loop = asyncio.get_running_loop()
        self._on_gone = on_gone
        self._buffer_bytes = buffer_bytes
        self._transport: asyncio.Transport | None = None
        self._lent = False
        self._failure: LooplineError | None = None
        self._unsent: Iterator[bytes | memoryview] | None = None
        self._full = False  # the transport takes no more for now
        self._unread_bytes = 0
        self._paused = False
        self._waiter: asyncio.Future[None] | None = None
        self._first_byte_s = self._idle_s = 0.0
        self._deadline = 0.0  # of what is waited for now
        self._timer: asyncio.TimerHandle | None = None
        self._looks_at = 0.0  # when the timer fires
        self._aborted = False

    @property
    def is_lost(self) -> bool:
        """Is there no transport any more?"""
        return self._transport is None

    @property
    def is_ready(self) -> bool:
        """Does `read` return at once, be it with what arrived, the end, or a failure?"""
        answers = self.answers
        return bool(answers.parts) or answers.complete or self._failure is not None

    # --- The exchange ---

    async def ask(self, head: bytes, request: HttpRequest, body_bytes: int, began_s: float) -> None:
        """Send a request and wait for the answer's head; `began_s` is when that wait began.

        Raises `LooplineError`: upstream_closed, upstream_timeout, upstream_garbled. Whoever leaves by an exception
        leaves the connection closed.
        """
        answers = self.answers
        self._lent = True
        self._first_byte_s, self._idle_s = request.first_byte_s, request.idle_s
        try:
            answers.begin(bodiless=request.method == "HEAD")
            if body_bytes > PIECE_BYTES:
                self._unsent = pieces((head, *request.body))
                self._send_on()
            else:
                self._write(b"".join((head, *request.body)))
            while not answers.headed:
                if self._failure is not None:
                    raise self._failure
                await self._wait(began_s + request.first_byte_s)
        except BaseException:  # cancelled, too: what was asked for must not go on
            self.abort()
            raise

    async def read(self) -> bytes:
        """What has arrived of the body; empty at its end. Waits only where nothing has."""
        answers = self.answers
        parts = answers.parts
        while not parts:
            if answers.complete:
                return b""
            if self._failure is not None:
                raise self._failure
            await self._wait(self._loop.time() + self._idle_s)
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        self._unread_bytes = 0
        if self._paused:
            self._resume()
        return data

    def finish(self) -> bool:
        """The exchange is over. Can the connection serve again? If not, it is closed."""
        answers, transport = self.answers, self._transport
        if (
            answers.complete
            and answers.keep
            and self._unsent is None
            and transport is not None
            and not transport.is_closing()
            and not transport.get_write_buffer_size()
        ):
            answers.parts.clear()
            self._unread_bytes = 0
            self._lent = False
            if self._paused:
                self._resume()
            return True
        self.abort()
        return False

    def abort(self) -> None:
        """Close at once, whatever was still to be sent."""
        self._lent = False
        self._aborted = True
        self._unsent = None
        if self._transport is not None:
            self._transport.abort()

    # --- Waiting ---

    def _wait(self, deadline: float) -> asyncio.Future[None]:
        """To be awaited: done when something has arrived, or failed."""
        if self._timer is None or self._looks_at > deadline:
            self._arm(deadline)
        self._deadline = deadline
        self._waiter = waiter = self._loop.create_future()
        return waiter

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._look)
        self._looks_at = when

    def _look(self) -> None:
        """The one timer: has what is waited for now waited too long?"""
        self._timer = None
        if self._waiter is None or self._waiter.done():
            return
        if self._deadline > self._loop.time():
            self._arm(self._deadline)
        else:
            self._fail(LooplineError(Kind.UPSTREAM_TIMEOUT, self._late()))

    def _late(self) -> str:
        if self.answers.headed:
            return f"The upstream sent nothing for {self._idle_s:g} s (upstream.idle_timeout_s)."
        return f"The upstream did not answer within {self._first_byte_s:g} s (upstream.first_byte_timeout_s)."

    def _fail(self, error: LooplineError) -> None:
        if self._failure is None:
            self._failure = error
        self._wake()
        self.abort()

    # --- What the transport calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # that of uvloop does not derive from it

    def data_received(self, data: bytes) -> None:
        answers = self.answers
        answers.feed(data)
        if answers.complete:
            if not self._lent:
                self.abort()
        elif answers.garbled is not None:
            self._fail(
                LooplineError(Kind.UPSTREAM_GARBLED, "The upstream's answer was not valid HTTP.", cause=answers.garbled)
            )
        else:
            self._unread_bytes += len(data)
            if self._unread_bytes > self._buffer_bytes and answers.parts and not self._paused:
                self._pause()
        if self._waiter is not None:
            self._wake()

    def eof_received(self) -> None:
        self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc)
        self._transport = None
        self._unsent = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._on_gone(self)

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._send_on()

    # --- Both directions ---

    def _write(self, data: bytes | memoryview) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
        else:
            self._unsent = None
            self._end(None)

    def _send_on(self) -> None:
        while self._unsent is not None and not self._full:
            piece = next(self._unsent, None)
            if piece is None:
                self._unsent = None
            else:
                self._write(piece)

    def _end(self, error: Exception | None) -> None:
        """The far side sends nothing more, or the connection broke, or was closed from here."""
        answers = self.answers
        whole = answers.complete if self._aborted or error is not None else answers.end()
        answers.keep = False
        if not whole and self._failure is None:
            where = "in the middle of its answer" if answers.headed else "before it answered"
            self._failure = LooplineError(
                Kind.UPSTREAM_CLOSED,
                f"The upstream closed the connection {where}.",
                cause=None if error is None else kind_of(error),
            )
        self._wake()

    def _pause(self) -> None:
        self._paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def _resume(self) -> None:
        self._paused = False
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
