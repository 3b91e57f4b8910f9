"""A client for the tests of the simulated upstream: it reads both dialects into one form."""

import io
import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import aiohttp
import pytest

from proxy.tools.simulate import Simulated, start

DIALECTS = ("chat", "responses")
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "unit": {"enum": ["C", "F"]}},
    "required": ["city", "unit"],
}
_JSON = {"Content-Type": "application/json"}


@pytest.fixture
async def upstream() -> AsyncIterator[Simulated]:
    async with await start() as server:
        yield server


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


class Got(NamedTuple):
    """What a client saw, in one form for both dialects."""

    status: int
    text: str
    thought: str
    refusal: str
    calls: list[tuple[str, str]]
    finish: str  # stop, length, tool_calls, error, or "" if it never came
    done: bool
    cut: bool  # the connection was lost
    odd: list[str]  # data lines that are not a JSON object
    raw: str
    headers: dict[str, str]


def _request(dialect: str, history: list[dict[str, Any]], **fields: Any) -> tuple[str, dict[str, Any]]:
    if dialect == "chat":
        return "/chat/completions", {"model": "m", "messages": history, **fields}
    return "/responses", {"model": "m", "input": history, **fields}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def tool(dialect: str, name: str = "get_weather", parameters: Any = WEATHER) -> dict[str, Any]:
    function = {"name": name, "parameters": parameters}
    return {"type": "function", "function": function} if dialect == "chat" else {"type": "function", **function}


def results(dialect: str, got: Got, text: str, number: int) -> list[dict[str, Any]]:
    """The history that answers all calls of `got`."""
    ids = [f"c{number}_{i}" for i in range(len(got.calls))]
    if dialect == "responses":
        calls = [
            {"type": "function_call", "call_id": i, "name": n, "arguments": a}
            for i, (n, a) in zip(ids, got.calls, strict=True)
        ]
        return [*calls, *({"type": "function_call_output", "call_id": i, "output": text} for i in ids)]
    made = [
        {"id": i, "type": "function", "function": {"name": n, "arguments": a}}
        for i, (n, a) in zip(ids, got.calls, strict=True)
    ]
    message = {"role": "assistant", "content": None, "tool_calls": made}
    return [message, *({"role": "tool", "tool_call_id": i, "content": text} for i in ids)]


async def ask(
    http: aiohttp.ClientSession, server: Simulated, dialect: str, prompt: str | list[dict[str, Any]], **fields: Any
) -> Got:
    history = [user(prompt)] if isinstance(prompt, str) else prompt
    path, body = _request(dialect, history, **{"stream": True, **fields})
    raw, status, headers, cut = b"", 0, dict[str, str](), False
    try:
        async with http.post(server.url + path, data=io.BytesIO(json.dumps(body).encode()), headers=_JSON) as response:
            status, headers = response.status, dict(response.headers)
            async for piece in response.content.iter_any():
                raw += piece
    except (aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError):
        cut = True
    read = _read_chat if dialect == "chat" else _read_responses
    return read(status, raw.decode(), cut, headers)


def data_of(raw: str) -> tuple[list[dict[str, Any]], list[str], bool]:
    lines = [line.removeprefix("data: ") for line in raw.split("\n") if line.startswith("data: ")]
    values, odd = [], []
    for line in lines:
        try:
            value = json.loads(line)
        except ValueError:
            value = None
        if isinstance(value, dict):
            values.append(value)
        elif line != "[DONE]":
            odd.append(line)
    return values, odd, bool(lines) and lines[-1] == "[DONE]"


def _whole(raw: str) -> dict[str, Any]:
    """The body of an answer without a stream, or nothing."""
    try:
        value = json.loads(raw)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _read_chat(status: int, raw: str, cut: bool, headers: dict[str, str]) -> Got:
    values, odd, done = data_of(raw)
    said = {"content": "", "reasoning_content": "", "refusal": ""}
    calls: list[list[str]] = []
    finish = ""
    if not values and (body := _whole(raw)) and status == 200:
        values = [{"choices": [{**choice, "delta": choice["message"]} for choice in body["choices"]]}]
        for call in values[0]["choices"][0]["delta"]["tool_calls"]:
            call["index"] = len(calls)
    for value in values:
        finish = "error" if "error" in value else finish
        for choice in value.get("choices", ()):
            for key in said:
                said[key] += choice["delta"].get(key) or ""
            for call in choice["delta"].get("tool_calls", ()):
                if call["index"] == len(calls):
                    calls.append([call["function"]["name"], ""])
                calls[call["index"]][1] += call["function"]["arguments"]
            finish = choice["finish_reason"] or finish
    pairs = [(name, arguments) for name, arguments in calls]
    return Got(
        status, said["content"], said["reasoning_content"], said["refusal"], pairs, finish, done, cut, odd, raw, headers
    )


_ENDS = {"response.completed": "stop", "response.incomplete": "length", "response.failed": "error"}


def _read_responses(status: int, raw: str, cut: bool, headers: dict[str, str]) -> Got:
    values, odd, done = data_of(raw)
    if not values and (body := _whole(raw)) and status == 200:
        values = [
            {"type": "response.output_item.done", "output_index": index, "item": item}
            for index, item in enumerate(body["output"])
        ] + [{"type": "response.completed"}]
    said = {"output_text": "", "reasoning_text": "", "refusal": ""}
    calls: list[tuple[str, str]] = []
    finish, streamed = "", False
    for value in values:
        kind = value["type"]
        if kind.endswith(".delta") and kind.split(".")[1] in said:
            said[kind.split(".")[1]] += value["delta"]
            streamed = True
        if kind == "response.output_item.done":
            if value["item"]["type"] == "function_call":
                calls.append((value["item"]["name"], value["item"]["arguments"]))
            for part in value["item"].get("content", ()) if not streamed else ():
                said[part["type"]] += part.get("text") or part.get("refusal")
        finish = _ENDS.get(kind, finish)
    finish = "tool_calls" if finish == "stop" and calls else finish
    return Got(
        status,
        said["output_text"],
        said["reasoning_text"],
        said["refusal"],
        calls,
        finish,
        done,
        cut,
        odd,
        raw,
        headers,
    )
