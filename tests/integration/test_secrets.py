"""A run with known secrets, through success and failure: none of them is in anything that it produced."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from proxy.access.key_file import read_keys
from proxy.settings import load
from proxy.telemetry.logging import Log
from proxy.translate.chat.translator import ChatTranslator
from tests.house import open_house
from tests.keyed import KeyRing, bearer
from tests.program import ROOT, Program, environment, loopline
from tests.wire_client import open_socket, tool_output, user

UPSTREAM_KEY = "sk-upstream-6f1d2c3b4a59687"
SEALING = base64.b64encode(b"sealing-key-of-thirty-two-bytes!").decode()
TENANT = base64.b64encode(b"tenant-secret-of-32-bytes-long!!").decode()
HEADER = "header-value-9a8b7c6d"
QUERY = "query-value-5e4d3c2b"
COOKIE = "session=cookie-1a2b3c4d"
# What users and models say. Each stands in another place of a request or an answer.
_PLACES = ("input", "instructions", "tool", "arguments", "result", "answer", "thought", "file")
SAID = {place: f"said-{number}-{place}-q7x" for number, place in enumerate(_PLACES)}
MODES = ("ok", "think", "call", "echo401", "echo500", "garbage", "badhttp", "drop", "json")


async def answer(request: web.Request) -> web.StreamResponse:
    """An upstream that does what it is told, and where it fails quotes all that it was sent."""
    body = await request.json()
    text = json.dumps(body["messages"][-1])
    mode = next((mode for mode in MODES if f"mode={mode}" in text), "ok")
    heard = f"{request.headers.get('Authorization')} {request.headers.get('X-Fixed')} {request.query_string}"
    if mode.startswith("echo"):
        message = f"Incorrect API key provided: {heard}"
        return web.json_response({"error": {"message": message, "type": "x", "code": None}}, status=int(mode[4:]))
    if mode == "badhttp":
        assert request.transport is not None
        request.transport.write(f"HTTP/1.1 twohundred {SAID['answer']}\r\n\r\n".encode())
        request.transport.close()
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": SAID["answer"]}]
    if mode == "think":
        deltas.insert(0, {"reasoning_content": SAID["thought"]})
    if mode == "call":
        function = {"name": "f", "arguments": json.dumps({"x": SAID["arguments"]})}
        deltas = [{"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function}]}]
    for delta in deltas:
        chunk = {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        await response.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
    if mode == "drop":
        assert request.transport is not None
        request.transport.abort()
        return response
    if mode == "garbage":
        await response.write(f"data: {{{SAID['answer']}\n\n".encode())
    reason = "tool_calls" if mode == "call" else "stop"
    last = {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
    await response.write(b"data: " + json.dumps(last).encode() + b"\n\ndata: [DONE]\n\n")
    return response


@asynccontextmanager
async def upstream() -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    models = {"object": "list", "data": [{"id": "m", "object": "model"}]}

    async def listed(_: web.Request) -> web.Response:
        return web.json_response(models)

    app.router.add_get("/v1/models", listed)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


class Run:
    """What a run has produced. `errors` are what clients were told of failures."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.metrics = ""

    def note(self, event: dict[str, Any]) -> None:
        if event["type"] == "error" or event["type"] == "response.failed":
            event = event if event["type"] == "error" else event["response"]["error"]
            self.errors.append(json.dumps(event))


def create(mode: str, **members: Any) -> dict[str, Any]:
    tools = [{"type": "function", "name": "f", "description": SAID["tool"], "parameters": {"type": "object"}}]
    asked = [user(f"mode={mode} {SAID['input']}"), *members.pop("more", [])]
    return {
        "model": "m",
        "input": asked,
        "instructions": SAID["instructions"],
        "tools": tools,
        "include": ["reasoning.encrypted_content"],
        "metadata": {"note": SAID["file"]},
        **members,
    }


async def over_websocket(url: str, token: str, run: Run) -> None:
    async with open_socket(url, token, headers={"Cookie": COOKIE}) as client:
        answered: dict[str, Any] = {}
        for mode in MODES:
            await client.send({"type": "response.create", **create(mode)})
            while (event := await client.event())["type"] not in (
                "response.completed", "response.failed", "error", "response.incomplete"
            ):  # fmt: skip
                pass
            run.note(event)
            answered[mode] = event.get("response", {})
        assert answered["ok"]["status"] == "completed"
        thought = answered["think"]["output"][0]
        assert thought["encrypted_content"].startswith("lpr1.")
        called = answered["call"]
        for more in (
            {"previous_response_id": called["id"], "input": [tool_output("call_1", SAID["result"])]},
            {"previous_response_id": called["id"], "input": [tool_output("call_9", SAID["result"])]},
            {"input": [thought, user("mode=ok")]},
            {"input": [{"type": SAID["input"]}], "temperature": SAID["input"]},
            {"model": 7},
        ):
            await client.send({"type": "response.create", **create("ok"), **more})
            while (event := await client.event())["type"] not in ("response.completed", "response.failed", "error"):
                pass
            run.note(event)
        for wrong in (b"\x00\xff", '{"type": "response.create", "input": "' + SAID["input"], "[" * 5000, '{"type": 1}'):
            await client.send(wrong if isinstance(wrong, str) else wrong.decode("latin-1"))
            run.note(await client.event())


async def over_http(url: str, token: str, run: Run) -> None:
    async with aiohttp.ClientSession(headers={"Cookie": COOKIE}) as http:
        for mode in MODES:
            for stream in (False, True):
                given = create(mode, stream=stream)
                async with http.post(f"{url}/responses", json=given, headers=bearer(token)) as response:
                    text = await response.text()
                    if response.status != 200:
                        run.errors.append(text)
        for wrong in ('{"input": "' + SAID["input"], SAID["input"], "{}"):
            headers = {**bearer(token), "Content-Type": "application/json"}
            async with http.post(f"{url}/responses", data=wrong, headers=headers) as response:
                run.errors.append(await response.text())
        for unknown in ("llk_" + "Z" * 43, token[:-1] + ("A" if token[-1] != "A" else "B")):
            async with http.post(f"{url}/responses", json=create("ok"), headers=bearer(unknown)) as response:
                assert response.status == 401
                run.errors.append(await response.text())
        for path in ("/v1/nothing", "/v1/models/none"):
            root = url.removesuffix("/v1")
            async with http.get(f"{root}{path}", headers=bearer(token)) as response:
                run.errors.append(await response.text())
        async with http.get(url.removesuffix("/v1") + "/metrics") as response:
            run.metrics = await response.text()
    await unreadable(url)


async def unreadable(url: str) -> None:
    """A request that no parser takes, full of what must not be quoted."""
    host, port = url.split("/")[2].split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET /v1/responses HTTP/1.1\r\nHost: x\r\nAuthorization {COOKIE}\r\n\r\n{SAID['input']}".encode())
    with contextlib.suppress(ConnectionError):
        await reader.read()
    writer.close()


def settings_file(folder: Path, url: str, ring: KeyRing) -> Path:
    config = folder / "loopline.toml"
    config.write_text(
        f'[server]\nport = 0\n[[endpoints]]\nurl = "{url}"\ndialect = "chat"\napi_key_env = "UPSTREAM_KEY"\n'
        f'headers = {{ X-Fixed = "{HEADER}" }}\nquery = {{ api-version = "{QUERY}" }}\n'
        '[reasoning]\nkeys_env = "SEALING"\n[state]\ntenant_secret_env = "TENANT"\n'
        f'[access]\nkeys_file = "{ring.path}"\n[log]\nformat = "json"\nlevel = "debug"\n'
    )
    return config


ENVIRONMENT = {"UPSTREAM_KEY": UPSTREAM_KEY, "SEALING": f"k1:{SEALING}", "TENANT": TENANT}


def found(text: str, secrets: dict[str, str]) -> list[str]:
    """The names of the secrets in a text."""
    return sorted(name for name, secret in secrets.items() if secret in text)


@pytest.mark.slow
async def test_no_secret_is_in_anything_that_a_run_produces(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path / "keys.jsonl")
    token = ring.make("alice")
    keys = {
        "client key": token,
        "client key's random part": token[4:],
        "hash of the client key": read_keys(ring.path)[0].hash,
        "upstream key": UPSTREAM_KEY,
        "sealing key": SEALING,
        "tenant secret": TENANT,
        "header": HEADER,
        "query": QUERY,
        "cookie": COOKIE,
    }
    everything = {**keys, **SAID}
    run = Run()
    async with upstream() as url:
        config = settings_file(tmp_path, url, ring)
        async with loopline("serve", "--config", str(config), env=ENVIRONMENT) as program:
            await program.prints("upstream")
            await over_websocket(program.url, token, run)
            await over_http(program.url, token, run)
        printed = printed_by(program)
    checked = subprocess.run(
        (sys.executable, "-m", "proxy", "check-config", "--config", str(config)),
        cwd=ROOT, env=environment(ENVIRONMENT), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert '"event":"turn"' in printed
    assert "upstream_garbled" in printed
    assert "unreadable request" in printed
    assert len(run.errors) > 25
    assert "loopline_turn" in run.metrics
    assert found(printed, everything) == []
    assert found(run.metrics, everything) == []
    assert found(checked.stdout + checked.stderr, everything) == []
    assert found("\n".join(run.errors), keys) == []
    settings = load(config, {}, ENVIRONMENT)
    assert found(repr(settings) + str(settings), everything) == []


def printed_by(program: Program) -> str:
    return program.out + program.err


async def test_a_crash_is_logged_without_what_it_was_about(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def crash(self: object, data: bytes) -> list[bytes]:
        if not data:
            return []
        try:
            raise KeyError(SAID["answer"])
        except KeyError as error:
            raise RuntimeError(f"while at {SAID['input']}") from error

    monkeypatch.setattr(ChatTranslator, "feed", crash)
    async with open_house("chat") as house:
        house.expected_crashes = 1
        async with house.post({"input": SAID["input"]}) as response:
            assert response.status == 500
            assert found(await response.text(), SAID) == []
        Log().crashed("turn", house.watcher.crashes[0])
    printed = "".join(capsys.readouterr())
    assert "RuntimeError" in printed
    assert "KeyError" in printed
    assert "test_secrets.py" in printed, "where it happened"
    assert found(printed, SAID) == []


def test_what_holds_secrets_does_not_show_them(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path / "keys.jsonl")
    token = ring.make("alice")
    (key,) = read_keys(ring.path)
    assert found(repr(key) + str([key]), {"hash": key.hash, "token": token}) == []
    assert os.stat(ring.path).st_mode & 0o077 == 0
