"""What a turn costs follows its delta, not its history: counted in items and bytes, not in seconds."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType, MappingProxyType

import pytest
import xxhash

import proxy
from proxy.access.sealing import Sealer
from proxy.session import prepared
from proxy.session.limits import SessionLimits
from proxy.session.outbox import Outbox
from proxy.session.registry import Registry
from proxy.session.services import Caller
from proxy.session.session import Session
from proxy.session.tasks import Tasks
from proxy.translate.chat.items import ItemEncoder
from proxy.translate.responses.items import ItemShaper
from proxy.translate.tools import listed
from proxy.upstream.endpoint import Endpoint
from proxy.wire import client_events, ids
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
        self.ends = b"response.completed"

    async def receive(self) -> bytes | None:
        return await self.incoming.get()

    def write(self, data: bytes) -> None:
        self.written.append(data)
        if b'"type":"' + self.ends + b'"' in data:
            self.turn_over.set()

    async def drained(self) -> None:
        pass

    async def close(self, code: int, reason: str) -> None:
        pass

    def abort(self) -> None:
        pass


@pytest.fixture(autouse=True)
def _full_of_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random bits are drawn for many ids at once: no turn but the first may be the one that draws them."""
    monkeypatch.setattr(ids, "_RANDOM", ids._Random())


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
    monkeypatch.setattr(prepared, "pair_calls", pair)
    monkeypatch.setattr(ItemEncoder, "encode", translate)
    return counts


async def test_turn_50_costs_what_turn_5_costs(work: Counter[str]) -> None:
    per_turn = await _costs(work, turns=50)

    assert per_turn[49] == per_turn[4]
    assert per_turn[49]["items parsed"] == DELTA_ITEMS
    assert per_turn[49]["items paired"] == DELTA_ITEMS
    assert per_turn[49]["items translated"] == DELTA_ITEMS  # what the answer said is known as it is written


@pytest.fixture
def calls(work: Counter[str]) -> Iterator[Counter[str]]:
    """The same counts, and with them every call of a function of ours, and every call of C that ours make."""
    ours = f"{Path(proxy.__file__).parent}/"

    def profile(frame: FrameType, event: str, arg: object) -> None:
        if event in ("call", "c_call") and frame.f_code.co_filename.startswith(ours):
            work["calls"] += 1

    before = sys.getprofile()
    sys.setprofile(profile)
    yield work
    sys.setprofile(before)


@pytest.mark.parametrize("dialect", ["chat", "responses"])
@pytest.mark.slow
async def test_turn_1000_makes_the_calls_that_turn_10_makes(dialect: str, calls: Counter[str]) -> None:
    endpoint = Endpoint("default", "http://upstream/v1", dialect=dialect)
    answer = ANSWER if dialect == "chat" else REPLY
    per_turn = await _costs(calls, turns=1000, endpoint=endpoint, answer=answer)

    assert per_turn[999] == per_turn[9]


@pytest.mark.parametrize("dialect", ["chat", "responses"])
async def test_a_turn_after_16_mb_makes_the_calls_of_one_after_100_kb(dialect: str, calls: Counter[str]) -> None:
    endpoint = Endpoint("default", "http://upstream/v1", dialect=dialect)
    answer = ANSWER if dialect == "chat" else REPLY
    costs = []
    for size in (100_000, 16_000_000):
        history = {"role": "user", "content": "x" * size}
        costs.append(await _costs(calls, turns=4, endpoint=endpoint, answer=answer, first=[history]))

    assert costs[0][3] == costs[1][3]


@pytest.mark.parametrize("is_ready", [False, True])
async def test_an_answer_that_arrives_in_one_read_leaves_in_one_write(is_ready: bool) -> None:
    socket = QueueSocket()
    await _costs(Counter(), turns=1, socket=socket, answer=(b"".join(ANSWER),), is_ready=is_ready)
    # created and in_progress leave when the upstream accepts, everything else together; all of it where it is there.
    assert len(socket.written) == (1 if is_ready else 2)


async def test_what_waited_for_the_first_read_is_told_although_that_fails() -> None:
    socket = QueueSocket()
    broken = (b"data: {\n\n",)
    await _costs(Counter(), turns=1, socket=socket, answer=broken, is_ready=True, ends=b"response.failed")
    said = b"".join(socket.written)
    places = [said.index(b'"type":"response.' + kind) for kind in (b"created", b"in_progress", b"failed")]
    assert places == sorted(places)


async def _costs(
    work: Counter[str],
    turns: int,
    socket: QueueSocket | None = None,
    answer: tuple[bytes, ...] | None = None,
    endpoint: Endpoint | None = None,
    items: Sequence[object] = (),
    more: Mapping[str, object] = MappingProxyType({}),
    *,
    first: Sequence[object] = (),
    is_ready: bool = False,
    ends: bytes = b"response.completed",
) -> list[dict[str, int]]:
    checkpoints = Checkpoints()
    client = ScriptedClient(checkpoints, answer or ANSWER, is_ready=is_ready)
    made = services(client, WaitingStore(checkpoints))
    if endpoint is not None:
        made = replace(made, endpoints=(endpoint,))
    socket = socket or QueueSocket()
    socket.ends = ends
    limits = SessionLimits()
    session = Session(socket, Caller("t", {}), made, Registry(Tasks(lambda *_: None)), limits)
    reader = asyncio.ensure_future(session.run())
    costs, parent = [], None
    for _ in range(turns):
        work.clear()
        socket.turn_over.clear()
        socket.incoming.put_nowait(_create(parent, items if parent else [*first, *items], more))
        await socket.turn_over.wait()
        parent = _last_id(socket.written[-1])
        costs.append(dict(work))
    socket.incoming.put_nowait(None)
    await reader
    return costs


def _create(parent: str | None, items: Sequence[object], more: Mapping[str, object]) -> bytes:
    item = {"role": "user", "content": "x" * 100}
    return encode(
        {
            "type": "response.create",
            "model": "m",
            "store": False,
            "previous_response_id": parent,
            "input": [*items, *([item] * DELTA_ITEMS)],
            **more,
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


# --- the same for a conversation of what is costly: sealed reasoning, tools that are sent in every turn ---


def _event(kind: str, **members: object) -> bytes:
    return b"data: " + encode({"type": f"response.{kind}", **members}) + b"\n\n"


THOUGHT: dict[str, object] = {
    "type": "reasoning", "id": "rs", "summary": [], "content": [{"type": "reasoning_text", "text": "think " * 2000}],
}  # fmt: skip
THOUGHTFUL = (
    _event("output_item.done", output_index=0, item=THOUGHT),
    _event("completed", response={"id": "up", "status": "completed", "output": [THOUGHT]}),
)


MESSAGE: dict[str, object] = {
    "type": "message", "id": "msg", "role": "assistant", "content": [{"type": "output_text", "text": "Hello"}],
}  # fmt: skip
REPLY = (
    _event("output_item.done", output_index=0, item=MESSAGE),
    _event("completed", response={"id": "up", "status": "completed", "output": [MESSAGE]}),
)


@pytest.mark.parametrize("profile", ["generic", "simulated", "openai", "vllm"])
async def test_sealed_reasoning_is_opened_once_not_in_every_turn(profile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: Counter[str] = Counter()
    fitted, opened = ItemShaper._fitted, Sealer.open

    def shape(shaper: ItemShaper, item: Item, param: str) -> bytes:
        counts["items shaped"] += 1
        return fitted(shaper, item, param)

    def unseal(sealer: Sealer, tenant: str, sealed: str) -> str | None:
        counts["seals opened"] += 1
        return opened(sealer, tenant, sealed)

    monkeypatch.setattr(ItemShaper, "_fitted", shape)
    monkeypatch.setattr(Sealer, "open", unseal)
    endpoint = Endpoint("default", "http://upstream/v1", dialect="responses", profile=profile)
    more = {"include": ["reasoning.encrypted_content"]}
    per_turn = await _costs(counts, turns=50, answer=THOUGHTFUL, endpoint=endpoint, more=more)
    assert per_turn[49] == per_turn[4] == {"items shaped": DELTA_ITEMS + 1, "seals opened": 1}


async def test_tools_that_every_turn_brings_anew_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: Counter[str] = Counter()
    read, digest = listed.read_tools, xxhash.xxh3_128_digest

    def count(raw: bytes, brought: Sequence[bytes] = ()) -> listed.Tools:
        counts["tools read"] += len(raw) + sum(map(len, brought))
        return read(raw, brought)

    def hashed(data: bytes) -> bytes:
        counts["bytes compared"] += len(data)
        return digest(data)

    monkeypatch.setattr(listed, "read_tools", count)
    monkeypatch.setattr(xxhash, "xxh3_128_digest", hashed)
    tools = [{"type": "function", "name": f"f{number}", "parameters": {"type": "object"}} for number in range(100)]
    brings = {"type": "additional_tools", "role": "developer", "tools": tools}
    per_turn = await _costs(counts, turns=30, items=[brings])
    assert per_turn[29] == per_turn[4]
    assert "tools read" not in per_turn[4]
    assert per_turn[4]["bytes compared"] < 2 * len(encode(brings))
