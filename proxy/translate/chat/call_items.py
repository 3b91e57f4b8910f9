"""Calls that a client runs, and what it answers: items → chat tool calls and tool messages (tools/arguments.py)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from proxy.translate.chat.messages import Messages, Writer, finished
from proxy.translate.chat.parts import ChatPart, Part, chat_parts
from proxy.translate.tools.arguments import TOOL_OF_CALL, read_call
from proxy.translate.tools.outputs import TOOL_OF_OUTPUT, Said, read_output
from proxy.wire.codec import decode
from proxy.wire.items import Item

_PART = msgspec.json.Decoder(Part)


def output_content(output: Said, param: str) -> str | list[ChatPart]:
    """An output as a tool message's content. Raises `LooplineError` (invalid_request) for a part it cannot carry."""
    if isinstance(output, str):
        return output
    return chat_parts([decode(_PART, part, f"'{param}'", param) for part in output], param)


def _write_call(messages: Messages, item: Item, param: str) -> None:
    call = read_call(item.kind, item.raw, param, messages.tools)
    if call.call_id is None:
        messages.search = call.arguments  # its output has no other to go with
    else:
        messages.call(call.call_id, call.name, call.arguments)


def _write_output(messages: Messages, item: Item, param: str) -> None:
    given = read_output(item.kind, item.raw, param, messages.tools)
    content = output_content(given.output, param)
    if given.call_id is not None:
        messages.output(given.call_id, content)
        return
    arguments, messages.search = messages.search or "{}", None
    messages.hosted(item, None, messages.tools.name_of("tool_search", "tool_search"), arguments, content)


CALL_WRITERS: Mapping[str, Writer] = {
    **dict.fromkeys(TOOL_OF_CALL, finished(_write_call)),
    **dict.fromkeys(TOOL_OF_OUTPUT, _write_output),
}
