"""What tests of steering and control share: the messages, and turns with the events that are told beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.conformance.schema import TERMINAL, check_event, check_turn
from tests.wire_client import Event, Recorded, WireClient, user

BESIDE = ("response.steer.", "response.inject.", "keepalive", "responsesapi.websocket_timing")
STEERED = {"reason": "steered"}
CALL = '[[call get_weather {"city": "Paris"}]]'
DELTA = "response.output_text.delta"
ARGUMENTS = "response.function_call_arguments.delta"


@dataclass(slots=True)
class Heard:
    """A turn, and what was told beside it (`told`); `order` are the types of all of it."""

    turn: Recorded = field(default_factory=Recorded)
    told: list[Event] = field(default_factory=list)
    order: list[str] = field(default_factory=list)

    @property
    def id(self) -> str:
        """The response's id, known from its first event on."""
        return str(self.turn.events[0]["response"]["id"])

    @property
    def deltas(self) -> str:
        """The text as it was streamed."""
        return "".join(event["delta"] for event in self.turn.events if event["type"] == DELTA)

    def add(self, event: Event) -> None:
        """The next event."""
        self.order.append(event["type"])
        (self.told if event["type"].startswith(BESIDE) else self.turn.events).append(event)


async def begin(client: WireClient, script: str, until: str = DELTA, **members: Any) -> Heard:
    """Start a turn and read up to its first event of a type."""
    await client.create([user(script)], **members)
    return await read(client, until=until)


async def read(client: WireClient, heard: Heard | None = None, *, until: str) -> Heard:
    """Read up to an event of this type."""
    heard = heard or Heard()
    while not heard.order or heard.order[-1] != until:
        assert not heard.order or heard.order[-1] not in TERMINAL, f"{heard.order[-1]} before {until}"
        heard.add(await client.event())
    return heard


async def finish(client: WireClient, heard: Heard | None = None, stream_id: str | None = None) -> Heard:
    """Read up to a terminal event; the turn and what was told beside it are checked."""
    heard = heard or Heard()
    while not heard.turn.events or heard.turn.kind not in TERMINAL:
        heard.add(await client.event())
    check_turn(heard.turn.events, stream_id=stream_id)
    for event in heard.told:
        if event["type"].startswith("response.steer."):
            check_event(event, stream_id=stream_id)
    return heard


async def steer(client: WireClient, target: str, given: str | Sequence[Event], **members: object) -> None:
    """Send a `response.steer`."""
    await client.send({"type": "response.steer", "previous_response_id": target, "input": given, **members})


async def refused(client: WireClient, message: Mapping[str, object], stream_id: str | None = None) -> Event:
    """Send a steer that is refused at once; the event, checked."""
    await client.send({"type": "response.steer", **message})
    event = await client.event()
    check_event(event, stream_id=stream_id)
    assert event["type"] == "response.steer.failed"
    assert "id" not in event["steer"], "an id for something that was never accepted"
    return event


def given_back(event: Event, steer_id: str, target: str, given: object) -> None:
    """An accepted steer that came to nothing returns its input."""
    check_event(event, stream_id=event.get("stream_id"))
    assert event["type"] == "response.steer.failed"
    assert event["error"]["code"] == "successor_creation_failed"
    assert event["steer"] == {"id": steer_id, "previous_response_id": target, "input": given}
