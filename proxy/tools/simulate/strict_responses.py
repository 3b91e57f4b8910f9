"""Checks the body of `POST /v1/responses` as strictly as vLLM does with its store off; pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .strict import (
    COMMON_FIELDS,
    Fields,
    Invalid,
    Pairing,
    check_arguments,
    check_choice,
    check_fields,
    check_format,
    check_function,
    check_parts,
    check_url,
    need,
    need_list,
    need_map,
    need_name,
    need_text,
    refuse,
    void,
)


def _is_limit(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


FIELDS: Fields = {
    **COMMON_FIELDS,
    "input": (lambda v: isinstance(v, (str, list)), "a string or a list of items"),
    "instructions": (lambda v: isinstance(v, str), "a string"),
    "max_output_tokens": (_is_limit, "an integer of at least 1"),
    "max_tool_calls": (_is_limit, "an integer of at least 1"),
    "text": (lambda v: isinstance(v, dict), "an object"),
    "reasoning": (lambda v: isinstance(v, dict), "an object"),
    "include": (lambda v: isinstance(v, list), "a list"),
    "truncation": (lambda v: v in ("auto", "disabled"), "auto or disabled"),
    "background": (lambda v: isinstance(v, bool), "a boolean"),
    "previous_response_id": (lambda v: isinstance(v, str), "a string"),
    "prompt_cache_retention": (lambda v: isinstance(v, str), "a string"),
}
# Tools that run at OpenAI or belong to one client: vLLM's types accept them, and its models never see them.
OTHER_TOOLS = frozenset(
    (
        "apply_patch",
        "code_interpreter",
        "computer",
        "computer_use_preview",
        "custom",
        "file_search",
        "image_generation",
        "local_shell",
        "mcp",
        "namespace",
        "programmatic_tool_calling",
        "shell",
        "tool_search",
        "web_search",
        "web_search_preview",
    )
)

_PARTS: Mapping[str, Callable[[Mapping[str, Any], str], None]] = {
    "input_text": lambda part, where: void(need_text(part.get("text"), f"{where}.text")),
    "output_text": lambda part, where: void(need_text(part.get("text"), f"{where}.text")),
    "refusal": lambda part, where: void(need_text(part.get("refusal"), f"{where}.refusal")),
    "input_image": lambda part, where: check_url(part.get("image_url"), f"{where}.image_url"),
}


def check(body: Mapping[str, Any], strict: bool = False) -> None:
    """Check a body; raises `Invalid` or `Unexpected`."""
    check_fields(body, FIELDS, strict)
    if body.get("previous_response_id") is not None:
        message = f"Response with id '{body['previous_response_id']}' not found."
        raise Invalid(message, "previous_response_id", status=404, kind="invalid_request_error")
    if body.get("background"):
        raise Invalid("background needs a store, and this server has none", "background", kind="invalid_request_error")
    need(body.get("input") is not None and body["input"] != [], "must not be missing or empty", "input")
    if isinstance(body["input"], list):
        _check_items(body["input"])
    _check_tools(body)
    if (body.get("text") or {}).get("format") is not None:
        check_format(body["text"]["format"], "text.format", nested=False)


def _check_items(items: list[Any]) -> None:
    pairing = Pairing("input")
    for index, item in enumerate(items):
        where = f"input[{index}]"
        kind = need_map(item, where).get("type") or "message"
        if not isinstance(kind, str) or kind not in _ITEMS:
            refuse(f"{where}: unknown item type {kind!r}", "input")
        if item.get("id") is not None:
            need_name(item["id"], f"{where}.id")
        _ITEMS[kind](item, where, pairing)
    pairing.close()


def _check_message(item: Mapping[str, Any], where: str, pairing: Pairing) -> None:
    role = item.get("role")
    need(role in ("system", "developer", "user", "assistant"), f"unknown role {role!r}", where)
    check_parts(item.get("content"), f"{where}.content", _PARTS)


def _check_call(item: Mapping[str, Any], where: str, pairing: Pairing) -> None:
    need_name(item.get("name"), f"{where}.name")
    check_arguments(item.get("arguments"), f"{where}.arguments")
    pairing.call(need_name(item.get("call_id"), f"{where}.call_id"))


def _check_output(item: Mapping[str, Any], where: str, pairing: Pairing) -> None:
    check_parts(item.get("output"), f"{where}.output", _PARTS)
    pairing.result(need_name(item.get("call_id"), f"{where}.call_id"))


def _check_reasoning(item: Mapping[str, Any], where: str, pairing: Pairing) -> None:
    need_list(item.get("summary"), f"{where}.summary")
    if item.get("content") is not None:
        need_list(item["content"], f"{where}.content")
    if item.get("encrypted_content") is not None:
        need_text(item["encrypted_content"], f"{where}.encrypted_content")


_ITEMS: Mapping[str, Callable[[Mapping[str, Any], str, Pairing], None]] = {
    "message": _check_message,
    "function_call": _check_call,
    "function_call_output": _check_output,
    "reasoning": _check_reasoning,
}


def _check_tools(body: Mapping[str, Any]) -> None:
    names: set[str] = set()
    for index, tool in enumerate(body.get("tools") or ()):
        where = f"tools[{index}]"
        kind = need_map(tool, where).get("type")
        if kind == "function":
            names.add(check_function(tool, where))
        elif kind not in OTHER_TOOLS:
            refuse(f"{where}: unknown tool type {kind!r}", where)
    choice = body.get("tool_choice")
    if choice is None:
        return
    if isinstance(choice, dict):
        need(choice.get("type") == "function", "must be 'function'", "tool_choice.type")
    check_choice(choice, choice.get("name") if isinstance(choice, dict) else None, names)
