"""What `/status.json` says: its schema. docs/status.md explains the members; a test compares.

Members may be added; none changes its meaning or goes within a `schema`. Times are seconds, sizes bytes, counts since
the process started.
"""

from __future__ import annotations

import msgspec

SCHEMA = 1


class Process(msgspec.Struct):
    version: str
    uptime_s: float
    loop_lag_s: float
    loop_lag_max_s: float


class Rates(msgspec.Struct):
    seconds: int
    turns: float
    tokens_in: float
    tokens_out: float
    bytes_in: float
    bytes_out: float


class Throughput(msgspec.Struct):
    now: Rates
    minute: Rates
    turns_by_second: list[int]


class Totals(msgspec.Struct):
    """Each is what /metrics says."""

    sessions_open: int
    sessions_ended: int
    lanes_open: int
    turns_running: int
    turns: dict[str, int]
    errors: dict[str, int]
    forks: int
    steers: int
    tokens_in: int
    tokens_cached: int
    tokens_out: int
    bytes_in: int
    bytes_out: int
    bytes_history_saved: int
    loop_s: dict[str, float]


class Cache(msgspec.Struct):
    name: str
    hits: int
    misses: int
    evicted: int
    bytes: int
    entries: int


class Memory(msgspec.Struct):
    used_bytes: int
    limit_bytes: int


class Endpoint(msgspec.Struct):
    name: str
    health: str
    error: str | None
    turns: int


class Lane(msgspec.Struct):
    number: int
    state: str
    waiting: int


class Session(msgspec.Struct):
    id: str
    client: str
    age_s: float
    ended: bool
    turns: int
    lanes: int
    running: int
    waiting: int


class Turn(msgspec.Struct):
    """From `began_s` back to `client_s` before it and on to its end. `parts_s` add up to the turn's own time."""

    response: str
    model: str
    endpoint: str
    outcome: str
    error: str
    ended_ago_s: float
    client_s: float | None
    tools: bool
    proxy_s: float
    upstream_s: float
    first_token_s: float | None
    parts_s: dict[str, float]
    tokens_in: int
    tokens_cached: int
    tokens_out: int
    bytes_in: int
    bytes_out: int
    bytes_history: int


class Running(msgspec.Struct):
    """A turn that has not ended: the same members, until now. `part` is the one of `parts_s` that grows."""

    response: str
    model: str
    endpoint: str
    began_ago_s: float
    part: str
    client_s: float | None
    tools: bool
    proxy_s: float
    upstream_s: float
    first_token_s: float | None
    parts_s: dict[str, float]
    bytes_in: int
    bytes_history: int


class Chosen(msgspec.Struct):
    """One session in full."""

    id: str
    lanes: list[Lane]
    running: list[Running]
    turns: list[Turn]


class Document(msgspec.Struct):
    """All of it."""

    schema: int
    time_s: float
    process: Process
    throughput: Throughput
    totals: Totals
    caches: list[Cache]
    memory: Memory
    endpoints: list[Endpoint]
    sessions_listed: int
    sessions: list[Session]
    chosen: Chosen | None
