"""Steering at every possible moment: a socket is played step by step of the event loop, without a network.

However a steer falls, each response has exactly one end, and each accepted steer exactly one: a successor that holds
its input, or the word that it waits, or its input given back.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from proxy.session.limits import SessionLimits
from proxy.session.registry import Registry
from proxy.session.services import Caller
from proxy.session.session import Session
from proxy.session.tasks import Tasks
from tests.conformance.schema import TERMINAL, check_event, check_turn
from tests.session.playing import PlaySocket
from tests.session.scripted import Checkpoints, ScriptedClient, WaitingStore, chunk, services
from tests.wire_client import Event

CREATE = {"type": "response.create", "model": "m", "input": "question"}


def responses_event(kind: str, **members: Any) -> bytes:
    """One event of a Responses upstream."""
    event = {"type": kind, "sequence_number": 0, **members}
    return f"event: {kind}\ndata: {json.dumps(event)}\n\n".encode()


def responses_text(text: Sequence[str]) -> list[bytes]:
    """A message, each event in a read of its own."""
    at = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    empty = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    whole = {**empty, "text": "".join(text)}
    item = {"type": "message", "id": "msg_1", "status": "in_progress", "role": "assistant", "content": []}
    done = {**item, "status": "completed", "content": [whole]}
    return [
        responses_event("response.created", response={"id": "up_1", "status": "in_progress", "output": []}),
        responses_event("response.output_item.added", output_index=0, item=item),
        responses_event("response.content_part.added", **at, part=empty),
        *(responses_event("response.output_text.delta", **at, delta=delta, logprobs=[]) for delta in text),
        responses_event("response.output_text.done", **at, text=whole["text"], logprobs=[]),
        responses_event("response.content_part.done", **at, part=whole),
        responses_event("response.output_item.done", output_index=0, item=done),
        responses_event("response.completed", response={"id": "up_1", "status": "completed", "output": [done]}),
    ]


def responses_call() -> list[bytes]:
    """A call."""
    at = {"item_id": "fc_1", "output_index": 0}
    item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": ""}
    done = {**item, "arguments": "{}", "status": "completed"}
    return [
        responses_event("response.output_item.added", output_index=0, item={**item, "status": "in_progress"}),
        responses_event("response.function_call_arguments.delta", **at, delta="{}"),
        responses_event("response.function_call_arguments.done", **at, name="f", arguments="{}"),
        responses_event("response.output_item.done", output_index=0, item=done),
        responses_event("response.completed", response={"id": "up_1", "status": "completed", "output": [done]}),
    ]


THOUGHT = chunk(b'{"reasoning_content":"Hm"}')
WORDS = [chunk(b'{"content":"Hello"}'), chunk(b'{"content":" there"}')]
CALL = [
    chunk(b'{"tool_calls":[{"index":0,"id":"call_1","function":{"name":"f","arguments":"{"}}]}'),
    chunk(b'{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]}'),
]
STOP = [chunk(b"{}", b'"stop"'), b"data: [DONE]\n\n"]

ANSWERS: dict[str, tuple[str, list[bytes]]] = {
    "chat text": ("chat", [THOUGHT, *WORDS, *STOP]),
    "chat call": ("chat", [*WORDS, *CALL, chunk(b"{}", b'"tool_calls"'), b"data: [DONE]\n\n"]),
    "chat broken": ("chat", WORDS),
    "responses text": ("responses", responses_text(["Hello", " there"])),
    "responses call": ("responses", responses_call()),
}


class Unhurried(Checkpoints):
    """Each wait takes a few steps, as one on a network would: a timer can go off meanwhile."""

    async def reach(self, name: str) -> None:
        for _ in range(2):
            await asyncio.sleep(0)
        await super().reach(name)


@dataclass
class Play:
    """A socket before a scripted upstream. `step` lets the event loop go round once."""

    dialect: str
    answer: Sequence[bytes]
    store: bool
    socket: PlaySocket = field(default_factory=PlaySocket)
    crashes: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        checkpoints = Unhurried()
        self.client = ScriptedClient(checkpoints, self.answer)
        self.tasks = Tasks(lambda _, error: self.crashes.append(error))
        self.registry = Registry(self.tasks)
        made = services(self.client, WaitingStore(checkpoints), self.dialect)
        limits = SessionLimits(lifetime_s=0, keepalive_s=0)
        self.session = Session(self.socket, Caller("tenant", {}), made, self.registry, limits)
        self.endpoint = made.endpoints[0]
        self.target = ""

    async def run(self, moments: Mapping[int, Sequence[str]], **create: Any) -> None:
        """Play a create and, after so many steps, what the client does then; to the end of everything."""
        reader = asyncio.create_task(self.session.run())
        self.socket.put({**CREATE, "store": self.store, **create})
        for step in range(max(moments) + 1):
            self.target = self.target or next(iter(self.registry._turns), "")
            for what in moments.get(step, ()):
                self.act(what)
            await asyncio.sleep(0)
        quiet = 0
        while quiet < 20:
            busy = len(self.registry) or not (reader.done() or self.socket.incoming.empty())
            quiet = 0 if busy else quiet + 1
            await asyncio.sleep(0)
        self.socket.lose()
        await reader
        await self.tasks.aclose()

    def act(self, what: str) -> None:
        """What the client does: `steer TEXT`, `cancel`, `create`, `lose`; or `retire`, which the server does."""
        kind, _, text = what.partition(" ")
        if kind == "steer":
            self.socket.put({"type": "response.steer", "previous_response_id": self.target or "resp_0", "input": text})
        elif kind == "cancel":
            self.socket.put({"type": "response.cancel", "response_id": self.target})
        elif kind == "create":
            self.socket.put({**CREATE, "store": self.store})
        elif kind == "retire":
            _ = self.tasks.spawn(self.session.shut_down(), "retire")
        else:
            self.socket.lose()

    def of(self, prefix: str) -> list[Event]:
        """The events whose type begins so."""
        return [event for event in self.socket.events if event["type"].startswith(prefix)]

    def turns(self) -> list[list[Event]]:
        """The events of each response, refusals alone."""
        turns: list[list[Event]] = []
        for event in self.socket.events:
            if event["type"] == "error" and event["code"] == "response_not_found":
                continue  # a cancel that came too late
            if event["type"] == "response.created" or event["type"] == "error":
                turns.append([])
            if not event["type"].startswith("response.steer."):
                turns[-1].append(event)
        return turns

    def check(self) -> None:
        """What must hold however the moments fell."""
        assert not self.crashes
        assert (len(self.registry), len(self.tasks), self.endpoint.in_flight, self.client.open_exchanges) == (0,) * 4
        for turn in self.turns():
            check_turn(turn)
        for event in self.of("response.steer."):
            check_event(event)
        accepted = {event["steer"]["id"] for event in self.of("response.steer.accepted")}
        waiting = Counter(event["steer"]["id"] for event in self.of("response.steer.pending"))
        failed = Counter(event["steer"]["id"] for event in self.of("response.steer.failed") if "id" in event["steer"])
        # One that waits for outputs may still be given back, when they cannot come any more.
        assert all(times == 1 for times in (*waiting.values(), *failed.values()))
        assert waiting.keys() | failed.keys() <= accepted
        committed = accepted - waiting.keys() - failed.keys()
        successors = [turn for turn in self.turns() if is_successor(turn, self.target)]
        assert len(successors) == bool(committed)


def is_successor(turn: Sequence[Event], target: str) -> bool:
    """Does this response continue that one?"""
    return bool(turn[0]["type"] == "response.created" and turn[0]["response"]["previous_response_id"] == target)


async def length(name: str) -> int:
    """In how many steps an undisturbed turn has ended, and a few more."""
    dialect, answer = ANSWERS[name]
    play = Play(dialect, answer, True)
    reader = asyncio.create_task(play.session.run())
    play.socket.put(CREATE)
    steps = 0
    while not any(event["type"] in TERMINAL for event in play.socket.events):
        await asyncio.sleep(0)
        steps += 1
    play.socket.lose()
    await reader
    await play.tasks.aclose()
    return steps + 4


@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize("name", ANSWERS)
async def test_a_steer_at_any_moment(name: str, store: bool) -> None:
    dialect, answer = ANSWERS[name]
    seen: Counter[str] = Counter()
    for moment in range(await length(name)):
        play = Play(dialect, answer, store)
        await play.run({moment: ["steer NOW"]})
        play.check()
        end = play.turns()[0][-1]
        if dialect == "chat" and end["type"] == "response.incomplete" and end["response"]["output"]:
            assert end["response"]["output"][-1]["status"] == "incomplete", "it was whole, and is said to be cut"
        [first, *_] = play.of("response.steer.")
        accepted = first["type"] == "response.steer.accepted"
        seen["accepted" if accepted else first["error"]["code"]] += 1
        texts = [b"".join(request.body) for request in play.client.posts]
        if accepted and not play.of("response.steer.pending") and not play.of("response.steer.failed"):
            seen["successor"] += 1
            assert b"NOW" in texts[-1]
            said = "".join(event["delta"] for event in play.turns()[0] if event["type"].endswith("output_text.delta"))
            assert said.encode() in texts[-1]
            seen["nothing asked in vain"] += len(texts) == 1
        else:
            assert not any(b"NOW" in text for text in texts)
            seen["pending" if play.of("response.steer.pending") else "failed"] += 1
    expected = {"text": {"successor"}, "call": {"successor", "pending"}, "broken": {"successor", "failed"}}
    assert seen["accepted"] > 5
    assert seen["nothing asked in vain"] > 0
    assert seen["response_not_found"] > 0
    assert set(seen) >= expected[name.split()[1]]


@pytest.mark.parametrize("name", ["chat text", "chat call", "responses text"])
async def test_steers_that_come_together_make_one_successor_in_their_order(name: str) -> None:
    dialect, answer = ANSWERS[name]
    together = 0
    for moment in range(await length(name)):
        play = Play(dialect, answer, False)
        await play.run({moment: ["steer FIRST", "steer SECOND", "steer THIRD"]})
        play.check()
        accepted = play.of("response.steer.accepted")
        if len(accepted) == 3 and not play.of("response.steer.pending"):
            together += 1
            [_, successor] = play.turns()
            body = b"".join(play.client.posts[-1].body)
            assert successor[0]["response"]["previous_response_id"] == play.target
            assert body.index(b"FIRST") < body.index(b"SECOND") < body.index(b"THIRD")
            assert body.count(b"SECOND") == 1
    assert together > 5


@pytest.mark.parametrize("name", ["chat text", "responses call"])
@pytest.mark.parametrize("other", ["steer AGAIN", "cancel", "create", "retire", "lose"])
async def test_a_steer_at_any_moment_and_something_else_about_then(name: str, other: str) -> None:
    dialect, answer = ANSWERS[name]
    steps = await length(name)
    for first, later in itertools.product(range(2, steps, 2), (-3, -1, 0, 1, 2, 5)):
        second = first + later
        moments = {first: ["steer NOW"], second: [other]} if first != second else {first: ["steer NOW", other]}
        play = Play(dialect, answer, False)
        await play.run(moments)
        if other == "lose":  # nothing can be told any more; nothing may be left either
            assert (len(play.registry), len(play.tasks), play.client.open_exchanges) == (0, 0, 0)
            assert not play.crashes
        else:
            play.check()


async def test_a_warm_up_has_nothing_to_steer() -> None:
    codes = set()
    for moment in range(30):
        play = Play("chat", [], True)
        await play.run({moment: ["steer NOW"]}, generate=False)
        play.check()
        assert len(play.turns()) == 1
        codes |= {event["error"]["code"] for event in play.of("response.steer.failed")}
    assert codes == {"response_not_found", "response_not_active", "response_already_completed"}
