"""Compressed request bodies, and what every answer carries."""

from __future__ import annotations

import gzip
import json
import resource
import time
import zlib
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest
from backports import zstd

from proxy.tools.simulate import Options
from tests.house import BEARER, House, open_house
from tests.wire_client import open_socket

JSON = {**BEARER, "Content-Type": "application/json"}
CODINGS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstd.compress}
MIB = 1024 * 1024
REQUEST: dict[str, Any] = {"model": "simulated", "input": '[[say "Unpacked."]]'}


def packed(data: bytes, *codings: str) -> tuple[bytes, dict[str, str]]:
    """A body and its headers."""
    for coding in codings:
        data = CODINGS[coding](data)
    return data, {**JSON, "Content-Encoding": ", ".join(codings)}


async def post(house: House, data: bytes, headers: dict[str, str], path: str = "responses") -> tuple[int, Any]:
    """`POST` of bytes: status and body."""
    async with house.http.post(f"{house.url}/{path}", data=data, headers=headers) as response:
        return response.status, await response.json()


@pytest.mark.parametrize("coding", CODINGS)
async def test_a_compressed_body_is_read(coding: str, house: House) -> None:
    large = {**REQUEST, "metadata": {"a": "b"}, "instructions": "long " * 100_000}
    for body in (REQUEST, large):
        status, made = await post(house, *packed(json.dumps(body).encode(), coding))
        assert (status, made["output"][0]["content"][0]["text"]) == (200, "Unpacked.")
    status, counted = await post(house, *packed(json.dumps(REQUEST).encode(), coding), "responses/input_tokens")
    assert status == 200
    assert counted["input_tokens"] > 0


async def test_several_codings_and_broken_ones_are_refused(house: House) -> None:
    data = json.dumps(REQUEST).encode()
    assert (await post(house, *packed(data, "gzip", "zstd")))[0] == 415
    for coding in CODINGS:
        body, headers = packed(data, coding)
        for broken in (body[:-3], data, b"", body + b"x"):
            status, answer = await post(house, broken, headers)
            assert status == 400
            assert coding in answer["error"]["message"]


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("dialect", ["chat"])
async def test_a_bomb_costs_nothing_where_a_ratio_is_set(coding: str, dialect: str) -> None:
    bomb, headers = packed(b" " * (100 * MIB), coding)
    async with open_house(dialect, {"limits.inflate_ratio": 100}) as house:
        await post(house, *packed(json.dumps(REQUEST).encode(), coding))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        before = time.process_time()
        status, answer = await post(house, bomb, headers)
        spent_s = time.process_time() - before
        assert status == 413
        assert "limits.inflate_ratio" in answer["error"]["message"]
        assert answer["error"]["code"] == "message_too_large"
        assert spent_s < 1.0
        grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
        assert grown_kib < 64 * 1024
        assert (await post(house, *packed(json.dumps(REQUEST).encode(), coding)))[0] == 200


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("dialect", ["chat"])
async def test_what_shrinks_a_thousandfold_is_taken_up_to_the_limit_of_any_body(coding: str, dialect: str) -> None:
    data = json.dumps({**REQUEST, "instructions": "x" * (8 * MIB)}).encode()
    body, headers = packed(data, coding)
    assert len(body) * 500 < len(data)
    async with open_house(dialect, options=Options(context_tokens=10_000_000)) as house:
        assert (await post(house, body, headers))[0] == 200


@pytest.mark.parametrize("dialect", ["chat"])
async def test_what_inflates_beyond_the_limit_is_too_large(dialect: str) -> None:
    extra = {"limits.frame_bytes": 100_000, "limits.inflate_ratio": 0}
    async with open_house(dialect, extra) as house:
        for size, status in ((90_000, 200), (110_000, 413)):
            body = json.dumps({**REQUEST, "instructions": "x" * size}).encode()
            assert (await post(house, *packed(body, "zstd")))[0] == status
            assert (await post(house, body, JSON))[0] == status


# --- Ids of requests, and errors of routes ---------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["mine-1", "0af7651916cd43dd8448eb211c80319c", "a/b:c@d.e+f="])
async def test_a_sane_request_id_is_kept(given: str, house: House) -> None:
    headers = {**BEARER, "x-request-id": given}
    for method, path in (("GET", "/v1/models"), ("GET", "/nothing"), ("POST", "/v1/responses")):
        async with house.http.request(method, house.root + path, headers=headers) as response:
            assert response.headers.getall("x-request-id") == [given]
    async with open_socket(house.url, headers={"x-request-id": given}) as client:
        answered = client.connection.response
        assert answered is not None
        assert answered.headers["x-request-id"] == given
        await client.works()
    assert house.upstream.requests[-1].headers["x-request-id"] == given
    await house.watcher.wait_for(lambda: bool(house.watcher.turns))
    assert house.watcher.turns[-1].request_id == given


@pytest.mark.parametrize("given", [None, "", "a b", "x" * 201, "<script>", "ü"])
async def test_another_or_none_gets_one_of_ours(given: str | None, house: House) -> None:
    headers = {**BEARER, **({} if given is None else {"x-request-id": given})}
    async with house.http.post(
        f"{house.url}/responses", json={"model": "simulated", "input": "[[say 1]]"}, headers=headers
    ) as response:
        named = response.headers["x-request-id"]
        assert response.status == 200
    assert named.startswith("req_")
    assert house.upstream.requests[-1].headers["x-request-id"] == named
    async with open_socket(house.url) as client:
        answered = client.connection.response
        assert answered is not None
        assert answered.headers["x-request-id"].startswith("req_")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("OPTIONS", "/nothing", 404),
        ("OPTIONS", "/v1/responses", 405),
        ("PUT", "/v1/responses/resp_1", 405),
        ("PATCH", "/v1/responses/resp_1/input_items", 405),
        ("GET", "/v1/responses/input_tokens", 404),
        ("GET", "/v1/responses/resp_1/cancel", 405),
        ("GET", "/v1/responses/resp_1/nothing", 404),
        ("DELETE", "/v1/models", 405),
        ("GET", "/v1/responses", 426),
        ("GET", "/v1/codex/responses", 426),
    ],
)
async def test_every_refusal_has_the_same_shape(method: str, path: str, status: int, house: House) -> None:
    async with house.http.request(method, house.root + path, headers=BEARER) as response:
        assert response.status == status
        assert response.content_type == "application/json"
        assert (await response.json())["error"].keys() == {"message", "type", "param", "code"}
        assert response.headers["x-request-id"]
        assert (status == 405) == ("Allow" in response.headers)


async def test_head_is_answered_as_get_without_a_body(house: House) -> None:
    async with house.post({"input": "[[say 1]]"}) as response:
        made = await response.json()
    for path, status in ((f"/v1/responses/{made['id']}", 200), ("/v1/responses/resp_1", 404), ("/v1/models", 200)):
        async with house.http.head(house.root + path, headers=BEARER) as response:
            assert response.status == status
            assert response.headers["x-request-id"]
            assert int(response.headers["Content-Length"]) > 0
            assert await response.read() == b""


async def test_a_fault_of_ours_has_the_same_shape(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(house.server.services.catalogs, "get", broken)
    async with house.http.get(f"{house.url}/models", headers=BEARER) as response:
        assert response.status == 500
        assert "secret" not in await response.text()
        assert (await response.json())["error"]["type"] == "server_error"


async def test_pis_path_is_the_same_route(house: House) -> None:
    async with open_socket(house.url.replace("/v1", "/v1/codex")) as client:
        first = await client.says("one")
    async with aiohttp.ClientSession() as http:
        body = {"model": "simulated", "input": "[[say 1]]", "previous_response_id": first.id}
        async with http.post(f"{house.url}/codex/responses", json=body, headers=BEARER) as response:
            assert response.status == 200
