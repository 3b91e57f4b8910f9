"""What is passed on for a caller with a key of this server: some paths, once the model is known to be allowed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
import pytest
from multidict import CIMultiDict
from openai import AsyncOpenAI

from tests.house import House, house_before
from tests.recording_upstream import Exchange, Message, RecordingUpstream, recording_upstream

MODELS = json.dumps({"object": "list", "data": [{"id": name} for name in ("small", "org/large", "secret")]}).encode()
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
JSON = {"Content-Type": "application/json", "Authorization": "Bearer ll-key", "x-api-key": "ll-key"}
FORM = {**JSON, "Content-Type": "multipart/form-data; boundary=x"}
MODEL = b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\nsmall\r\n'
OTHER = MODEL.replace(b"small", b"secret")
FILE = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n' + b"\0" * 300_000 + b"\r\n"
LAST = b"--x--\r\n"


@dataclass(frozen=True)
class Key:
    """A key for two models."""

    is_own_key: bool = True

    def allows(self, model: str) -> bool:
        return model in ("small", "large")


async def answer(exchange: Exchange) -> None:
    """Serves the list of models, takes anything else."""
    await exchange.read()
    path = exchange.request.start[1]
    body = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(MODELS), MODELS)
    exchange.writer.write(
        body if path == b"/v1/models" else OK if path.startswith(b"/v1") else OK.replace(b"200", b"404")
    )


@asynccontextmanager
async def keyed(extra: Mapping[str, object] | None = None) -> AsyncIterator[tuple[House, RecordingUpstream]]:
    """A server whose clients have keys of its own, before an upstream with three models."""
    settings = {"models.aliases": {"large": "org/large"}, "models.default": "small", **(extra or {})}
    async with recording_upstream(answer) as upstream, house_before(upstream.url, "chat", settings) as house:
        house.server.passthrough.allowed = lambda _caller: Key()
        yield house, upstream


def posts(upstream: RecordingUpstream) -> list[Message]:
    """What was passed on whole."""
    return [request for request in upstream.requests if request.start[0] != b"GET" and request.whole]


async def test_a_body_with_an_allowed_model_is_passed_on_as_it_is_and_the_key_is_not() -> None:
    body = b'{ "model": "small", "input" : "x"}'
    async with keyed() as (house, upstream):
        async with house.http.post(f"{house.url}/embeddings", data=body, headers=JSON) as response:
            assert (response.status, await response.read()) == (200, b"ok")
    [came] = posts(upstream)
    assert came.body == body
    assert b"ll-key" not in b"".join(value for _, value in came.headers)


async def test_an_alias_is_put_in_the_models_place() -> None:
    async with keyed() as (house, upstream):
        body = b'{"input":"x", "model" :"large"}'
        async with house.http.post(f"{house.url}/embeddings", data=body, headers=JSON) as response:
            assert response.status == 200
    [came] = posts(upstream)
    assert came.body == b'{"input":"x", "model" :"org/large"}'
    assert came.values(b"content-length") == [b"%d" % len(came.body)]


@pytest.mark.parametrize(
    ("method", "path", "headers", "body", "status"),
    [
        ("POST", "files", JSON, b'{"model":"small"}', 403),
        ("POST", "embeddings/x", JSON, b'{"model":"small"}', 403),
        ("GET", "embeddings", JSON, b"", 403),
        ("DELETE", "embeddings", JSON, b'{"model":"small"}', 403),
        ("POST", "embeddings", JSON, b'{"model":"secret"}', 404),
        ("POST", "embeddings", JSON, b'{"model":"nothing"}', 404),
        ("POST", "embeddings", JSON, b'{"input":"x"}', 400),
        ("POST", "embeddings", JSON, b'{"model":', 400),
        ("POST", "embeddings", JSON, b"", 400),
        ("POST", "embeddings", {**JSON, "Content-Encoding": "gzip"}, b'{"model":"small"}', 415),
        ("POST", "embeddings", {**JSON, "Content-Type": "text/plain"}, b'{"model":"small"}', 415),
        ("POST", "embeddings", JSON, b'{"model":"small","input":"' + b"x" * 400_000 + b'"}', 413),
        ("POST", "audio/transcriptions", FORM, OTHER + FILE + LAST, 404),
        ("POST", "audio/transcriptions", FORM, FILE[:1000] + b"\r\n" + LAST, 400),
        ("POST", "audio/transcriptions", FORM, FILE + FILE + MODEL + LAST, 413),
        ("POST", "audio/transcriptions", FORM, MODEL + FILE + OTHER + LAST, 400),
        ("POST", "audio/transcriptions", FORM, MODEL + FILE, 400),
    ],
)
async def test_what_is_refused(method: str, path: str, headers: dict[str, str], body: bytes, status: int) -> None:
    async with keyed({"limits.frame_bytes": 350_000}) as (house, upstream):
        async with house.http.request(method, f"{house.url}/{path}", data=body, headers=headers) as response:
            assert response.status == status
            assert (await response.json())["error"]["message"]
        await house.empty()
        assert not posts(upstream)


async def test_a_body_with_two_types_is_refused() -> None:
    """As a form of the other type this one names another model."""
    body = b'{"model":"small","input":"&model=secret&"}'
    headers = [*JSON.items(), ("Content-Type", "application/x-www-form-urlencoded")]
    async with keyed() as (house, upstream):
        async with house.http.post(f"{house.url}/embeddings", data=body, headers=CIMultiDict(headers)) as response:
            assert response.status == 400
        assert not posts(upstream)


@pytest.mark.parametrize("parts", [(MODEL, FILE), (FILE, MODEL)], ids=["model first", "file first"])
async def test_a_form_is_passed_on_as_it_is(parts: tuple[bytes, bytes]) -> None:
    body = b"".join(parts) + LAST
    async with keyed() as (house, upstream):
        async with house.http.post(f"{house.url}/audio/transcriptions", data=body, headers=FORM) as response:
            assert response.status == 200
    assert [came.body for came in posts(upstream)] == [body]


async def test_forms_of_client_libraries_pass() -> None:
    """openai's is httpx's; aiohttp gives every field a type."""
    async with keyed() as (house, upstream):
        async with AsyncOpenAI(api_key="ll-key", base_url=house.url, max_retries=0) as sdk:
            said = await sdk.audio.transcriptions.create(
                model="small", file=("größe.wav", b"--\r\n--" * 1000), response_format="text", include=["logprobs"]
            )
            assert said == "ok"
        form = aiohttp.FormData({"model": "small", "timestamp_granularities[]": "word"})
        form.add_field("file", b"\0" * 100_000, filename="a b.wav", content_type="audio/wav")
        headers = {"Authorization": "Bearer ll-key"}
        async with house.http.post(f"{house.url}/audio/transcriptions", data=form, headers=headers) as response:
            assert response.status == 200, await response.text()
    assert [b'name="model"' in came.body for came in posts(upstream)] == [True, True]


async def test_no_tunnel_is_dug_for_a_key() -> None:
    upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
    async with keyed({"passthrough.upgrades": "tunnel"}) as (house, upstream):
        async with house.http.get(f"{house.url}/realtime", headers={**JSON, **upgrade}) as response:
            assert response.status == 426
        assert not upstream.requests


async def test_other_paths_may_be_named_in_the_settings() -> None:
    async with keyed({"passthrough.paths": ("classify",)}) as (house, upstream):
        for path, status in (("classify", 200), ("embeddings", 403)):
            async with house.http.post(f"{house.url}/{path}", data=b'{"model":"small"}', headers=JSON) as response:
                assert response.status == status
        assert len(posts(upstream)) == 1


async def test_an_endpoints_key_opens_the_list_alone_to_strangers(tmp_path_factory: pytest.TempPathFactory) -> None:
    key = tmp_path_factory.mktemp("key") / "key"
    key.write_text("theirs")
    extra = {"server.host": "0.0.0.0", "server.insecure": True}
    for own, status in (({}, 200), ({"endpoints[0].api_key_file": str(key)}, 403)):
        async with recording_upstream(answer) as upstream:
            async with house_before(upstream.url, "chat", {**extra, **own}) as house:
                url = house.url.replace("0.0.0.0", "127.0.0.1")
                async with house.http.get(f"{url}/files") as response:
                    assert response.status == status
                async with house.http.post(f"{url}/embeddings", data=b'{"model":"small"}', headers=JSON) as response:
                    assert response.status == 200
