"""Several lanes on one socket: sorts what arrives by `stream_id` into turns and holds each to the contract."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tests.conformance.schema import TERMINAL, check_turn
from tests.house import House
from tests.wire_client import Event, Recorded, WireClient

KEEPALIVE = "keepalive"


class LaneClient:
    """One socket. The default lane is None. `trace` is the lane and type of every event, as they came.

    `thorough=False` checks lanes and numbers alone, for tests of many turns.
    """

    def __init__(self, client: WireClient, *, thorough: bool = True) -> None:
        self.client = client
        self.trace: list[tuple[str | None, str]] = []
        self.keepalives: list[Event] = []
        self._thorough = thorough
        self._open: dict[str | None, Recorded] = {}
        self._ended: dict[str | None, deque[Recorded]] = defaultdict(deque)

    async def create(self, lane: str | None, text: str | Sequence[Event] | None, **members: Any) -> None:
        """Send a create for a lane."""
        if lane is not None:
            members["stream_id"] = lane
        await self.client.create(text, **members)

    async def say(self, lane: str | None, text: str, **members: Any) -> None:
        """Send a create whose answer is `text`."""
        await self.create(lane, f'[[say "{text}"]]', **members)

    async def says(self, lane: str | None, text: str, **members: Any) -> Recorded:
        """A turn that must complete; the model says `text`."""
        await self.say(lane, text, **members)
        recorded = await self.result(lane)
        assert recorded.kind == "response.completed", recorded.events[-1]
        assert recorded.text == text
        return recorded

    async def turn(self, lane: str | None, text: str | Sequence[Event] | None, **members: Any) -> Recorded:
        """A turn, however it ends."""
        await self.create(lane, text, **members)
        return await self.result(lane)

    async def result(self, lane: str | None) -> Recorded:
        """The next turn of a lane that ended, or will."""
        while not self._ended[lane]:
            await self.read()
        return self._ended[lane].popleft()

    async def until(self, lane: str | None, kind: str) -> Recorded:
        """Read until the turn that runs on a lane has had an event of this type; what came of it so far."""
        while lane not in self._open or kind not in self._open[lane].kinds:
            assert not self._ended[lane], f"the turn ended before {kind}: {self._ended[lane][0].events[-1]}"
            await self.read()
        return self._open[lane]

    async def read(self) -> str | None:
        """Take one event; the lane whose turn it ended, if it did, is found in `result`."""
        event = await self.client.event()
        lane, kind = event.get("stream_id"), event["type"]
        assert "stream_id" not in event or isinstance(lane, str), event
        self.trace.append((lane, kind))
        if kind == KEEPALIVE:
            self.keepalives.append(event)
            return lane
        recorded = self._open.setdefault(lane, Recorded())
        assert event["sequence_number"] == len(recorded.events), f"a gap on lane {lane}: {event}"
        recorded.events.append(event)
        if kind in TERMINAL:
            del self._open[lane]
            if self._thorough:
                check_turn(recorded.events, stream_id=lane)
            self._ended[lane].append(recorded)
        return lane

    async def answered(self) -> None:
        """Wait until the server has read everything that was sent."""
        await self.client.send({"type": "response.cancel", "response_id": "resp_none"})
        assert (await self.result(None)).error["code"] == "response_not_found"

    async def cancel(self, lane: str) -> Recorded:
        """Cancel what runs on a lane."""
        await self.client.send({"type": "response.cancel", "stream_id": lane})
        recorded = await self.result(lane)
        assert recorded.response["status"] == "cancelled"
        return recorded


@asynccontextmanager
async def open_lanes(house: House, *, thorough: bool = True, **options: Any) -> AsyncIterator[LaneClient]:
    """A socket for many lanes."""
    async with house.connect(**options) as client:
        yield LaneClient(client, thorough=thorough)
