"""llama.cpp itself takes what the golden corpus says that it is sent."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import aiohttp
import pytest

from proxy.tools import embedded
from tests.golden.corpus import DIALECTS, cases, create_of, requested
from tests.unit.translate.turns import create

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
]

# Reading a prompt takes the time here, so only some are answered; all are read by the routes that generate nothing.
ANSWERED = 25
MAX_TOKENS = 400
TIMEOUT = aiohttp.ClientTimeout(total=120)
# What a model without eyes and ears says of an image or a sound.
BLIND = ("image input is not supported", "audio input is not supported")
# What nobody could carry is refused, in the engine's words.
REFUSED = {
    ("items-audio", "responses"): "must be one of 'input_text', 'input_image', or 'input_file'",
    ("items-file", "chat"): "unsupported content[].type",
    ("items-file", "responses"): "'input_file' is not supported",
    ("items-file-url", "responses"): "'input_file' is not supported",
    ("items-image-file-id", "responses"): "'image_url' is required",
    ("items-reference", "responses"): "Cannot determine type of 'item'",
    ("items-unknown", "responses"): "Cannot determine type of 'item'",
    ("vercel-item-reference", "responses"): "Cannot determine type of 'item'",
}
# The routes that read a request and generate nothing.
READ = {"chat": "/apply-template", "responses": "/v1/responses/input_tokens"}


class Asked(NamedTuple):
    """A request of the corpus as llama.cpp is sent it."""

    name: str
    body: dict[str, Any]


def asked(dialect: str) -> list[Asked]:
    """All that are neither answered nor refused by Loopline itself."""
    found = []
    for path in cases("requests"):
        given = create_of(json.loads(path.read_text()))
        made = requested(given, "llamacpp", dialect)
        if given.generate and "body" in made:
            found.append(Asked(path.stem, made["body"]))
    return found


def shows(body: Any) -> bool:
    """Is there an image or a sound anywhere?"""
    if isinstance(body, dict):
        return body.get("type") in SHOWN or any(map(shows, body.values()))
    return isinstance(body, list) and any(map(shows, body))


SHOWN = ("image_url", "input_image", "input_audio")


async def post(http: aiohttp.ClientSession, url: str, body: Any) -> tuple[int, str]:
    """Status and text."""
    async with http.post(url, json=body, timeout=TIMEOUT) as answer:
        return answer.status, await answer.text()


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_every_request_of_the_corpus_is_taken(dialect: str, llama: embedded.Embedded) -> None:
    root = llama.url.removesuffix("/v1")
    refused = {}
    async with aiohttp.ClientSession() as http:
        for each in asked(dialect):
            status, text = await post(http, root + READ[dialect], each.body)
            words = REFUSED.get((each.name, dialect))
            known = [words] if words else BLIND if shows(each.body) else []
            if status != 200 and not any(reason in text for reason in known):
                refused[each.name] = f"{status} {text[:300]}"
    assert refused == {}


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_sample_of_the_corpus_is_answered(dialect: str, llama: embedded.Embedded) -> None:
    root = llama.url.removesuffix("/v1")
    failed, answered = {}, 0
    async with aiohttp.ClientSession() as http:
        short = [
            each
            for each in asked(dialect)
            if not shows(each.body)
            and (each.name, dialect) not in REFUSED
            and await TOKENS[dialect](http, root, each) < MAX_TOKENS
        ]
        step = max(1, len(short) // ANSWERED)
        for each in short[::step][:ANSWERED]:
            body = {**each.body, LIMIT[dialect]: 1, "stream": False}
            body.pop("stream_options", None)
            status, text = await post(http, llama.url + ANSWER[dialect], body)
            answered += status == 200
            if status != 200:
                failed[each.name] = f"{status} {text[:300]}"
    assert failed == {}
    assert answered == ANSWERED


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_what_it_would_refuse_is_mended(dialect: str, llama: embedded.Embedded) -> None:
    made = requested(create(**MENDED), "llamacpp", dialect)
    async with aiohttp.ClientSession() as http:
        body = {**made["body"], LIMIT[dialect]: 1, "stream": False}
        body.pop("stream_options", None)
        status, text = await post(http, llama.url + ANSWER[dialect], body)
    assert status == 200, text[:300]


MENDED: dict[str, Any] = {
    "input": [
        {"role": "user", "content": "Call f."},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": '},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "output_text", "text": "ok"}]},
        {
            "type": "message",
            "role": "assistant",
            "content": [
                {"type": "output_text", "text": "Done.", "annotations": []},
                {"type": "refusal", "refusal": "But no more."},
            ],
        },
        {"type": "message", "role": "assistant", "content": []},
        {"role": "user", "content": "Go on."},
    ],
    "tools": [{"type": "function", "name": "f", "description": None, "parameters": {"type": "object"}, "strict": None}],
    "include": ["message.output_text.logprobs", "web_search_call.results"],
    "top_logprobs": 2,
}


async def _chat_tokens(http: aiohttp.ClientSession, root: str, each: Asked) -> int:
    """The length of its prompt; a prompt that cannot be made is no prompt to answer."""
    status, text = await post(http, f"{root}/apply-template", each.body)
    if status != 200:
        return MAX_TOKENS
    _, counted = await post(http, f"{root}/tokenize", {"content": json.loads(text)["prompt"]})
    return len(json.loads(counted)["tokens"])


async def _responses_tokens(http: aiohttp.ClientSession, root: str, each: Asked) -> int:
    """The same of a Responses request."""
    status, text = await post(http, root + READ["responses"], each.body)
    return int(json.loads(text)["input_tokens"]) if status == 200 else MAX_TOKENS


TOKENS = {"chat": _chat_tokens, "responses": _responses_tokens}
ANSWER = {"chat": "/chat/completions", "responses": "/responses"}
LIMIT = {"chat": "max_tokens", "responses": "max_output_tokens"}
