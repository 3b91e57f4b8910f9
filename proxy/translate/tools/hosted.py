"""Items of tools that another server ran, as what they are to a model: a call of a function, and its output.

One item holds both. What it does not hold (the pages that a web search found) was told to the model in its time and is
kept nowhere; the output says so, since engines refuse a call without one. Source: openai-python 3.57, types/responses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from proxy.translate.tools.arguments import json_object
from proxy.translate.tools.listed import Tools
from proxy.translate.tools.outputs import Said
from proxy.wire.codec import NULL, Raw, decode, encode, is_null


class Hosted(NamedTuple):
    """What a server ran: the item's id, the function's name upstream, its arguments (a JSON object), its output."""

    item_id: str | None
    name: str
    arguments: str
    output: Said


def read_hosted(kind: str, raw: bytes, param: str, tools: Tools) -> Hosted:
    """An item of `kind` (of `HOSTED`). Raises `LooplineError` (invalid_request) naming `param`."""
    return _READERS[kind](raw, param, tools)


class _McpCall(msgspec.Struct):
    name: str
    server_label: str = "mcp"
    id: str | None = None
    arguments: str = ""
    output: str | None = None
    error: Raw = NULL
    status: str | None = None


class _CodeOutput(msgspec.Struct):
    logs: str | None = None
    url: str | None = None


class _CodeCall(msgspec.Struct):
    id: str | None = None
    code: str | None = None
    outputs: list[_CodeOutput] | None = None
    status: str | None = None


class _FileSearch(msgspec.Struct):
    id: str | None = None
    queries: list[str] = []
    results: Raw = NULL
    status: str | None = None


class _WebSearch(msgspec.Struct):
    id: str | None = None
    action: dict[str, Raw] | None = None
    status: str | None = None


class _ImageCall(msgspec.Struct):
    id: str | None = None
    result: str | None = None
    output_format: str | None = None
    revised_prompt: str | None = None
    action: str | None = None
    error: Raw = NULL
    status: str | None = None


_MCP_CALL = msgspec.json.Decoder(_McpCall)
_CODE_CALL = msgspec.json.Decoder(_CodeCall)
_FILE_SEARCH = msgspec.json.Decoder(_FileSearch)
_WEB_SEARCH = msgspec.json.Decoder(_WebSearch)
_IMAGE_CALL = msgspec.json.Decoder(_ImageCall)


def _mcp(raw: bytes, param: str, tools: Tools) -> Hosted:
    call = decode(_MCP_CALL, raw, f"'{param}'", param)
    said = [] if call.output is None else [call.output]
    if not is_null(call.error):
        said.append(f"error: {_text(call.error)}")
    name = tools.name_of("mcp", call.name, call.server_label)
    return Hosted(call.id, name, json_object(call.arguments), "\n".join(said) if said else _nothing(call.status))


def _code(raw: bytes, param: str, tools: Tools) -> Hosted:
    call = decode(_CODE_CALL, raw, f"'{param}'", param)
    parts: list[Raw] = []
    for output in call.outputs or ():
        if output.logs is not None:
            parts.append(Raw(encode({"type": "input_text", "text": output.logs})))
        if output.url is not None:
            parts.append(_image(output.url))
    name = _name(tools, "code_interpreter")
    return Hosted(call.id, name, _json({"code": call.code or ""}), parts or _nothing(call.status))


def _file_search(raw: bytes, param: str, tools: Tools) -> Hosted:
    call = decode(_FILE_SEARCH, raw, f"'{param}'", param)
    found = _nothing(call.status) if is_null(call.results) else _text(call.results)
    return Hosted(call.id, _name(tools, "file_search"), _json({"queries": call.queries}), found)


def _web_search(raw: bytes, param: str, tools: Tools) -> Hosted:
    call = decode(_WEB_SEARCH, raw, f"'{param}'", param)
    action = {name: value for name, value in (call.action or {}).items() if not is_null(value)}
    sources = action.pop("sources", NULL)
    found = _nothing(call.status) if is_null(sources) else f"sources: {_text(sources)}"
    return Hosted(call.id, _name(tools, "web_search"), _json(action), found)


def _image_generation(raw: bytes, param: str, tools: Tools) -> Hosted:
    call = decode(_IMAGE_CALL, raw, f"'{param}'", param)
    given = {"prompt": call.revised_prompt, "action": call.action}
    arguments = _json({name: value for name, value in given.items() if value is not None})
    output: Said = _nothing(call.status)
    if call.result:
        output = [_image(f"data:image/{_MEDIA_TYPES.get(call.output_format or 'png', 'png')};base64,{call.result}")]
    elif not is_null(call.error):
        output = f"error: {_text(call.error)}"
    return Hosted(call.id, _name(tools, "image_generation"), arguments, output)


# `output_format` → the second half of its media type.
_MEDIA_TYPES: Mapping[str, str] = {"png": "png", "webp": "webp", "jpeg": "jpeg", "gif": "gif", "svg": "svg+xml"}


def _name(tools: Tools, kind: str) -> str:
    return tools.name_of(kind, kind)


def _image(url: str) -> Raw:
    return Raw(encode({"type": "input_image", "image_url": url}))


def _json(value: object) -> str:
    return encode(value).decode()


def _text(raw: Raw) -> str:
    return bytes(raw).decode()


def _nothing(status: str | None) -> str:
    return f"(status {status or 'completed'}; its results are not kept in the conversation)"


_READERS: Mapping[str, Callable[[bytes, str, Tools], Hosted]] = {
    "mcp_call": _mcp,
    "code_interpreter_call": _code,
    "file_search_call": _file_search,
    "web_search_call": _web_search,
    "image_generation_call": _image_generation,
}
HOSTED = frozenset(_READERS)
