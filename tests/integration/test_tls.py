"""TLS at the door: versions, reloads without an interruption, and settings that cannot be used."""

from __future__ import annotations

import asyncio
import re
import signal
import ssl
from pathlib import Path

import pytest
import trustme
from aiohttp import ClientConnectorError, ClientError, ClientSession

from proxy.server.tls import Certificate
from proxy.settings import BadSetting, Server, load
from tests.house import House, open_house
from tests.program import environment, loopline


class Pair:
    """A certificate and its key as files, signed by an authority of its own each time they are made anew."""

    def __init__(self, folder: Path) -> None:
        self.cert, self.key = folder / "cert.pem", folder / "key.pem"
        self.renew()

    def renew(self) -> None:
        """Another certificate, by another authority."""
        self.authority = trustme.CA()
        issued = self.authority.issue_cert("127.0.0.1", "localhost")
        # The key first: whoever looks in between finds a pair that does not match.
        issued.private_key_pem.write_to_path(str(self.key))
        self.cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))

    @property
    def settings(self) -> dict[str, object]:
        return {"server.tls_cert": str(self.cert), "server.tls_key": str(self.key)}

    @property
    def trusting(self) -> ssl.SSLContext:
        """A client's context that trusts the present authority alone."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.authority.configure_trust(context)
        return context


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


async def status(house: House, context: ssl.SSLContext) -> int:
    """What a client on a connection of its own is answered."""
    async with ClientSession() as http, http.get(house.root + "/healthz", ssl=context) as response:
        return response.status


async def test_http_and_websocket_are_served_over_tls(pair: Pair) -> None:
    async with open_house("chat", pair.settings) as house:
        assert house.url.startswith("https://127.0.0.1:")
        assert await status(house, pair.trusting) == 200
        async with house.http.post(
            f"{house.url}/responses", json={"model": "simulated", "input": "[[say 1]]"}, ssl=pair.trusting
        ) as response:
            assert (await response.json())["status"] == "completed"
        async with house.http.ws_connect(f"{house.url}/responses", ssl=pair.trusting) as socket:
            await socket.send_str('{"type":"response.create","model":"simulated","input":"[[say 1]]"}')
            assert "response.created" in await socket.receive_str()
            await socket.close()
        with pytest.raises(ClientError):
            async with house.http.get(house.root.replace("https", "http") + "/healthz"):
                pass


async def test_a_certificate_that_changes_is_taken_by_new_connections_and_old_ones_live_on(pair: Pair) -> None:
    async with open_house("chat", pair.settings) as house:
        before = pair.trusting
        async with ClientSession() as kept:
            async with kept.get(house.root + "/healthz", ssl=before) as response:
                await response.read()
            pair.renew()
            assert house.server.certificate is not None
            assert house.server.certificate.reload()
            assert await status(house, pair.trusting) == 200
            with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
                await status(house, before)
            async with kept.get(house.root + "/healthz", ssl=before) as response:
                assert response.status == 200


async def test_files_are_watched_and_half_a_pair_changes_nothing(pair: Pair) -> None:
    certificate = Certificate(Server(tls_cert=str(pair.cert), tls_key=str(pair.key)), look_every_s=0.01)
    old, looked = pair.trusting, asyncio.Event()
    results: list[bool] = []
    reload = certificate.reload

    def told() -> bool:
        results.append(reload())
        looked.set()
        return results[-1]

    certificate.reload = told  # type: ignore[method-assign]

    async def accept(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=certificate.context)
    port = server.sockets[0].getsockname()[1]
    watching = asyncio.create_task(certificate.watch())
    try:
        async with asyncio.timeout(10):
            pair.key.write_bytes(trustme.CA().issue_cert("x").private_key_pem.bytes())
            await looked.wait()
            assert results == [False]
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=old)
            writer.close()
            pair.renew()
            while not results[-1]:
                looked.clear()
                await looked.wait()
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=pair.trusting)
            writer.close()
    finally:
        watching.cancel()
        server.close()


async def test_sighup_reloads(pair: Pair, tmp_path: Path) -> None:
    config = tmp_path / "loopline.toml"
    config.write_text(f'[server]\nport = 0\ntls_cert = "{pair.cert}"\ntls_key = "{pair.key}"\n[log]\nformat = "json"\n')
    async with loopline("serve", "--simulate", "--config", str(config)) as program:
        await program.prints("upstream")
        pair.renew()
        program.signal(signal.SIGHUP)
        await program.prints("certificate reloaded")
        async with ClientSession() as http:
            async with http.get(program.url.removesuffix("/v1") + "/healthz", ssl=pair.trusting) as response:
                assert response.status == 200


async def test_an_older_version_than_the_oldest_is_refused(pair: Pair) -> None:
    async with open_house("chat", {**pair.settings, "server.tls_minimum": "1.3"}) as house:
        context = pair.trusting
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(ClientConnectorError):
            await status(house, context)
        assert await status(house, pair.trusting) == 200


async def test_a_client_that_never_shakes_hands_harms_nobody(pair: Pair) -> None:
    async with open_house("chat", pair.settings) as house:
        _, idle = await asyncio.open_connection("127.0.0.1", house.server.port)
        reader, garbage = await asyncio.open_connection("127.0.0.1", house.server.port)
        garbage.write(b"GET / HTTP/1.1\r\n\r\n")
        assert b"200" not in await reader.read(100)
        assert await status(house, pair.trusting) == 200
        idle.close()
        garbage.close()


def _encrypted(pair: Pair) -> None:
    from cryptography.hazmat.primitives import serialization as form

    key = form.load_pem_private_key(pair.key.read_bytes(), None)
    locked = form.BestAvailableEncryption(b"secret")
    pair.key.write_bytes(key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, locked))


BROKEN = {
    "no certificate": (lambda pair: pair.cert.unlink(), "server.tls_cert.*cannot be read.*PEM"),
    "no key": (lambda pair: pair.key.unlink(), "server.tls_key.*cannot be read.*PEM"),
    "an empty certificate": (lambda pair: pair.cert.write_bytes(b""), "server.tls_cert.*no certificate or key in PEM"),
    "a key that is none": (lambda pair: pair.key.write_text("sk-1"), "no certificate or key in PEM"),
    "two halves of two pairs": (
        lambda pair: pair.key.write_bytes(trustme.CA().issue_cert("x").private_key_pem.bytes()),
        "server.tls_key.*does not belong to the certificate",
    ),
    "an encrypted key": (_encrypted, "server.tls_key.*without a passphrase"),
}


@pytest.mark.parametrize(("breaks", "says"), BROKEN.values(), ids=BROKEN)
def test_what_cannot_be_used_is_named_with_a_remedy(breaks: object, says: str, pair: Pair) -> None:
    assert callable(breaks)
    breaks(pair)
    with pytest.raises(BadSetting) as caught:
        load(None, pair.settings, {})
    assert re.search(says, str(caught.value)), caught.value
    assert "sk-1" not in str(caught.value)


async def test_check_config_says_so_too(pair: Pair) -> None:
    pair.key.unlink()
    env = environment({"LOOPLINE_SERVER_TLS_CERT": str(pair.cert), "LOOPLINE_SERVER_TLS_KEY": str(pair.key)})
    async with loopline("check-config", env=env) as program:
        assert await program.ended() == 2
        assert "server.tls_key from environment LOOPLINE_SERVER_TLS_KEY" in program.err


def test_tls_alone_does_not_open_the_door(pair: Pair) -> None:
    with pytest.raises(BadSetting, match=r"server\.host.*no client keys"):
        load(None, {**pair.settings, "server.host": "0.0.0.0"}, {})
