"""Keys and limits on every route beside creates: what is passed on, stored, counted, or run in the background."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from multidict import CIMultiDict
from yarl import URL

from proxy.access.keys import KeyLimits
from tests.house import BEARER, House, house_before, open_house
from tests.integration.test_background import poll
from tests.integration.test_passing_with_keys import FILE, FORM, LAST, MODEL, answer, posts
from tests.integration.test_stored import ask
from tests.keyed import KeyRing, bearer, keyed_house
from tests.recording_upstream import Exchange, RecordingUpstream, recording_upstream

JSON = {"Content-Type": "application/json"}
BODY = b'{"model":"small","input":"x"}'


@asynccontextmanager
async def passing(
    folder: Path, extra: Mapping[str, object] | None = None
) -> AsyncIterator[tuple[House, KeyRing, RecordingUpstream]]:
    """A server with a file of keys, before an upstream that records what it is sent."""
    ring = KeyRing(folder / "keys.jsonl")
    settings = {"access.keys_file": str(ring.path), **(extra or {})}
    async with recording_upstream(answer) as upstream, house_before(upstream.url, "chat", settings) as house:
        ring.house = house
        yield house, ring, upstream


async def embed(house: House, token: str, body: bytes = BODY, path: str = "embeddings") -> tuple[int, str]:
    """A request that is passed on: its status and the error's code."""
    async with house.http.post(f"{house.url}/{path}", data=body, headers={**JSON, **bearer(token)}) as response:
        text = await response.text()
        return response.status, "" if response.status == 200 else json.loads(text)["error"]["code"] or ""


async def test_a_key_of_ours_is_passed_on_in_no_header(tmp_path: Path) -> None:
    async with passing(tmp_path, {"endpoints[0].client_credentials": "yes"}) as (house, ring, upstream):
        token = ring.make("alice")
        headers = CIMultiDict({**JSON, **bearer(token), "Cookie": f"key={token}", "x-api-key": token})
        headers.extend([("X-Odd", token), ("X-Odd", "plain"), ("X-Even", "plain"), ("X-Even", f"k {token}")])
        headers.extend([("X-Request-Id", token), ("Authorization_", f"Bearer {token}"), ("OpenAI-Beta", "x=1")])
        async with house.http.post(f"{house.url}/embeddings", data=BODY, headers=headers) as response:
            assert response.status == 200
            assert token not in str(response.headers)
        [came] = posts(upstream)
        assert came.values(b"x-odd") == [b"plain"]
        assert came.values(b"openai-beta") == [b"x=1"]
        for request in upstream.requests:
            assert token.encode() not in b"\n".join([*request.start, *(value for _, value in request.headers)])


async def test_a_key_of_ours_is_passed_on_in_no_headers_name_and_in_no_coding(tmp_path: Path) -> None:
    async with passing(tmp_path) as (house, ring, upstream):
        token = ring.make("alice")
        secret = token.removeprefix("llk_")
        names = (f"X-{token}", f"X-{token.upper()}", f"x-llk%5F{secret}", f"%6Clk_{secret}", f"X-llk%255f{secret}")
        headers = CIMultiDict({**JSON, **bearer(token), "X-Other": "stays"})
        headers.extend([(name, "1") for name in names])
        headers.extend([("X-Odd", f"llk%5F{secret}"), ("X-Even", f"a=%256Clk_{secret}"), ("Session_Id", "stays")])
        headers.extend(
            [("Connection", "content-type"), ("Content_Type", "text/plain"), ("X-Original-URL", "/v1/files")]
        )
        headers.extend([("X_HTTP_Method_Override", "DELETE"), ("X-HTTP-Method-Override", "DELETE")])
        async with house.http.post(f"{house.url}/embeddings", data=BODY, headers=headers) as response:
            assert response.status == 200
        [came] = posts(upstream)
        assert {name.lower() for name, _ in came.headers} <= {
            *(b"host", b"accept", b"accept-encoding", b"user-agent", b"content-length", b"content-type"),
            *(b"x-request-id", b"x-other", b"session_id", b"connection"),
        }
        assert came.values(b"content-type") == [b"application/json"]
        assert (came.values(b"x-other"), came.values(b"session_id")) == ([b"stays"], [b"stays"])
        sent = b"\n".join(
            b"\n".join([*request.start, *map(b" ".join, request.headers)]) for request in upstream.requests
        )
        assert secret.lower().encode() not in sent.lower()


async def test_a_key_of_ours_in_the_type_of_a_body_is_refused(tmp_path: Path) -> None:
    async with passing(tmp_path) as (house, ring, upstream):
        token = ring.make("alice")
        for kind in (f"multipart/form-data; boundary={token}", f"application/json; charset=utf-8; key={token}"):
            headers = {**bearer(token), "Content-Type": kind}
            async with house.http.post(f"{house.url}/embeddings", data=BODY, headers=headers) as response:
                assert response.status == 415
                assert token not in await response.text()
        assert not upstream.requests


@pytest.mark.parametrize("spelled", ["{}", "%6clk_{}", "llk%5F{}", "llk%255f{}", "%25256c%6Ck_{}", "LLK_{}"])
async def test_a_key_of_ours_in_an_address_is_refused(spelled: str, tmp_path: Path) -> None:
    async with passing(tmp_path) as (house, ring, upstream):
        token = ring.make("alice")
        said = spelled.format(token if spelled == "{}" else token.removeprefix("llk_"))
        for target in (f"embeddings?key={said}", f"audio/{said}"):
            url = URL(f"{house.url}/{target}", encoded=True)
            async with house.http.post(url, data=BODY, headers={**JSON, **bearer(token)}) as response:
                assert response.status == 400
                assert "Authorization" in (await response.json())["error"]["message"]
        assert not upstream.requests


async def test_a_key_opens_what_it_may_use_and_no_more(tmp_path: Path) -> None:
    async with passing(tmp_path, {"server.host": "0.0.0.0"}) as (house, ring, upstream):
        token = ring.make("alice", models=["small"])
        assert await embed(house, token) == (200, "")
        assert (await embed(house, token, b'{"model":"secret"}'))[0] == 404
        assert (await embed(house, token, path="files"))[0] == 403
        assert await embed(house, "sk-other") == (401, "invalid_api_key")
        ring.revoke("alice")
        assert await embed(house, token) == (401, "invalid_api_key")
        assert len(posts(upstream)) == 1


async def test_a_revoked_key_reaches_nothing_that_is_stored(tmp_path: Path) -> None:
    async with keyed_house(tmp_path) as (house, ring):
        headers = bearer(ring.make("alice", tenant="team"))
        async with house.post({"input": "x"}, headers=headers) as response:
            made = (await response.json())["id"]
        routes = (
            *(("GET", made), ("GET", f"{made}/input_items"), ("POST", f"{made}/cancel"), ("DELETE", made)),
            ("POST", "input_tokens"),
        )
        assert (await ask(house, "GET", made, headers))[0] == 200
        ring.revoke("alice")
        for method, path in routes:
            status, body = await ask(house, method, path, headers, json={"input": "x"} if "tokens" in path else None)
            assert (status, body["error"]["code"]) == (401, "invalid_api_key")
        colleague = bearer(ring.make("bob", tenant="team"))
        assert (await ask(house, "GET", made, colleague))[0] == 200


async def test_a_turn_in_the_background_is_a_turn_at_once_until_it_ends() -> None:
    async with open_house("chat", {"access.turns": 1}) as house:
        async with house.post({"input": "[[stall 1]]", "background": True}) as response:
            begun = (await response.json())["id"]
        for members in ({}, {"background": True}):
            async with house.post({"input": "x", **members}) as response:
                assert response.status == 429
                assert response.headers["Retry-After"] == "1"
        assert (await ask(house, "POST", "input_tokens", json={"input": "x"}))[0] == 429
        assert (await ask(house, "GET", begun))[0] == 200, "polling is no turn"
        await ask(house, "POST", f"{begun}/cancel")
        async with house.post({"input": "x"}) as response:
            assert response.status == 200


async def test_one_too_many_in_the_background_takes_nothing() -> None:
    async with open_house("chat", {"limits.background_turns": 1}) as house:
        async with house.post({"input": "[[stall 1]]", "background": True}) as response:
            begun = (await response.json())["id"]
        async with house.post({"input": "x", "background": True}) as response:
            assert response.status == 429
        whole = house.server.gate.accounts.whole
        assert whole.turns == 1
        await ask(house, "POST", f"{begun}/cancel")
        assert (await poll(house, begun, "cancelled"))["id"] == begun
        assert (whole.turns, whole.budget.used) == (0, 0)


async def begin(house: House, token: str, text: str = "[[stall 1]]") -> tuple[int, dict[str, Any]]:
    """Ask for a response in the background: the status, and the body."""
    members = {"input": text, "background": True}
    async with house.post(members, headers=bearer(token)) as response:
        return response.status, await response.json()


@pytest.mark.parametrize("ended_by", ["revoked", "expired"])
async def test_what_runs_in_the_background_ends_with_its_key(ended_by: str, tmp_path: Path) -> None:
    async with keyed_house(tmp_path) as (house, ring):
        token = ring.make("alice", tenant="team", expires=timedelta(days=1))
        colleague = bearer(ring.make("bob", tenant="team"))
        _, begun = await begin(house, token)
        carol = ring.make("carol")
        _, other = await begin(house, carol)
        if ended_by == "revoked":
            ring.revoke("alice")
        else:
            house.server.gate._wall = lambda: time.time() + 2 * 24 * 3600
        failed = await poll(house, begun["id"], "failed", headers=colleague)
        assert "revoked or has expired" in failed["error"]["message"]
        assert (failed["output"], failed["usage"]) == ([], None)
        assert [turn.error for turn in house.watcher.turns] == ["unauthorized"]
        assert len(house.server.backgrounds) == 1, "those of other keys go on"
        assert house.server.gate.accounts.whole.background_turns == 1
        await ask(house, "POST", f"{other['id']}/cancel", bearer(carol))
        await house.aborted()
        assert house.server.gate.accounts.whole.background_turns == 0


async def test_responses_in_the_background_are_counted_by_key(tmp_path: Path) -> None:
    async with keyed_house(tmp_path, {"access.background_turns": 1, "limits.background_turns": 3}) as (house, ring):
        alice, bob = ring.make("alice"), ring.make("bob", limits=KeyLimits(background_turns=2))
        status, first = await begin(house, alice)
        assert status == 200
        status, body = await begin(house, alice)
        assert (status, body["error"]["code"], body["error"]["param"]) == (429, "rate_limit_exceeded", "background")
        assert "access.background_turns" in body["error"]["message"]
        second, third = [(await begin(house, bob))[1]["id"] for _ in range(2)]
        assert "access.background_turns" in (await begin(house, bob))[1]["error"]["message"]
        assert "limits.background_turns" in (await begin(house, ring.make("carol")))[1]["error"]["message"]
        async with house.post({"input": "x"}, headers=bearer(alice)) as response:
            assert response.status == 200, "what is waited for is not counted"
        await ask(house, "POST", f"{first['id']}/cancel", bearer(alice))
        status, fourth = await begin(house, alice)
        assert status == 200
        for token, running in ((bob, second), (bob, third), (alice, fourth["id"])):
            assert (await ask(house, "POST", f"{running}/cancel", bearer(token)))[0] == 200


async def test_requests_a_minute_are_those_of_every_route(tmp_path: Path) -> None:
    async with passing(tmp_path, {"access.requests_per_minute": 2}) as (house, ring, upstream):
        token, other = ring.make("alice"), ring.make("bob")
        assert (await ask(house, "POST", "input_tokens", bearer(token), json={"model": "small", "input": "x"}))[
            0
        ] == 200
        assert await embed(house, token) == (200, "")
        assert await embed(house, token) == (429, "rate_limit_exceeded")
        async with house.post({"model": "small", "input": "x"}, headers=bearer(token)) as response:
            assert response.status == 429
            assert 1 <= int(response.headers["Retry-After"]) <= 30
        assert len([came for came in posts(upstream) if came.start[1] == b"/v1/embeddings"]) == 1
        assert await embed(house, other) == (200, "")


async def test_tokens_of_what_is_passed_on_are_counted() -> None:
    async with open_house("chat", {"access.tokens_per_minute": 10}) as house:
        body = {"model": "simulated", "messages": [{"role": "user", "content": "[[say 20]]"}]}
        url = f"{house.url}/chat/completions"
        async with house.http.post(url, json=body, headers=BEARER) as response:
            assert (response.status, (await response.json())["usage"]["total_tokens"] > 10) == (200, True)
        async with house.http.post(url, json=body, headers=BEARER) as response:
            assert response.status == 429
            assert "tokens a minute" in (await response.json())["error"]["message"]


async def test_what_is_being_passed_on_is_a_turn_at_once(tmp_path: Path) -> None:
    reached, go = asyncio.Event(), asyncio.Event()

    async def slow(exchange: Exchange) -> None:
        reached.set()
        await go.wait()
        await answer(exchange)

    async with recording_upstream(slow) as upstream, house_before(upstream.url, "chat", {"access.turns": 1}) as house:
        headers = {**JSON, **BEARER}
        first = asyncio.create_task(house.http.post(f"{house.url}/embeddings", data=BODY, headers=headers))
        await reached.wait()
        assert (await embed(house, "test"))[0] == 429
        go.set()
        async with await first as response:
            assert response.status == 200
        await house.empty()
        assert await embed(house, "test") == (200, "")
        assert house.server.gate.accounts.whole.budget.used == 0


async def test_what_a_body_inflates_to_is_memory() -> None:
    body = gzip.compress(json.dumps({"input": "x" * 900_000}).encode())
    headers = {**JSON, **BEARER, "Content-Encoding": "gzip"}
    async with open_house("chat", {"access.memory_bytes": 400_000}) as house:
        async with house.http.post(f"{house.url}/responses", data=body, headers=headers) as response:
            assert response.status == 503
            assert response.headers["Retry-After"] == "1"
        await house.empty()
        assert house.server.gate.accounts.whole.budget.used == 0
        async with house.post({"input": "x"}) as response:
            assert response.status == 200


async def test_a_key_revoked_while_its_body_comes_is_not_served(tmp_path: Path) -> None:
    async with passing(tmp_path) as (house, ring, upstream):
        token = ring.make("alice")
        for path, whole in (("embeddings", BODY), ("responses", b'{"model":"small","input":"x"}')):
            token = ring.make(f"user-{path}")

            async def slowly(name: str = f"user-{path}", whole: bytes = whole) -> AsyncIterator[bytes]:
                yield whole[:5]
                ring.revoke(name)
                yield whole[5:]

            headers = {**JSON, **bearer(token)}
            async with house.http.post(f"{house.url}/{path}", data=slowly(), headers=headers) as response:
                assert (response.status, (await response.json())["error"]["code"]) == (401, "invalid_api_key")
        assert not posts(upstream)


async def test_a_body_to_pass_on_that_trickles_has_a_deadline(tmp_path: Path) -> None:
    async with passing(tmp_path, {"server.receive_s": 0.2}) as (house, ring, upstream):
        headers = {**JSON, **bearer(ring.make("alice"))}
        hold = asyncio.Event()

        async def never() -> AsyncIterator[bytes]:
            yield BODY[:5]
            await hold.wait()

        async with house.http.post(f"{house.url}/embeddings", data=never(), headers=headers) as response:
            assert response.status == 408
        hold.set()
        assert not posts(upstream)


async def test_a_form_has_a_deadline_after_its_model_too(tmp_path: Path) -> None:
    hold, reading = asyncio.Event(), asyncio.Event()

    async def patient(exchange: Exchange) -> None:
        if exchange.request.start[0] == b"POST":
            reading.set()
        await answer(exchange)

    async def never() -> AsyncIterator[bytes]:
        yield MODEL + FILE[:-2]
        while not reading.is_set():  # one piece is always kept back
            yield b"more"
            await asyncio.sleep(0)
        await hold.wait()
        yield LAST

    ring = KeyRing(tmp_path / "keys.jsonl")
    settings = {"access.keys_file": str(ring.path), "server.receive_s": 0.3}
    async with recording_upstream(patient) as upstream, house_before(upstream.url, "chat", settings) as house:
        ring.house = house
        headers = {**FORM, **bearer(ring.make("alice"))}
        async with asyncio.timeout(10):
            async with house.http.post(f"{house.url}/audio/transcriptions", data=never(), headers=headers) as response:
                assert response.status == 408
                assert "server.receive_s" in (await response.json())["error"]["message"]
            assert reading.is_set()
        hold.set()
        assert not posts(upstream)
        await house.empty()


async def test_a_form_whose_key_is_revoked_while_it_comes_has_no_end_upstream(tmp_path: Path) -> None:
    reading = asyncio.Event()

    async def patient(exchange: Exchange) -> None:
        if exchange.request.start[0] == b"POST":
            reading.set()
        await answer(exchange)

    ring = KeyRing(tmp_path / "keys.jsonl")
    settings = {"access.keys_file": str(ring.path)}
    async with recording_upstream(patient) as upstream, house_before(upstream.url, "chat", settings) as house:
        ring.house = house

        async def revoked() -> AsyncIterator[bytes]:
            yield MODEL + FILE[:-2]
            while not reading.is_set():
                yield b"more"
                await asyncio.sleep(0)
            ring.revoke("alice")
            yield b"\r\n" + LAST

        headers = {**FORM, **bearer(ring.make("alice"))}
        async with asyncio.timeout(10):
            url = f"{house.url}/audio/transcriptions"
            async with house.http.post(url, data=revoked(), headers=headers) as response:
                assert (response.status, (await response.json())["error"]["code"]) == (401, "invalid_api_key")
        assert not posts(upstream)


async def test_a_model_named_twice_in_other_letters_and_a_body_too_large_for_its_key(tmp_path: Path) -> None:
    async with passing(tmp_path) as (house, ring, upstream):
        token = ring.make("alice", models=["small"])
        assert (await embed(house, token, b'{"model":"small","Model":"secret","input":"x"}'))[0] == 400
        assert not posts(upstream)


@pytest.mark.parametrize("path", ["responses", "embeddings"])
async def test_a_client_that_leaves_a_silent_upstream_has_used_tokens(path: str) -> None:
    reached, go = asyncio.Event(), asyncio.Event()

    async def silent(exchange: Exchange) -> None:
        if exchange.request.start[0] == b"GET":
            await answer(exchange)
            return
        reached.set()
        await go.wait()

    settings = {"access.tokens_per_minute": 1000}
    body = json.dumps({"model": "small", "input": "x" * 8000}).encode()
    async with recording_upstream(silent) as upstream, house_before(upstream.url, "chat", settings) as house:
        headers = {**JSON, **BEARER}
        left = asyncio.create_task(house.http.post(f"{house.url}/{path}", data=body, headers=headers))
        async with asyncio.timeout(10):
            await reached.wait()
        left.cancel()
        await asyncio.wait([left])
        await house.empty(5)
        try:
            async with asyncio.timeout(10):
                async with house.http.post(f"{house.url}/{path}", data=body, headers=headers) as response:
                    assert response.status == 429
        finally:
            go.set()
