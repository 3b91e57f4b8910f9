"""The client of turns on real sockets: reuse, limits, TLS, and nothing left behind wherever it is cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import ssl
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trustme

from proxy.errors import Kind, LooplineError
from proxy.http_client import HttpRequest, read_all
from proxy.upstream import connecting
from proxy.upstream.http import Http1Client

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
LARGE = (bytes(3_000_000), b"end")


@dataclass
class Server:
    """A server on bare sockets. `answer` is called with each request's head; `live` counts connections."""

    answer: Callable[[bytes, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
    port: int = 0
    scheme: str = "http"
    accepted: int = 0
    live: int = 0
    heads: list[bytes] = field(default_factory=list)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    def url(self, host: str = "127.0.0.1") -> str:
        return f"{self.scheme}://{host}:{self.port}/v1/x"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self.live += 1
        self.writers.append(writer)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, ssl.SSLError):
                while not writer.is_closing():
                    head = await reader.readuntil(b"\r\n\r\n")
                    self.heads.append(head)
                    await self.answer(head, reader, writer)
        finally:
            self.live -= 1
            writer.close()


@asynccontextmanager
async def serving(answer: Any, context: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    made = Server(answer, scheme="https" if context else "http")
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=context)
    made.port = server.sockets[0].getsockname()[1]
    yield made
    server.close()
    for writer in made.writers:
        writer.transport.abort()
    await until(lambda: made.live == 0)


async def ok(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await take_body(head, reader)
    writer.write(OK)


async def take_body(head: bytes, reader: asyncio.StreamReader) -> bytes:
    (length,) = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    left, body = int(length.split(b":")[1]), b""
    while len(body) < left:
        data = await reader.read(left - len(body))
        if not data:
            raise asyncio.IncompleteReadError(body, left)
        body += data
    return body


def saying(*writes: bytes) -> Any:
    """An answer that takes the body, then says this."""

    async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await take_body(head, reader)
        for data in writes:
            writer.write(data)
            await writer.drain()

    return answer


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what only polling can see, yielding to the loop in between."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.fixture
async def client() -> AsyncIterator[Http1Client]:
    made = Http1Client(keepalive_s=30, connect_s=5)
    yield made
    await made.aclose()
    assert made.connections == 0


def request(server: Server, body: tuple[bytes, ...] = (b"{}",), **options: Any) -> HttpRequest:
    return HttpRequest("POST", options.pop("url", server.url()), body=body, **options)


async def exchange(client: Http1Client, asked: HttpRequest) -> tuple[int, bytes]:
    async with client.open(asked) as response:
        return response.status, await read_all(response, 1 << 24)


async def failure(client: Http1Client, asked: HttpRequest) -> LooplineError:
    with pytest.raises(LooplineError) as caught:
        await exchange(client, asked)
    return caught.value


# --- Reuse -----------------------------------------------------------------------------------------------------------


async def test_one_after_another_share_a_connection(client: Http1Client) -> None:
    async with serving(ok) as server:
        for _ in range(5):
            assert await exchange(client, request(server)) == (200, b"ok")
        assert server.accepted == 1


async def test_side_by_side_they_do_not(client: Http1Client) -> None:
    async with serving(ok) as server:
        async with client.open(request(server)) as first, client.open(request(server)) as second:
            assert await first.read() == await second.read() == b"ok"
        assert server.accepted == client.connections == 2
        await exchange(client, request(server))
        assert server.accepted == 2


async def test_an_answer_that_came_whole_need_not_be_read(client: Http1Client) -> None:
    async with serving(ok) as server:
        for _ in range(2):
            async with client.open(request(server)) as response:
                await until(lambda: response.is_ready)
        assert server.accepted == 1


@pytest.mark.parametrize(
    "answer",
    [
        OK.replace(b"\r\n", b"\r\nConnection: close\r\n", 1),
        OK.replace(b"1.1", b"1.0"),
        OK + b"GARBAGE",
        OK + OK,
        b"HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\nthe start",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nthe start\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nthe start",
    ],
)
async def test_a_connection_that_may_not_serve_again_is_closed(client: Http1Client, answer: bytes) -> None:
    async with serving(saying(answer)) as server:
        for _ in range(2):
            async with client.open(request(server)) as response:
                assert await response.read()
            await until(lambda: server.live == client.connections == 0)
        assert server.accepted == 2


async def test_a_server_that_closes_an_idle_connection_is_noticed(client: Http1Client) -> None:
    async with serving(ok) as server:
        await exchange(client, request(server))
        server.writers[0].close()
        await until(lambda: client.connections == 0)
        assert await exchange(client, request(server, repeatable=False)) == (200, b"ok")


async def test_what_an_idle_connection_says_ends_it(client: Http1Client) -> None:
    async with serving(ok) as server:
        await exchange(client, request(server))
        server.writers[0].write(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
        await until(lambda: client.connections == 0)
        assert await exchange(client, request(server, repeatable=False)) == (200, b"ok")


async def test_idle_connections_are_closed_after_their_time() -> None:
    client = Http1Client(keepalive_s=0.05, connect_s=5)
    async with serving(ok) as server:
        await exchange(client, request(server))
        await until(lambda: server.live == client.connections == 0)
        await exchange(client, request(server))
        assert server.accepted == 2
        await client.aclose()


async def test_an_interim_answer_is_a_byte_of_an_answer(client: Http1Client) -> None:
    """A request is not sent again once the server has begun to answer it."""

    async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await take_body(head, reader)
        if len(server.heads) == 1:
            writer.write(OK)
        else:
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            writer.close()

    async with serving(answer) as server:
        await exchange(client, request(server))
        assert (await failure(client, request(server))).kind is Kind.UPSTREAM_CLOSED
        assert len(server.heads) == 2


# --- Bodies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [True, False])
async def test_an_answer_may_come_before_the_body_is_sent(client: Http1Client, kept: bool) -> None:
    early = b"HTTP/1.1 413 Large\r\nContent-Length: 2\r\n%b\r\nno" % (b"" if kept else b"Connection: close\r\n")
    held = asyncio.Event()

    async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(early)
        await held.wait()

    async with serving(answer) as server:
        body = (bytes(64_000_000),)
        for accepted in (1, 2):
            assert await exchange(client, request(server, body)) == (413, b"no")
            assert server.accepted == accepted
        held.set()
        await until(lambda: client.connections == 0)


async def test_an_answer_that_begins_early_does_not_stop_the_body(client: Http1Client) -> None:
    async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await writer.drain()
        body = await take_body(head, reader)
        writer.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))

    async with serving(answer) as server:
        body = bytes(range(256)) * 40_000
        for _ in range(2):
            assert await exchange(client, request(server, (b"<", body, b">"))) == (200, b"<" + body + b">")
        assert server.accepted == 1


async def test_what_nobody_reads_is_not_taken_from_the_server(client: Http1Client) -> None:
    size = 64_000_000

    async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(64):
            writer.write(bytes(size // 64))
            await writer.drain()

    async with serving(answer) as server, client.open(request(server)) as response:
        (connection,) = client._origins
        await until(lambda: connection._paused)
        left = size
        while data := await response.read():
            assert len(data) <= 2 * 256 * 1024
            left -= len(data)
        assert left == 0


# --- Limits ----------------------------------------------------------------------------------------------------------


async def test_each_wait_has_its_own_limit(client: Http1Client) -> None:
    """On one connection: a patient request, an impatient one, and the limit between reads after that of the head."""
    asked = 0
    held = asyncio.Event()

    async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        await take_body(head, reader)
        asked += 1
        if asked == 1:
            writer.write(OK)
        elif asked == 2:
            writer.write(OK[:-1])
            await held.wait()
        else:
            await held.wait()

    async with serving(answer) as server:
        await exchange(client, request(server, first_byte_s=60, idle_s=60))
        async with client.open(request(server, first_byte_s=60, idle_s=0.05)) as response:
            assert await response.read() == b"o"
            with pytest.raises(LooplineError, match=r"nothing for 0.05 s \(upstream.idle_timeout_s\)") as caught:
                await response.read()
        assert caught.value.kind is Kind.UPSTREAM_TIMEOUT
        error = await failure(client, request(server, first_byte_s=0.05, idle_s=60))
        assert error.kind is Kind.UPSTREAM_TIMEOUT
        assert "upstream.first_byte_timeout_s" in error.message
        held.set()


async def test_a_read_that_was_given_up_leaves_no_limit_behind(client: Http1Client) -> None:
    told = asyncio.Event()

    async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await take_body(head, reader)
        writer.write(OK[:-1])
        await told.wait()
        writer.write(OK[-1:])

    async with serving(answer) as server, client.open(request(server, idle_s=0.1)) as response:
        assert await response.read() == b"o"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await response.read()
        # Longer than the limit of the read that is no longer waiting.
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await asyncio.Event().wait()
        told.set()
        assert await response.read() == b"k"


async def test_closing_the_client_fails_what_is_being_read() -> None:
    """An answer that lasts until the connection ends has not ended where the connection is closed from here."""
    client = Http1Client(keepalive_s=30, connect_s=5)
    async with serving(saying(b"HTTP/1.1 200 OK\r\n\r\nthe start")) as server:
        async with client.open(request(server)) as response:
            assert await response.read() == b"the start"
            reading = asyncio.ensure_future(response.read())
            await asyncio.sleep(0)
            await client.aclose()
            with pytest.raises(LooplineError) as caught:
                await reading
        assert caught.value.kind is Kind.UPSTREAM_CLOSED
        assert (await failure(client, request(server))).kind is Kind.UPSTREAM_CLOSED
        await until(lambda: server.live == client.connections == 0)


# --- Connecting ------------------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def address(port: int) -> Any:
    return (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", port))


async def test_every_address_of_a_name_is_tried(client: Http1Client, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(ok) as server:

        async def addresses(host: str, port: int) -> Any:
            assert host == "upstream.test"
            return [address(free_port()), address(free_port()), address(port)]

        monkeypatch.setattr(connecting, "_addresses", addresses)
        assert await exchange(client, request(server, url=server.url("upstream.test"))) == (200, b"ok")
        assert b"\r\nhost: upstream.test:%d\r\n" % server.port in server.heads[0]


async def test_a_name_is_resolved(client: Http1Client) -> None:
    async with serving(ok) as server:
        assert await exchange(client, request(server, url=server.url("localhost"))) == (200, b"ok")


async def test_why_there_is_no_connection(client: Http1Client, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = await failure(client, HttpRequest("GET", f"http://127.0.0.1:{free_port()}/"))

    async def unknown(host: str, port: int) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(connecting, "_addresses", unknown)
    nameless = await failure(client, HttpRequest("GET", "http://nowhere.test/"))
    assert refused.kind is nameless.kind is Kind.UPSTREAM_UNREACHABLE
    assert refused.message == "The upstream refused the connection."
    assert nameless.message == "The upstream's host name could not be resolved."


@pytest.mark.parametrize(
    "asked",
    [
        HttpRequest("GET", "http://127.0.0.1/", headers=[("x", "a\r\nb: c")]),
        HttpRequest("GET", "ftp://127.0.0.1/"),
        HttpRequest("GET", "http://" + "a" * 70 + ".test/"),
        HttpRequest("GET", "https://127.0.0.1/", ca_bundle="/nowhere/ca.pem"),
    ],
    ids=["header", "scheme", "label", "bundle"],
)
async def test_what_cannot_be_asked(client: Http1Client, asked: HttpRequest) -> None:
    assert (await failure(client, asked)).kind is Kind.UPSTREAM_UNREACHABLE


# --- TLS -------------------------------------------------------------------------------------------------------------


@dataclass
class Tls:
    server: ssl.SSLContext
    bundle: str
    names: list[str | None]


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    authority = trustme.CA()
    bundle: Path = tmp_path_factory.mktemp("tls") / "ca.pem"
    authority.cert_pem.write_to_path(bundle)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(["h2", "http/1.1"])
    authority.issue_cert("127.0.0.1", "localhost").configure_cert(context)
    made = Tls(context, str(bundle), [])
    context.sni_callback = lambda _, name, __: made.names.append(name)
    return made


async def test_tls_says_the_name_and_speaks_http_1(client: Http1Client, tls: Tls) -> None:
    async with serving(ok, tls.server) as server:
        asked = request(server, LARGE, url=server.url("localhost"), ca_bundle=tls.bundle)
        for _ in range(2):
            assert await exchange(client, asked) == (200, b"ok")
        assert server.accepted == 1
        assert tls.names[-1] == "localhost"
        assert server.writers[0].get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"


async def test_a_certificate_that_nobody_vouches_for(client: Http1Client, tls: Tls) -> None:
    async with serving(ok, tls.server) as server:
        error = await failure(client, request(server))
        assert error.kind is Kind.UPSTREAM_UNREACHABLE
        assert "certificate was not accepted" in error.message
        assert not server.heads


async def test_a_server_that_does_not_speak_tls(client: Http1Client) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    error = await failure(client, HttpRequest("GET", f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"))
    server.close()
    assert error.kind is Kind.UPSTREAM_UNREACHABLE
    assert "does not speak TLS" in error.message


@pytest.mark.parametrize(
    ("connect_s", "first_byte_s", "kind", "key"),
    [
        (0.1, 60.0, Kind.UPSTREAM_UNREACHABLE, "upstream.connect_timeout_s"),
        (60.0, 0.1, Kind.UPSTREAM_TIMEOUT, "upstream.first_byte_timeout_s"),
    ],
)
async def test_the_time_to_connect_includes_tls(connect_s: float, first_byte_s: float, kind: Kind, key: str) -> None:
    live = 0

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal live
        live += 1
        await reader.read()
        live -= 1
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    client = Http1Client(keepalive_s=3, connect_s=connect_s)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    error = await failure(client, HttpRequest("GET", url, first_byte_s=first_byte_s))
    server.close()
    assert error.kind is kind
    assert key in error.message
    await until(lambda: live == 0)
    await client.aclose()


# --- Cancelled -------------------------------------------------------------------------------------------------------


@types.coroutine
def cancelled_at(step: int, coroutine: Coroutine[Any, Any, Any], passed: list[int]) -> Generator[Any, Any, Any]:
    """Run it and cancel the task at its await number `step`; `passed` gets how many there were."""
    go: Callable[[], Any] = partial(coroutine.send, None)
    count = 0
    while True:
        try:
            waited = go()
        except StopIteration as end:
            return end.value
        finally:
            passed[:] = [count]
        if count == step:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        count += 1
        try:
            yield waited
            go = partial(coroutine.send, None)
        except BaseException as error:
            go = partial(coroutine.throw, error)


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("body", [(b"{}",), LARGE], ids=["small", "large"])
@pytest.mark.parametrize("secure", [False, True])
async def test_cancelled_at_any_await_nothing_is_left(
    secure: bool, body: tuple[bytes, ...], kept: bool, tls: Tls
) -> None:
    """No connection on either side but in the pool, nothing that the collector would warn of; the next one works."""
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

    async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await take_body(head, reader)
        for data in (chunked, b"3\r\none\r\n", b"3\r\ntwo\r\n", b"0\r\n\r\n"):
            writer.write(data)
            await asyncio.sleep(0)

    async with serving(answer, tls.server if secure else None) as server:
        host = "localhost" if secure else "127.0.0.1"
        asked = request(server, body, url=server.url(host), ca_bundle=tls.bundle if secure else "")
        step, passed = 0, [0]
        while True:
            client = Http1Client(keepalive_s=30, connect_s=5)
            if kept:
                await exchange(client, asked)
            task = asyncio.ensure_future(_run(cancelled_at(step, exchange(client, asked), passed)))
            done: Any = (await asyncio.gather(task, return_exceptions=True))[0]
            if passed[0] <= step:
                assert done == (200, b"onetwo")
                await client.aclose()
                break
            assert isinstance(done, asyncio.CancelledError)
            # One whose answer came whole while the cancellation was on its way is kept.
            await until(lambda: server.live == client.connections == len(client._pool))  # noqa: B023
            assert await exchange(client, asked) == (200, b"onetwo")
            await client.aclose()
            step += 1
        gc.collect()
    assert step >= (1 if kept else 3)


async def _run(awaited: Any) -> Any:
    return await awaited
