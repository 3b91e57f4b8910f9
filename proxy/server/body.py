"""Request bodies: read, and inflated within bounds."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from aiohttp import web

from proxy.errors import Kind, LooplineError
from proxy.server.door import JSON
from proxy.wire.inflate import Inflater, TooLarge, coding_of

_CHUNK_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class BodyReader:
    """Reads bodies of at most `max_bytes`, compressed or not; `max_ratio` bounds how much they may inflate."""

    max_bytes: int
    max_ratio: int

    async def json(self, request: web.Request) -> bytes:
        """The body of a request that must hold JSON.

        Raises `LooplineError` (unsupported_media, invalid_request), `HTTPRequestEntityTooLarge`.
        """
        if request.content_type != JSON:
            raise LooplineError(
                Kind.UNSUPPORTED_MEDIA, f"Content-Type must be {JSON}, not '{request.content_type[:100]}'."
            )
        coding = coding_of(request.headers.getall("Content-Encoding", []))
        if coding is None:
            return await request.read()
        try:
            return await self._inflated(request, Inflater(coding, self.max_bytes, self.max_ratio))
        except TooLarge as error:
            raise web.HTTPRequestEntityTooLarge(self.max_bytes, self.max_bytes + 1, text=str(error)) from None

    async def _inflated(self, request: web.Request, inflater: Inflater) -> bytes:
        parts: list[bytes] = []
        received = 0
        async for chunk in request.content.iter_chunked(_CHUNK_BYTES):
            received += len(chunk)
            if received > self.max_bytes:
                raise TooLarge(f"The body is larger than {self.max_bytes} bytes (limits.frame_bytes).")
            for piece in inflater.feed(chunk):
                parts.append(piece)
                await asyncio.sleep(0)  # nobody else waits for a body that inflates to much
        inflater.finish()
        return b"".join(parts)
