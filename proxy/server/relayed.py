"""An upstream's answer on its way to a client, head and body as they came; on aiohttp's writer."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct

from aiohttp.http import HttpVersion11

from proxy.errors import Kind, LooplineError
from proxy.server.door import Untouched
from proxy.upstream.relay import RelayedAnswer
from proxy.wire.http_headers import end_to_end, values

_ID = b"x-request-id"
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Relayed(Untouched):
    """Has the upstream's status, reason and headers. aiohttp would add some of its own, and change others' bytes."""

    def __init__(self, answer: RelayedAnswer, stall_s: float) -> None:
        super().__init__(status=answer.status, reason=answer.reason)
        self._given = end_to_end(answer.raw_headers, (_ID,))
        self._switches = values(answer.raw_headers, b"upgrade") if answer.switched else []
        self._stall_s = stall_s
        self._until_close = False
        self._with_body = answer.ready and not answer.switched  # may the head leave with the first of the body?
        for value in values(answer.raw_headers, _ID):
            self.headers.add("x-request-id", value.decode(errors="surrogateescape"))

    async def _prepare_headers(self) -> None:
        """Frame the body: by its length, where the upstream has said it, else in chunks, else by the close."""
        request, writer, headers = self._req, self._payload_writer, self.headers
        assert request is not None
        assert writer is not None
        lengths = values(self._given, b"content-length")
        keep_alive = request.keep_alive if self._keep_alive is None else self._keep_alive
        if self._switches:
            headers["Upgrade"], headers["Connection"] = self._switches[0].decode(errors="replace"), "Upgrade"
            self._keep_alive = False
            return
        if self._must_be_empty_body:
            pass
        elif lengths:
            writer.length = int(lengths[0])
        elif request.version >= HttpVersion11:
            writer.enable_chunking()
            headers["Transfer-Encoding"] = "chunked"
        else:
            keep_alive, self._until_close = False, True
        self._keep_alive = keep_alive
        if keep_alive and request.version < HttpVersion11:
            headers["Connection"] = "keep-alive"
        elif not keep_alive and request.version >= HttpVersion11:
            headers["Connection"] = "close"

    async def _write_headers(self) -> None:
        request, writer = self._req, self._payload_writer
        assert request is not None
        assert writer is not None
        major, minor = request.version
        lines = [f"HTTP/{major}.{minor} {self.status} {self.reason}".encode(errors="surrogateescape")]
        ours = ((name.encode(), value.encode(errors="surrogateescape")) for name, value in self.headers.items())
        lines += [name + b": " + value for name, value in (*self._given, *ours)]
        # As the writer's own method would leave it, which knows text alone.
        writer._headers_buf = b"\r\n".join(lines) + b"\r\n\r\n"  # type: ignore[attr-defined]
        writer._headers_written = False  # type: ignore[attr-defined]
        if not self._with_body:
            writer.send_headers()

    async def pass_on(self, data: bytes) -> None:
        """Send a piece of the body. Raises `LooplineError` (client_stalled) if the client does not read."""
        try:
            async with asyncio.timeout(self._stall_s):
                await self.write(data)
        except TimeoutError:
            raise LooplineError(Kind.CLIENT_STALLED, "The client did not read for too long.") from None

    async def cut(self, *, flush: bool) -> None:
        """End the connection so that the client sees that something is missing; `flush` what it was sent first."""
        request = self._req
        transport = request.transport if request is not None else None
        if request is None or transport is None:
            return
        if flush:
            with contextlib.suppress(TimeoutError, ConnectionError):
                async with asyncio.timeout(self._stall_s):
                    transport.set_write_buffer_limits(0)
                    await request.protocol._drain_helper()
        if self._until_close:
            # An end is this body's only mark, so the connection must not end: it is reset.
            reset(transport)
        transport.abort()


def reset(transport: asyncio.WriteTransport) -> None:
    """Have the connection reset, not ended, when it is closed."""
    raw = transport.get_extra_info("socket")
    if raw is not None:
        with contextlib.suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
