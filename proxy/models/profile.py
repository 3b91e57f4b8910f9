"""What one kind of server takes, misreports and calls by other names: its profile, one small file each.

`profiles/*.toml` are the built-in ones; another server is another file. Every key has a default, that of a server of
which nothing is known. Source of what they say: upstreams/README.md and docs/upstreams.md, where each habit has a test.
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
# In a list of types: every type, those that nobody here has heard of too.
EVERYTHING = "*"

Dialect = Literal["chat", "responses"]

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


class Signs(_Table):
    """By what a server is recognised; any one of them is enough.

    `hosts` are host names of its URL, `owners` are `owned_by` in its list of models, `answers` are paths that only it
    answers with 200 (`/props`, `/version`).
    """

    hosts: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()


class Chat(_Table):
    """How the server wants `POST /chat/completions`.

    `fields` maps members of a create (`text.verbosity` for a nested one) to members of the chat request; what is not
    in it cannot be carried. `ignored` are create members that the server takes and does not obey. `efforts` maps
    values of `reasoning.effort` to the server's own. `reasoning` is the member of an assistant message that takes
    earlier reasoning, empty where there is none. `developer` is the role that a developer message gets, `late_system`
    that of a system message which is not the first. `named_choice` says whether a `tool_choice` can name a function
    (`function`) or only require one (`required`: then it alone is offered). `tool_images` is where an image in a
    tool's output goes: into the tool's own message or into a user message after it. `usage` is false for a server
    that rejects `stream_options`.
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
    strict: bool = True


class Responses(_Table):
    """How the server wants `POST /responses`, and what is wrong with its answers.

    `tools` and `items` are the types it takes as they are (`*`: all); the others become functions and their calls.
    `fields` are the only members it takes beside `model`, `input`, `stream` (`*`: all). `bare_reasoning` is false
    where a reasoning item without encrypted content is refused. `needs_status` means that assistant messages need
    `id` and `status`. `hides_length` means that an answer cut by length is reported as completed. `faithful` means
    that its stream has right ids, indices and sequence numbers: deltas pass undecoded.
    """

    tools: tuple[str, ...] = (EVERYTHING,)
    items: tuple[str, ...] = (EVERYTHING,)
    fields: tuple[str, ...] = (EVERYTHING,)
    developer: Literal["system", "developer"] = "developer"
    bare_reasoning: bool = True
    needs_status: bool = False
    hides_length: bool = False
    faithful: bool = False


class Profile(_Table):
    """One kind of server. `name` is the file's name, `title` what people call it, `dialect` what `auto` chooses."""

    title: str
    dialect: Dialect = "chat"
    signs: Signs = Signs()
    chat: Chat = Chat()
    responses: Responses = Responses()
    name: str = GENERIC


def takes(listed: tuple[str, ...], name: str) -> bool:
    """Is `name` in a list of a profile, which may say `*`?"""
    return EVERYTHING in listed or name in listed


def read_profile(data: bytes, name: str) -> Profile:
    """A profile file. Raises `LooplineError` (invalid_request) naming the key that is wrong."""
    try:
        profile = msgspec.toml.decode(data, type=Profile)
    except (msgspec.DecodeError, msgspec.ValidationError, ValueError) as error:
        raise LooplineError(Kind.INVALID_REQUEST, f"The profile '{name}' is not valid: {error}.") from error
    return msgspec.structs.replace(profile, name=name)


@cache
def profiles() -> Mapping[str, Profile]:
    """The built-in profiles by name."""
    found = {}
    for file in resources.files("proxy.models").joinpath("profiles").iterdir():
        if file.name.endswith(".toml"):
            name = file.name.removesuffix(".toml")
            found[name] = read_profile(file.read_bytes(), name)
    return dict(sorted(found.items()))


def generic() -> Profile:
    """The profile of a server of which nothing is known."""
    return profiles()[GENERIC]
