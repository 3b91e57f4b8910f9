"""Client keys: who comes in, what each may use, what becomes of a key that ends, and that none goes upstream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from proxy.access.keys import KeyLimits
from proxy.app import Loopline
from proxy.errors import Kind, LooplineError
from proxy.settings import BadSetting, load
from tests.house import BEARER, open_house
from tests.keyed import bearer, keyed_house
from tests.wire_client import user


async def refused_upgrade(house: Any, token: str | None) -> tuple[int, Mapping[str, str], dict[str, Any]]:
    with pytest.raises(InvalidStatus) as caught:
        async with house.connect(token):
            pass
    response = caught.value.response
    return response.status_code, response.headers, json.loads(response.body or b"")["error"]


async def test_without_a_key_nobody_comes_in_before_101_or_after(tmp_path: Path) -> None:
    async with keyed_house(tmp_path) as (house, ring):
        ring.make("alice")
        answers = set()
        for token in (None, "sk-other", "llk_" + "A" * 43):
            status, headers, error = await refused_upgrade(house, token)
            assert status == 401
            assert headers["WWW-Authenticate"].startswith("Bearer")
            assert error["code"] == "invalid_api_key"
            assert error["type"] == "invalid_request_error"
            answers.add(json.dumps(error))
            given = bearer(token) if token else {}
            async with house.post({"input": "x"}, headers=given) as response:
                assert response.status == 401
                assert response.headers["WWW-Authenticate"].startswith("Bearer")
                answers.add(json.dumps((await response.json())["error"]))
            async with house.http.get(f"{house.url}/models", headers=given) as response:
                assert response.status == 401
        assert len(answers) == 1
        assert not house.upstream.requests


async def test_a_key_opens_every_way_in(tmp_path: Path) -> None:
    async with keyed_house(tmp_path) as (house, ring):
        token = ring.make("alice")
        async with house.connect(token) as client:
            await client.works()
        async with house.post({"input": "x"}, headers=bearer(token)) as response:
            assert response.status == 200
        async with house.http.get(f"{house.url}/models", headers=bearer(token)) as response:
            assert response.status == 200


async def test_a_revoked_key_stops_at_its_next_message_with_an_error_and_1008(tmp_path: Path) -> None:
    async with keyed_house(tmp_path) as (house, ring):
        token, other = ring.make("alice"), ring.make("bob")
        async with house.connect(token) as client, house.connect(other) as neighbour:
            await client.works()
            ring.revoke("alice")
            await client.create([user("hello")])
            error = await client.answer()
            assert (error["type"], error["status"], error["code"]) == ("error", 401, "invalid_api_key")
            assert await client.closed() == 1008
            await neighbour.works()
        assert (await refused_upgrade(house, token))[0] == 401


@pytest.mark.parametrize(
    ("limits", "members"),
    [
        (KeyLimits(frame_bytes=5_000), {"instructions": "x" * 5_000}),
        (KeyLimits(tools=1), {"tools": [{"type": "function", "name": name, "parameters": {}} for name in "ab"]}),
        (KeyLimits(lanes=1), {"stream_id": "second"}),
    ],
)
async def test_limits_that_a_key_gets_later_hold_from_the_next_message_on(
    tmp_path: Path, limits: KeyLimits, members: dict[str, object]
) -> None:
    async with keyed_house(tmp_path) as (house, ring), house.connect(ring.make("alice")) as client:
        await client.create([user("hello")], stream_id="first")
        await client.until("response.completed")
        ring.limit("alice", limits)
        await client.create([user("hello")], **members)
        assert (await client.event())["type"] == "error"
        ring.limit("alice", KeyLimits())
        await client.create([user("hello")], **members)
        await client.until("response.completed")


async def test_what_runs_for_a_revoked_key_ends_with_an_event_first(tmp_path: Path) -> None:
    async with keyed_house(tmp_path) as (house, ring):
        async with house.connect(ring.make("alice")) as client:
            await client.create("[[stall 1]]")
            await client.until("response.in_progress")
            ring.revoke("alice")
            await client.send({"type": "response.processed"})
            kinds = [(await client.event())["type"]]
            while kinds[-1] != "error":
                kinds.append((await client.event())["type"])
            assert kinds[-2:] == ["response.failed", "error"]
            assert await client.closed() == 1008
        await house.aborted()


async def test_a_create_that_waited_is_not_started_for_a_revoked_key(tmp_path: Path) -> None:
    async with keyed_house(tmp_path) as (house, ring):
        async with house.connect(ring.make("alice")) as client:
            await client.create("[[stall 1]]")
            started = await client.until("response.in_progress")
            await client.create("waits")
            ring.revoke("alice")
            running = started.events[0]["response"]["id"]
            asked = len(house.upstream.requests)
            house.server.registry._turns[running].cancel(LooplineError(Kind.CANCELLED, "Cancelled."))
            while (event := await client.event())["type"] != "error":
                pass
            assert event["status"] == 401
            assert len(house.upstream.requests) == asked


async def test_a_key_that_expires_ends_as_a_revoked_one(tmp_path: Path) -> None:
    async with keyed_house(tmp_path) as (house, ring):
        token = ring.make("alice", expires=timedelta(seconds=0.5))
        async with house.connect(token) as client:
            await client.works()
            await asyncio.sleep(0.6)  # its time is over
            await client.create([user("hello")])
            assert (await client.answer())["status"] == 401
            assert await client.closed() == 1008
        assert (await refused_upgrade(house, token))[0] == 401


async def test_the_server_hears_of_a_change_by_itself(tmp_path: Path) -> None:
    async with keyed_house(tmp_path) as (house, ring):
        token = ring.make("alice")
        async with house.connect(token) as client:
            await client.works()
            ring.house = None
            ring.revoke("alice")
            async with asyncio.timeout(5):
                while house.server.keys is None or len(house.server.keys):
                    await asyncio.sleep(0.05)
            await client.create([user("hello")])
            assert (await client.answer())["status"] == 401


async def test_a_forbidden_model_looks_like_one_that_there_is_not(tmp_path: Path) -> None:
    async with keyed_house(tmp_path, {"models.default": "", "models.aliases": {"fast": "simulated"}}) as (house, ring):
        token = ring.make("alice", models=["fast", "sim?"])
        async with house.connect(token) as client:
            shapes = []
            for name in ("simulated", "neverwas1"):
                turn = await client.turn([user("x")], model=name)
                assert turn.kind == "error"
                shapes.append(json.dumps(turn.events[-1]).replace(name, "NAME"))
            assert shapes[0] == shapes[1]
            assert '"status":404' in shapes[0].replace(" ", "")
            await client.says("still here", model="fast")
        for name in ("simulated", "neverwas1"):
            async with house.http.get(f"{house.url}/models/{name}", headers=bearer(token)) as response:
                assert response.status == 404
        async with house.http.get(f"{house.url}/models", headers=bearer(token)) as response:
            assert [model["id"] for model in (await response.json())["data"]] == ["fast"]
        all_models = ring.make("bob")
        async with house.http.get(f"{house.url}/models", headers=bearer(all_models)) as response:
            assert {model["id"] for model in (await response.json())["data"]} == {"fast", "simulated"}


@pytest.mark.parametrize("dialect", ["chat", "responses"])
async def test_our_keys_never_go_upstream(tmp_path: Path, dialect: str) -> None:
    extra = {"endpoints[0].forward_headers": ("x-api-key", "x-mine"), "endpoints[0].client_credentials": "yes"}
    async with keyed_house(tmp_path, extra, dialect=dialect) as (house, ring):
        token = ring.make("alice")
        headers = {"x-api-key": token, "x-mine": "stays", "openai-organization": token}
        async with house.connect(token, headers=headers) as client:
            await client.works()
        async with house.post({"input": "x"}, headers={**bearer(token), **headers}) as response:
            assert response.status == 200
        assert len(house.upstream.requests) == 2
        for request in house.upstream.requests:
            assert token not in json.dumps(request.body)
            assert not any("llk_" in value for value in request.headers.values())
            assert "authorization" not in {name.lower() for name in request.headers}


@pytest.mark.parametrize(("setting", "sent"), [("auto", True), ("yes", True), ("no", False)])
async def test_a_clients_own_credential_goes_where_the_endpoint_takes_it(setting: str, sent: bool) -> None:
    async with open_house("chat", {"endpoints[0].client_credentials": setting}) as house:
        headers = {**BEARER, "openai-organization": "org-1"}
        async with house.post({"input": "x"}, headers=headers) as response:
            assert response.status == 200
        told = {name.lower(): value for name, value in house.upstream.requests[-1].headers.items()}
        assert (told.get("authorization") == BEARER["Authorization"]) is sent
        assert (told.get("openai-organization") == "org-1") is sent


async def test_keys_of_a_tenant_share_its_conversations_and_no_others(tmp_path: Path) -> None:
    async with keyed_house(tmp_path) as (house, ring):
        one, two = ring.make("one", tenant="team"), ring.make("two", tenant="team")
        other = ring.make("other")
        async with house.post({"input": '[[say "kept"]]'}, headers=bearer(one)) as response:
            kept = (await response.json())["id"]
        statuses = []
        for token in (two, other):
            body = {"input": "x", "previous_response_id": kept}
            async with house.post(body, headers=bearer(token)) as response:
                statuses.append((response.status, (await response.json()).get("error", {}) or {}))
        assert statuses[0][0] == 200
        assert statuses[1][0] == 400
        assert statuses[1][1]["code"] == "previous_response_not_found"


async def test_limits_of_a_key_bound_what_it_sends(tmp_path: Path) -> None:
    async with keyed_house(tmp_path) as (house, ring):
        limits = KeyLimits(tools=1, lanes=1, frame_bytes=2000, history_bytes=1500)
        token, free = ring.make("alice", limits=limits), ring.make("bob")
        tools = [{"type": "function", "name": name, "parameters": {}} for name in "ab"]
        async with house.connect(token) as client, house.connect(free) as other:
            assert (await client.turn([user("x")], tools=tools)).error["param"] == "tools"
            assert (await client.turn([user("x" * 2000)])).error["code"] == "message_too_large"
            assert (await client.turn([user("x" * 1400)])).error["code"] == "context_length_exceeded"
            await client.create('[[say "a"]]', stream_id="a")
            while (await client.event())["type"] != "response.completed":
                pass
            await client.create("x", stream_id="b")
            assert (await client.event())["code"] == "websocket_stream_limit_reached"
            await other.says("whole", tools=tools)
        async with house.post({"input": "x" * 2000}, headers=bearer(token)) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (413, "message_too_large")


def test_keys_make_insecure_needless_to_be_reached_from_outside(tmp_path: Path) -> None:
    load(None, {"server.host": "0.0.0.0", "access.keys_file": "keys.jsonl"}, {})
    with pytest.raises(BadSetting, match="loopline keys create"):
        load(None, {"server.host": "0.0.0.0"}, {})
    exposed = {"server.admin_port": 1, "server.admin_host": "0.0.0.0", "access.keys_file": "keys.jsonl"}
    with pytest.raises(BadSetting, match="no key guards the metrics"):
        load(None, exposed, {})


async def test_numbers_about_everybody_are_not_on_a_port_that_strangers_reach(tmp_path: Path) -> None:
    async with keyed_house(tmp_path, {"server.host": "0.0.0.0"}) as (house, ring):
        token = ring.make("alice")
        base = f"http://127.0.0.1:{house.server.port}"
        async with house.http.get(f"{base}/metrics") as response:
            assert response.status == 404
        async with house.http.get(f"{base}/readyz") as response:
            assert response.status == 200
        async with house.http.get(f"{base}/v1/models", headers={**bearer(token), "Host": "proxy.example"}) as response:
            assert response.status == 200


@pytest.mark.parametrize(("text", "says"), [(None, "keys create"), ("{", "line 1")])
async def test_a_file_of_keys_that_cannot_be_used_stops_the_start(tmp_path: Path, text: str | None, says: str) -> None:
    path = tmp_path / "keys.jsonl"
    if text is not None:
        path.write_text(text)
    settings = load(None, {"server.port": 0, "access.keys_file": str(path)}, {})
    with pytest.raises(BadSetting, match=f"access.keys_file: .*{says}"):
        async with Loopline(settings):
            pass


async def test_a_damaged_change_leaves_the_keys_as_they_were(tmp_path: Path) -> None:
    async with keyed_house(tmp_path) as (house, ring):
        token = ring.make("alice")
        ring.path.write_text("{")
        with pytest.raises(ValueError, match="line 1"):
            ring._tell()
        async with house.connect(token) as client:
            await client.works()
