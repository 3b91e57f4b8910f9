"""The embedded upstream for real: installed into the default cache, answering, restarted after kill -9, stopped."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

import aiohttp
import pytest

from proxy.tools.embedded import CONTEXT_TOKENS, MODEL, Bar, Embedded, Event, Ready, Unavailable, prepare

pytestmark = pytest.mark.real

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "country": {"type": "string"}},
    "required": ["city", "country"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def ready() -> Ready:
    try:
        return prepare(progress=Bar(sys.stderr))
    except Unavailable as error:
        pytest.skip(f"the embedded model is not to be had here: {error}")


async def _chat(url: str, body: Mapping[str, Any]) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{url}/chat/completions", json={"temperature": 0, "model": "any", **body}) as response,
    ):
        return response.status, await response.text()


def _chunks(text: str) -> list[dict[str, Any]]:
    data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    assert data[-1] == "[DONE]"
    return [json.loads(chunk) for chunk in data[:-1]]


def _say(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


async def test_a_life(ready: Ready) -> None:
    events: list[Event] = []
    async with Embedded(ready, on_event=events.append) as embedded:
        url, pid = embedded.url, embedded.pid
        await _answers(url)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(60):
            while not embedded.pid or embedded.pid == pid:
                await asyncio.sleep(0.05)
        assert embedded.url == url
        await _answers(url)
        last = embedded.pid
    assert [event.kind for event in events] == ["started", "crashed", "restarted", "stopped"]
    for ended in (pid, last):
        with pytest.raises(ProcessLookupError):
            os.kill(ended, 0)


async def _answers(url: str) -> None:
    status, text = await _chat(url, {"messages": _say("Say hello."), "max_tokens": 8, "stream": True})
    chunks = _chunks(text)
    assert status == 200
    assert {chunk["model"] for chunk in chunks} == {MODEL}
    assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk["choices"])


async def test_its_limits_and_habits(ready: Ready) -> None:
    """What Loopline tells its users about this upstream, and builds on."""
    async with Embedded(ready) as embedded:
        status, text = await _chat(embedded.url, {"messages": _say("hello world " * 3000), "stream": True})
        error = json.loads(text)["error"]
        assert (status, error["type"], error["n_ctx"]) == (400, "exceed_context_size_error", CONTEXT_TOKENS)
        assert error["n_prompt_tokens"] > CONTEXT_TOKENS

        kind = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY}}
        _, text = await _chat(
            embedded.url, {"messages": _say("Describe Paris."), "max_tokens": 100, "response_format": kind}
        )
        assert set(json.loads(json.loads(text)["choices"][0]["message"]["content"])) == {"city", "country"}


@pytest.mark.parametrize("stream", [True, False])
async def test_a_call_when_led_to_it(ready: Ready, stream: bool) -> None:
    led = [*_say("What is the weather in Paris?"), {"role": "assistant", "content": "<tool_call>\n"}]
    body = {"messages": led, "tools": [WEATHER], "tool_choice": "required", "stop": ["</tool_call>"]}
    async with Embedded(ready) as embedded:
        status, text = await _chat(embedded.url, {**body, "max_tokens": 100, "stream": stream})
    assert status == 200
    if stream:
        choices = [chunk["choices"][0] for chunk in _chunks(text) if chunk["choices"]]
        functions = [call["function"] for choice in choices for call in choice["delta"].get("tool_calls", [])]
        finish = choices[-1]["finish_reason"]
    else:
        choice = json.loads(text)["choices"][0]
        functions, finish = [call["function"] for call in choice["message"]["tool_calls"]], choice["finish_reason"]
    assert finish == "tool_calls"
    assert [function["name"] for function in functions if "name" in function] == ["get_weather"]
    assert set(json.loads("".join(function["arguments"] for function in functions))) == {"city"}


async def test_the_template_renders_tools_calls_and_results(ready: Ready) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Weather?"}]},
        {"role": "assistant", "content": None, "tool_calls": [call, call]},
        {"role": "tool", "tool_call_id": "c", "content": "sunny"},
    ]
    async with Embedded(ready) as embedded, aiohttp.ClientSession() as http:
        root = embedded.url.removesuffix("/v1")
        async with http.post(f"{root}/apply-template", json={"messages": messages, "tools": [WEATHER]}) as response:
            prompt = (await response.json())["prompt"]
    assert prompt.startswith("<|im_start|>system\nBe brief.\n\n")
    assert '<tools>\n{"type": "function", "function": {"name": "get_weather"' in prompt
    one = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
    assert prompt.endswith(
        "<|im_start|>user\nWeather?<|im_end|>\n"
        f"<|im_start|>assistant\n{one}\n{one}<|im_end|>\n"
        "<|im_start|>user\n<tool_response>\nsunny\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


async def test_its_defaults_keep_it_to_the_point(ready: Ready) -> None:
    """A model this small goes on without end, unless it hears the words of its training and stays cool."""
    async with Embedded(ready) as embedded, aiohttp.ClientSession() as http:
        root = embedded.url.removesuffix("/v1")
        async with http.post(f"{root}/apply-template", json={"messages": _say("Hello.")}) as response:
            prompt = (await response.json())["prompt"]
        async with http.get(f"{root}/props") as response:
            defaults = (await response.json())["default_generation_settings"]["params"]
    assert prompt.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    assert defaults["temperature"] == pytest.approx(0.1)
