"""What the bench's clients send and what they learn from a turn; pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .answers import Wanted

INPUT_KINDS = {"user": "input_text", "assistant": "output_text"}


class BenchError(Exception):
    """The bench cannot go on with what it was told. The message is one line."""


class Turn(NamedTuple):
    """One turn as its client saw it; monotonic seconds. `first_s` is the first token's, None without one.

    `bytes_up` and `bytes_down` are payloads: messages and bodies, without frames and heads. `call` is the id of the
    tool call in the answer. `tokens` holds, where it was asked for, when each token came and its event.
    """

    started_s: float
    first_s: float | None
    ended_s: float
    events: int
    bytes_up: int
    bytes_down: int
    call: str = ""
    tokens: Sequence[tuple[float, bytes]] = ()

    @property
    def took_s(self) -> float:
        """From handing the request over to having read the terminal event."""
        return self.ended_s - self.started_s


class Item(NamedTuple):
    """An item of a conversation, encoded once in each dialect."""

    responses: bytes
    chat: bytes


def encode(value: object) -> bytes:
    """JSON without spaces."""
    return json.dumps(value, separators=(",", ":")).encode()


def message(role: str, text: str) -> Item:
    """A message of `user` or `assistant`."""
    part = {"type": INPUT_KINDS[role], "text": text}
    return Item(
        encode({"type": "message", "role": role, "content": [part]}),
        encode({"role": role, "content": text}),
    )


def result(call: str, text: str) -> Item:
    """What a tool returned."""
    return Item(
        encode({"type": "function_call_output", "call_id": call, "output": text}),
        encode({"role": "tool", "tool_call_id": call, "content": text}),
    )


def prompt(text: str, wanted: Wanted | None) -> Item:
    """A user's message; `wanted` tells the bench's own upstream what to answer, None is for any other."""
    return message("user", text if wanted is None else f"{text} {wanted.marker}")


def history(size: int) -> list[Item]:
    """A conversation of about `size` bytes, in messages of 2 kB."""
    items = [message("user" if number % 2 == 0 else "assistant", "y" * 2000) for number in range(max(1, size // 2080))]
    return items if len(items) % 2 == 0 else items[:-1]


class Fields(NamedTuple):
    """What stands beside the input of every turn. `max_output_tokens` 0 sets none."""

    model: str
    max_output_tokens: int = 0
    instructions: str = ""
    tools: Sequence[Mapping[str, Any]] = ()

    def responses(self) -> bytes:
        """The fields of a Responses request, as they stand inside of its braces."""
        fields: dict[str, Any] = {"model": self.model, "store": False}
        if self.max_output_tokens:
            fields["max_output_tokens"] = self.max_output_tokens
        if self.tools:
            fields |= {"instructions": self.instructions, "tools": self.tools}
        return encode(fields)[1:-1]

    def chat(self) -> bytes:
        """The fields of a streamed Chat Completions request, as they stand inside of its braces."""
        fields: dict[str, Any] = {"model": self.model, "stream": True, "stream_options": {"include_usage": True}}
        if self.max_output_tokens:
            fields["max_tokens"] = self.max_output_tokens
        if self.tools:
            fields["tools"] = [
                {"type": "function", "function": {k: v for k, v in tool.items() if k not in ("type", "strict")}}
                for tool in self.tools
            ]
        return encode(fields)[1:-1]
