"""Checks what the server is sent, as strictly as vLLM does, and the pairing of calls and results besides; pure.

This file: what both dialects share, and Chat Completions. `strict_responses.py`: the Responses API.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NoReturn

BAD = "BadRequestError"
_URLS = ("data:", "http://", "https://")


class Invalid(Exception):
    """A request that is refused: the message, and what the error body says besides."""

    def __init__(self, message: str, param: str | None = None, *, status: int = 400, kind: str = BAD) -> None:
        super().__init__(message)
        self.message, self.param, self.status, self.kind = message, param, status, kind


class Unexpected(Exception):
    """Fields that a server as strict as transformers serve refuses: answered with 422 and a framework's body."""


def refuse(message: str, param: str | None) -> NoReturn:
    raise Invalid(message, param)


def need(holds: bool, message: str, param: str | None) -> None:
    if not holds:
        raise Invalid(f"{param}: {message}" if param else message, param)


def need_map(value: Any, param: str) -> Mapping[str, Any]:
    need(isinstance(value, dict), "must be an object", param)
    result: Mapping[str, Any] = value
    return result


def need_list(value: Any, param: str) -> list[Any]:
    need(isinstance(value, list), "must be a list", param)
    result: list[Any] = value
    return result


def need_text(value: Any, param: str) -> str:
    need(isinstance(value, str), "must be a string", param)
    return str(value)


def need_name(value: Any, param: str) -> str:
    need(isinstance(value, str) and value != "", "must be a string that is not empty", param)
    return str(value)


# ---------------------------------------------------------------------------------------------- top-level fields

Check = Callable[[Any], bool]


def _is_number(low: float, high: float) -> Check:
    return lambda v: isinstance(v, (int, float)) and not isinstance(v, bool) and low <= v <= high


def _is_int(low: int, high: int = 2**63 - 1) -> Check:
    return lambda v: isinstance(v, int) and not isinstance(v, bool) and low <= v <= high


def _is_a(*types: type) -> Check:
    return lambda v: isinstance(v, types)


def _is_stop(v: Any) -> bool:
    return isinstance(v, str) or (isinstance(v, list) and all(isinstance(s, str) for s in v))


# field → (check, what it must be); null is allowed wherever vLLM's type is optional
Fields = Mapping[str, tuple[Check, str]]
COMMON_FIELDS: Fields = {
    "model": (_is_a(str), "a string"),
    "stream": (_is_a(bool), "a boolean"),
    "temperature": (_is_number(0, 2), "a number from 0 to 2"),
    "top_p": (_is_number(1e-9, 1), "a number above 0 and up to 1"),
    "presence_penalty": (_is_number(-2, 2), "a number from -2 to 2"),
    "frequency_penalty": (_is_number(-2, 2), "a number from -2 to 2"),
    "parallel_tool_calls": (_is_a(bool), "a boolean"),
    "user": (_is_a(str), "a string"),
    "metadata": (_is_a(dict), "an object"),
    "store": (_is_a(bool), "a boolean"),
    "tools": (_is_a(list), "a list"),
    "tool_choice": (_is_a(str, dict), "a string or an object"),
    "service_tier": (_is_a(str), "a string"),
    "prompt_cache_key": (_is_a(str), "a string"),
    "safety_identifier": (_is_a(str), "a string"),
    "cache_salt": (lambda v: isinstance(v, str) and v != "", "a string that is not empty"),
    "priority": (_is_int(-(2**31)), "an integer"),
    "stream_options": (_is_a(dict), "an object"),
    "top_logprobs": (_is_int(0, 20), "an integer from 0 to 20"),
}
CHAT_FIELDS: Fields = {
    **COMMON_FIELDS,
    "messages": (_is_a(list), "a list"),
    "max_tokens": (_is_int(0), "an integer of at least 0"),
    "max_completion_tokens": (_is_int(0), "an integer of at least 0"),
    "n": (_is_int(1, 1), "1 (this server gives one choice)"),
    "stop": (_is_stop, "a string or a list of strings"),
    "seed": (_is_int(-(2**63)), "an integer"),
    "logprobs": (_is_a(bool), "a boolean"),
    "logit_bias": (_is_a(dict), "an object"),
    "response_format": (_is_a(dict), "an object"),
    "reasoning_effort": (_is_a(str), "a string"),
}
# What vLLM and other servers add to the API: accepted, but refused with `strict_fields`.
_EXTENSIONS = frozenset({"cache_salt", "priority"})


def check_fields(body: Mapping[str, Any], fields: Fields, strict: bool) -> None:
    """Check the types of the top-level fields that are known; others are ignored unless `strict`."""
    for key, (holds, wanted) in fields.items():
        if body.get(key) is not None and not holds(body[key]):
            raise Invalid(f"{key}: must be {wanted}", key, kind="Bad Request")
    if strict:
        unexpected = {key for key in body if key not in fields or key in _EXTENSIONS}
        if unexpected:
            raise Unexpected(f"Unexpected fields in the request: {unexpected}")
    if body.get("stream_options") is not None and not body.get("stream"):
        refuse("Stream options can only be defined when `stream=True`.", "stream_options")


# ---------------------------------------------------------------------------------------------- shared shapes


def check_arguments(value: Any, param: str) -> None:
    """A call's arguments: a string that is valid JSON, or empty."""
    text = need_text(value, param)
    try:
        json.loads(text or "{}")
    except ValueError as error:
        raise Invalid(f"{param}: must be valid JSON ({error})", param) from None


def check_url(value: Any, param: str) -> None:
    need(isinstance(value, str) and value.startswith(_URLS), "must be a data: or http(s): URL", param)


def check_function(function: Mapping[str, Any], param: str) -> str:
    """A function's definition; returns its name."""
    name = need_name(function.get("name"), f"{param}.name")
    if function.get("parameters") is not None:
        need_map(function["parameters"], f"{param}.parameters")
    if function.get("description") is not None:
        need_text(function["description"], f"{param}.description")
    if function.get("strict") is not None:
        need(isinstance(function["strict"], bool), "must be a boolean", f"{param}.strict")
    return name


def check_choice(choice: Any, named: Any, names: Collection[str]) -> None:
    """`tool_choice`: a word, or a function (`named`) that is among the tools."""
    if isinstance(choice, str):
        need(choice in ("auto", "none", "required"), "must be auto, none, required or a function", "tool_choice")
        need(choice != "required" or bool(names), "'required' needs a function among the tools", "tool_choice")
        return
    name = need_name(named, "tool_choice.function.name")
    if name not in names:
        refuse("The tool specified in `tool_choice` does not match any of the specified `tools`", "tool_choice")


def check_format(form: Any, param: str, nested: bool) -> None:
    """`response_format` (its schema `nested` in `json_schema`) or `text.format`."""
    kind = need_map(form, param).get("type")
    need(kind in ("text", "json_object", "json_schema"), "must be text, json_object or json_schema", f"{param}.type")
    if kind != "json_schema":
        return
    if nested:
        param = f"{param}.json_schema"
        form = need_map(form.get("json_schema"), param)
    need_name(form.get("name"), f"{param}.name")
    need_map(form.get("schema"), f"{param}.schema")


def check_parts(content: Any, param: str, parts: Mapping[str, Callable[[Mapping[str, Any], str], None]]) -> None:
    """Content: a string, or a list of typed parts."""
    if isinstance(content, str):
        return
    need(isinstance(content, list), "must be a string or a list of parts", param)
    for index, part in enumerate(content):
        where = f"{param}[{index}]"
        kind = need_map(part, where).get("type")
        if not isinstance(kind, str) or kind not in parts:
            refuse(f"{where}: unknown content part type {kind!r}", where)
        parts[kind](part, where)


class Pairing:
    """Every result answers one call before it, and no call stays without a result (OpenAI's messages)."""

    def __init__(self, param: str) -> None:
        self._param = param
        self._open: dict[str, None] = {}

    def call(self, call_id: str) -> None:
        if call_id in self._open:
            refuse(f"Duplicate call id {call_id}.", self._param)
        self._open[call_id] = None

    def result(self, call_id: str) -> None:
        if call_id not in self._open:
            refuse(f"No tool call found for function call output with call_id {call_id}.", self._param)
        del self._open[call_id]

    def close(self) -> None:
        for call_id in self._open:
            refuse(f"No tool output found for function call {call_id}.", self._param)


# ---------------------------------------------------------------------------------------------- Chat Completions

_PARTS: Mapping[str, Callable[[Mapping[str, Any], str], None]] = {
    "text": lambda part, where: void(need_text(part.get("text"), f"{where}.text")),
    "refusal": lambda part, where: void(need_text(part.get("refusal"), f"{where}.refusal")),
    "image_url": lambda part, where: check_url(
        need_map(part.get("image_url"), f"{where}.image_url").get("url"), f"{where}.image_url.url"
    ),
}


def void(_: object) -> None:
    """Drop a value, where only the check counts."""


def check_chat(body: Mapping[str, Any], strict: bool = False) -> None:
    """Check the body of `POST /v1/chat/completions`; raises `Invalid` or `Unexpected`."""
    check_fields(body, CHAT_FIELDS, strict)
    need(bool(body.get("messages")), "must not be missing or empty", "messages")
    _check_messages(body["messages"])
    _check_tools(body)
    if body.get("response_format") is not None:
        check_format(body["response_format"], "response_format", nested=True)


def _check_messages(messages: Iterable[Any]) -> None:
    pairing = Pairing("messages")
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        role = need_map(message, where).get("role")
        need(role in _ROLES, f"unknown role {role!r}", where)
        if role == "tool":
            check_parts(message.get("content"), f"{where}.content", _PARTS)
            pairing.result(need_name(message.get("tool_call_id"), f"{where}.tool_call_id"))
            continue
        pairing.close()
        if role == "assistant":
            _check_assistant(message, where, pairing)
        else:
            check_parts(message.get("content"), f"{where}.content", _PARTS)
    pairing.close()


_ROLES = ("system", "developer", "user", "assistant", "tool")


def _check_assistant(message: Mapping[str, Any], where: str, pairing: Pairing) -> None:
    if message.get("content") is not None:
        check_parts(message["content"], f"{where}.content", _PARTS)
    for key in ("reasoning", "reasoning_content", "refusal", "name"):
        if message.get(key) is not None:
            need_text(message[key], f"{where}.{key}")
    if message.get("tool_calls") is None:
        return
    for index, call in enumerate(need_list(message["tool_calls"], f"{where}.tool_calls")):
        param = f"{where}.tool_calls[{index}]"
        need(need_map(call, param).get("type") == "function", "must be 'function'", f"{param}.type")
        function = need_map(call.get("function"), f"{param}.function")
        need_name(function.get("name"), f"{param}.function.name")
        check_arguments(function.get("arguments"), f"{param}.function.arguments")
        pairing.call(need_name(call.get("id"), f"{param}.id"))


def _check_tools(body: Mapping[str, Any]) -> None:
    names: set[str] = set()
    for index, tool in enumerate(body.get("tools") or ()):
        where = f"tools[{index}]"
        need(need_map(tool, where).get("type") == "function", "must be 'function'", f"{where}.type")
        names.add(check_function(need_map(tool.get("function"), f"{where}.function"), f"{where}.function"))
    choice = body.get("tool_choice")
    if choice is None or choice == "none":
        return
    if body.get("tools") is None:
        refuse("When using `tool_choice`, `tools` must be set.", "tool_choice")
    named = None
    if isinstance(choice, dict):
        need(choice.get("type") == "function", "must be 'function'", "tool_choice.type")
        named = need_map(choice.get("function"), "tool_choice.function").get("name")
    check_choice(choice, named, names)
