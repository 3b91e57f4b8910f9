"""`POST /v1/responses/input_tokens`: counted by the upstream's tokenizer, or estimated and said to be."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from proxy.session.counting import estimate
from proxy.wire.codec import decode_object, encode
from tests.house import BEARER, House, house_before
from tests.integration.test_stored import make
from tests.wire_client import function, user

MODELS = {"object": "list", "data": [{"id": "simulated", "object": "model", "created": 0, "owned_by": "x"}]}
SAID = "data: {}\n\ndata: [DONE]\n\n"


@dataclass(slots=True)
class Tokenizer:
    """An upstream that counts in the ways of several servers; `fails` answers 404 to all of them."""

    fails: bool = False
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.Response:
        if request.path == "/v1/models":
            return web.json_response(MODELS)
        body = await request.json()
        self.asked.append((request.path, body))
        if self.fails:
            return web.json_response({"error": "no"}, status=404)
        if request.path == "/apply-template":
            return web.json_response({"prompt": "<|user|>" + "".join(m["content"] for m in body["messages"])})
        if request.path == "/tokenize":
            return web.json_response(
                {"tokens": list(range(7))} if "content" in body else {"count": 11, "max_model_len": 99, "tokens": []}
            )
        assert request.path == "/v1/responses/input_tokens"
        return web.json_response({"object": "response.input_tokens", "input_tokens": 13})


@asynccontextmanager
async def counted_by(profile: str, dialect: str, *, fails: bool = False) -> AsyncIterator[tuple[House, Tokenizer]]:
    """A server before one of those upstreams."""
    tokenizer = Tokenizer(fails)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", tokenizer.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        async with house_before(url, dialect, {"endpoints[0].profile": profile}) as house:
            yield house, tokenizer
    finally:
        await runner.cleanup()


async def count(house: House, **body: Any) -> tuple[int, Any, bool]:
    """Status, body, and whether it is said to be an estimate."""
    url = f"{house.url}/responses/input_tokens"
    async with house.http.post(url, json={"model": "simulated", **body}, headers=BEARER) as response:
        return response.status, await response.json(), response.headers.get("x-loopline-estimated") == "true"


ASKED: dict[str, Any] = {"input": [user("How warm?")], "instructions": "Be brief.", "tools": [function()]}


@pytest.mark.parametrize("dialect", ["chat", "responses"])
async def test_vllm_is_asked_for_messages_and_tools(dialect: str) -> None:
    async with counted_by("vllm", dialect) as (house, tokenizer):
        assert await count(house, **ASKED) == (200, {"object": "response.input_tokens", "input_tokens": 11}, False)
        [(path, body)] = tokenizer.asked
    assert path == "/tokenize"
    assert body["model"] == "simulated"
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert body["tools"][0]["function"]["name"] == "get_weather"
    assert body["add_generation_prompt"] is True
    assert "stream" not in body


async def test_llama_cpp_is_asked_in_two_steps() -> None:
    async with counted_by("llamacpp", "chat") as (house, tokenizer):
        assert (await count(house, **ASKED))[1:] == ({"object": "response.input_tokens", "input_tokens": 7}, False)
    (first, rendered), (second, text) = tokenizer.asked
    assert (first, second) == ("/apply-template", "/tokenize")
    assert rendered["tools"]
    assert text == {"content": "<|user|>Be brief.How warm?", "add_special": True, "parse_special": True}


async def test_a_responses_server_with_the_route_is_asked_for_it() -> None:
    async with counted_by("openai", "responses") as (house, tokenizer):
        assert (await count(house, **ASKED, store=False, max_output_tokens=5))[1]["input_tokens"] == 13
    [(path, body)] = tokenizer.asked
    assert path == "/v1/responses/input_tokens"
    assert body.keys() <= {"model", "input", "instructions", "tools", "tool_choice", "text", "reasoning", "truncation"}


@pytest.mark.parametrize(
    ("counting", "paths"),
    [
        ("tokenize", ["/tokenize"]),
        ("apply-template", ["/apply-template", "/tokenize"]),
        ("input_tokens", ["/v1/responses/input_tokens"]),
        ("", []),
    ],
)
async def test_a_profile_of_ones_own_names_its_route(counting: str, paths: list[str], tmp_path: Path) -> None:
    profile = tmp_path / "mine.toml"
    profile.write_text(f'title = "Mine"\ncounting = "{counting}"\n')
    async with counted_by(str(profile), "chat") as (house, tokenizer):
        status, _, estimated = await count(house, **ASKED)
    assert (status, estimated) == (200, not paths)
    assert [path for path, _ in tokenizer.asked] == paths


@pytest.mark.parametrize("profile", ["vllm", "llamacpp", "openai"])
async def test_a_server_that_does_not_count_after_all_is_no_failure(profile: str) -> None:
    async with counted_by(profile, "chat", fails=True) as (house, _):
        status, body, estimated = await count(house, **ASKED)
    assert (status, estimated) == (200, True)
    assert body.keys() == {"object", "input_tokens"}


async def test_without_a_tokenizer_it_is_estimated_and_said_to_be(house: House) -> None:
    status, body, estimated = await count(house, input="x" * 4000)
    assert (status, estimated) == (200, True)
    assert 1000 <= body["input_tokens"] < 1050
    assert not house.upstream.requests


async def test_the_chain_is_counted_with_it(house: House) -> None:
    first = await make(house, "y" * 4000 + " [[say 1]]")
    _, alone, _ = await count(house, input="x")
    _, chained, _ = await count(house, input="x", previous_response_id=first["id"])
    assert 1000 <= chained["input_tokens"] - alone["input_tokens"] < 1100
    _, referred, _ = await count(house, input=[{"type": "item_reference", "id": first["output"][0]["id"]}, user("x")])
    assert referred["input_tokens"] > alone["input_tokens"]
    async with house.http.get(f"{house.url}/responses/{first['id']}", headers=BEARER) as response:
        assert response.status == 200
    assert len(house.upstream.requests) == 1


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": "x", "previous_response_id": "resp_none"}, "previous_response_id"),
        ({"input": 5}, "input"),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}, "input"),
    ],
)
async def test_what_no_turn_could_be_is_refused(body: dict[str, Any], param: str, house: House) -> None:
    status, answer, _ = await count(house, **body)
    assert (status, answer["error"]["param"]) == (400, param)


def test_a_file_in_the_request_counts_as_a_thousand() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}}
    body = decode_object(encode({"model": "m", "messages": [{"role": "user", "content": [image, image]}]}))
    assert 2000 < estimate(body) < 2100
