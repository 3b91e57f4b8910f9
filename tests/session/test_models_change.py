"""What an upstream serves has changed: the turn that shows it has the upstream asked again."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from proxy.conversation.memory import MemoryStore
from proxy.errors import Kind, LooplineError
from proxy.models.cache import CatalogCache
from proxy.models.catalog import Names
from proxy.session.prepared import prepare
from proxy.session.registry import Registry
from proxy.session.services import Caller, NoHolder, Services
from proxy.session.tasks import Tasks
from proxy.session.turn import Turn
from proxy.telemetry.observer import TurnRecord
from proxy.wire import ids
from tests.session.scripted import Checkpoints, Recorder, ScriptedClient, services
from tests.unit.models.test_cache import Clock, Upstream
from tests.unit.translate.turns import create

OLD, NEW = (b'{"data":[{"id":"%b","owned_by":"vllm"}]}' % name for name in (b"old", b"new"))
UNKNOWN = b'{"error":{"message":"The model `m` does not exist.","type":"NotFoundError","code":"model_not_found"}}'


def served(upstream: Upstream, clock: Clock) -> Services:
    """What a turn uses, before an upstream that says what it serves; there is no default model."""
    made = services(ScriptedClient(Checkpoints()), MemoryStore(1 << 20, 60))
    return replace(made, catalogs=CatalogCache(upstream, 300, clock), names=Names({}, ""))


async def model_for(made: Services, name: str) -> str:
    prepared = await prepare(made, Caller("t", {}), create(model=name), None, ids.response_id())
    return prepared.brief.model


async def test_a_name_that_is_new_upstream_is_found_by_the_turn_that_asks_for_it() -> None:
    upstream, clock = Upstream(models=OLD), Clock()
    made = served(upstream, clock)
    assert await model_for(made, "old") == "old"
    upstream.answers = {"models": NEW}
    clock.now += 6
    assert await model_for(made, "new") == "new"
    assert upstream.paths == ["models", "models"]


async def test_names_that_are_made_up_do_not_ask_the_upstream_once_a_turn() -> None:
    upstream, clock = Upstream(models=OLD), Clock()
    made = served(upstream, clock)
    for number in range(50):
        with pytest.raises(LooplineError) as refused:
            await model_for(made, f"made up {number}")
        assert refused.value.kind is Kind.MODEL_NOT_FOUND
        clock.now += 0.1
    assert upstream.paths == ["models"]


async def test_an_upstream_that_does_not_know_a_model_any_more_is_asked_in_the_next_turn() -> None:
    upstream, clock = Upstream(models=OLD), Clock()
    refusing = ScriptedClient(Checkpoints(), (UNKNOWN,), 404)
    made = replace(served(upstream, clock), client=refusing)
    await model_for(made, "old")
    clock.now += 6
    recorder = Recorder(Checkpoints(), congested=False)
    record = TurnRecord(ids.response_id(), "test", 0.0)
    turn = Turn(made, Caller("t", {}), create(model="old"), NoHolder(), record)
    running = Registry(Tasks(lambda *_: None)).start(record.response, turn.run, recorder)
    assert running.task is not None
    await asyncio.wait([running.task])
    assert [error.kind for error in recorder.errors] == [Kind.UPSTREAM_NOT_FOUND]
    assert upstream.paths == ["models"]
    upstream.answers = {"models": NEW}
    assert await model_for(made, "new") == "new"
