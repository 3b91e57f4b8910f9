"""Where the time of a run went; pure.

A turn as the client sees it lasts from handing the request to its socket to reading the terminal event. Loopline's
part of it begins when the last byte of the request has reached it, and is split by the turn's record:

    link                 proxy            upstream              proxy                link
    ├── sending ──┤ arrived ── sent ┤├ sent ── upstream_end ┤├ upstream_end ── ended ┤├── receiving ──┤

What is outside of turns is the client's own: its tools, and its JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from proxy.telemetry.observer import NoObserver, TurnRecord
from proxy.tools.figures import percentile

from .options import Options


class Timed(NamedTuple):
    """A turn as its client saw it; monotonic seconds."""

    response: str
    started_s: float
    ended_s: float

    @property
    def took_s(self) -> float:
        """From the first byte handed over to the terminal event read."""
        return self.ended_s - self.started_s


class Stages(NamedTuple):
    """The same turn inside Loopline; monotonic seconds."""

    arrived_s: float
    sent_s: float
    upstream_end_s: float
    ended_s: float


class Parts(NamedTuple):
    """A run's time by place, in seconds. They add up to the whole run."""

    client_s: float
    link_s: float
    proxy_s: float
    upstream_s: float


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the agent loop. `turns_s` is the time of each turn, `called` the results that answered a call."""

    bytes_up: int
    bytes_down: int
    history_bytes: int
    called: int
    turns_s: Sequence[float]
    total_s: float
    parts: Parts

    @property
    def median_s(self) -> float:
        """Half of the turns took no longer."""
        return percentile(self.turns_s, 50)

    @property
    def p95_s(self) -> float:
        """95 % of the turns took no longer."""
        return percentile(self.turns_s, 95)


@dataclass(frozen=True, slots=True)
class Report:
    """Both runs, and what they ran on. `model` is its name at the upstream."""

    options: Options
    model: str
    http: Run
    websocket: Run


class StageObserver(NoObserver):
    """Keeps the stages of every turn that was answered, by response id.

    `arrived_s` tells when the latest byte reached Loopline: a turn starts once its request is whole, so at that moment
    it is the request's last one.
    """

    def __init__(self, arrived_s: Callable[[], float]) -> None:
        self._arrived_s = arrived_s
        self._arrivals: dict[str, float] = {}
        self.stages: dict[str, Stages] = {}
        self.crashes: list[str] = []

    def turn_started(self, record: TurnRecord) -> None:
        self._arrivals[record.response] = self._arrived_s()

    def turn_ended(self, record: TurnRecord) -> None:
        arrived_s = self._arrivals.pop(record.response)
        if record.sent_s is not None and record.upstream_end_s is not None and record.ended_s is not None:
            self.stages[record.response] = Stages(arrived_s, record.sent_s, record.upstream_end_s, record.ended_s)

    def crashed(self, where: str, error: BaseException) -> None:
        self.crashes.append(f"{where}: {error!r}")


def account(turns: Iterable[Timed], stages: Mapping[str, Stages], connect_s: float, total_s: float) -> Parts:
    """Split a run of `total_s` seconds; `connect_s` of them went to connecting before the first turn."""
    link_s, proxy_s, upstream_s, client_s = connect_s, 0.0, 0.0, total_s - connect_s
    for turn in turns:
        at = stages[turn.response]
        upstream = at.upstream_end_s - at.sent_s
        proxy = at.ended_s - at.arrived_s - upstream
        client_s -= turn.took_s
        link_s += turn.took_s - proxy - upstream
        proxy_s += proxy
        upstream_s += upstream
    return Parts(client_s, link_s, proxy_s, upstream_s)
