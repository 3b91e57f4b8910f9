"""`GET /v1/responses` with an upgrade: who may come in, and the sockets that live.

aiohttp reads the request and answers it; then it lets go of the connection, or its parser, its request and its tasks
would be kept as long as the socket lives.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from aiohttp import web

from proxy.access.accounts import Account
from proxy.errors import Kind, LooplineError
from proxy.server.client_socket import ClientSocket, SocketRules
from proxy.server.connection import Connection
from proxy.server.door import Door
from proxy.server.handshake import agreed_compression, lasting_headers, refused_handshake
from proxy.server.heartbeat import Heartbeat
from proxy.session.limits import SessionLimits
from proxy.session.registry import Registry
from proxy.session.services import Caller, Services
from proxy.session.session import Session


class WebSocketRoute:
    """Serves upgrades; `sessions` are those that live."""

    def __init__(
        self,
        services: Services,
        registry: Registry,
        door: Door,
        limits: SessionLimits,
        *,
        enabled: bool,
        ping_interval_s: float,
        frame_hard_bytes: int,
        outbox_bytes: int,
        receive_s: float,
    ) -> None:
        self._services = services
        self._registry = registry
        self._door = door
        self._limits = limits
        self._enabled = enabled
        self._rules = SocketRules(
            limits.frame_bytes, frame_hard_bytes, outbox_bytes, receive_s, Heartbeat(ping_interval_s)
        )
        self._draining = False
        self.sessions: set[Session] = set()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Upgrade and serve the socket until it ends."""
        caller = self._door.admit(request)
        wanted = {token.strip().lower() for token in request.headers.get("Upgrade", "").split(",")}
        if "websocket" not in wanted:
            raise LooplineError(Kind.WEBSOCKET_OFF, "GET on this path is for a WebSocket upgrade; use POST for HTTP.")
        if (refused := refused_handshake(request)) is not None:
            return refused
        if not self._enabled:
            # 426 sends Codex and pi to HTTP at once; any other status costs them seconds of retries.
            raise LooplineError(Kind.WEBSOCKET_OFF, "WebSocket is switched off here (server.websocket); use POST.")
        if self._draining:
            raise LooplineError(Kind.SHUTTING_DOWN, "The server is shutting down.", retry_after_s=1)
        account = caller.grant.account
        account.connect()
        try:
            return await self._upgrade(request, caller, account)
        except BaseException:  # whatever it was, there is no socket
            account.disconnect()
            raise

    async def _upgrade(self, request: web.Request, caller: Caller, account: Account) -> web.StreamResponse:
        """Answer the request; its connection is a socket's then, and of what brought it nothing is kept."""
        compression = agreed_compression(request)
        caller = replace(caller, headers=lasting_headers(caller.headers))
        answer = _Switched()
        answer.headers.update(compression)
        await answer.prepare(request)
        connection = request.protocol
        assert isinstance(connection, Connection)
        transport, early = connection.let_go()
        socket = ClientSocket(transport, caller.grant, self._rules, deflate=bool(compression))
        session = Session(socket, caller, self._services, self._registry, self._limits)
        socket.begin(session, early)
        self.sessions.add(session)
        _ = self._registry.tasks.spawn(self._serve(socket, session, account), session.record.id)
        return answer

    async def _serve(self, socket: ClientSocket, session: Session, account: Account) -> None:
        try:
            await session.run()
        finally:
            account.disconnect()
            self.sessions.discard(session)
            socket.end()

    async def drain(self, grace_s: float) -> None:
        """Take no more sockets, and end those that live, idle ones spread over half of `grace_s`."""
        self._draining = True
        idle_first = sorted(self.sessions, key=lambda session: not session.idle)
        spread_s = grace_s / 2 / max(1, sum(session.idle for session in idle_first))
        await asyncio.gather(*(session.drain(spread_s * number, grace_s) for number, session in enumerate(idle_first)))

    async def aclose(self) -> None:
        """End every session."""
        await asyncio.gather(*(session.shut_down() for session in tuple(self.sessions)))


class _Switched(web.WebSocketResponse[bool]):
    """The answer to an upgrade: aiohttp's handshake, without what aiohttp would read and write afterwards."""

    def __init__(self) -> None:
        super().__init__(compress=False)  # as far as aiohttp knows

    def _post_start(self, *_: object) -> None:
        """Frames are not aiohttp's to read."""

    async def write_eof(self, data: bytes = b"") -> None:
        """Nothing ends here."""
