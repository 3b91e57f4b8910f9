"""Items as they reach a Chat Completions upstream, without a turn around them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from proxy.errors import Kind, LooplineError
from proxy.models.profile import Chat
from proxy.translate.chat.items import ItemEncoder
from proxy.translate.tools.listed import read_tools
from tests.unit.strategies import dumped
from tests.unit.translate.turns import Event, items

PNG = "data:image/png;base64,iVBORw0KGgo="
PICTURE = {"type": "input_image", "image_url": PNG}
CHAT_PICTURE = {"type": "image_url", "image_url": {"url": PNG}}


def encoder(
    profile: Chat | None = None, *, tools: tuple[Event, ...] = (), opened: Callable[[str], str | None] = lambda _: None
) -> ItemEncoder:
    """An encoder for a turn with `tools`."""
    return ItemEncoder(read_tools(dumped(list(tools))), profile or Chat(), opened)


def messages(*members: Event, profile: Chat | None = None, tools: tuple[Event, ...] = ()) -> list[Event]:
    """What becomes of items."""
    made: list[Event] = json.loads(b"[" + encoder(profile, tools=tools).encode(items(*members)) + b"]")
    return made


def refused(*members: Event) -> LooplineError:
    """The error that items are."""
    with pytest.raises(LooplineError) as raised:
        encoder().encode(items(*members))
    assert raised.value.kind is Kind.INVALID_REQUEST
    return raised.value


def said(text: str, role: str = "assistant") -> Event:
    """A message of one text part."""
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def thought(text: str) -> Event:
    """Raw reasoning."""
    return {"type": "reasoning", "id": "rs", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}


def called(call_id: str, name: str = "f", arguments: str = "{}", **members: Any) -> Event:
    """A function call."""
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, **members}


def returned(call_id: str, output: Any = "ok") -> Event:
    """Its output."""
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def tool_call(call_id: str, name: str = "f", arguments: str = "{}") -> Event:
    """A call in a chat message."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def roles(made: list[Event]) -> list[str]:
    """Who speaks."""
    return [each["role"] for each in made]
