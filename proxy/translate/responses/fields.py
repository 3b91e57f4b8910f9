"""The members of a request for a Responses server, as far as its profile takes them.

Source: API reference, Responses, create.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from proxy.models.profile import EVERYTHING, Profile, takes
from proxy.translate.left_out import LeftOut
from proxy.translate.settings_read import LOGPROBS, template_refusal, updates
from proxy.translate.tools.choice import response_tools
from proxy.translate.tools.listed import Tools, left_out_tools
from proxy.wire.codec import NULL, Raw, decode, decode_array, encode, is_null
from proxy.wire.items import Item
from proxy.wire.terms import Terms

# Members that are ours, or that mean nothing to an upstream that keeps no state.
OURS = frozenset(
    {
        "type",
        "event_id",
        "stream_id",
        "generate",
        "previous_response_id",
        "model",
        "store",
        "stream",
        "stream_options",
        "background",
        "client_metadata",
    }
)
# Members that change nothing in an answer: no client misses them.
_SILENT = frozenset(
    {
        "include",
        "metadata",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "user",
        "reasoning.summary",
        "reasoning.generate_summary",
    }
)
# Values that say what happens anyhow.
_DEFAULTS: Mapping[str, bytes] = {
    "truncation": b'"disabled"',
    "service_tier": b'"auto"',
    "tool_choice": b'"auto"',
    "parallel_tool_calls": b"true",
    "text.verbosity": b'"medium"',
    "text.format": b'{"type":"text"}',
}
_NESTED = ("reasoning", "text")
_OF_TOOLS = ("tools", "tool_choice")


class _Format(msgspec.Struct):
    type: str = ""


_FORMAT = msgspec.json.Decoder(_Format)


class ResponseFields:
    """`members` of the request, each `"name":value`; `left_out` is what the server cannot be told.

    `instructions` is the JSON string of instructions that have to be told as an item, where the server has no such
    member.
    """

    def __init__(self, profile: Profile) -> None:
        self._profile = profile.responses
        self._named_choice = profile.chat.named_choice == "function"
        self.members: list[bytes] = []
        self.left_out: list[LeftOut] = []
        self.instructions: bytes | None = None

    def add_terms(self, terms: Terms, tools: Tools, lasting: Sequence[Item] = ()) -> ResponseFields:
        """What clients repeat from turn to turn. Raises `LooplineError` (invalid_request, unsupported_parameter)."""
        if takes(self._profile.fields, "store"):
            self.members.append(b'"store":false')
        shapes_tools = EVERYTHING not in self._profile.tools
        for name, value in self._values(terms, lasting).items():
            if name not in OURS and not (shapes_tools and name in _OF_TOOLS):
                self._carry(name, value)
        if shapes_tools:
            self._shape_tools(tools, terms.members.get("tool_choice"))
        return self

    def add_own(self, own: Mapping[str, Raw]) -> ResponseFields:
        """What belongs to one turn."""
        for name, value in own.items():
            if name not in OURS:
                self._carry(name, bytes(value))
        return self

    def _values(self, terms: Terms, lasting: Sequence[Item]) -> dict[str, bytes]:
        values = {name: bytes(raw) for name, raw in terms.members.items()}
        if takes(self._profile.items, "configuration_update") and EVERYTHING in self._profile.tools:
            return values  # the items themselves say it
        for name, members in _updated(lasting).items():
            values[name] = encode({**(terms.values.get(name) or {}), **members})
        return values

    def _include(self, value: bytes) -> bytes:
        """`include` without what the server does not know; empty for nothing. Log-probabilities alone are missed."""
        if EVERYTHING in self._profile.includes:
            return value
        given = decode(_NAMES, value, "'include'", "include")
        if LOGPROBS in given and LOGPROBS not in self._profile.includes:
            self.left_out.append(LeftOut("field", LOGPROBS))
        known = [name for name in given if name in self._profile.includes]
        return encode(known) if known else b""

    def _carry(self, name: str, value: bytes) -> None:
        value = self._include(value) if name == "include" else value
        if not value:
            return
        if takes(self._profile.fields, name) and name not in self._profile.refused:
            self.members.append(b"%b:%b" % (encode(name), value))
            for path, inner in self._paths(name, value):
                if path in self._profile.ignored:
                    self._leave(path, inner)
        elif name == "instructions":
            self.instructions = value
        elif name == "prompt":
            raise template_refusal()
        else:
            for path, inner in self._paths(name, value):
                self._leave(path, inner)

    def _paths(self, name: str, value: bytes) -> Iterator[tuple[str, bytes]]:
        if name not in _NESTED:
            yield name, value
            return
        members = decode(_MEMBERS, value, f"'{name}'", name)
        yield from ((f"{name}.{each}", bytes(inner)) for each, inner in members.items() if not is_null(inner))

    def _leave(self, path: str, value: bytes) -> None:
        if path in _SILENT or value == _DEFAULTS.get(path):
            return
        if path == "text.format" and decode(_FORMAT, value, "'text.format'", "text.format").type == "text":
            return
        self.left_out.append(LeftOut("field", path))

    def _shape_tools(self, tools: Tools, choice: Raw | None) -> None:
        self.left_out += left_out_tools(tools, self._profile.tools)
        raw = None if choice is None else bytes(choice)
        for member in response_tools(tools, raw, self._profile.tools, named=self._named_choice):
            name, _, value = member.partition(b":")
            self._carry(name.decode().strip('"'), _without_nulls(value) if b"null" in value else value)


def _without_nulls(tools: bytes) -> bytes:
    """Functions without members that are null: absent means the same, and some servers take no null."""
    if not tools.startswith(b"["):
        return tools  # a choice
    return encode([_function(tool) for tool in decode_array(tools, "'tools'", "tools")])


def _function(tool: Raw) -> Raw | dict[str, Raw]:
    members = decode(_MEMBERS, tool, "'tools'", "tools")
    if bytes(members.get("type", NULL)) != b'"function"' or not any(map(is_null, members.values())):
        return tool
    return {name: value for name, value in members.items() if not is_null(value)}


_MEMBERS = msgspec.json.Decoder(dict[str, Raw])
_NAMES = msgspec.json.Decoder(list[str])


def _updated(lasting: Sequence[Item]) -> dict[str, dict[str, Any]]:
    """What `configuration_update` items have made of `reasoning` and `text`."""
    found: dict[str, dict[str, Any]] = {}
    for update in updates(lasting):
        for name in _NESTED:
            members = getattr(update, name) or {}
            if members:
                found.setdefault(name, {}).update(members)
    return found
