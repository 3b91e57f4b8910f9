"""What a demonstration is asked for; pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

_BITS_PER_MBIT = 1_000_000
MAX_TURNS = 5_000  # the simulated agent's script and a history of this length are still handled


@dataclass(frozen=True, slots=True)
class Options:
    """One agent loop, the link that it runs over, and the upstream.

    `turns` is the number of tool calls: each is one turn, and the answer after the last result is one more.
    `tool_ms` is how long the client's tool takes, `tool_output_bytes` what it returns. A rate of 0 has no limit.
    `ttft_ms`, `tokens_per_s` and `answer_tokens` shape the simulated upstream; with `upstream` (a base URL) they do
    not count, and `max_output_tokens` bounds each answer instead. Without `model` the upstream's first one is taken.
    """

    turns: int = 20
    rtt_ms: float = 40.0
    up_mbit_s: float = 20.0
    down_mbit_s: float = 100.0
    tool_ms: float = 20.0
    tool_output_bytes: int = 16_000
    ttft_ms: float = 30.0
    tokens_per_s: float = 1_000.0
    answer_tokens: int = 60
    upstream: str | None = None
    model: str = ""
    dialect: Literal["auto", "chat", "responses"] = "auto"
    api_key_env: str = ""
    max_output_tokens: int = 64
    json: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.turns <= MAX_TURNS:
            raise ValueError(f"turns must be 1 to {MAX_TURNS}")
        if min(self.rtt_ms, self.up_mbit_s, self.down_mbit_s, self.tool_ms, self.ttft_ms, self.tokens_per_s) < 0:
            raise ValueError("times and rates must not be negative")
        if min(self.tool_output_bytes, self.answer_tokens, self.max_output_tokens) < 1:
            raise ValueError("tool_output_bytes, answer_tokens and max_output_tokens must be at least 1")

    @property
    def rtt_s(self) -> float:
        """The link's round trip."""
        return self.rtt_ms / 1000

    @property
    def up_bytes_per_s(self) -> float:
        """The link's rate from the client; 0 has no limit."""
        return self.up_mbit_s * _BITS_PER_MBIT / 8

    @property
    def down_bytes_per_s(self) -> float:
        """The link's rate to the client; 0 has no limit."""
        return self.down_mbit_s * _BITS_PER_MBIT / 8

    @property
    def steps(self) -> int:
        """Turns of one run: one for each tool call, and the closing answer."""
        return self.turns + 1
