"""What one kind of server takes, misreports and calls by other names: its profile, one small file each.

`profiles/*.toml` are the built-in ones; another server is another file. Every key has a default, that of a server of
which nothing is known. Each file says where its values are known from; docs/upstreams.md has them side by side.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Literal

import msgspec

from proxy.errors import Kind, LooplineError

GENERIC = "generic"
AUTO = "auto"
SUFFIX = ".toml"
# In a list of types: every type, those that nobody here has heard of too.
EVERYTHING = "*"

Dialect = Literal["chat", "responses"]
Counting = Literal["tokenize", "apply-template", "input_tokens", ""]

_FIELDS: Mapping[str, str] = {
    "temperature": "temperature",
    "top_p": "top_p",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "max_output_tokens": "max_tokens",
    "parallel_tool_calls": "parallel_tool_calls",
    "reasoning.effort": "reasoning_effort",
}
_EFFORTS: Mapping[str, str] = {"low": "low", "medium": "medium", "high": "high"}


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    pass


class Signs(_Table, frozen=True, kw_only=True):
    """By what a server is recognised; any one of them is enough.

    `hosts` are host names of its URL (`*` matches, as in a file's name), `owners` are `owned_by` in its list of models
    in lower case, `answers` maps a path to what its answer with 200 holds: servers are about that answer anything.
    """

    hosts: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    answers: Mapping[str, str] = msgspec.field(default_factory=dict)


class Chat(_Table, frozen=True, kw_only=True):
    """How the server wants `POST /chat/completions`.

    `fields` maps members of a create (`text.verbosity` for a nested one) to members of the chat request; what is not
    in it cannot be carried. `ignored` are create members that the server takes and does not obey, `text.format` and
    `tool_choice` among them: they are sent, and the client is told. `efforts` maps values of `reasoning.effort` to the
    server's own. `reasoning` is the member of an assistant message that takes earlier reasoning, empty where there is
    none. `developer` is the role that a developer message gets, `late_system` that of a system message which is not
    the first. `named_choice` says whether a `tool_choice` can name a function (`function`) or only require one
    (`required`: then it alone is offered). `tool_images` is where an image in a tool's output goes: into the tool's
    own message or into a user message after it. `tool_logprobs` is false for a server that rejects log-probabilities
    beside tools. `usage` is false for a server that rejects `stream_options`, or needs none to report its usage.
    `strict` is false for one that rejects `strict` of a function, or shows it to the model. `unknown` says what becomes
    of members of a create that no API here knows (`seed`, `top_k` …): `carried` as they are, where a server has many of
    its own and refuses none, or `left_out`, and the client is told.
    """

    fields: Mapping[str, str] = msgspec.field(default_factory=lambda: _FIELDS)
    ignored: tuple[str, ...] = ()
    efforts: Mapping[str, str] = msgspec.field(default_factory=lambda: _EFFORTS)
    reasoning: Literal["reasoning_content", "reasoning", ""] = "reasoning_content"
    developer: Literal["system", "developer"] = "system"
    late_system: Literal["system", "user"] = "system"
    named_choice: Literal["function", "required"] = "function"
    tool_images: Literal["tool", "user"] = "user"
    usage: bool = True
    tool_logprobs: bool = True
    strict: bool = True
    unknown: Literal["carried", "left_out"] = "left_out"


class Responses(_Table, frozen=True, kw_only=True):
    """How the server wants `POST /responses`, and what is wrong with its answers.

    `tools` and `items` are the types it takes as they are (`*`: all); the others become functions and their calls. One
    that lists items is also told every answer as one text, and arguments that are no JSON object inside one; one that
    lists tools gets no member of a function that is null. `fields` are the only members it takes beside `model`,
    `input`, `stream` (`*`: all), `refused` those that it does not take although it takes all others. `includes` are
    the only values of `include` that it knows (`*`: all). `ignored` are members that it takes and does not obey
    (`reasoning.effort` for a nested one): they are sent, and the client is told.
    `bare_reasoning` is false where a reasoning item without encrypted content is refused, `sealed_reasoning` where one
    is that has no text in `content`. `needs_status` means that assistant messages need `id` and `status`,
    `needs_detail` that images need `detail`. `hides_length` means that an answer cut by length is reported as
    completed. `faithful` means that its stream has right ids, indices and sequence numbers: what is within an item
    passes undecoded.
    """

    tools: tuple[str, ...] = (EVERYTHING,)
    items: tuple[str, ...] = (EVERYTHING,)
    fields: tuple[str, ...] = (EVERYTHING,)
    refused: tuple[str, ...] = ()
    includes: tuple[str, ...] = (EVERYTHING,)
    ignored: tuple[str, ...] = ()
    developer: Literal["system", "developer"] = "developer"
    bare_reasoning: bool = True
    sealed_reasoning: bool = True
    needs_status: bool = False
    needs_detail: bool = False
    hides_length: bool = False
    faithful: bool = False


class Written(_Table, frozen=True, kw_only=True):
    """A profile as its file has it: `title` is what people call the server, `dialect` what `auto` chooses.

    `counting` is how the server is asked for the tokens of a request: `tokenize` (`POST /tokenize` with messages and
    tools, as vLLM has it), `apply-template` (llama.cpp's, and its `/tokenize` with the text that this makes),
    `input_tokens` (`POST /v1/responses/input_tokens`, OpenAI's), or empty where there is no such route.
    """

    title: str
    dialect: Dialect = "chat"
    counting: Counting = ""
    signs: Signs = Signs()
    chat: Chat = Chat()
    responses: Responses = Responses()


class Profile(Written, frozen=True, kw_only=True):
    """One kind of server. `name` is its file's, without `.toml`."""

    name: str = GENERIC


def takes(listed: tuple[str, ...], name: str) -> bool:
    """Is `name` in a list of a profile, which may say `*`?"""
    return EVERYTHING in listed or name in listed


def read_profile(data: bytes, name: str) -> Profile:
    """A profile file. Raises `LooplineError` (invalid_request) naming the key that is wrong."""
    try:
        written = msgspec.toml.decode(data, type=Written)
    except (msgspec.DecodeError, ValueError) as error:  # not TOML, not UTF-8, another key or value
        raise LooplineError(Kind.INVALID_REQUEST, f"The profile '{name}' is not valid: {error}.") from error
    return Profile(name=name, **{field: getattr(written, field) for field in Written.__struct_fields__})


@cache
def profiles() -> Mapping[str, Profile]:
    """The built-in profiles by name."""
    found = {}
    for file in resources.files("proxy.models").joinpath("profiles").iterdir():
        if file.name.endswith(SUFFIX):
            name = file.name.removesuffix(SUFFIX)
            found[name] = read_profile(file.read_bytes(), name)
    return dict(sorted(found.items()))


def generic() -> Profile:
    """The profile of a server of which nothing is known."""
    return profiles()[GENERIC]
