"""The simulated tokenizer and the model of a prefix cache; pure.

A token is a run of at most eight word characters or one other character, with the white space before it. It is no
model's tokenizer, but it is deterministic, lossless (`"".join(split(text)) == text`) and about as dense as a real one.
"""

from __future__ import annotations

import re
from array import array
from collections import OrderedDict
from functools import lru_cache
from typing import NamedTuple

BLOCK_TOKENS = 16  # vLLM's default block on a GPU
_TOKEN_BYTES = 8  # one token in a prompt is the 64-bit hash of its text
_BLOCK_BYTES = BLOCK_TOKENS * _TOKEN_BYTES
_MEMO_CHARS = 32_768  # longer texts are tokenised again, so that the memo stays bounded in bytes

_TOKEN = re.compile(r"\s*\w{1,8}|\s*[^\w\s]|\s+")
# At most eight letters each, so that one word is one token.
_WORDS = ("the", "agent", "reads", "every", "line", "and", "then", "answers", "with", "care", "while", "it", "waits")


@lru_cache(maxsize=256)
def split(text: str) -> tuple[str, ...]:
    """The tokens of an answer."""
    return tuple(_TOKEN.findall(text))


@lru_cache(maxsize=64)
def filler(count: int) -> str:
    """A text of exactly `count` tokens."""
    return " ".join(_WORDS[i % len(_WORDS)] for i in range(count))


def prompt_tokens(text: str) -> bytes:
    """The tokens of a piece of prompt, eight bytes each."""
    return _memoised(text) if len(text) <= _MEMO_CHARS else _hash_tokens(text)


def count(tokens: bytes) -> int:
    """How many tokens `prompt_tokens` found."""
    return len(tokens) // _TOKEN_BYTES


def _hash_tokens(text: str) -> bytes:
    return array("q", map(hash, _TOKEN.findall(text))).tobytes()


_memoised = lru_cache(maxsize=2_048)(_hash_tokens)


class Admitted(NamedTuple):
    """A prompt that entered the cache: how much of it was there, and where an answer continues."""

    cached_tokens: int
    last_block: int
    tail: bytes


class PrefixCache:
    """Which blocks of which prompts are in memory: least recently used blocks leave first.

    Like vLLM's: only whole blocks count, a block is known by itself and all before it, and the last token of a prompt
    is always computed, so that a fully known prompt is never reported as cached whole.
    """

    def __init__(self, capacity_blocks: int) -> None:
        self._capacity = capacity_blocks
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._blocks)

    def admit(self, tokens: bytes, salt: str = "") -> Admitted:
        """Look a prompt up and remember it. Another `salt` (vLLM's `cache_salt`) never hits."""
        hits, last, tail = self._walk(hash((0, salt)), tokens)
        most = (count(tokens) - 1) // BLOCK_TOKENS
        return Admitted(max(0, min(hits, most)) * BLOCK_TOKENS, last, tail)

    def extend(self, admitted: Admitted, tokens: bytes) -> None:
        """Remember what was generated after a prompt."""
        self._walk(admitted.last_block, admitted.tail + tokens)

    def _walk(self, last: int, tokens: bytes) -> tuple[int, int, bytes]:
        """Touch or insert each whole block: (leading hits, the last block's hash, the tokens left over)."""
        blocks, hits, hitting = self._blocks, 0, True
        end = len(tokens) - len(tokens) % _BLOCK_BYTES
        for start in range(0, end, _BLOCK_BYTES):
            last = hash((last, tokens[start : start + _BLOCK_BYTES]))
            if last in blocks:
                blocks.move_to_end(last)
                hits += hitting
            else:
                hitting = False
                blocks[last] = None
        while len(blocks) > self._capacity:
            blocks.popitem(last=False)
        return hits, last, tokens[end:]
