"""The terms of a create as members of a chat request, as far as the server's profile takes them.

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
from proxy.wire.codec import NULL, Raw, decode, encode, is_null
from proxy.wire.items import Item
from proxy.wire.terms import Terms

# Settings of the API that would change the answer: a client is told where a server cannot be given them.
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
# What has a function of its own, here or elsewhere.
_HANDLED = frozenset(
    {"instructions", "tools", "tool_choice", "reasoning", "text", "text.format", "top_logprobs", "prompt"}
)
# What says how Loopline is to answer.
_OURS = frozenset(
    {"type", "event_id", "stream", "stream_id", "store", "generate", "previous_response_id", "model", "background"}
)
# What changes no answer: it is for accounts and caches, for tools that servers run themselves, or for showing
# reasoning, which is shown anyhow.
_BOOKKEEPING = frozenset(
    {
        "access_programs",
        "client_metadata",
        "include",
        "max_tool_calls",
        "metadata",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "stream_options",
        "user",
        "reasoning.summary",
        "reasoning.generate_summary",
    }
)
_SILENT = _HANDLED | _OURS | _BOOKKEEPING
# Members of the Responses API that no chat server knows, and those of chat servers that are not a client's to set:
# what the request itself is made of, how much it may cost (an operator bounds that), what form its answer has, and
# where in a shared server it runs, or which other servers that one speaks to.
_NEVER_CARRIED = frozenset(
    {
        *("context_management", "conversation", "image", "moderation"),
        *("messages", "functions", "function_call", "prompt_token_ids", "input_ids"),
        *("max_tokens", "max_completion_tokens", "n_predict", "n", "n_cmpl", "best_of", "use_beam_search", "timeout"),
        *("echo", "logprobs", "prompt_logprobs", "return_token_ids", "return_tokens_as_token_ids"),
        *("id_slot", "slot_id", "priority", "request_id", "rid", "session_params", "routed_dp_rank"),
        *("data_parallel_rank", "cache_salt", "extra_key", "kv_transfer_params", "vllm_xargs", "lora_path"),
        *("bootstrap_host", "bootstrap_port", "bootstrap_room", "keep_alive", "ttl", "draft_model"),
    }
)
_MAX_UNKNOWN, _MAX_NAME_CHARS = 32, 64  # a client's own words in a log line
# Values that say what happens anyhow.
_DEFAULTS: Mapping[str, tuple[Any, ...]] = {
    "truncation": ("disabled",),
    "service_tier": ("auto", "default"),
    "text.verbosity": ("medium",),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "parallel_tool_calls": (True,),
    "reasoning.context": ("auto", "all_turns"),
}


class ChatFields:
    """`members` of the request, each `"name":value`; `left_out` are settings that the server cannot be told.

    `has_tools` says whether the request offers any: without, servers refuse to be told how to call them. Raises
    `LooplineError` (invalid_request, unsupported_parameter).
    """

    def __init__(self, terms: Terms, profile: Chat, lasting: Sequence[Item] = (), *, has_tools: bool) -> None:
        if "prompt" in terms.members:
            raise template_refusal()
        self._profile = profile
        self.members: list[bytes] = []
        self.left_out: list[LeftOut] = []
        nested = _nested(terms, lasting)
        for path in dict.fromkeys((*profile.fields, *_TELLING)):
            value = nested.get(path) if "." in path else _raw(terms, path)
            if value is not None and (has_tools or path != "parallel_tool_calls") and path != "top_logprobs":
                self._carry(path, value)
        self._carry_logprobs(terms, has_tools=has_tools)
        response_format = _response_format(nested.get("text.format"))
        if response_format is not None:
            self.members.append(b'"response_format":' + response_format)
            self._say_if_ignored("text.format")
        if has_tools and _raw(terms, "tool_choice") not in (None, b'"auto"'):
            self._say_if_ignored("tool_choice")
        self._take_unknown(terms.members, nested)

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

    def _take_unknown(self, members: Mapping[str, Raw], nested: Mapping[str, bytes]) -> None:
        """Carry what no API here knows, or say that it is left out."""
        known = {*_SILENT, *_TELLING, *self._profile.fields}
        written = {*self._profile.fields.values(), *_SILENT}
        if "text.format" in nested:
            written.add("response_format")
        said = []
        for name, value in members.items():
            if name in known:
                continue
            if self._profile.unknown == "carried" and name not in _NEVER_CARRIED and name not in written:
                self.members.append(b"%b:%b" % (encode(name), bytes(value)))
            else:
                said.append(name)
        said += [path for path, value in nested.items() if path not in known and not _is_default(path, value)]
        self.left_out += [LeftOut("field", name[:_MAX_NAME_CHARS]) for name in said[:_MAX_UNKNOWN]]

    def _carry_logprobs(self, terms: Terms, *, has_tools: bool) -> None:
        if not _asks_for_logprobs(terms):
            return
        top = terms.values.get("top_logprobs") or 0
        if not wants_logprobs(terms, self._profile) or (has_tools and not self._profile.tool_logprobs):
            self.left_out.append(LeftOut("field", "top_logprobs" if top else LOGPROBS))
            return
        self.members.append(b'"logprobs":true')
        if top:
            self.members.append(b"%b:%d" % (encode(self._profile.fields["top_logprobs"]), top))


def own_members(own: Mapping[str, Raw], profile: Chat) -> list[bytes]:
    """What belongs to one turn alone, as far as the server takes it: nothing that changes an answer."""
    return [
        b"%b:%b" % (encode(profile.fields[name]), bytes(raw)) for name, raw in own.items() if name in profile.fields
    ]


def wants_logprobs(terms: Terms, profile: Chat) -> bool:
    """Does the client ask for log-probabilities, of a server that gives them?"""
    given = "top_logprobs" in profile.fields and "top_logprobs" not in profile.ignored
    return given and _asks_for_logprobs(terms)


def _asks_for_logprobs(terms: Terms) -> bool:
    return bool(terms.values.get("top_logprobs")) or LOGPROBS in (terms.values.get("include") or ())


def _raw(terms: Terms, name: str) -> bytes | None:
    value = terms.members.get(name)
    return None if value is None else bytes(value)


def _is_default(path: str, value: bytes) -> bool:
    defaults = _DEFAULTS.get(path)
    return defaults is not None and msgspec.json.decode(value) in defaults


def _nested(terms: Terms, lasting: Sequence[Item]) -> dict[str, bytes]:
    """Settings inside `reasoning` and `text` by their path, as later `configuration_update` items have left them."""
    found: dict[str, bytes] = {}
    given = Nested(terms.values.get("reasoning"), terms.values.get("text"))
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
