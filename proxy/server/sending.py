"""Bytes to a client that may read slowly, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from aiohttp import web

from proxy.errors import Kind, LooplineError
from proxy.server.door import JSON

HIGH_BYTES = 256 * 1024


async def write(
    request: web.Request, response: web.StreamResponse, parts: Sequence[bytes | memoryview], stall_s: float
) -> None:
    """Write parts at once. Raises `LooplineError` (client_stalled), the connection being dropped, after `stall_s`."""
    if not parts:
        return
    try:
        async with asyncio.timeout(stall_s):
            # Whole frames in one write: some parsers forget a frame that is split over two reads.
            await response.write(b"".join(parts))
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
        raise LooplineError(Kind.CLIENT_STALLED, "The client did not read for too long.") from None


async def send_json(
    request: web.Request, document: bytes, stall_s: float, headers: Mapping[str, str] | None = None
) -> web.StreamResponse:
    """Answer with a JSON document, no more of it at a time than a client that stalls should hold."""
    body = memoryview(document)
    response = web.StreamResponse(headers={"Content-Type": f"{JSON}; charset=utf-8", **(headers or {})})
    response.content_length = len(body)
    await response.prepare(request)
    if request.method != "HEAD":
        for start in range(0, len(body), HIGH_BYTES):
            await write(request, response, (body[start : start + HIGH_BYTES],), stall_s)
    await response.write_eof()
    return response
