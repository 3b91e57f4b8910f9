"""The settings of a simulated upstream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Options:
    """How the server behaves for every request. The script in a request decides what it answers.

    A rate of 0 means "as fast as possible". The time to the first token is `ttft_s` plus the uncached part of the
    prompt divided by `prefill_tokens_per_s`.
    """

    ttft_s: float = 0.0
    tokens_per_s: float = 0.0
    prefill_tokens_per_s: float = 0.0
    tokens_per_chunk: int = 1
    chunks_per_write: int = 1
    model: str = "simulated"
    models: tuple[str, ...] = ()
    any_model: bool = True
    api_key: str = ""
    context_tokens: int = 128_000
    strict_fields: bool = False
    reasoning_field: Literal["reasoning_content", "reasoning"] = "reasoning_content"
    prefix_cache_blocks: int = 65_536  # one million tokens at 16 tokens a block
    keepalive_s: float = 75.0  # vLLM closes an idle connection after 5 s; lower this to meet that

    def __post_init__(self) -> None:
        if min(self.ttft_s, self.tokens_per_s, self.prefill_tokens_per_s) < 0:
            raise ValueError("ttft_s, tokens_per_s and prefill_tokens_per_s must not be negative")
        if min(self.tokens_per_chunk, self.chunks_per_write, self.context_tokens) < 1:
            raise ValueError("tokens_per_chunk, chunks_per_write and context_tokens must be at least 1")
        if self.prefix_cache_blocks < 0:
            raise ValueError("prefix_cache_blocks must not be negative (0 turns the prefix cache off)")

    @property
    def served(self) -> tuple[str, ...]:
        """The names that `GET /v1/models` lists; the default model comes first."""
        return (self.model, *(name for name in self.models if name != self.model))
