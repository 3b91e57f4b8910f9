"""nginx, HAProxy and Caddy in front, with the files of config/: what agents need comes through them."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import shutil
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import trustme
from websockets.asyncio.client import ClientConnection, connect

from proxy.tools.simulate import Options
from tests.house import House
from tests.keyed import keyed_house
from tests.program import ROOT, free_port

pytestmark = pytest.mark.real

CONFIG = ROOT / "config"
NAME = "llm.example"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the proxy listens, where Loopline does, and the files between them."""

    folder: Path
    port: int
    behind: str
    certificate: Path
    key: Path

    def write(self, name: str, changes: Mapping[str, str]) -> Path:
        """The file of config/ with this place's addresses; what is changed has to be in it."""
        text = (CONFIG / name).read_text()
        for old, new in {"127.0.0.1:8780": self.behind, **changes}.items():
            assert old in text, f"config/{name} has no {old}"
            text = text.replace(old, new)
        (self.folder / name).write_text(text)
        return self.folder / name


def nginx(place: Place) -> list[str]:
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = " ".join(f"{kind}_temp_path {place.folder}/{kind};" for kind in kinds)
    file = place.write(
        "nginx.conf",
        {
            "listen 443 ssl": f"listen 127.0.0.1:{place.port} ssl",
            f"/etc/nginx/{NAME}.pem": str(place.certificate),
            f"/etc/nginx/{NAME}.key": str(place.key),
            "\nhttp {": f"\nhttp {{ access_log off; {paths}",
            "worker_rlimit_nofile 65536;": "",
            "32768": "256",
        },
    )
    return ["-p", str(place.folder), "-c", str(file), "-g", f"daemon off; pid {place.folder}/pid; error_log stderr;"]


def haproxy(place: Place) -> list[str]:
    both = place.folder / "both.pem"
    both.write_bytes(place.certificate.read_bytes() + place.key.read_bytes())
    changes = {
        "bind :443": f"bind 127.0.0.1:{place.port}",
        f"/etc/haproxy/{NAME}.pem": str(both),
        "maxconn 20000": "maxconn 100",
    }
    return ["-db", "-f", str(place.write("haproxy.cfg", changes))]


def caddy(place: Place) -> list[str]:
    changes = {
        f"\n{NAME} {{": f"\n{{\n\tadmin off\n\tauto_https disable_redirects\n\tskip_install_trust\n}}\n"
        f"https://{NAME}:{place.port} {{\n\tbind 127.0.0.1\n\ttls {place.certificate} {place.key}\n",
    }
    return ["run", "--config", str(place.write("Caddyfile", changes)), "--adapter", "caddyfile"]


PROXIES: Mapping[str, Callable[[Place], list[str]]] = {"nginx": nginx, "haproxy": haproxy, "caddy": caddy}


@dataclass(frozen=True, slots=True)
class Front:
    """A proxy that runs before a Loopline."""

    house: House
    port: int
    trust: ssl.SSLContext
    token: str

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}", "Host": NAME, "X-Forwarded-For": "203.0.113.9"}

    def connect(self) -> connect:
        """A WebSocket through the proxy."""
        return connect(
            f"wss://{NAME}/v1/responses",
            host="127.0.0.1",
            port=self.port,
            ssl=self.trust,
            additional_headers={"Authorization": f"Bearer {self.token}", "X-Forwarded-For": "203.0.113.9"},
            max_size=None,
        )

    def request(self, http: aiohttp.ClientSession, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """A request through the proxy: POST where there is a body."""
        method = "GET" if body is None else "POST"
        url = f"https://127.0.0.1:{self.port}{path}"
        data = None if body is None else io.BytesIO(json.dumps(body).encode())
        headers = {**self.headers, "Content-Type": "application/json"}
        return http.request(method, url, data=data, headers=headers, ssl=self.trust, server_hostname=NAME)


@asynccontextmanager
async def running(name: str, place: Place) -> AsyncIterator[None]:
    """The proxy as a process; it listens."""
    program = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip(f"{name} is not installed")
    arguments = PROXIES[name](place)
    env = {"PATH": os.environ["PATH"], "HOME": str(place.folder), "XDG_DATA_HOME": str(place.folder)}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        program, *arguments, cwd=place.folder, env=env, stdout=pipe, stderr=asyncio.subprocess.STDOUT
    )
    assert process.stdout is not None
    reading = asyncio.create_task(process.stdout.read())
    try:
        async with asyncio.timeout(20):
            while not await accepts(place.port):
                assert not reading.done(), (await reading).decode()
        yield
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(asyncio.gather(process.wait(), reading), 20)


async def accepts(port: int) -> bool:
    """Whether a connection can be made."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        await asyncio.sleep(0.05)
        return False
    writer.close()
    await writer.wait_closed()
    return True


@pytest.fixture(params=list(PROXIES))
async def front(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Front]:
    """Each proxy before a Loopline with client keys, which believes it."""
    authority = trustme.CA()
    pair = authority.issue_cert(NAME)
    certificate, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    certificate.write_bytes(b"".join(each.bytes() for each in pair.cert_chain_pems))
    key.write_bytes(pair.private_key_pem.bytes())
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    trusting = {"server.trusted_proxies": ("127.0.0.1",)}
    async with keyed_house(tmp_path, trusting, Options(context_tokens=10**9)) as (house, ring):
        place = Place(tmp_path, free_port(), house.root.removeprefix("http://"), certificate, key)
        async with running(request.param, place):
            yield Front(house, place.port, trust, ring.make("client"))


async def turn(client: ClientConnection, **create: Any) -> dict[str, Any]:
    """A turn on the socket; its response."""
    await client.send(json.dumps({"type": "response.create", "model": "simulated", "store": False, **create}))
    async with asyncio.timeout(20):
        async for message in client:
            event = json.loads(message)
            if event["type"] == "response.completed":
                response: dict[str, Any] = event["response"]
                return response
            assert event["type"] not in ("error", "response.failed"), event
    raise AssertionError("the socket was closed")


async def test_an_agent_loop_over_websocket(front: Front) -> None:
    tools = [{"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}]
    async with front.connect() as client:
        last = await turn(client, tools=tools, input="[[loop 3 look {}]]")
        for _ in range(3):
            (call,) = last["output"]
            output = {"type": "function_call_output", "call_id": call["call_id"], "output": "x" * 300_000}
            last = await turn(client, tools=tools, input=[output], previous_response_id=last["id"])
        assert last["output"][0]["type"] == "message"
    await front.house.empty(5)
    assert len(front.house.watcher.sessions) == 1
    assert {turn.client for turn in front.house.watcher.turns} == {"127.0.0.1"}, "a client's word was believed"


async def test_events_are_not_held_back(front: Front) -> None:
    """The upstream falls silent in mid-answer: what it said is there. Then the client leaves, which ends the turn."""
    body = json.dumps({"model": "simulated", "input": "[[stall 3]]", "stream": True})
    lines = [f"{name}: {value}" for name, value in {**front.headers, "Content-Length": len(body)}.items()]
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port, ssl=front.trust, server_hostname=NAME)
    writer.write(
        "\r\n".join(["POST /v1/responses HTTP/1.1", "Content-Type: application/json", *lines, "", body]).encode()
    )
    heard = 0
    async with asyncio.timeout(20):
        while heard < 3:
            heard += b"event: response.output_text.delta" in await reader.readline()
    writer.get_extra_info("socket").shutdown(socket.SHUT_RDWR)  # a FIN, as programs that end send it
    await front.house.aborted(10)
    writer.transport.abort()


async def test_a_client_that_leaves_ends_its_turn(front: Front) -> None:
    async with front.connect() as client:
        await client.send(json.dumps({"type": "response.create", "model": "simulated", "input": "[[stall 3]]"}))
        async for message in client:
            if json.loads(message)["type"] == "response.output_text.delta":
                break
    await front.house.aborted(10)


async def test_a_large_body_comes_through(front: Front) -> None:
    body = {"model": "simulated", "input": "[[say 3]]" + "x" * 8_000_000}
    async with aiohttp.ClientSession() as http, front.request(http, "/v1/responses", body) as answer:
        assert (await answer.json())["status"] == "completed"


async def test_what_is_for_operators_is_not_for_clients(front: Front) -> None:
    async with aiohttp.ClientSession() as http:
        for path in ("/metrics", "/readyz"):
            async with front.request(http, path) as answer:
                assert answer.status == 404
        async with front.request(http, "/v1/models") as answer:
            assert answer.status == 200


def test_each_file_says_what_loopline_needs() -> None:
    for name in ("nginx.conf", "haproxy.cfg", "Caddyfile"):
        assert re.search(r"^# In Loopline: server\.trusted_proxies", (CONFIG / name).read_text(), re.MULTILINE)
