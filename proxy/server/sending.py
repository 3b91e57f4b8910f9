"""Bytes to a client that may read slowly, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence

from aiohttp import web

from proxy.access.budget import Budget, Held
from proxy.errors import Kind, LooplineError
from proxy.server.door import JSON

HIGH_BYTES = 256 * 1024
_BREAK = b"\n\n"  # ends a frame of server-sent events


async def write(
    request: web.Request, response: web.StreamResponse, parts: Sequence[bytes | memoryview], stall_s: float
) -> None:
    """Write parts, many at once. Raises `LooplineError` (client_stalled), the connection being dropped, where it takes
    none of them for `stall_s`.
    """
    try:
        for piece in _pieces(parts):
            async with asyncio.timeout(stall_s):
                await response.write(piece)
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
        raise LooplineError(Kind.CLIENT_STALLED, "The client did not read for too long.") from None


def _pieces(parts: Sequence[bytes | memoryview]) -> Iterator[bytes]:
    """Parts joined, no more of them than a client that stalls should hold, and whole frames alone: some parsers forget
    a frame that is split over two reads.
    """
    piece: list[bytes | memoryview] = []
    size = 0
    for part in parts:
        piece.append(part)
        size += len(part)
        if size >= HIGH_BYTES and part[-2:] == _BREAK:
            yield b"".join(piece)
            piece, size = [], 0
    if piece:
        yield b"".join(piece)


async def send_json(
    request: web.Request, document: bytes, stall_s: float, budget: Budget, headers: Mapping[str, str] | None = None
) -> web.StreamResponse:
    """Answer with a JSON document, no more of it at a time than a client that stalls should hold.

    Until the client has read it, it counts in `budget`; whether it fits there is the caller's to ask.
    """
    body = memoryview(document)
    response = web.StreamResponse(headers={"Content-Type": f"{JSON}; charset=utf-8", **(headers or {})})
    response.content_length = len(body)
    held = Held(budget)
    held.set(len(body))
    try:
        await response.prepare(request)
        if request.method != "HEAD":
            for start in range(0, len(body), HIGH_BYTES):
                await write(request, response, (body[start : start + HIGH_BYTES],), stall_s)
        await response.write_eof()
    finally:
        held.release()
    return response
