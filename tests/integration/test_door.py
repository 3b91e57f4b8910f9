"""Who may come in, what every answer carries, and how a refusal looks over HTTP."""

from __future__ import annotations

import asyncio
import gzip
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from proxy.access.keys import KeyLimits
from tests.house import BEARER, House, open_house
from tests.keyed import bearer, keyed_house

UPGRADE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


async def status_of_upgrade(house: House, headers: dict[str, str]) -> tuple[int, dict[str, Any]]:
    """An upgrade that must be refused: status and the error."""
    async with house.http.get(f"{house.url}/responses", headers={**UPGRADE, **headers}) as response:
        return response.status, (await response.json())["error"]


async def test_a_browsers_origin_is_refused_on_both_ways_in(house: House) -> None:
    origin = {"Origin": "https://evil.example"}
    status, error = await status_of_upgrade(house, origin)
    assert (status, error["code"]) == (403, "forbidden")
    async with house.post({"input": "x"}, headers={**BEARER, **origin}) as response:
        assert response.status == 403
        assert (await response.json())["error"]["code"] == "forbidden"
    async with house.http.get(f"{house.url}/models", headers=origin) as response:
        assert response.status == 403
    assert not house.upstream.requests


async def test_an_origin_that_is_allowed_comes_in() -> None:
    settings = {"server.allowed_origins": ("https://app.example",)}
    async with open_house("chat", settings) as house:
        async with house.connect(headers={"Origin": "https://app.example"}) as client:
            await client.works()
        status, _ = await status_of_upgrade(house, {"Origin": "https://app.example.evil"})
        assert status == 403


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "[::ffff:10.0.0.1]", "x["]
)
async def test_another_name_than_loopback_is_refused_on_both_ways_in(host: str, house: House) -> None:
    status, error = await status_of_upgrade(house, {"Host": host})
    assert (status, error["code"]) == (403, "forbidden")
    async with house.post({"input": "x"}, headers={"Host": host}) as response:
        assert response.status == 403
    assert not house.upstream.requests


async def test_a_page_of_another_site_cannot_read_the_metrics(house: House) -> None:
    for headers, status in (
        ({}, 200),
        ({"Host": "localhost:1"}, 200),
        ({"Host": "rebound.example"}, 403),
        ({"Origin": "https://elsewhere.example"}, 403),
    ):
        async with house.http.get(f"{house.root}/metrics", headers=headers) as response:
            assert response.status == status
            assert ("loopline_" in await response.text()) == (status == 200)


@pytest.mark.parametrize("host", ["localhost", "localhost:1234", "127.0.0.1", "[::1]:80", "LOCALHOST"])
async def test_names_of_loopback_come_in(host: str, house: House) -> None:
    async with house.post({"input": "[[say 1]]"}, headers={"Host": host}) as response:
        assert response.status == 200


async def test_names_do_not_matter_once_told_so() -> None:
    async with open_house("chat", {"server.insecure": True}) as house:
        async with house.post({"input": "[[say 1]]"}, headers={"Host": "inside.example"}) as response:
            assert response.status == 200


STRANGE = [{"Host": "evil.example"}, {"Origin": "https://evil.example"}, {"Host": "x["}]


async def test_the_page_of_another_site_reads_no_metrics(unused_tcp_port: int, tmp_path: Path) -> None:
    """By a name that it binds to loopback, keys or not, on either port."""
    for settings in ({}, {"server.admin_port": unused_tcp_port}):
        async with open_house("chat", settings) as house:
            url = f"http://127.0.0.1:{house.server.admin_port or house.server.port}"
            await assert_no_strangers(house, url)
    async with keyed_house(tmp_path) as (house, _):
        await assert_no_strangers(house, house.root)


async def assert_no_strangers(house: House, url: str) -> None:
    for headers in STRANGE:
        async with house.http.get(f"{url}/metrics", headers=headers) as response:
            assert response.status == 403
            assert (await response.json())["error"]["code"] == "forbidden"
            assert response.headers["x-request-id"].startswith("req_")
        for path in ("/healthz", "/readyz"):  # a kubelet asks by the pod's address
            async with house.http.get(url + path, headers=headers) as response:
                assert response.status == 200
    for headers in ({}, {"Host": "localhost:9"}, {"Host": "[::1]"}):
        async with house.http.get(f"{url}/metrics", headers=headers) as response:
            assert response.status == 200
            assert "loopline_build_info" in await response.text()


async def test_metrics_are_there_by_any_name_once_told_so_but_not_for_any_origin() -> None:
    settings = {"server.insecure": True, "server.allowed_origins": ("https://app.example",)}
    async with open_house("chat", settings) as house:
        asked = [({"Host": "inside.example"}, 200), ({"Origin": "https://app.example"}, 200), (STRANGE[1], 403)]
        for headers, wanted in asked:
            async with house.http.get(f"{house.root}/metrics", headers=headers) as response:
                assert response.status == wanted


async def test_a_client_without_any_credential_comes_in_where_no_keys_are_set(house: House) -> None:
    async with house.connect(token=None) as client:
        await client.works()
    assert "authorization" not in house.upstream.requests[-1].headers


async def test_a_switched_off_websocket_is_refused_with_426_at_once_and_http_still_serves() -> None:
    async with open_house("chat", {"server.websocket": False}) as house:
        started = time.monotonic()
        with pytest.raises(InvalidStatus) as refused:
            async with house.connect():
                pass
        assert refused.value.response.status_code == 426
        assert time.monotonic() - started < 1
        assert b"websocket_disabled" in (refused.value.response.body or b"")
        async with house.post({"input": "[[say 1]]"}) as response:
            assert response.status == 200


async def test_a_get_without_an_upgrade_is_answered(house: House) -> None:
    async with house.http.get(f"{house.url}/responses") as response:
        assert response.status == 426
        assert (await response.json())["error"]["message"]


@pytest.mark.parametrize(
    ("broken", "wanted"),
    [({"Sec-WebSocket-Version": "12"}, 426), ({"Sec-WebSocket-Key": "short"}, 400), ({"Connection": "close"}, 400)],
    ids=["version", "key", "connection"],
)
async def test_a_broken_upgrade_gets_an_answer_in_json(broken: dict[str, str], wanted: int, house: House) -> None:
    status, error = await status_of_upgrade(house, broken)
    assert status == wanted
    assert error["message"]


# --- POST ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
async def test_a_body_that_is_not_json_by_its_type_is_refused(content_type: str, house: House) -> None:
    headers = {**BEARER, "Content-Type": content_type}
    async with house.http.post(f"{house.url}/responses", data=b'{"input":"x"}', headers=headers) as response:
        assert response.status == 415
        assert (await response.json())["error"]["code"] == "unsupported_media_type"
    assert not house.upstream.requests


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", "invalid_json"),
        (b"", "invalid_json"),
        (b"\xff{}", "invalid_unicode"),
        (b"[" * 100_000, None),
        (b"{}", "missing_required_parameter"),
    ],
    ids=["cut", "empty", "not UTF-8", "deep", "no input"],
)
async def test_a_bad_body_is_a_400(body: bytes, code: str | None, house: House) -> None:
    headers = {**BEARER, "Content-Type": "application/json"}
    async with house.http.post(f"{house.url}/responses", data=body, headers=headers) as response:
        assert response.status == 400
        error = (await response.json())["error"]
    assert code is None or error["code"] == code
    assert error["type"] == "invalid_request_error"


async def test_a_body_of_unknown_length_is_read(house: House) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for piece in (b'{"model":"simulated",', b'"input":"[[say 1]]"}'):
            yield piece

    headers = {**BEARER, "Content-Type": "application/json; charset=utf-8"}
    async with house.http.post(f"{house.url}/responses", data=pieces(), headers=headers) as response:
        assert response.status == 200
    async with house.post({"input": "[[say 1]]"}, expect100=True) as response:
        assert response.status == 200


@pytest.mark.parametrize("encoding", ["br", "compress"])
async def test_a_body_in_an_unknown_coding_is_refused_by_name(encoding: str, house: House) -> None:
    headers = {**BEARER, "Content-Type": "application/json", "Content-Encoding": encoding}
    async with house.http.post(f"{house.url}/responses", data=b"{}", headers=headers) as response:
        assert response.status == 415
        assert encoding in (await response.json())["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/v2/nothing", 404),
        ("GET", "/v1/models/", 404),
        ("DELETE", "/v1/responses", 405),
        ("PUT", "/v1/responses", 405),
        ("POST", "/v1/models", 405),
        ("POST", "/healthz", 405),
    ],
)
async def test_other_paths_and_methods_are_refused_in_json(method: str, path: str, status: int, house: House) -> None:
    async with house.http.request(method, house.root + path) as response:
        assert response.status == status
        error = (await response.json())["error"]
        assert set(error) == {"message", "type", "param", "code"}
        if status == 405:
            assert response.headers["Allow"]


async def test_a_path_that_is_not_served_is_refused_where_nothing_is_passed_on() -> None:
    async with open_house("chat", {"passthrough.enabled": False}) as house:
        for method, path in (("GET", "/v1/nothing"), ("POST", "/v1/response")):
            async with house.http.request(method, house.root + path) as response:
                assert response.status == 404
                assert (await response.json())["error"]["code"] == "not_found"
        assert not house.upstream.requests


async def test_answers_keep_browsers_from_guessing_framing_and_keeping(house: House) -> None:
    for path, status in (("/v1/models", 200), ("/healthz", 200), ("/nothing", 404), ("/v1/responses", 426)):
        async with house.http.get(house.root + path) as response:
            assert response.status == status
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            assert response.headers["Content-Security-Policy"] == "frame-ancestors 'none'"
            assert response.headers["Referrer-Policy"] == "no-referrer"
            assert response.headers["Cache-Control"] == "no-store"
    async with house.post({"input": "[[say 1]]", "stream": True}) as response:
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["Cache-Control"] == "no-cache"


async def test_every_answer_names_its_request(house: House) -> None:
    for path in ("/v1/models", "/v1/models/nothing", "/healthz", "/readyz", "/metrics", "/nothing"):
        async with house.http.get(house.root + path) as response:
            assert re.fullmatch(r"req_[0-9a-f]{24}", response.headers["x-request-id"]), path
    for stream in (True, False):
        async with house.post({"input": "[[say 1]]", "stream": stream}) as response:
            assert response.headers["x-request-id"].startswith("req_")
            await response.read()
    async with house.connect() as client:
        assert client.connection.response is not None
        assert client.connection.response.headers["x-request-id"].startswith("req_")


async def test_a_clients_own_request_id_is_kept_and_sent_upstream(house: House) -> None:
    async with house.post({"input": "[[say 1]]"}, headers={**BEARER, "x-request-id": "mine-1"}) as response:
        assert response.headers["x-request-id"] == "mine-1"
    assert house.upstream.requests[-1].headers["x-request-id"] == "mine-1"
    assert house.watcher.turns[-1].request_id == "mine-1"


async def test_a_large_header_is_taken_and_a_huge_one_refused(house: House) -> None:
    async with house.post({"input": "[[say 1]]"}, headers={"x-large": "a" * 60_000}) as response:
        assert response.status == 200
    async with house.post({"input": "[[say 1]]"}, headers={"x-huge": "a" * 70_000}) as response:
        assert response.status == 431
        assert "limits.header_bytes" in (await response.json())["error"]["message"]


async def test_something_that_is_not_http_does_no_harm(house: House) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", house.server.port)
    writer.write(b"\x16\x03\x01 not http\r\n\r\n")
    async with asyncio.timeout(5):
        assert b"400" in (await reader.read(1000)).split(b"\r\n")[0]
    writer.close()
    async with house.connect() as client:
        await client.works()


async def test_every_kind_of_answer_names_its_request(tmp_path: Path) -> None:
    settings = {
        "server.receive_s": 0.2,
        "limits.frame_bytes": 20_000,
        "limits.frame_hard_bytes": 40_000,
        "models.default": "",
    }
    async with keyed_house(tmp_path, {**settings, "server.websocket": False}) as (house, ring):
        mine = {**bearer(ring.make("alice", models=["simulated"])), "Content-Type": "application/json"}
        mine["x-request-id"] = "mine-1"
        busy = {**mine, **bearer(ring.make("busy", limits=KeyLimits(requests_per_minute=1)))}
        packed = {**mine, "Content-Encoding": "gzip"}
        fine = b'{"model":"simulated","input":"[[say 1]]"}'
        hold = asyncio.Event()

        async def never() -> AsyncIterator[bytes]:
            yield fine[:5]
            await hold.wait()

        wanted: list[tuple[int, str, str, dict[str, str], Any]] = [
            (200, "POST", "/v1/responses", busy, fine),
            (400, "POST", "/v1/responses", mine, b"{"),
            (400, "POST", "/v1/responses", packed, b"no gzip"),
            (400, "GET", "/v1/embeddings?key=llk_abc", mine, None),
            (401, "POST", "/v1/responses", {"x-request-id": "mine-1"}, fine),
            (403, "POST", "/v1/files", mine, fine),
            (404, "POST", "/v1/responses", mine, fine.replace(b"simulated", b"nobodys")),
            (404, "GET", "/v1/responses/resp_1", mine, None),
            (404, "GET", "/nothing", mine, None),
            (405, "PUT", "/v1/responses", mine, fine),
            (408, "POST", "/v1/responses", mine, never),
            (408, "POST", "/v1/embeddings", mine, never),
            (413, "POST", "/v1/responses", mine, b" " * 20_001),
            (413, "POST", "/v1/responses", packed, gzip.compress(b" " * 20_001)),
            (413, "POST", "/v1/embeddings", mine, b" " * 20_001),
            (415, "POST", "/v1/responses", {**mine, "Content-Encoding": "br"}, fine),
            (415, "POST", "/v1/responses", {**mine, "Content-Type": "text/plain"}, fine),
            (426, "GET", "/v1/codex/responses", {**mine, "Upgrade": "websocket", "Connection": "Upgrade"}, None),
            (429, "POST", "/v1/codex/responses", busy, fine),
            (502, "POST", "/v1/responses", mine, fine.replace(b"say 1", b"fail 500")),
        ]
        for status, method, path, headers, body in wanted:
            data = body() if callable(body) else body
            async with house.http.request(method, house.root + path, headers=headers, data=data) as response:
                assert response.status == status, (path, await response.text())
                assert response.headers["x-request-id"] == "mine-1", (status, path)
                if status != 200:
                    assert (await response.json())["error"].keys() == {"message", "type", "param", "code"}
        hold.set()
