"""Compressed WebSocket messages of one client, inflated within bounds, a piece at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from proxy.access.budget import Budget, Held
from proxy.errors import Kind, LooplineError
from proxy.wire.message_inflater import PIECE_BYTES, MessageInflater


class TooFar(Exception):
    """A message inflates to more than the hard limit: what follows it cannot be read any more."""


class Inflating:
    """The bounds are on what a message inflates to, and the same as those of one that is not compressed.

    `turns` is shared by all sockets: whoever has it inflates a piece and passes it on, so that many that inflate take
    no more of the event loop at a time than one.
    """

    def __init__(self, turns: asyncio.Lock, budget: Budget, frame_bytes: Callable[[], int], hard_bytes: int) -> None:
        self._inflater = MessageInflater()
        self._turns = turns
        self._budget = budget
        self._frame_bytes = frame_bytes
        self._hard_bytes = hard_bytes
        self.given_up = False  # is nobody left who would hear of it?

    async def whole(self, message: bytes) -> bytes:
        """What a message inflates to, counted in the client's memory while it grows.

        Raises `LooplineError` (message_too_large, overloaded) once the message is over: the next one may refer to it,
        so it is inflated to its end, and not kept. Raises `TooFar`, `NotDeflated`. Ends early, with what there is,
        once it is given up.
        """
        held, refused, size = Held(self._budget), None, 0
        inflated = bytearray()
        try:
            async for piece in self._pieces(message):
                size += len(piece)
                if size > self._hard_bytes:
                    raise TooFar
                refused = refused or self._refusal(size)
                if refused is None:
                    inflated += piece
                else:
                    inflated.clear()
                held.set(len(message) + len(inflated))
                if self.given_up:
                    break
        finally:
            held.release()
        if refused is not None:
            raise refused
        return bytes(inflated)

    def _refusal(self, size: int) -> LooplineError | None:
        if size > (bound := self._frame_bytes()):
            allowed = f"the {bound} bytes allowed (limits.frame_bytes)"
            message = f"The message inflates to more than {allowed}."
            return LooplineError(Kind.MESSAGE_TOO_LARGE, message, limit="limits.frame_bytes")
        try:
            self._budget.admit()
        except LooplineError as error:
            return error
        return None

    async def _pieces(self, message: bytes) -> AsyncIterator[bytes]:
        at_once = 0
        for piece in self._inflater.feed(message):
            yield piece
            at_once += len(piece)
            if at_once >= PIECE_BYTES:
                at_once = 0
                async with self._turns:
                    await asyncio.sleep(0)
