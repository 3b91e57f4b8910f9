"""What an upstream could not be told: said in the log, in a metric and in the response, never left out in silence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

# A closed set, for metrics.
WHAT = ("tool", "field", "item", "part", "reasoning", "call")


_MAX_CHARS = 512  # what a value in a response's metadata may have (API reference, Responses, metadata)


class LeftOut(NamedTuple):
    """Something of a request that its upstream could not be told: `what` it is (`WHAT`), and its name or type.

    A `call` is the other way round: one that the model made although it was not allowed to, dropped from its answer.
    """

    what: str
    name: str


def describe(left_out: Sequence[tuple[str, str]]) -> str:
    """All of it in one line, for people; empty for nothing."""
    if not left_out:
        return ""
    text = ", ".join(f"{what} {name}" for what, name in dict.fromkeys(left_out))
    return text if len(text) <= _MAX_CHARS else text[: _MAX_CHARS - 1] + "…"
