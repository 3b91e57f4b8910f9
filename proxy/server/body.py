"""Request bodies: read and inflated within bounds, and counted in the caller's memory while they come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from aiohttp import web

from proxy.access.budget import Budget, Held
from proxy.access.gate import Grant
from proxy.errors import Kind, LooplineError
from proxy.server.door import JSON
from proxy.wire.inflate import Inflater, TooLarge, coding_of

_CHUNK_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class BodyReader:
    """Reads bodies of at most `max_bytes`, compressed or not; `max_ratio` bounds how much they may inflate (0: no
    further), and `receive_s` how long they may come. Whoever has `turns` inflates a piece: many that inflate take no
    more of the event loop at a time than one.
    """

    max_bytes: int
    max_ratio: int
    receive_s: float
    turns: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def json(self, request: web.Request, grant: Grant) -> bytes:
        """The body of a request that must hold JSON.

        Raises `LooplineError` (unsupported_media, invalid_request, message_too_large, slow_sender, overloaded),
        `HTTPRequestEntityTooLarge`.
        """
        if request.content_type != JSON:
            raise LooplineError(
                Kind.UNSUPPORTED_MEDIA, f"Content-Type must be {JSON}, not '{request.content_type[:100]}'."
            )
        coding = coding_of(request.headers.getall("Content-Encoding", []))
        inflater = None if coding is None else Inflater(coding, self.max_bytes, self.max_ratio)
        budget = grant.account.budget
        budget.admit(min(request.content_length or 0, self.max_bytes))
        held = Held(budget)
        try:
            async with asyncio.timeout(self.receive_s):
                body = await self._whole(request, inflater, held, budget)
        except TimeoutError:
            raise LooplineError(
                Kind.SLOW_SENDER,
                f"The body was not there within {self.receive_s:g} s (server.receive_s).",
                limit="server.receive_s",
            ) from None
        except TooLarge as error:
            raise web.HTTPRequestEntityTooLarge(self.max_bytes, self.max_bytes + 1, text=str(error)) from None
        finally:
            held.release()
        if len(body) > grant.bound("frame_bytes", len(body)):
            raise LooplineError(
                Kind.MESSAGE_TOO_LARGE,
                f"The body has {len(body)} bytes, more than this key may send.",
                limit="limits.frame_bytes",
            )
        grant.check()  # a key may have been revoked while its body came
        return body

    async def _whole(self, request: web.Request, inflater: Inflater | None, held: Held, budget: Budget) -> bytes:
        """The body, counted while it comes. Raises `LooplineError` (overloaded) once there is no room for more."""
        body = bytearray()
        async for piece in self._pieces(request, inflater):
            budget.admit()
            held.grow(len(piece))
            body += piece
        return bytes(body)

    async def _pieces(self, request: web.Request, inflater: Inflater | None) -> AsyncIterator[bytes]:
        received = 0
        async for chunk in request.content.iter_chunked(_CHUNK_BYTES):
            received += len(chunk)
            if received > self.max_bytes:
                raise TooLarge(f"The body is larger than {self.max_bytes} bytes (limits.frame_bytes).")
            if inflater is None:
                yield chunk
                continue
            for piece in inflater.feed(chunk):
                yield piece
                async with self.turns:
                    await asyncio.sleep(0)
        if inflater is not None:
            inflater.finish()
