"""Items as Chat Completions messages.

What one answer said (reasoning, text, calls) is one assistant message there. A tool's output is text there, so images
in it follow in a user message: as text they would cost a hundred times their tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from proxy.errors import Kind, LooplineError
from proxy.models.profile import Chat
from proxy.translate.left_out import LeftOut
from proxy.translate.tools import Tools
from proxy.wire.codec import NULL, Raw, decode, encode, is_null
from proxy.wire.items import Item


class _Part(msgspec.Struct):
    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None
    detail: str | None = None
    file_data: str | None = None
    file_url: str | None = None
    filename: str | None = None
    file_id: str | None = None
    input_audio: Raw = NULL


class _Message(msgspec.Struct):
    role: str
    content: str | list[_Part] | None = None


class _Call(msgspec.Struct):
    call_id: str
    name: str
    arguments: str = ""


class _Output(msgspec.Struct):
    call_id: str
    output: str | list[_Part] = ""


class _Reasoning(msgspec.Struct):
    content: list[_Part] | None = None
    summary: list[_Part] | None = None


_MESSAGE = msgspec.json.Decoder(_Message)
_CALL = msgspec.json.Decoder(_Call)
_OUTPUT = msgspec.json.Decoder(_Output)
_REASONING = msgspec.json.Decoder(_Reasoning)

# Templates of open models know no developer.
_ROLES: Mapping[str, str] = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}


class ItemEncoder:
    """Encodes a turn's items as messages of one kind of server.

    `left_out` collects what the messages cannot carry.
    """

    def __init__(self, tools: Tools, profile: Chat, open_reasoning: Callable[[str], str | None]) -> None:
        self._tools = tools
        self._profile = profile
        self._open_reasoning = open_reasoning
        self.left_out: list[LeftOut] = []

    def encode(self, items: Sequence[Item]) -> bytes:
        """Messages joined by commas. Raises `LooplineError` (invalid_request, param `input[i]`)."""
        return encode_items(items)


def join_messages(instructions: bytes | None, fragments: Sequence[bytes], profile: Chat) -> list[bytes]:
    """All messages of a request, commas between them. `instructions` is a JSON string, `fragments` are encoded items.

    Raises `LooplineError` (invalid_request) where there is none.
    """
    messages = []
    if instructions is not None:
        messages.append(b'{"role":"system","content":' + instructions + b"}")
    messages += [fragment for fragment in fragments if fragment]
    if not messages:
        raise LooplineError(Kind.INVALID_REQUEST, "'input' must not be empty in a new conversation.", param="input")
    separated = [b","] * (2 * len(messages) - 1)
    separated[::2] = messages
    return separated


def encode_items(items: Sequence[Item]) -> bytes:
    """Messages joined by commas. Raises `LooplineError` (invalid_request, param `input[i]`)."""
    messages = _Messages()
    for index, item in enumerate(items):
        write = _WRITERS.get(item.kind)
        param = f"input[{index}]"
        if write is None:
            raise LooplineError(
                Kind.INVALID_REQUEST,
                f"'{param}' is an item of type '{item.kind}', which a Chat Completions upstream cannot take.",
                param=param,
            )
        write(messages, item, param)
    return messages.finish()


class _Messages:
    """Messages so far, and the assistant message that is still growing."""

    def __init__(self) -> None:
        self._done: list[bytes] = []
        self._assistant: dict[str, Any] | None = None
        self._images: list[dict[str, Any]] = []

    def add(self, message: dict[str, Any]) -> None:
        self._end_assistant()
        if message["role"] != "tool":
            self._end_images()
        self._done.append(encode(message))

    def add_image(self, part: dict[str, Any]) -> None:
        self._images.append(part)

    def assistant(self, *, before: str) -> dict[str, Any]:
        """The growing assistant message, a new one where it already has something that comes after `before`.

        Once it has calls it is never left: engines want nothing between calls and their outputs.
        """
        grown = self._assistant
        if grown is not None and "tool_calls" not in grown and any(member in grown for member in _AFTER[before]):
            self._end_assistant()
        if self._assistant is None:
            self._end_images()
            self._assistant = {}
        return self._assistant

    def say(self, member: str, text: str) -> None:
        self.assistant(before=member).setdefault(member, []).append(text)  # joined once, when the message ends

    def finish(self) -> bytes:
        self._end_assistant()
        self._end_images()
        return b",".join(self._done)

    def _end_assistant(self) -> None:
        grown, self._assistant = self._assistant, None
        if grown is not None:
            for member in _SAID & grown.keys():
                grown[member] = "".join(grown[member])
            self._done.append(encode({"role": "assistant", "content": None, **grown}))

    def _end_images(self) -> None:
        images, self._images = self._images, []
        if images:
            self._done.append(encode({"role": "user", "content": images}))


# Members whose text comes in pieces.
_SAID = frozenset({"content", "reasoning_content"})
# Member → those that, already there, mean that another answer begins.
_AFTER: Mapping[str, tuple[str, ...]] = {
    "reasoning_content": ("reasoning_content", "content"),
    "content": ("content",),
    "tool_calls": (),
}


def _write_message(messages: _Messages, item: Item, param: str) -> None:
    message = decode(_MESSAGE, item.raw, f"'{param}'", param)
    role = _ROLES.get(message.role)
    if role is None:
        raise LooplineError(
            Kind.INVALID_REQUEST, f"'{param}.role' is '{message.role}'; known are {', '.join(_ROLES)}.", param=param
        )
    if role == "assistant":
        messages.say("content", _flat(message.content, param))
    else:
        messages.add({"role": role, "content": _content(message.content, param)})


def _write_call(messages: _Messages, item: Item, param: str) -> None:
    if item.unfinished:
        return  # Its arguments were cut off: no JSON, no answer, and engines refuse such a history.
    call = decode(_CALL, item.raw, f"'{param}'", param)
    function = {"name": call.name, "arguments": call.arguments or "{}"}
    calls = messages.assistant(before="tool_calls").setdefault("tool_calls", [])
    calls.append({"id": call.call_id, "type": "function", "function": function})


def _write_output(messages: _Messages, item: Item, param: str) -> None:
    output = decode(_OUTPUT, item.raw, f"'{param}'", param)
    parts = [] if isinstance(output.output, str) else [_part(part, param) for part in output.output]
    text = output.output if isinstance(output.output, str) else "".join(p["text"] for p in parts if p["type"] == "text")
    messages.add({"role": "tool", "tool_call_id": output.call_id, "content": text})
    for part in parts:
        if part["type"] != "text":
            messages.add_image(part)


def _write_reasoning(messages: _Messages, item: Item, param: str) -> None:
    reasoning = decode(_REASONING, item.raw, f"'{param}'", param)
    text = "".join(part.text or "" for part in reasoning.content or reasoning.summary or ())
    if text:  # encrypted reasoning of another server is nothing that this one could read
        messages.say("reasoning_content", text)


_WRITERS: Mapping[str, Callable[[_Messages, Item, str], None]] = {
    "message": _write_message,
    "function_call": _write_call,
    "function_call_output": _write_output,
    "reasoning": _write_reasoning,
}


def _flat(content: str | list[_Part] | None, param: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.text if part.text is not None else part.refusal or "" for part in content)


def _content(content: str | list[_Part] | None, param: str) -> str | list[dict[str, Any]]:
    if content is None or isinstance(content, str):
        return content or ""
    parts = [_part(part, param) for part in content]
    # Plain text is what every template can render; a list is for what needs one.
    if len(parts) == 1 and parts[0]["type"] == "text":
        return str(parts[0]["text"])
    return parts or ""


def _part(part: _Part, param: str) -> dict[str, Any]:
    write = _PARTS.get(part.type)
    written = write(part) if write else None
    if written is None:
        raise LooplineError(
            Kind.INVALID_REQUEST,
            f"'{param}' holds a part of type '{part.type}' that a Chat Completions upstream cannot take"
            + (" by id; send its data." if part.file_id else "."),
            param=param,
        )
    return written


_DETAILS = ("auto", "low", "high")


def _text_part(part: _Part) -> dict[str, Any] | None:
    return None if part.text is None else {"type": "text", "text": part.text}


def _refusal_part(part: _Part) -> dict[str, Any] | None:
    return {"type": "text", "text": part.refusal or ""}


def _image_part(part: _Part) -> dict[str, Any] | None:
    if part.image_url is None:
        return None
    image = {"url": part.image_url}
    if part.detail in _DETAILS:
        image["detail"] = part.detail
    return {"type": "image_url", "image_url": image}


def _file_part(part: _Part) -> dict[str, Any] | None:
    if part.file_data is None:
        return None
    file = {"file_data": part.file_data}
    if part.filename is not None:
        file["filename"] = part.filename
    return {"type": "file", "file": file}


def _audio_part(part: _Part) -> dict[str, Any] | None:
    return None if is_null(part.input_audio) else {"type": "input_audio", "input_audio": part.input_audio}


_PARTS: Mapping[str, Callable[[_Part], dict[str, Any] | None]] = {
    "input_text": _text_part,
    "output_text": _text_part,
    "text": _text_part,
    "refusal": _refusal_part,
    "input_image": _image_part,
    "input_file": _file_part,
    "input_audio": _audio_part,
}
