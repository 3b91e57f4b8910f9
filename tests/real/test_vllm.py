"""vLLM itself takes what it is sent, and its answers come out as they should.

Its installation takes minutes and gigabytes, so that nothing here starts without being asked to: `LOOPLINE_VLLM` is a
command that serves vLLM 0.32 on 127.0.0.1 in the foreground, `{port}` in it is the port. It needs the flags
`--enable-scale-out` (the render routes), `--enable-auto-tool-choice --tool-call-parser hermes`, and a context of
40,000 tokens; any model will do, one with random weights too (`make test-vllm`).
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from proxy.app import Loopline
from proxy.settings import load
from tests.golden.corpus import cases, create_of, requested
from tests.program import environment, free_port
from tests.unit.translate.turns import create
from tests.wire_client import Recorded, WireClient, open_socket, user

COMMAND = os.environ.get("LOOPLINE_VLLM", "")
START_S = 240.0
TIMEOUT = aiohttp.ClientTimeout(total=60)

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(not COMMAND, reason="LOOPLINE_VLLM is not set: a command that serves vLLM on port {port}"),
]

RENDER = {"chat": "chat/completions/render", "responses": "responses/render"}
# What a model without eyes and ears says of an image or a sound (vLLM 0.32).
BLIND = "is not a multimodal model"
# What nobody could carry is refused by name, in the engine's words.
REFUSED = {
    ("fields-prompt-template", "responses"): "prompt template is not supported",
    ("items-audio", "chat"): BLIND,
    ("items-audio", "responses"): "input_audio",
    ("items-file", "chat"): "Unsupported chat content part type: 'file'",
    ("items-file", "responses"): "Unsupported chat content part type: 'input_file'",
    ("items-file-url", "responses"): "Unsupported chat content part type: 'input_file'",
    ("items-reference", "responses"): "Unsupported input item type: item_reference",
    ("items-unknown", "responses"): "acme:telemetry",
    ("vercel-item-reference", "responses"): "Unsupported input item type: item_reference",
}
CITIES = ["Paris", "Oslo"]
WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "enum": CITIES}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
VOTE: dict[str, Any] = {
    "type": "custom",
    "name": "vote",
    "description": "Votes.",
    "format": {"type": "grammar", "syntax": "regex", "definition": "(yes|no)"},
}


class Engine:
    """A running vLLM: its base URL with `/v1`, and the model that it serves."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self.url = url
        self.model = ""
        self._http = http

    async def ready(self, process: asyncio.subprocess.Process) -> None:
        """Wait until it serves; learns the model's name."""
        while True:
            assert process.returncode is None, "vLLM ended: LOOPLINE_VLLM has to serve in the foreground"
            try:
                async with self._http.get(f"{self.url}/models", timeout=TIMEOUT) as answer:
                    self.model = (await answer.json())["data"][0]["id"]
                    return
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.5)

    async def render(self, dialect: str, body: dict[str, Any]) -> tuple[int, str]:
        """What it makes of a request without answering it: status and body."""
        asked = {**body, "model": self.model}
        async with self._http.post(f"{self.url}/{RENDER[dialect]}", json=asked, timeout=TIMEOUT) as answer:
            return answer.status, await answer.text()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def vllm() -> AsyncIterator[Engine]:
    """vLLM, started once."""
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *shlex.split(COMMAND.replace("{port}", str(port))),
        env=environment(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        async with aiohttp.ClientSession() as http:
            engine = Engine(f"http://127.0.0.1:{port}/v1", http)
            async with asyncio.timeout(START_S):
                await engine.ready(process)
            yield engine
    finally:
        await _stop(process)


async def _stop(process: asyncio.subprocess.Process) -> None:
    """End it with its workers, which are processes of their own in its group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            await asyncio.wait_for(process.wait(), 20)
        except TimeoutError:
            continue
    await process.wait()


@pytest_asyncio.fixture(params=["chat", "responses"], loop_scope="module")
async def loopline(request: pytest.FixtureRequest, vllm: Engine) -> AsyncIterator[Loopline]:
    """Loopline in front of it, told nothing but where it is and the dialect."""
    flags = {
        "server.port": 0,
        "endpoints[0].url": vllm.url,
        "endpoints[0].dialect": request.param,
        "models.default": vllm.model,
    }
    async with Loopline(load(None, flags, {})) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module")
async def client(loopline: Loopline) -> AsyncIterator[WireClient]:
    """One socket to it."""
    async with open_socket(loopline.url) as opened:
        yield opened


# --- The corpus ------------------------------------------------------------------------------------------------------


def has_image(body: Any) -> bool:
    """Is there an image part anywhere?"""
    if isinstance(body, dict):
        return body.get("type") in ("image_url", "input_image") or any(map(has_image, body.values()))
    return isinstance(body, list) and any(map(has_image, body))


@pytest.mark.parametrize("dialect", RENDER)
@pytest.mark.parametrize("name", [path.stem for path in cases("requests")])
async def test_a_request_of_the_corpus_is_taken(name: str, dialect: str, vllm: Engine) -> None:
    (path,) = [path for path in cases("requests") if path.stem == name]
    given = create_of(json.loads(path.read_text()))
    made = requested(given, "vllm", dialect)
    if not given.generate:
        return  # a warm-up is answered here
    if "body" not in made:
        assert 400 <= made["error"]["status"] < 500
        return  # refused here, with a message of its own
    status, text = await vllm.render(dialect, made["body"])
    words = REFUSED.get((name, dialect), BLIND if has_image(made["body"]) else None)
    if words is None:
        assert status == 200, text[:1000]
    else:
        assert status == 400
        assert words in text


async def test_every_part_of_an_answer_is_read(vllm: Engine) -> None:
    """It reads the first part alone, and fails over a refusal."""
    lengths = []
    for texts in (["Done."], ["Done.", "It rains in Oslo."], ["Done.", "It rains in Oslo.", ""]):
        parts: list[Any] = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
        if len(parts) == 3:
            parts[1] = {"type": "refusal", "refusal": texts[1]}
        said = [{"role": "assistant", "content": parts}, user("Go on.")]
        made = requested(create(input=said), "vllm", "responses")
        status, text = await vllm.render("responses", made["body"])
        assert status == 200, text[:1000]
        lengths.append(len(json.loads(text)["token_ids"]))
    assert lengths[0] < lengths[1] == lengths[2]


# --- Live turns ------------------------------------------------------------------------------------------------------


def done(turn: Recorded) -> None:
    """It completed, or was cut by its limit of tokens."""
    assert turn.kind in ("response.completed", "response.incomplete"), turn.events[-1]


async def test_it_is_recognised(loopline: Loopline) -> None:
    catalog = await loopline.services.catalogs.get(loopline.services.endpoints[0], "", {})
    assert catalog.profile.name == "vllm"


async def test_a_function_call_and_the_chain_after_it(client: WireClient) -> None:
    """The model's text is noise, but a named function holds it to the schema."""
    named = {"type": "function", "name": "get_weather"}
    first = await client.turn(
        [user("What is the weather in Paris?")], tools=[WEATHER], tool_choice=named, max_output_tokens=400, store=False
    )
    assert first.kind == "response.completed", first.events[-1]
    (call,) = first.calls
    assert call["name"] == "get_weather"
    assert json.loads(call["arguments"])["city"] in CITIES
    deltas = [event["delta"] for event in first.events if event["type"] == "response.function_call_arguments.delta"]
    assert "".join(deltas) == call["arguments"]

    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
    second = await client.turn(
        [output], tools=[WEATHER], tool_choice="none", previous_response_id=first.id, max_output_tokens=8, store=False
    )
    done(second)
    assert second.text
    third = await client.turn(
        [user("Thanks.")],
        tools=[WEATHER],
        tool_choice="none",
        previous_response_id=second.id,
        max_output_tokens=8,
        store=False,
    )
    done(third)
    counts = [turn.response["usage"]["input_tokens"] for turn in (first, second, third)]
    assert counts == sorted(set(counts)), "the conversation did not grow"
    assert third.response["usage"]["input_tokens_details"]["cached_tokens"] > 0


async def test_a_custom_tool_is_held_to_its_pattern_and_comes_back_raw(client: WireClient) -> None:
    named = {"type": "custom", "name": "vote"}
    first = await client.turn([user("Vote!")], tools=[VOTE], tool_choice=named, max_output_tokens=400, store=False)
    assert first.kind == "response.completed", first.events[-1]
    (call,) = first.output
    assert (call["type"], call["name"]) == ("custom_tool_call", "vote")
    assert call["input"] in ("yes", "no")
    output = {"type": "custom_tool_call_output", "call_id": call["call_id"], "output": "counted"}
    second = await client.turn(
        [output], tools=[VOTE], tool_choice="none", previous_response_id=first.id, max_output_tokens=8, store=False
    )
    done(second)


async def test_a_schema_is_held(client: WireClient) -> None:
    schema = WEATHER["parameters"]
    turn = await client.turn(
        [user("Where?")],
        text={"format": {"type": "json_schema", "name": "place", "schema": schema, "strict": True}},
        max_output_tokens=400,
        store=False,
    )
    assert turn.kind == "response.completed", turn.events[-1]
    assert json.loads(turn.text)["city"] in CITIES


async def test_an_answer_cut_by_length_is_incomplete(client: WireClient) -> None:
    turn = await client.turn([user("Tell a story.")], max_output_tokens=4, store=False)
    assert turn.kind == "response.incomplete"
    assert turn.response["incomplete_details"] == {"reason": "max_output_tokens"}


async def test_an_image_is_refused_in_the_engines_words(client: WireClient) -> None:
    """The model has no eyes: that the engine says so shows that it was given an image."""
    image = {"type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "auto"}
    turn = await client.turn([{"role": "user", "content": [image]}], max_output_tokens=4, store=False)
    assert turn.kind == "error"
    assert BLIND in turn.error["error"]["message"]
