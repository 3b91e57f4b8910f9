"""Items as Chat Completions messages: what becomes of each type of the Responses API's input.

Source: openai-python 3.57, ResponseInputItem. `WRITERS` has those that can be said, `_REMEDIES` says of the others what
to do instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from proxy.errors import Kind, LooplineError
from proxy.models.profile import Chat
from proxy.translate.chat.call_items import CALL_WRITERS
from proxy.translate.chat.hosted_items import HOSTED_WRITERS
from proxy.translate.chat.messages import Messages, Writer, in_order, join_messages
from proxy.translate.chat.parts import Content, Part, chat_parts, texts_and_media, user_content
from proxy.translate.left_out import LeftOut
from proxy.translate.tools.listed import Tools
from proxy.wire.codec import NULL, Raw, decode
from proxy.wire.items import Item

__all__ = ["ItemEncoder", "join_messages"]


class _Message(msgspec.Struct):
    role: str
    content: Content = None


class _Reasoning(msgspec.Struct):
    content: list[Part] | None = None
    summary: list[Part] | None = None
    encrypted_content: str | None = None


class _SaidPart(msgspec.Struct, gc=False):
    type: str
    text: Raw = NULL


class _Said(msgspec.Struct, gc=False):
    role: str
    content: list[_SaidPart] | str | None = None


class _SaidText(msgspec.Struct, gc=False):
    content: Raw


_MESSAGE = msgspec.json.Decoder(_Message)
_SAID = msgspec.json.Decoder(_Said)
_SAID_TEXT = msgspec.json.Decoder(_SaidText)
_TEXT_PARTS = frozenset({"input_text", "output_text", "text"})
_SPEAKERS: Mapping[str, Callable[[Messages, Raw], None]] = {
    "user": lambda messages, text: messages.say("user", text),
    "assistant": lambda messages, text: messages.text(text),
}
_REASONING = msgspec.json.Decoder(_Reasoning)


class ItemEncoder:
    """Encodes a turn's items as messages of one kind of server.

    `left_out` collects what the messages cannot carry.
    """

    def __init__(self, tools: Tools, profile: Chat, open_reasoning: Callable[[str], str | None]) -> None:
        self._tools = tools
        self._profile = profile
        self._open_reasoning = open_reasoning
        self.left_out: list[LeftOut] = []

    def encode(self, items: Sequence[Item], start: int = 0) -> bytes:
        """Messages joined by commas. Raises `LooplineError` (invalid_request, param `input[i]`).

        `start` is the place of the first item in the request.
        """
        if len(items) == 1 and (message := _alone(items[0])) is not None:
            return message
        messages = Messages(self._tools, self._profile, self._open_reasoning, self.left_out)
        for index, item in in_order(items):
            param = f"input[{start + index}]"
            write = WRITERS.get(item.kind)
            if write is None:
                raise _refusal(item.kind, param)
            write(messages, item, param)
        return messages.finish()


def _write_message(messages: Messages, item: Item, param: str) -> None:
    said = _one_text(item)
    if said is not None and said[0] in _SPEAKERS:
        _SPEAKERS[said[0]](messages, Raw(said[1]))
        return
    message = decode(_MESSAGE, item.raw, f"'{param}'", param)
    write = _ROLES.get(message.role)
    if write is None:
        raise LooplineError(
            Kind.INVALID_REQUEST, f"'{param}.role' is '{message.role}'; known are {', '.join(_ROLES)}.", param=param
        )
    write(messages, message.content, param)


def _alone(item: Item) -> bytes | None:
    """A message that says one text, written as `Messages` writes it; None for any other item."""
    said = _one_text(item) if item.kind == "message" else None
    if said is None or said[0] not in _SPEAKERS:
        return None
    return said_alone(said[0].encode(), said[1])


def said_alone(role: bytes, text: bytes) -> bytes:
    """A message that says one text, a JSON string, as `Messages` writes it."""
    return b'{"role":"%b","content":%b}' % (role, text)


def _one_text(item: Item) -> tuple[str, bytes] | None:
    """The role, and the JSON string of a message that says one text, which need not be decoded; None for any other."""
    try:
        message = _SAID.decode(item.raw)
        content = message.content
        if isinstance(content, list):
            if len(content) != 1 or content[0].type not in _TEXT_PARTS:
                return None
            text = bytes(content[0].text)
        else:
            text = b"" if content is None else bytes(_SAID_TEXT.decode(item.raw).content)
    except (msgspec.DecodeError, RecursionError):
        return None  # what is wrong with it is said by whoever reads it whole
    return (message.role, text) if is_written_so(text) else None


def is_written_so(text: bytes) -> bool:
    """Is it a JSON string, as it is written here? One without escapes that are not is written as it came."""
    return text.startswith(b'"') and (b"\\" not in text or not (b"\\u" in text or b"\\/" in text))


def _write_user(messages: Messages, content: Content, param: str) -> None:
    messages.say("user", user_content(content, param))


def _write_system(role: str | None, messages: Messages, content: Content, param: str) -> None:
    """`role` is None for what the profile calls a developer. A system message is one text: see `join_messages`."""
    texts, media = texts_and_media(chat_parts(content, param) if isinstance(content, list) else content or "")
    text = "\n\n".join(filter(None, texts))
    if text:  # an empty one would take the place of a template's own
        messages.say(role or messages.profile.developer, text)
    if media:
        messages.say("user", media)


def _write_assistant(messages: Messages, content: Content, param: str) -> None:
    if not isinstance(content, list):
        messages.text(content or "")
        return
    texts = []
    for part, said in zip(content, chat_parts(content, param), strict=True):
        if said["type"] == "text":
            texts.append(said["text"])
        else:  # engines take images of users and tools alone
            messages.left_out.append(LeftOut("part", part.type))
    messages.text("".join(texts))


_ROLES: Mapping[str, Callable[[Messages, Content, str], None]] = {
    "user": _write_user,
    "assistant": _write_assistant,
    "system": partial(_write_system, "system"),
    "developer": partial(_write_system, None),
}


def _write_reasoning(messages: Messages, item: Item, param: str) -> None:
    reasoning = decode(_REASONING, item.raw, f"'{param}'", param)
    text = _thought(reasoning, messages.open_reasoning)
    if text and messages.profile.reasoning:
        messages.think(text)
    elif text:
        messages.left_out.append(LeftOut("reasoning", "text"))
    elif reasoning.encrypted_content:
        messages.left_out.append(LeftOut("reasoning", "encrypted_content"))


def _thought(reasoning: _Reasoning, open_reasoning: Callable[[str], str | None]) -> str:
    """The most that can be read of it: the raw text, the sealed raw text, the summaries."""
    raw = "".join(part.text or "" for part in reasoning.content or ())
    if not raw and reasoning.encrypted_content:
        raw = open_reasoning(reasoning.encrypted_content) or ""
    return raw or "\n\n".join(part.text for part in reasoning.summary or () if part.text)


def _leave_out(messages: Messages, item: Item, param: str) -> None:
    messages.left_out.append(LeftOut("item", item.kind))


def _say_nothing(messages: Messages, item: Item, param: str) -> None:
    """What it does is done elsewhere, for the rest of its conversation (`chain.LASTING`)."""


WRITERS: Mapping[str, Writer] = {
    "message": _write_message,
    "reasoning": _write_reasoning,
    **CALL_WRITERS,
    **HOSTED_WRITERS,
    "mcp_list_tools": _leave_out,
    "mcp_approval_request": _leave_out,
    "mcp_approval_response": _leave_out,
    "additional_tools": _say_nothing,
    "configuration_update": _say_nothing,
}

_REMEDIES: Mapping[str, str] = {
    "compaction": "only the server that made it can read it; send the items that it stands for.",
    "compaction_trigger": "it cannot compact a conversation; leave the item out.",
    "item_reference": "it names an item that is kept nowhere; send the item itself, or 'previous_response_id'.",
}
_ANY_REMEDY = 'leave it out, say it as a message, or use an endpoint with dialect "responses".'


def _refusal(kind: str, param: str) -> LooplineError:
    return LooplineError(
        Kind.INVALID_REQUEST,
        f"'{param}' is an item of type '{kind}', which a Chat Completions upstream cannot take: "
        + _REMEDIES.get(kind, _ANY_REMEDY),
        param=param,
    )
