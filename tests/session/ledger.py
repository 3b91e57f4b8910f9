"""What a session may have said to all that was asked of it: the events of one socket, held to the rules of a turn."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.conformance.schema import TERMINAL

Event = Mapping[str, Any]

# Answers to messages that are no create; they may come while a turn runs.
ASIDE = frozenset({"invalid_json", "unsupported_event_type", "response_not_found", "invalid_stream_id"})
# A create that finds no room is answered at once, too.
AT_ONCE = frozenset({"rate_limit_exceeded", "websocket_stream_limit_reached"})


@dataclass(slots=True)
class Said:
    """One response as it was told. `number` is the create's, which a successor shares with what was steered."""

    lane: str | None
    id: str
    number: str
    parent: str | None
    events: list[Event] = field(default_factory=list)
    is_successor: bool = False

    @property
    def ended(self) -> bool:
        """Did its terminal event come?"""
        return self.events[-1]["type"] in TERMINAL


@dataclass(slots=True)
class Ledger:
    """Everything, sorted."""

    responses: list[Said] = field(default_factory=list)
    refusals: Counter[str | None] = field(default_factory=Counter)
    accepted: dict[str, str] = field(default_factory=dict)  # steer → what it steers
    pending: Counter[str] = field(default_factory=Counter)
    given_back: Counter[str] = field(default_factory=Counter)

    @property
    def answers(self) -> Counter[str | None]:
        """By lane: how many creates were answered."""
        made = Counter(said.lane for said in self.responses if not said.is_successor and said.ended)
        return made + self.refusals


def read(events: Sequence[Event]) -> Ledger:
    """Sort the events of a socket; raises `AssertionError` where no session may say such a thing."""
    ledger = Ledger()
    lanes: dict[str | None, list[Event]] = defaultdict(list)
    for event in events:
        assert event.get("stream_id", "") is not None
        lanes[event.get("stream_id")].append(event)
    for lane, said in lanes.items():
        for response in _responses(lane, said, ledger):
            assert response.id not in {other.id for other in ledger.responses}, "two turns of one id"
            ledger.responses.append(response)
    _mark_successors(ledger)
    _check_steers(ledger)
    return ledger


def _responses(lane: str | None, events: Sequence[Event], ledger: Ledger) -> Iterator[Said]:
    running: Said | None = None
    for event in events:
        kind = event["type"]
        if kind == "error":
            _note_error(event, lane, running, ledger)
        elif kind.startswith(("response.steer.", "response.inject.")):
            _note_steer(event, ledger)
        elif kind == "response.created":
            assert running is None, "two turns at once on one lane"
            response = event["response"]
            number = (response["metadata"] or {}).get("number", "")
            running = Said(lane, response["id"], number, response["previous_response_id"], [event])
        else:
            assert running is not None, f"{kind} outside a turn"
            running.events.append(event)
            if kind in TERMINAL:
                _check(running)
                yield running
                running = None
    if running is not None:
        _check(running)
        yield running


def _check(said: Said) -> None:
    numbers = [event["sequence_number"] for event in said.events]
    assert numbers == list(range(len(numbers))), "a gap in the sequence"
    assert {event["response"]["id"] for event in said.events if "response" in event} == {said.id}, "another's event"
    items = {event["item"]["id"] for event in said.events if "item" in event}
    assert {event["item_id"] for event in said.events if "item_id" in event} <= items, "another's item"


def _note_error(event: Event, lane: str | None, running: Said | None, ledger: Ledger) -> None:
    code = event["error"]["code"]
    if code in ASIDE:
        return
    assert running is None or code in AT_ONCE, f"{code} while a turn runs on its lane: it seems to be that turn's end"
    ledger.refusals[lane] += 1


def _note_steer(event: Event, ledger: Ledger) -> None:
    steer = event.get("steer", {})
    if event["type"] == "response.steer.accepted":
        assert steer["id"] not in ledger.accepted
        ledger.accepted[steer["id"]] = steer["previous_response_id"]
    elif event["type"] == "response.steer.pending":
        ledger.pending[steer["id"]] += 1
    elif event["type"] == "response.steer.failed" and "id" in steer:
        ledger.given_back[steer["id"]] += 1


def _mark_successors(ledger: Ledger) -> None:
    first: dict[str, Said] = {}
    for said in ledger.responses:
        origin = first.setdefault(said.number, said)
        said.is_successor = origin is not said
        if said.is_successor:
            assert said.lane == origin.lane, "a successor on another lane"
            assert said.parent in ledger.accepted.values(), "a successor of what nobody steered"


def _check_steers(ledger: Ledger) -> None:
    succeeded = {said.parent for said in ledger.responses if said.is_successor}
    for steer, target in ledger.accepted.items():
        assert ledger.pending[steer] <= 1
        assert ledger.given_back[steer] <= 1
        assert not (target in succeeded and (ledger.given_back[steer] or ledger.pending[steer])), "settled twice"
    assert ledger.pending.keys() | ledger.given_back.keys() <= ledger.accepted.keys()


def unsettled(ledger: Ledger) -> list[str]:
    """Accepted steers that nothing came of."""
    succeeded = {said.parent for said in ledger.responses if said.is_successor}
    settled = ledger.pending.keys() | ledger.given_back.keys()
    return [steer for steer, target in ledger.accepted.items() if target not in succeeded and steer not in settled]
