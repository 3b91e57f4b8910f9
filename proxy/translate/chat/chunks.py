"""What a chat server's chunks hold, as far as it is acted on; a whole answer has the same form.

Source: API reference, Chat Completions, streaming; habits of vLLM, SGLang, llama.cpp, Mistral, OpenRouter.
"""

from __future__ import annotations

from typing import Any

import msgspec

from proxy.wire.codec import NULL, Raw, encode


class Function(msgspec.Struct, gc=False):
    """A piece of a call. Some servers send the arguments as an object, not as its text."""

    name: str | None = None
    arguments: str | dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """The arguments as text."""
        return encode(self.arguments).decode() if isinstance(self.arguments, dict) else self.arguments or ""


class ToolCall(msgspec.Struct, gc=False):
    """A piece of one of several calls."""

    index: int | None = None
    id: str | None = None
    function: Function | None = None


class Part(msgspec.Struct, gc=False):
    """A part of a content that is a list."""

    type: str = "text"
    text: str | None = None
    refusal: str | None = None
    thinking: str | list[Part] | None = None


# Types of parts that hold reasoning in their `text`.
_THOUGHTS = frozenset({"reasoning", "reasoning_text", "thinking"})


def said(content: str | list[Part | str] | None) -> list[tuple[str, str]]:
    """The pieces of a content: `text`, `reasoning` or `refusal`, and what is said. None is empty."""
    if not isinstance(content, list):
        return [("text", content)] if content else []
    pieces: list[tuple[str, str]] = []
    for part in content:
        if isinstance(part, str):
            pieces.append(("text", part))
            continue
        inner = [Part(text=part.thinking)] if isinstance(part.thinking, str) else part.thinking or []
        pieces += [("reasoning", each.text or "") for each in inner]
        pieces.append(("reasoning" if part.type in _THOUGHTS else "text", part.text or ""))
        pieces.append(("refusal", part.refusal or ""))
    return [piece for piece in pieces if piece[1]]


class Delta(msgspec.Struct, gc=False):
    """What one chunk says, or a whole message."""

    content: str | list[Part | str] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[ToolCall] | None = None
    function_call: Function | None = None  # what `tool_calls` were before November 2023
    annotations: Any = None  # what is none of them must not cost the answer

    @property
    def is_empty(self) -> bool:
        """Does it say nothing?"""
        return not (
            self.content
            or self.reasoning_content
            or self.reasoning
            or self.refusal
            or self.tool_calls
            or self.function_call
        )

    @property
    def thought(self) -> str:
        """The reasoning, which some servers send under both names."""
        first, second = self.reasoning_content or "", self.reasoning or ""
        return first if second in first else second if first in second else first + second


class Choice(msgspec.Struct, gc=False):
    """A choice. A server that answered whole although it was asked to stream has a `message`."""

    index: int = 0
    delta: Delta | None = None
    message: Delta | None = None
    finish_reason: str | None = None


class Chunk(msgspec.Struct, gc=False):
    """A chunk, or a whole answer."""

    id: str | None = None
    choices: list[Choice] | None = None
    usage: Raw = NULL  # read once, at the end: some servers repeat it in every chunk
    error: Raw = NULL


class _TokenDetails(msgspec.Struct, gc=False):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class Usage(msgspec.Struct, gc=False):
    """The counts of tokens."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: _TokenDetails | None = None
    completion_tokens_details: _TokenDetails | None = None


CHUNK = msgspec.json.Decoder(Chunk | None)
USAGE = msgspec.json.Decoder(Usage | None)
