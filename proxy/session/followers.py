"""What stands between a lane and its turn: the subscriber that carries events to the socket, and the lane as a turn
sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from proxy.conversation.chain import Node
from proxy.errors import LooplineError
from proxy.session.lanes import Lane, Lanes, Request
from proxy.session.outbox import Outbox
from proxy.telemetry.observer import TurnRecord
from proxy.wire.codec import encode
from proxy.wire.sse import event_type

_TERMINAL = frozenset({b"response.completed", b"response.incomplete", b"response.failed"})


class Speaker(Protocol):
    """The session, as a lane's turn reaches it."""

    tells_timing: bool
    outbox: Outbox

    def now(self) -> float: ...

    def refuse(self, lane: Lane, request: Request, error: LooplineError) -> None: ...

    def turn_ended(self, lane: Lane) -> None: ...

    @property
    def congested(self) -> bool: ...

    async def drained(self) -> None: ...


class LaneFollower:
    """The subscriber of one lane's turn."""

    __slots__ = ("_lane", "_record", "_request", "_session")

    def __init__(self, session: Speaker, lane: Lane, request: Request, record: TurnRecord) -> None:
        self._session = session
        self._lane = lane
        self._request = request
        self._record = record

    def deliver(self, events: Sequence[bytes]) -> None:
        session, lane = self._session, self._lane
        if session.tells_timing and event_type(events[-1]) in _TERMINAL:
            # Before the terminal event: the client stops reading a turn there.
            events = [*events[:-1], timing_event(self._record, session.now()), events[-1]]
        session.outbox.send(events, lane.key)
        lane.spoke_s = session.now()

    def refused(self, error: LooplineError) -> None:
        self._session.refuse(self._lane, self._request, error)

    def ended(self) -> None:
        self._lane.ended_s = self._record.ended_s or self._session.now()
        self._session.turn_ended(self._lane)

    @property
    def congested(self) -> bool:
        return self._session.congested

    async def drained(self) -> None:
        await self._session.drained()


class LaneHolder:
    """A lane as a turn sees it: it reads from every lane of the socket and writes to its own.

    Where a `successor` fails, no client asked for it: what it was to continue stays.
    """

    __slots__ = ("_lane", "_lanes", "_successor")

    def __init__(self, lanes: Lanes, lane: Lane, *, successor: bool) -> None:
        self._lanes = lanes
        self._lane = lane
        self._successor = successor

    def find(self, response: str) -> Node | None:
        for lane in self._lanes:
            for node in (lane.latest, lane.steered):
                if node is not None and node.id == response:
                    return node
        return None

    def advance(self, node: Node) -> None:
        self._lanes.keep(self._lane, node)

    def evict(self, node: Node) -> None:
        if self._successor:
            return
        if self._lane.latest is node:
            self._lanes.keep(self._lane, None)
        if self._lane.steered is node:
            self._lane.steered = None


def timing_event(record: TurnRecord, now: float) -> bytes:
    """`responsesapi.websocket_timing`: what of a turn was ours and what the engine's, in milliseconds.

    Only what was measured is in it. The names in `timing_metrics` are those that Codex reads (protocol.md 1.12);
    `parts_ms` are the parts of docs/metrics.md, of which `send` is not over yet.
    """
    stages, sent_s = record.stages(now), record.sent_s
    metrics = {
        "responses_duration_excl_engine_and_client_tool_time_ms": _ms(sum(stages) - stages.upstream - stages.stall),
        "engine_service_total_ms": _ms(stages.upstream),
    }
    if record.first_output_s is not None and sent_s is not None:
        metrics["engine_service_ttft_total_ms"] = _ms(record.first_output_s - sent_s)
    parts = {name: _ms(took_s) for name, took_s in zip(stages._fields, stages, strict=True) if took_s}
    return encode(
        {
            "type": "responsesapi.websocket_timing",
            "timing_metrics": metrics,
            "response_id": record.response,
            "parts_ms": parts,
        }
    )


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
