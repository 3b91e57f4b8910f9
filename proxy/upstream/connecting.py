"""Making a connection: names resolved, every address tried, TLS; and why there is none, in words to act on."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence

from aiohappyeyeballs import AddrInfoType, start_connection

from proxy.errors import Kind, LooplineError, kind_of
from proxy.upstream.connection import Connection
from proxy.upstream.pool import Origin

# How long an address may be silent before the next one is tried beside it. Source: RFC 8305, section 5.
_NEXT_ADDRESS_S = 0.25

_WHY: tuple[tuple[type[Exception], str], ...] = (
    (socket.gaierror, "The upstream's host name could not be resolved."),
    (ssl.SSLError, "The upstream's certificate was not accepted, or it does not speak TLS."),
    (ConnectionRefusedError, "The upstream refused the connection."),
)


class Connector:
    """Connects. A TLS context is made once for each CA bundle."""

    def __init__(self) -> None:
        self._contexts: dict[str, ssl.SSLContext] = {}

    async def connect(self, origin: Origin, make: Callable[[], Connection], limit_s: float) -> Connection:
        """A connection that is open, TLS included.

        Raises `LooplineError` (upstream_unreachable); TimeoutError where `limit_s` was not enough.
        """
        context = self._context(origin.ca_bundle) if origin.tls else None  # takes a while, once
        async with asyncio.timeout(limit_s):
            try:
                return await _connect(origin, make, context)
            except (OSError, RuntimeError, ValueError) as error:  # uvloop has RuntimeError for some; a name may be none
                raise LooplineError(Kind.UPSTREAM_UNREACHABLE, _why(error), cause=kind_of(error)) from error

    def _context(self, ca_bundle: str) -> ssl.SSLContext:
        context = self._contexts.get(ca_bundle)
        if context is None:
            try:
                context = ssl.create_default_context(cafile=ca_bundle or None)
            except OSError as error:
                raise LooplineError(
                    Kind.UPSTREAM_UNREACHABLE,
                    "The CA bundle of the upstream could not be read (endpoints.ca_bundle).",
                    cause=kind_of(error),
                ) from error
            context.set_alpn_protocols(["http/1.1"])
            self._contexts[ca_bundle] = context
        return context


async def _connect(origin: Origin, make: Callable[[], Connection], context: ssl.SSLContext | None) -> Connection:
    sock = await start_connection(
        await _addresses(origin.host, origin.port), happy_eyeballs_delay=_NEXT_ADDRESS_S, interleave=1
    )
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError:
        sock.close()
        raise
    # From here on the loop owns the socket, and closes it where this fails.
    _, connection = await asyncio.get_running_loop().create_connection(
        make, sock=sock, ssl=context, server_hostname=origin.host.rstrip(".") if context else None
    )
    return connection


async def _addresses(host: str, port: int) -> Sequence[AddrInfoType]:
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:  # not an address but a name: asked for in a thread
        return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)


def _why(error: Exception) -> str:
    for known, words in _WHY:
        if isinstance(error, known):
            return words
    return f"The upstream could not be reached ({getattr(error, 'strerror', None) or kind_of(error)})."
