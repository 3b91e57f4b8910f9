"""What a turn costs follows its delta, not its history: counted in items and bytes, not in seconds."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence

import pytest

from proxy.session import turn as turn_module
from proxy.session.outbox import Outbox
from proxy.session.registry import Registry
from proxy.session.services import Caller
from proxy.session.session import Session, SessionLimits
from proxy.session.tasks import Tasks
from proxy.translate.chat.items import ItemEncoder
from proxy.wire import client_events
from proxy.wire.codec import Raw, encode
from proxy.wire.items import Item, pair_calls, parse_item
from tests.session.scripted import ANSWER, Checkpoints, ScriptedClient, WaitingStore, services

DELTA_ITEMS = 3


class QueueSocket:
    """A `Socket` fed by a test."""

    congested = False
    close_code: int | None = None

    def __init__(self) -> None:
        self.incoming: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.turn_over = asyncio.Event()
        self.written: list[bytes] = []

    async def receive(self) -> bytes | None:
        return await self.incoming.get()

    def write(self, data: bytes) -> None:
        self.written.append(data)
        if b'"type":"response.completed"' in data:
            self.turn_over.set()

    async def drained(self) -> None:
        pass

    async def close(self, code: int, reason: str) -> None:
        pass

    def abort(self) -> None:
        pass


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts of what the hot path does."""
    counts: Counter[str] = Counter()

    def parse(raw: bytes | Raw, param: str = "input") -> Item:
        counts["items parsed"] += 1
        return parse_item(raw, param)

    def pair(open_calls: frozenset[str], items: Iterable[Item]) -> frozenset[str]:
        items = tuple(items)
        counts["items paired"] += len(items)
        return pair_calls(open_calls, items)

    encode_items = ItemEncoder.encode

    def translate(encoder: ItemEncoder, items: Sequence[Item]) -> bytes:
        encoded = encode_items(encoder, items)
        counts["items translated"] += len(items)
        counts["bytes translated"] += len(encoded)
        return encoded

    monkeypatch.setattr(client_events, "parse_item", parse)
    monkeypatch.setattr(turn_module, "pair_calls", pair)
    monkeypatch.setattr(ItemEncoder, "encode", translate)
    return counts


async def test_turn_50_costs_what_turn_5_costs(work: Counter[str]) -> None:
    per_turn = await _costs(work, turns=50)

    assert per_turn[49] == per_turn[4]
    assert per_turn[49]["items parsed"] == DELTA_ITEMS
    assert per_turn[49]["items paired"] == DELTA_ITEMS
    assert per_turn[49]["items translated"] == DELTA_ITEMS + 1  # the delta, and the answer once


async def test_an_answer_that_arrives_in_one_read_leaves_in_one_write() -> None:
    socket = QueueSocket()
    await _costs(Counter(), turns=1, socket=socket, answer=(b"".join(ANSWER),))
    # created and in_progress leave when the upstream accepts, everything else together.
    assert len(socket.written) == 2


async def _costs(
    work: Counter[str], turns: int, socket: QueueSocket | None = None, answer: tuple[bytes, ...] | None = None
) -> list[dict[str, int]]:
    checkpoints = Checkpoints()
    client = ScriptedClient(checkpoints, answer or ANSWER)
    made = services(client, WaitingStore(checkpoints))
    socket = socket or QueueSocket()
    limits = SessionLimits()
    session = Session(socket, Caller("t", {}), made, Registry(Tasks(lambda *_: None)), limits)
    reader = asyncio.ensure_future(session.run())
    costs, parent = [], None
    for _ in range(turns):
        work.clear()
        socket.turn_over.clear()
        socket.incoming.put_nowait(_create(parent))
        await socket.turn_over.wait()
        parent = _last_id(socket.written[-1])
        costs.append(dict(work))
    socket.incoming.put_nowait(None)
    await reader
    return costs


def _create(parent: str | None) -> bytes:
    item = {"role": "user", "content": "x" * 100}
    return encode(
        {
            "type": "response.create",
            "model": "m",
            "store": False,
            "previous_response_id": parent,
            "input": [item] * DELTA_ITEMS,
        }
    )


def _last_id(data: bytes) -> str:
    start = data.rindex(b'"id":"resp_') + 6
    return data[start : data.index(b'"', start)].decode()


def test_the_outbox_tags_named_lanes_only() -> None:
    socket = QueueSocket()
    outbox = Outbox(socket, socket.drained, Tasks(lambda *_: None).spawn)
    outbox.send([b'{"type":"a"}'], "lane-1")
    outbox.send([b'{"type":"a"}'])

    assert socket.written[0].endswith(b'{"type":"a","stream_id":"lane-1"}')
    assert socket.written[1].endswith(b'{"type":"a"}')
