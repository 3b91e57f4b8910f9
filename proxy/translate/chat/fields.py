"""The settings of a create as members of a chat request, as far as the server's profile takes them.

Source: API reference, Responses, create, and Chat Completions, create.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from proxy.errors import Kind, LooplineError
from proxy.models.profile import Chat
from proxy.translate.left_out import LeftOut
from proxy.translate.settings_read import LOGPROBS, Nested, template_refusal, updates
from proxy.wire.client_events import Create
from proxy.wire.codec import NULL, Raw, decode, encode, is_null
from proxy.wire.items import Item

# Settings that would change the answer: a client is told where a server cannot be given them. Everything else of a
# create is ours (store, stream …), has no meaning for a model (metadata, user …), or has a function of its own below.
_TELLING = (
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "max_output_tokens",
    "parallel_tool_calls",
    "truncation",
    "service_tier",
    "reasoning.effort",
    "text.verbosity",
)
# Values that say what happens anyhow.
_DEFAULTS: Mapping[str, tuple[Any, ...]] = {
    "truncation": ("disabled",),
    "service_tier": ("auto", "default"),
    "text.verbosity": ("medium",),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "parallel_tool_calls": (True,),
}


class ChatFields:
    """`members` of the request, each `"name":value`; `left_out` are settings that the server cannot be told.

    `has_tools` says whether the request offers any: without, servers refuse to be told how to call them. Raises
    `LooplineError` (invalid_request, unsupported_parameter).
    """

    def __init__(self, create: Create, profile: Chat, lasting: Sequence[Item] = (), *, has_tools: bool) -> None:
        if "prompt" in create.members:
            raise template_refusal()
        self._profile = profile
        self.members: list[bytes] = []
        self.left_out: list[LeftOut] = []
        nested = _nested(create, lasting)
        for path in dict.fromkeys((*profile.fields, *_TELLING)):
            value = nested.get(path) if "." in path else create.raw(path)
            if value is not None and (has_tools or path != "parallel_tool_calls") and path != "top_logprobs":
                self._carry(path, value)
        self._carry_logprobs(create, has_tools=has_tools)
        response_format = _response_format(nested.get("text.format"))
        if response_format is not None:
            self.members.append(b'"response_format":' + response_format)
            self._say_if_ignored("text.format")
        if has_tools and create.raw("tool_choice") not in (None, b'"auto"'):
            self._say_if_ignored("tool_choice")

    def _say_if_ignored(self, path: str) -> None:
        if path in self._profile.ignored:
            self.left_out.append(LeftOut("field", path))

    def _carry(self, path: str, value: bytes) -> None:
        name = self._profile.fields.get(path)
        if path == "reasoning.effort" and name is not None:
            effort = self._profile.efforts.get(decode(_TEXT, value, f"'{path}'", path))
            if effort is None:
                name = None
            else:
                value = encode(effort)
        if (name is None or path in self._profile.ignored) and not _is_default(path, value):
            self.left_out.append(LeftOut("field", path))
        if name is not None:
            self.members.append(b"%b:%b" % (encode(name), value))

    def _carry_logprobs(self, create: Create, *, has_tools: bool) -> None:
        if not _asks_for_logprobs(create):
            return
        top = create.values.get("top_logprobs") or 0
        if not wants_logprobs(create, self._profile) or (has_tools and not self._profile.tool_logprobs):
            self.left_out.append(LeftOut("field", "top_logprobs" if top else LOGPROBS))
            return
        self.members.append(b'"logprobs":true')
        if top:
            self.members.append(b"%b:%d" % (encode(self._profile.fields["top_logprobs"]), top))


def wants_logprobs(create: Create, profile: Chat) -> bool:
    """Does the client ask for log-probabilities, of a server that gives them?"""
    given = "top_logprobs" in profile.fields and "top_logprobs" not in profile.ignored
    return given and _asks_for_logprobs(create)


def _asks_for_logprobs(create: Create) -> bool:
    return bool(create.values.get("top_logprobs")) or LOGPROBS in (create.values.get("include") or ())


def _is_default(path: str, value: bytes) -> bool:
    defaults = _DEFAULTS.get(path)
    return defaults is not None and msgspec.json.decode(value) in defaults


def _nested(create: Create, lasting: Sequence[Item]) -> dict[str, bytes]:
    """Settings inside `reasoning` and `text` by their path, as later `configuration_update` items have left them."""
    found: dict[str, bytes] = {}
    given = Nested(create.values.get("reasoning"), create.values.get("text"))
    for source in (given, *updates(lasting)):
        for stem, members in (("reasoning", source.reasoning), ("text", source.text)):
            for name, value in (members or {}).items():
                if not is_null(value):
                    found[f"{stem}.{name}"] = bytes(value)
    return found


class _Format(msgspec.Struct, gc=False):
    type: str
    name: str | None = None
    schema: Raw = NULL
    description: str | None = None
    strict: bool | None = None


_FORMAT = msgspec.json.Decoder(_Format)
_TEXT = msgspec.json.Decoder(str)


def _response_format(raw: bytes | None) -> bytes | None:
    if raw is None:
        return None
    wanted = decode(_FORMAT, raw, "'text.format'", "text.format")
    if wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return b'{"type":"json_object"}'
    if wanted.type != "json_schema" or is_null(wanted.schema):
        raise LooplineError(
            Kind.INVALID_REQUEST,
            "'text.format' must be of type text, json_object, or json_schema with a schema.",
            param="text.format",
        )
    schema: dict[str, Any] = {"name": wanted.name or "response", "schema": wanted.schema}
    if wanted.description is not None:
        schema["description"] = wanted.description
    if wanted.strict is not None:
        schema["strict"] = wanted.strict
    return encode({"type": "json_schema", "json_schema": schema})
