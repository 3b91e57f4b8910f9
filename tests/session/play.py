"""One session, played: what a client can do, what an upstream can do, and what must be true when all is over."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, NamedTuple

from proxy.conversation.memory import MemoryStore
from proxy.session.limits import SessionLimits
from proxy.session.registry import Registry
from proxy.session.services import Caller
from proxy.session.session import Session
from proxy.session.tasks import Tasks
from tests.conformance.schema import TERMINAL
from tests.session import ledger
from tests.session.ledger import Ledger
from tests.session.playing import PlaySocket, PlayUpstream
from tests.session.scripted import services
from tests.wire_client import tool_output, user

LIMITS = SessionLimits(
    queued_turns=4, lanes=2, running_turns=2, keepalive_s=0, lifetime_s=3600, lifetime_grace_s=0, stall_s=60
)


class Move(NamedTuple):
    """One move of a play. `pick` chooses among what there is when it comes; `rest` lets everything come to rest."""

    what: str
    lane: str | None
    script: str
    pick: int
    rest: bool


class Play:
    """One session between a client and an upstream that both do what they are told."""

    def __init__(self) -> None:
        self.socket, self.upstream = PlaySocket(), PlayUpstream()
        self.crashes: list[BaseException] = []
        self.tasks = Tasks(lambda _, error: self.crashes.append(error))
        self.registry = Registry(self.tasks)
        self.services = services(self.upstream, MemoryStore(1 << 30, 3600))
        caller = Caller("t", {})
        self.account, self.budget = caller.grant.account, caller.grant.account.budget
        self.session = Session(self.socket, caller, self.services, self.registry, LIMITS)
        self.creates: Counter[str | None] = Counter()
        self._reader = self.tasks.spawn(self.session.run(), "reader")

    async def rest(self) -> None:
        """Let everything that can go on go on."""
        for _ in range(25):
            await asyncio.sleep(0)

    async def move(self, move: Move) -> None:
        """Play one move."""
        moves = {"step": self.upstream.step, "stop reading": self._stop_reading, "read on": self._read_on}
        if move.what in moves:
            moves[move.what](move.pick)
        else:
            self.socket.put(self.message(move))
        if move.what == "flash":  # a create that is cancelled before it has made its first step
            self.socket.put(self.message(move._replace(what="cancel")))
        if move.rest:
            await self.rest()

    def _stop_reading(self, _: int) -> None:
        self.socket.stop_reading()

    def _read_on(self, _: int) -> None:
        self.socket.read_on()

    def message(self, move: Move) -> dict[str, Any] | bytes:
        """What the client sends as this move."""
        if move.what in ("steer", "bad steer"):
            target = self._target(move)
            given = [user(move.script)] if move.what == "steer" else [tool_output("x", "y")]
            return {"type": "response.steer", "previous_response_id": target, "input": given}
        if move.what == "cancel":
            return {"type": "response.cancel", **({"stream_id": move.lane} if move.lane else {})}
        if move.what == "cancel by id":
            return {"type": "response.cancel", "response_id": self._target(move)}
        if move.what == "noise":
            noise: tuple[dict[str, Any] | bytes, ...] = (
                {"type": "response.processed", "response_id": "x"},
                {"type": "response.inject", "response_id": "x", "input": []},
                {"type": "response.unheard_of"},
                b"{no json",
            )
            return noise[move.pick % len(noise)]
        return self._create(move)

    def _target(self, move: Move) -> str:
        """A response: in most cases one that runs, as far as the client knows."""
        begun = [response["id"] for response in self._responses("response.created")]
        ended = {response["id"] for response in self._responses(*TERMINAL)}
        running = [response for response in begun if response not in ended]
        known = running if running and move.pick % 4 else begun
        return known[-1 - move.pick % len(known)] if known else "resp_none"

    def _create(self, move: Move) -> dict[str, Any]:
        number = str(self.creates.total())
        create: dict[str, Any] = {"type": "response.create", "store": False, "metadata": {"number": number}}
        if move.what == "bad lane":
            return {**create, "stream_id": "not a name", "input": "x"}
        self.creates[move.lane] += 1
        if move.lane:
            create["stream_id"] = move.lane
        if move.what == "warm up":
            create["generate"] = False
        if move.what == "wrong create":
            return {**create, "input": 7}
        items = [user(move.script)]
        parent = self._parent(move) if move.what in ("continue", "fork") else None
        if parent is not None:
            create["previous_response_id"] = parent["id"]
            calls = [item for item in parent["output"] if item["type"] == "function_call"]
            if move.pick % 4:  # else they stay without an answer, which is wrong
                items = [*(tool_output(call["call_id"], "done") for call in calls), *items]
        return {**create, "input": items}

    def _parent(self, move: Move) -> dict[str, Any] | None:
        """The lane's last response, or for a fork any one, be it over or not."""
        known = self._responses("response.completed", "response.incomplete", lane=move.lane, any_lane=False)
        if move.what == "fork":
            known = self._responses("response.completed", "response.incomplete", "response.failed", "response.created")
        if not known:
            return None
        return known[-1 - (move.pick % len(known) if move.what == "fork" else 0)]

    def _responses(self, *kinds: str, lane: str | None = None, any_lane: bool = True) -> list[dict[str, Any]]:
        return [
            event["response"]
            for event in self.socket.events
            if event["type"] in kinds and "response" in event and (any_lane or event.get("stream_id") == lane)
        ]

    async def end(self, how: str) -> None:
        """The socket's end."""
        if how == "lost":
            self.socket.lose()
        elif how == "expired":
            self.socket.read_on()
            await self.rest()
            self.session._expire()
        elif how == "shut down":
            self.socket.read_on()
            await self.rest()
            await self.session.shut_down()
        else:
            self.socket.read_on()
            await self.rest()  # what was sent is read; on a socket that closes, the rest is lost
            self.upstream.free()
            if how == "all done":
                for _ in range(20):
                    await self.rest()
                self.socket.lose()
            else:
                await self.session.drain(0, 60)
        await self._reader
        await self.rest()
        self.upstream.free()
        await self.rest()

    def check_nothing_is_left(self) -> None:
        """No turn, task, lease, exchange or waiting byte."""
        assert not self.crashes, self.crashes
        assert len(self.registry) == 0
        assert len(self.tasks) == 0
        assert self.services.endpoints[0].in_flight == 0
        assert self.upstream.open_exchanges == 0
        assert not self.upstream.waiting
        assert (self.session._waiting.turns, self.session._waiting.bytes) == (0, 0)
        assert not any(lane.queue for lane in self.session._lanes)
        assert self.budget.used == 0
        assert self.account.turns == 0

    def check_what_was_said(self, how: str) -> Ledger:
        """Every create that was read is answered, once; each steer is settled."""
        said = ledger.read(self.socket.events)
        if how == "lost":
            assert said.answers <= self.creates
            return said
        answers = said.answers
        if how == "expired":
            answers[None] -= 1  # the socket's own
        assert +answers == +self.creates
        assert all(response.ended for response in said.responses)
        assert ledger.unsettled(said) == []
        return said
