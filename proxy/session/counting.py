"""How many tokens a request would be: asked of the upstream's tokenizer where it has one, estimated elsewhere."""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

import msgspec

from proxy.conversation import chain
from proxy.errors import LooplineError
from proxy.http_client import read_all
from proxy.session.prepared import Prepared, find_parent, prepare, translator_for
from proxy.session.services import Caller, NoHolder, Services
from proxy.translate.base import Translator
from proxy.translate.chat.translator import ChatTranslator
from proxy.wire import ids
from proxy.wire.client_events import Create
from proxy.wire.codec import Raw, decode_object, encode

_MAX_ANSWER_BYTES = 64 * 1024 * 1024  # some list every token beside the count
_PATIENCE_S = 30.0
_BYTES_PER_TOKEN = 4
_TOKENS_PER_FILE = 1000
# Images, sound and documents inside the request say nothing of their tokens by their length.
_INLINE_FILE = re.compile(rb'"data:[^"]{0,100};base64,[^"]*"|"(?:file_)?data":\s*"[A-Za-z0-9+/=]{200,}"')
_COUNTED = ("input", "instructions", "messages", "tools", "functions", "response_format", "text")
_RESPONSES_MEMBERS = ("model", "input", "instructions", "tools", "tool_choice", "text", "reasoning", "truncation")


class Count(NamedTuple):
    """A number of tokens, and whether it was only estimated."""

    tokens: int
    estimated: bool


async def count_tokens(services: Services, caller: Caller, create: Create) -> Count:
    """The tokens of a create with all that it continues, as the upstream would be sent it.

    Raises `LooplineError` for what a turn would be refused for. An upstream that does not answer, or answers something
    else, is no failure: then the count is an estimate.
    """
    parent = await find_parent(services, caller, create, NoHolder())
    prepared = await prepare(services, caller, create, parent, ids.response_id(create.parent_id))
    asker = _Asker(services, caller, prepared)
    method = _METHODS.get(prepared.catalog.profile.counting)
    if method is not None:
        translator = method.translator(prepared)
        body = _body(parent, translator)
        try:
            return Count(await method.ask(asker, body), estimated=False)
        except (LooplineError, msgspec.DecodeError):
            pass  # it has no tokenizer after all, or none for this request
    return Count(estimate(_body(parent, translator_for(prepared))), estimated=True)


def estimate(body: Mapping[str, Raw]) -> int:
    """Tokens of a request: a quarter of the bytes of its JSON, 1000 for each file that is inside it."""
    said = b"".join(bytes(body[name]) for name in _COUNTED if name in body)
    text, files = _INLINE_FILE.subn(b"", said)
    return math.ceil(len(text) / _BYTES_PER_TOKEN) + files * _TOKENS_PER_FILE


def _body(parent: chain.Node | None, translator: Translator) -> Mapping[str, Raw]:
    history = chain.history(parent, translator.encoding, translator.encode, keep=False)
    return decode_object(b"".join(translator.request(history).parts))


class _Asker(NamedTuple):
    services: Services
    caller: Caller
    prepared: Prepared

    async def post(self, path: str, body: Mapping[str, object], *, root: bool) -> bytes:
        """The body of a 200. Raises `LooplineError`; msgspec.DecodeError for any other status."""
        endpoint = self.prepared.endpoint
        request = endpoint.request("POST", path, self.caller.headers, body=(encode(body),), root=root)
        request = msgspec.structs.replace(request, first_byte_s=min(request.first_byte_s, _PATIENCE_S))
        async with self.services.client.open(request) as response:
            data = await read_all(response, _MAX_ANSWER_BYTES)
            if response.status != 200:
                raise msgspec.DecodeError(f"status {response.status}")
            return data


class _Counted(msgspec.Struct):
    count: int


class _InputTokens(msgspec.Struct):
    input_tokens: int


class _Prompt(msgspec.Struct):
    prompt: str


class _Tokens(msgspec.Struct):
    tokens: list[Raw]


def _only(body: Mapping[str, Raw], *names: str) -> dict[str, object]:
    return {name: body[name] for name in names if name in body}


async def _ask_tokenize(asker: _Asker, body: Mapping[str, Raw]) -> int:
    """vLLM: `POST /tokenize` renders messages and tools itself."""
    asked = _only(body, "model", "messages", "tools", "chat_template_kwargs")
    data = await asker.post("/tokenize", {**asked, "add_generation_prompt": True}, root=True)
    return msgspec.json.decode(data, type=_Counted).count


async def _ask_template(asker: _Asker, body: Mapping[str, Raw]) -> int:
    """llama.cpp: its `/tokenize` takes text alone, which `/apply-template` makes."""
    asked = _only(body, "messages", "tools", "tool_choice", "response_format", "chat_template_kwargs")
    rendered = msgspec.json.decode(await asker.post("/apply-template", asked, root=True), type=_Prompt)
    text = {"content": rendered.prompt, "add_special": True, "parse_special": True}
    return len(msgspec.json.decode(await asker.post("/tokenize", text, root=True), type=_Tokens).tokens)


async def _ask_input_tokens(asker: _Asker, body: Mapping[str, Raw]) -> int:
    """A Responses server that has this route itself."""
    data = await asker.post("/responses/input_tokens", _only(body, *_RESPONSES_MEMBERS), root=False)
    return msgspec.json.decode(data, type=_InputTokens).input_tokens


def _as_chat(prepared: Prepared) -> Translator:
    return ChatTranslator(prepared.brief)


class _Method(NamedTuple):
    translator: Callable[[Prepared], Translator]
    ask: Callable[[_Asker, Mapping[str, Raw]], Awaitable[int]]


# By the profile's `counting`.
_METHODS: Mapping[str, _Method] = {
    "tokenize": _Method(_as_chat, _ask_tokenize),
    "apply-template": _Method(_as_chat, _ask_template),
    "input_tokens": _Method(translator_for, _ask_input_tokens),
}
