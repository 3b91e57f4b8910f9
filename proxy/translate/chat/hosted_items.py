"""Items of tools that another server ran: what the model called and what it got, as a chat call and its output.

One item holds both. What it does not hold (the pages that a web search found) was told to the model in its time and is
kept nowhere; the output says so, since engines refuse a call without one.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from proxy.translate.chat.messages import Messages, Writer, finished
from proxy.translate.chat.parts import ChatPart
from proxy.wire.codec import NULL, Raw, decode, encode, is_null
from proxy.wire.items import Item


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


def _write_mcp(messages: Messages, item: Item, param: str) -> None:
    call = decode(_MCP_CALL, item.raw, f"'{param}'", param)
    said = [] if call.output is None else [call.output]
    if not is_null(call.error):
        said.append(f"error: {_text(call.error)}")
    name = messages.tools.name_of("mcp", call.name, call.server_label)
    messages.hosted(item, call.id, name, call.arguments or "{}", "\n".join(said) if said else _nothing(call.status))


def _write_code(messages: Messages, item: Item, param: str) -> None:
    call = decode(_CODE_CALL, item.raw, f"'{param}'", param)
    parts: list[ChatPart] = []
    for output in call.outputs or ():
        if output.logs is not None:
            parts.append({"type": "text", "text": output.logs})
        if output.url is not None:
            parts.append(_image(output.url))
    arguments = encode({"code": call.code or ""}).decode()
    messages.hosted(item, call.id, _name(messages, "code_interpreter"), arguments, parts or _nothing(call.status))


def _write_file_search(messages: Messages, item: Item, param: str) -> None:
    call = decode(_FILE_SEARCH, item.raw, f"'{param}'", param)
    found = _nothing(call.status) if is_null(call.results) else _text(call.results)
    arguments = encode({"queries": call.queries}).decode()
    messages.hosted(item, call.id, _name(messages, "file_search"), arguments, found)


def _write_web_search(messages: Messages, item: Item, param: str) -> None:
    call = decode(_WEB_SEARCH, item.raw, f"'{param}'", param)
    action = {name: value for name, value in (call.action or {}).items() if not is_null(value)}
    sources = action.pop("sources", NULL)
    found = _nothing(call.status) if is_null(sources) else f"sources: {_text(sources)}"
    messages.hosted(item, call.id, _name(messages, "web_search"), encode(action).decode(), found)


def _write_image(messages: Messages, item: Item, param: str) -> None:
    call = decode(_IMAGE_CALL, item.raw, f"'{param}'", param)
    given = {"prompt": call.revised_prompt, "action": call.action}
    arguments = encode({name: value for name, value in given.items() if value is not None}).decode()
    output: str | list[ChatPart] = _nothing(call.status)
    if call.result:
        output = [_image(f"data:image/{_MEDIA_TYPES.get(call.output_format or 'png', 'png')};base64,{call.result}")]
    elif not is_null(call.error):
        output = f"error: {_text(call.error)}"
    messages.hosted(item, call.id, _name(messages, "image_generation"), arguments, output)


# `output_format` → the second half of its media type.
_MEDIA_TYPES: Mapping[str, str] = {"png": "png", "webp": "webp", "jpeg": "jpeg", "gif": "gif", "svg": "svg+xml"}


def _name(messages: Messages, kind: str) -> str:
    return messages.tools.name_of(kind, kind)


def _image(url: str) -> ChatPart:
    return {"type": "image_url", "image_url": {"url": url}}


def _text(raw: Raw) -> str:
    return bytes(raw).decode()


def _nothing(status: str | None) -> str:
    return f"(status {status or 'completed'}; its results are not kept in the conversation)"


_WRITERS: Mapping[str, Writer] = {
    "mcp_call": _write_mcp,
    "code_interpreter_call": _write_code,
    "file_search_call": _write_file_search,
    "web_search_call": _write_web_search,
    "image_generation_call": _write_image,
}
HOSTED_WRITERS: Mapping[str, Writer] = {kind: finished(write) for kind, write in _WRITERS.items()}
