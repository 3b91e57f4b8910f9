"""A request of very many items gives the event loop back: counted in items between two passes, not in seconds."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from proxy.conversation import known
from proxy.errors import Kind, LooplineError
from proxy.session.known import Known
from proxy.session.registry import Registry, RunningTurn
from proxy.session.services import Caller, NoHolder, Services
from proxy.session.tasks import Tasks
from proxy.session.turn import Turn
from proxy.telemetry.observer import TurnRecord
from proxy.translate.chat.items import ItemEncoder
from proxy.translate.responses.items import ItemShaper
from proxy.wire import ids
from proxy.wire.client_events import Limits, parse_create, parse_message
from proxy.wire.codec import Raw, encode
from proxy.wire.items import Item, parse_item
from proxy.wire.portions import ITEM_BYTES, MANY, PORTION_BYTES
from tests.house import House
from tests.session.play import Move, Play
from tests.session.scripted import Checkpoints, Recorder, ScriptedClient, WaitingStore, services
from tests.session.test_cost import REPLY
from tests.wire_client import WireClient, user

TENANT = "t"
ANSWERS = {"chat": None, "responses": REPLY}
DIALECTS = sorted(ANSWERS)
# A portion ends with the run that fills it: here three items at most.
MOST = PORTION_BYTES // ITEM_BYTES + 3


def history(count: int, start: int = 0) -> list[dict[str, Any]]:
    """An agent's: wishes, calls and what came of them."""
    made: list[dict[str, Any]] = []
    for number in range(start, start + count // 3):
        call = {"call_id": f"call_{number}", "name": "f", "arguments": "{}"}
        made += [
            {"type": "message", "role": "user", "content": f"wish {number}"},
            {"type": "function_call", **call},
            {"type": "function_call_output", "call_id": f"call_{number}", "output": f"result {number}"},
        ]
    return made


class Passes:
    """How much was done between two passes of the event loop, at most."""

    def __init__(self) -> None:
        self.done = self.most = self.passes = 0

    def count(self, items: int = 1) -> None:
        self.done += items

    async def watch(self) -> None:
        while True:
            self.most, self.done = max(self.most, self.done), 0
            self.passes += 1
            await asyncio.sleep(0)


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Passes:
    """Of items translated, in either dialect."""
    counted = Passes()

    def counting(encode_items: Callable[..., bytes]) -> Callable[..., bytes]:
        def count(encoder: object, items: Sequence[object], start: int = 0) -> bytes:
            counted.count(len(items))
            return encode_items(encoder, items, start)

        return count

    for encoder in (ItemEncoder, ItemShaper):
        monkeypatch.setattr(encoder, "encode", counting(encoder.encode))
    return counted


class Server:
    """Turns without sockets, of a server that knows whole histories, or none."""

    def __init__(self, dialect: str, *, knows: bool = True) -> None:
        checkpoints = Checkpoints()
        answer = ANSWERS[dialect]
        self.client = ScriptedClient(checkpoints, *(() if answer is None else (answer,)))
        made = services(self.client, WaitingStore(checkpoints), dialect)
        known = Known(1 << 26, 60, 60, lambda: 0.0) if knows else None
        self.services: Services = replace(made, known=known)
        self._tasks = Tasks(lambda *_: None)
        self._registry = Registry(self._tasks)
        self._checkpoints = checkpoints

    def start(self, items: Sequence[object]) -> tuple[RunningTurn, Recorder]:
        message = encode({"type": "response.create", "model": "m", "store": False, "input": items})
        create = parse_create(parse_message(message)[1], len(message), Limits())
        recorder = Recorder(self._checkpoints, congested=False)
        record = TurnRecord(ids.response_id(), "test", 0.0)
        turn = Turn(self.services, Caller(TENANT, {}), create, NoHolder(), record)
        return self._registry.start(record.response, turn.run, recorder), recorder

    async def run(self, items: Sequence[object]) -> Recorder:
        running, recorder = self.start(items)
        assert running.task is not None
        await asyncio.wait([running.task])
        return recorder

    @property
    def last_body(self) -> bytes:
        return b"".join(self.client.posts[-1].body)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_loop_runs_after_each_portion_however_many_such_requests_there_are(
    dialect: str, passes: Passes
) -> None:
    server = Server(dialect)
    await server.run(history(3, start=100_000))  # asks for the models
    watching = asyncio.ensure_future(passes.watch())
    await asyncio.gather(*(server.run(history(3000, start)) for start in (1000, 3000, 5000)))
    watching.cancel()
    assert len(server.client.posts) == 4
    assert passes.passes > 9000 // MOST
    assert passes.most <= MOST


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_request_is_the_one_that_is_made_at_once(dialect: str) -> None:
    items = history(3000)
    at_once, in_portions = Server(dialect, knows=False), Server(dialect)
    await at_once.run(items)
    await in_portions.run(items)
    assert at_once.last_body == in_portions.last_body
    await in_portions.run(items)  # known now
    assert at_once.last_body == in_portions.last_body


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_what_is_wrong_with_a_late_item_is_said_as_ever(dialect: str) -> None:
    items: list[dict[str, Any]] = [*history(3000), {"type": "message", "role": "nobody", "content": 7}]
    items.append({"type": "compaction_trigger"})
    told: list[tuple[LooplineError, ...]] = []
    for knows in (False, True):
        server = Server(dialect, knows=knows)
        told.append(tuple((await server.run(items)).errors))
        assert not server.client.posts
    (at_once,), (in_portions,) = told
    assert (at_once.kind, at_once.message, at_once.param) == (in_portions.kind, in_portions.message, in_portions.param)
    assert at_once.param is not None
    assert at_once.param.startswith("input[300")


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_client_that_leaves_in_the_middle_leaves_nothing_wrong(dialect: str, passes: Passes) -> None:
    server, items = Server(dialect), history(3000)
    await server.run(history(3, start=100_000))
    passes.done = 0
    running, recorder = server.start(items)
    while not passes.done:
        await asyncio.sleep(0)
    running.unsubscribe(recorder)
    assert running.task is not None
    await asyncio.wait([running.task])
    assert passes.done <= MOST
    assert len(server.client.posts) == 1
    await server.run(items)
    assert passes.done == len(items)  # what was made before is found, the rest made
    expected = Server(dialect, knows=False)
    await expected.run(items)
    assert server.last_body == expected.last_body


async def test_a_request_of_fewer_items_is_translated_at_once(passes: Passes) -> None:
    server = Server("chat")
    await server.run(history(3, start=100_000))
    watching = asyncio.ensure_future(passes.watch())
    await server.run(history(MANY // 3 * 3))
    watching.cancel()
    assert passes.most == MANY // 3 * 3


# --- what is read of messages and bodies ---


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Passes:
    """Of items read that were not known."""
    counted = Passes()

    def parse(raw: bytes | Raw, param: str = "input") -> Item:
        counted.count()
        return parse_item(raw, param)

    monkeypatch.setattr(known, "parse_item", parse)
    return counted


async def test_items_are_read_in_portions_and_answered_over_websocket_and_http(
    house: House, client: WireClient, reads: Passes, passes: Passes
) -> None:
    watching = [asyncio.ensure_future(each.watch()) for each in (reads, passes)]
    assert (await client.turn([*history(3000), user("[[say 1]]")], store=False)).kind == "response.completed"
    async with house.post({"input": [*history(3000, 5000), user("[[say 1]]")], "store": False}) as answer:
        assert answer.status == 200
    for each in watching:
        each.cancel()
    assert [len(house.asked(number)) for number in (0, 1)] == [3001, 3001]
    assert 0 < reads.most <= MOST
    assert 0 < passes.most <= MOST


async def test_what_comes_after_a_long_create_does_not_overtake_it(client: WireClient) -> None:
    await client.create([*history(3000), user('[[say "long"]]')])
    await client.create([*history(3000), {"type": "message", "role": 7}])
    await client.create([user('[[say "short"]]')])
    assert (await client.collect()).text == "long"
    assert (await client.collect()).error["param"] == "input[3000]"
    assert (await client.collect()).text == "short"


async def test_by_http_what_is_wrong_with_a_late_item_is_said_as_ever(house: House) -> None:
    async with house.post({"input": [*history(3000), {"type": "message", "role": 7}]}) as answer:
        assert answer.status == 400
        assert (await answer.json())["error"]["param"] == "input[3000]"


@pytest.fixture
async def play() -> AsyncIterator[Play]:
    """A session whose client is gone after the test, with nothing left of it."""
    played = Play()
    played.session._services = replace(played.services, known=Known(1 << 26, 60, 60, lambda: 0.0))
    yield played
    played.socket.lose()
    while len(played.tasks):  # turns learn what they went on from
        await asyncio.sleep(0)
    played.check_nothing_is_left()


def created(play: Play) -> int:
    return sum(event["type"] == "response.created" for event in play.socket.events)


async def begin_to_read(play: Play, reads: Passes) -> None:
    """A long create has come, and is not yet read."""
    play.socket.put({"type": "response.create", "model": "m", "store": False, "input": history(3000)})
    while not reads.done:
        await asyncio.sleep(0)
    assert reads.done < 3000


async def until_read(reads: Passes) -> None:
    while reads.done < 3000:
        await asyncio.sleep(0)


async def test_a_create_that_is_read_while_its_client_is_dismissed_is_not_begun(play: Play, reads: Passes) -> None:
    await begin_to_read(play, reads)
    play.session.dismiss(LooplineError(Kind.UNAUTHORIZED, "revoked"))
    await until_read(reads)
    await play.rest()
    assert created(play) == 0
    assert play.socket.events[-1]["type"] == "error"


async def test_a_create_that_is_read_behind_the_last_turn_of_a_socket_is_refused_after_it(
    play: Play, reads: Passes
) -> None:
    await play.move(Move("create", None, "say", 1, rest=True))
    await begin_to_read(play, reads)
    retiring = asyncio.ensure_future(play.session._retire(LooplineError(Kind.SHUTTING_DOWN, "bye"), 600, announce=True))
    await until_read(reads)
    await play.rest()
    while play.upstream.waiting:
        await play.move(Move("step", None, "say", 0, rest=True))
    await retiring
    ends = [event["type"] for event in play.socket.events if event["type"] in ("response.completed", "error")]
    assert ends == ["response.completed", "error", "error"]
    assert created(play) == 1


async def until(play: Play, task: asyncio.Future[None]) -> None:
    """The upstream goes on until the task is done."""
    while not task.done():
        await play.move(Move("step", None, "say", 0, rest=True))


def heard(play: Play) -> list[str]:
    """Ends and errors, as they came."""
    return [event["type"] for event in play.socket.events if event["type"] in ("response.completed", "error")]


async def test_a_create_that_is_read_while_its_socket_is_drained_is_answered(play: Play, reads: Passes) -> None:
    await begin_to_read(play, reads)
    draining = asyncio.ensure_future(play.session.drain(0, 600))
    await until(play, draining)
    assert heard(play) == ["response.completed"]
    assert play.socket.close_code == 1012


async def test_the_end_of_another_turn_closes_no_socket_on_which_a_create_is_read(play: Play, reads: Passes) -> None:
    await play.move(Move("create", "a", "say", 1, rest=True))
    await begin_to_read(play, reads)
    draining = asyncio.ensure_future(play.session.drain(0, 600))
    await asyncio.sleep(0)
    play.upstream.free()
    while not heard(play):
        await asyncio.sleep(0)
    assert reads.done < 3000
    await until(play, draining)
    assert heard(play) == ["response.completed", "response.completed"]


async def test_a_create_that_is_read_while_its_socket_is_shut_down_is_refused_first(play: Play, reads: Passes) -> None:
    await begin_to_read(play, reads)
    await play.session.shut_down()
    assert heard(play) == ["error"]
    assert created(play) == 0


# --- what a failure leaves ---


@pytest.fixture
def uncollected() -> Iterator[Callable[[], list[str]]]:
    """Kinds of our objects that hold one another and that nobody else holds, since it was asked last."""

    def found() -> list[str]:
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        gc.set_debug(0)
        kinds = [type(each).__qualname__ for each in gc.garbage if type(each).__module__.startswith("proxy.")]
        gc.garbage.clear()
        return kinds

    gc.collect()
    gc.disable()
    yield found
    gc.enable()


WRONG = {"type": "message", "role": 7}


@pytest.mark.parametrize("items", [[*history(3000), WRONG], [user("wish"), WRONG]], ids=["long", "short"])
async def test_a_create_that_is_refused_is_let_go_without_a_collection(
    play: Play, items: list[dict[str, Any]], uncollected: Callable[[], list[str]]
) -> None:
    play.socket.put({"type": "response.create", "model": "m", "store": False, "input": items})
    while not play.socket.events:
        await asyncio.sleep(0)
    assert uncollected() == []


@pytest.mark.parametrize("count", [3000, 30])
async def test_a_turn_that_fails_is_let_go_without_a_collection(
    count: int, uncollected: Callable[[], list[str]]
) -> None:
    server = Server("chat")
    await server.run(history(3, start=100_000))
    _ = uncollected()
    recorder = await server.run([*history(count), {"type": "message", "role": "nobody", "content": 7}])
    assert recorder.errors
    del recorder
    assert uncollected() == []
