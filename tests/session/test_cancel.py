"""A turn cancelled at each of its awaits leaves nothing behind."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from proxy.conversation.chain import Node, link
from proxy.errors import Kind, LooplineError
from proxy.session.registry import Registry
from proxy.session.services import Caller, NoHolder
from proxy.session.tasks import Tasks
from proxy.session.turn import Turn
from proxy.telemetry.observer import TurnRecord
from proxy.wire import ids
from proxy.wire.client_events import Limits, parse_create, parse_message
from proxy.wire.sse import event_type
from tests.session.scripted import ANSWER, Checkpoints, Recorder, ScriptedClient, WaitingStore, services

TENANT = "tenant"


@dataclass
class Outcome:
    checkpoints: Checkpoints
    client: ScriptedClient
    store: WaitingStore
    recorder: Recorder
    registry: Registry
    tasks: Tasks
    in_flight: int
    record: TurnRecord


async def run_turn(
    cancel_at: int | None, *, how: str = "unsubscribe", answer: tuple[bytes, ...] = ANSWER, status: int = 200
) -> Outcome:
    """One stored continuation, cancelled at await number `cancel_at` by losing its follower or by the registry."""
    checkpoints = Checkpoints(cancel_at)
    client = ScriptedClient(checkpoints, answer, status)
    store = WaitingStore(checkpoints)
    parent = parent_node()
    await MemoryPut(store).put(parent)
    crashed: list[BaseException] = []
    tasks = Tasks(lambda _, error: crashed.append(error))
    registry = Registry(tasks)
    recorder = Recorder(checkpoints)
    made = services(client, store)
    message = (
        b'{"type":"response.create","model":"m","previous_response_id":"%b","input":[{"role":"user","content":"x"}]}'
    )
    create = parse_create(parse_message(message % parent.id.encode())[1], 10, Limits())
    record = TurnRecord(ids.response_id(), "test", 0.0)
    running = registry.start(record.response, Turn(made, Caller(TENANT, {}), create, NoHolder(), record).run, recorder)
    reason = LooplineError(Kind.SHUTTING_DOWN, "bye")
    checkpoints.cancel = (
        (lambda: running.unsubscribe(recorder)) if how == "unsubscribe" else (lambda: running.cancel(reason))
    )
    assert running.task is not None
    await asyncio.wait([running.task])
    assert not crashed
    return Outcome(checkpoints, client, store, recorder, registry, tasks, made.endpoints[0].in_flight, record)


class MemoryPut:
    """Puts without passing a checkpoint."""

    def __init__(self, store: WaitingStore) -> None:
        self._store = store

    async def put(self, node: Node) -> None:
        await super(WaitingStore, self._store).put(node, 0.0)


def parent_node() -> Node:
    return link(
        None,
        tenant=TENANT,
        response=ids.response_id(),
        items=(),
        output=(),
        open_calls=frozenset(),
        stored=True,
    )


def awaits() -> list[str]:
    """The awaits that an undisturbed turn passes."""
    return asyncio.run(run_turn(None)).checkpoints.passed


def test_the_turn_waits_at_every_kind_of_place() -> None:
    assert set(awaits()) == {
        "store get",
        "open models",
        "read models",
        "open answer",
        "read answer",
        "drained",
        "store put",
    }


@pytest.mark.parametrize("how", ["unsubscribe", "registry"])
@pytest.mark.parametrize("cancel_at", range(len(awaits())))
async def test_nothing_survives_a_cancel(cancel_at: int, how: str) -> None:
    outcome = await run_turn(cancel_at, how=how)
    completed = outcome.record.outcome == "completed"

    assert outcome.client.open_exchanges == 0
    assert outcome.in_flight == 0
    assert len(outcome.registry) == 0
    assert len(outcome.tasks) == 0
    assert len(outcome.store) == (2 if completed else 1)
    # Cancelled while it read the tail of a whole answer, the turn has completed all the same.
    assert completed == (
        outcome.checkpoints.passed.count("store put") == 1 and outcome.checkpoints.passed[-1] != "store put"
    )


@pytest.mark.parametrize("cancel_at", range(len(awaits())))
async def test_a_cancel_with_a_reason_ends_in_one_event(cancel_at: int) -> None:
    outcome = await run_turn(cancel_at, how="registry")
    terminal = [event for event in outcome.recorder.events if event_type(event) in TERMINAL]

    assert len(terminal) + len(outcome.recorder.errors) == 1
    assert outcome.recorder.ends == 1


async def test_a_follower_that_left_hears_nothing_more() -> None:
    outcome = await run_turn(0)

    assert outcome.recorder.events == []
    assert outcome.recorder.errors == []
    assert outcome.recorder.ends == 0
    assert outcome.record.outcome == "cancelled"


async def test_a_turn_cancelled_before_its_first_step_is_refused_once() -> None:
    checkpoints = Checkpoints()
    client, store = ScriptedClient(checkpoints), WaitingStore(checkpoints)
    registry, recorder = Registry(Tasks(lambda *_: None)), Recorder(checkpoints)
    create = parse_create(parse_message(b'{"type":"response.create","input":"x"}')[1], 10, Limits())
    record = TurnRecord(ids.response_id(), "test", 0.0)
    turn = Turn(services(client, store), Caller(TENANT, {}), create, NoHolder(), record)
    running = registry.start(record.response, turn.run, recorder)
    running.cancel(LooplineError(Kind.SHUTTING_DOWN, "bye"))
    assert running.task is not None
    await asyncio.wait([running.task])

    assert [error.kind for error in recorder.errors] == [Kind.SHUTTING_DOWN]
    assert recorder.ends == 1
    assert len(registry) == 0


TERMINAL = (b"response.completed", b"response.incomplete", b"response.failed")
