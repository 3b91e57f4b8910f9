"""How upstreams are reached: TLS with a CA of one's own, a proxy on the way, no delayed writes."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme
from aiohttp import ClientSession, web

from proxy.app import Loopline
from proxy.http_client import HttpRequest
from proxy.settings import load
from proxy.tools.simulate import Simulated, start
from proxy.upstream.http import Http1Client

HELLO = {"model": "simulated", "input": "[[say hello]]".replace("hello", '"hello"')}


async def create(url: str) -> tuple[int, str]:
    """One create by HTTP → status and body."""
    async with ClientSession() as session, session.post(f"{url}/responses", json=HELLO) as answer:
        return answer.status, await answer.text()


def settings(**endpoint: object) -> dict[str, object]:
    flags: dict[str, object] = {"server.port": 0, "models.default": "simulated", "endpoints[0].dialect": "chat"}
    return flags | {f"endpoints[0].{name}": value for name, value in endpoint.items()}


@asynccontextmanager
async def behind_tls(upstream: Simulated, context: ssl.SSLContext) -> AsyncIterator[str]:
    """A TLS front for the simulated upstream → its URL."""

    async def forward(request: web.Request) -> web.Response:
        async with ClientSession() as session:
            target = upstream.url.removesuffix("/v1") + request.path
            headers = {"content-type": "application/json"} if request.can_read_body else {}
            async with session.request(
                request.method, target, data=await request.read() or None, headers=headers
            ) as answer:
                return web.Response(status=answer.status, body=await answer.read(), content_type=answer.content_type)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", forward)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    yield f"https://127.0.0.1:{runner.addresses[0][1]}/v1"
    await runner.cleanup()


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def server_context(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


async def test_a_ca_bundle_is_trusted(authority: trustme.CA, server_context: ssl.SSLContext, tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(bundle)
    async with await start() as upstream, behind_tls(upstream, server_context) as url:
        async with Loopline(load(None, settings(url=url, ca_bundle=str(bundle)), {})) as server:
            status, body = await create(server.url)
    assert status == 200, body
    assert "hello" in body


async def test_an_unknown_authority_is_refused(server_context: ssl.SSLContext) -> None:
    async with await start() as upstream, behind_tls(upstream, server_context) as url:
        async with Loopline(load(None, settings(url=url), {})) as server:
            status, body = await create(server.url)
        assert not upstream.requests
    assert status == 502, body


async def test_a_proxy_stands_on_the_way(authority: trustme.CA, server_context: ssl.SSLContext, tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(bundle)
    async with await start() as upstream, behind_tls(upstream, server_context) as url, Tunnel() as tunnel:
        flags = settings(url=url, ca_bundle=str(bundle), proxy=tunnel.url)
        async with Loopline(load(None, flags, {})) as server:
            status, body = await create(server.url)
    assert status == 200, body
    assert set(tunnel.targets) == {url.removeprefix("https://").removesuffix("/v1")}


class Tunnel:
    """A proxy that knows CONNECT; `targets` are where it was asked to go."""

    def __init__(self) -> None:
        self.targets: list[str] = []

    async def __aenter__(self) -> Tunnel:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        target = head.split(b" ")[1].decode()
        self.targets.append(target)
        host, _, port = target.partition(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
        await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()


async def test_small_writes_are_not_delayed_towards_the_upstream() -> None:
    body = b'{"model":"simulated","stream":true,"messages":[{"role":"user","content":"[[stall 1]]"}]}'
    async with await start() as upstream:
        client = Http1Client(keepalive_s=3, connect_s=1)
        headers = [("content-type", "application/json")]
        request = HttpRequest("POST", f"{upstream.url}/chat/completions", headers=headers, body=(body,))
        async with client.open(request) as response:
            assert await response.read()
            (connection,) = client._origins
            assert connection._transport is not None
            assert _no_delay(connection._transport)
        await client.aclose()


async def test_small_writes_are_not_delayed_towards_the_client() -> None:
    async with await start() as upstream, Loopline(load(None, settings(url=upstream.url), {})) as server:
        async with ClientSession() as session, session.ws_connect(f"{server.url}/responses"):
            (live,) = server.sockets.sessions
            transport = live._socket._transport  # type: ignore[attr-defined]
            assert _no_delay(transport)


def _no_delay(transport: asyncio.Transport) -> bool:
    raw: socket.socket = transport.get_extra_info("socket")
    return raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
