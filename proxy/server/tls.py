"""TLS with files that may change while the server runs: new connections get the new certificate, old ones live on."""

from __future__ import annotations

import asyncio
import os
import ssl

import structlog

from proxy.settings import Server
from proxy.settings.certificate import BadCertificate, load_into, server_context

_LOOK_EVERY_S = 5.0

_Stamp = tuple[tuple[int, int, int], ...]


class Certificate:
    """The server's certificate. Raises `BadCertificate` if there is none that can be used."""

    def __init__(self, server: Server, look_every_s: float = _LOOK_EVERY_S) -> None:
        self._files = (server.tls_cert, server.tls_key)
        self._look_every_s = look_every_s
        self._stamp = self._look()
        self.context: ssl.SSLContext = server_context(*self._files, server.tls_minimum)

    def reload(self) -> bool:
        """Take what the files hold now; whether it could be used. Otherwise the old certificate stays."""
        self._stamp = self._look()
        try:
            load_into(self.context, *self._files)
        except BadCertificate as error:
            structlog.get_logger().warning("certificate not reloaded", setting=error.key, reason=str(error))
            return False
        structlog.get_logger().info("certificate reloaded")
        return True

    async def watch(self) -> None:
        """Reload whenever a file has changed, for ever."""
        while True:
            await asyncio.sleep(self._look_every_s)
            # Half of a pair that is being replaced does not load; the other half changes the stamp again.
            if self._look() != self._stamp:
                self.reload()

    def _look(self) -> _Stamp:
        return tuple(_stamp(os.path.expanduser(path)) for path in self._files)


def _stamp(path: str) -> tuple[int, int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0, 0)
    return (found.st_ino, found.st_mtime_ns, found.st_size)
