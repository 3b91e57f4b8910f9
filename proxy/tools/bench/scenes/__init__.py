"""The scenes: each takes a contestant and a plan, tells of every turn, and yields a row for each case."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import TypeAlias

from proxy.tools.bench.contestants import DELTAS, RESEND, Contestant
from proxy.tools.bench.plan import Plan
from proxy.tools.bench.rows import Row

from .agent_loop import agent_loop
from .chain import chain
from .deep import deep
from .idle import idle
from .many import many
from .observability import observability
from .rates import rates
from .stream import stream

Step: TypeAlias = Callable[[int], None]  # so many turns are done
Scene: TypeAlias = Callable[[Contestant, Plan, Step], AsyncIterator[Row]]

RUNS: Mapping[str, Scene] = {
    "chain": chain,
    "deep": deep,
    "stream": stream,
    "many": many,
    "idle": idle,
    "rates": rates,
    "agent-loop": agent_loop,
    "observability": observability,
}
# A scene about sockets is nothing for a client that has none.
WAYS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("chain", "deep", "stream", "many", "rates", "agent-loop"), frozenset({DELTAS, RESEND})),
    **dict.fromkeys(("idle", "observability"), frozenset({DELTAS})),
}
# Scenes that set a server against itself, started with other settings.
OURS = frozenset({"observability"})
