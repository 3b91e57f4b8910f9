"""Every function that a turn or an event passes, with what it is given: what `make bench` times and budgets hold.

Each entry of `PIECES` makes its own data and returns what is to be timed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from proxy.caching import AgedPool, Pool
from proxy.conversation import chain
from proxy.conversation.chain import Node
from proxy.conversation.digest import canonical
from proxy.conversation.known import KnownItems
from proxy.conversation.prefix import PrefixIndex
from proxy.models.catalog import RESPONSES
from proxy.session.outbox import Outbox
from proxy.session.prepared import Prepared, prepare, translator_for
from proxy.session.services import Caller, Services
from proxy.session.tasks import Tasks
from proxy.translate.base import Translator
from proxy.upstream.endpoint import Endpoint
from proxy.wire import ids
from proxy.wire import server_events as events
from proxy.wire.client_events import Create, Limits, parse_create, parse_message
from proxy.wire.codec import Raw, encode
from proxy.wire.items import Item, parse_item
from proxy.wire.sse import SseDecoder
from tests.bench.turn import Turns
from tests.session.scripted import Checkpoints, ScriptedClient, WaitingStore, chunk, services

Timed = Callable[[], object]
TENANT = "t"
DELTAS = 10
_MESSAGE = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x" * 400}]}
_TOOL: dict[str, object] = {
    "type": "function",
    "description": "What it does, and when it should be called. " * 12,
    "parameters": {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(6)}},
}
# What Codex sends again with every turn: see the sizes in docs/clients.
LARGE: dict[str, object] = {
    "instructions": "You are a coding agent. " * 700,
    "tools": [{**_TOOL, "name": f"tool_{n}"} for n in range(18)],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
}
CHAT_ANSWER = (
    chunk(b'{"role":"assistant","content":""}')
    + chunk(b'{"content":" tok"}') * DELTAS
    + chunk(b"{}", b'"stop"')
    + b"data: [DONE]\n\n"
)


def create_bytes(**members: object) -> bytes:
    """A create with one short message."""
    return encode({"type": "response.create", "model": "m", "store": False, "input": [_MESSAGE], **members})


def event(kind: str, **members: object) -> bytes:
    """An event of a Responses upstream."""
    return b"data: " + encode({"type": f"response.{kind}", **members}) + b"\n\n"


def responses_answer(deltas: int = DELTAS) -> bytes:
    """An answer of so many deltas, as OpenAI shapes it."""
    part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    item = {"id": "msg_1", "type": "message", "status": "in_progress", "role": "assistant", "content": []}
    at = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    whole = {**part, "text": " tok" * deltas}
    done = {**item, "status": "completed", "content": [whole]}
    body = {"id": "resp_up", "object": "response", "model": "m", "status": "in_progress", "output": []}
    made: list[tuple[str, dict[str, object]]] = [
        ("created", {"response": body}),
        ("in_progress", {"response": body}),
        ("output_item.added", {"output_index": 0, "item": item}),
        ("content_part.added", {**at, "part": part}),
        *[("output_text.delta", {**at, "delta": " tok", "logprobs": []})] * deltas,
        ("output_text.done", {**at, "text": whole["text"], "logprobs": []}),
        ("content_part.done", {**at, "part": whole}),
        ("output_item.done", {"output_index": 0, "item": done}),
        ("completed", {"response": {**body, "status": "completed", "output": [done], "usage": None}}),
    ]
    return b"".join(event(kind, sequence_number=n, **members) for n, (kind, members) in enumerate(made))


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine returns that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waited")


class Bench:
    """A server without sockets, its catalog known, and a turn that is ready to be translated."""

    def __init__(self, dialect: str = "chat", *, faithful: bool = False, message: bytes | None = None) -> None:
        checkpoints = Checkpoints()
        endpoint = Endpoint("default", "http://upstream/v1", dialect=dialect, faithful=faithful)
        made = services(ScriptedClient(checkpoints), WaitingStore(checkpoints), dialect)
        self.services: Services = replace(made, endpoints=(endpoint,))
        self.caller = Caller(TENANT, {})
        self.message = message or create_bytes()
        self.id = ids.response_id(None)
        self.create = self.parsed()
        # Waits for the catalog, which is kept from then on.
        self.prepared: Prepared = asyncio.run(prepare(self.services, self.caller, self.create, None, self.id))

    def parsed(self) -> Create:
        """The message, read."""
        members = parse_message(self.message)[1]
        return parse_create(members, len(self.message), Limits(), partial(self.services.terms.find, TENANT))

    def translator(self) -> Translator:
        """One that has not begun."""
        return translator_for(self.prepared)

    def answered(self, answer: bytes) -> Translator:
        """One whose answer is whole."""
        made = self.translator()
        made.request([])
        made.feed(answer)
        made.finish()
        return made


def _parse(message: bytes) -> Timed:
    return Bench(message=message).parsed


def _prepare() -> Timed:
    bench = Bench()
    return lambda: run(prepare(bench.services, bench.caller, bench.create, None, bench.id))


def _translator(dialect: str) -> Timed:
    return Bench(dialect).translator


def _request() -> Timed:
    translator, history = Bench().translator(), [b'{"role":"user","content":"x"}'] * 20
    return lambda: translator.request(history)


def _whole_answer(dialect: str, answer: bytes, *, faithful: bool = False) -> Timed:
    bench = Bench(dialect, faithful=faithful)
    return lambda: bench.answered(answer).result()


READS, DELTAS_A_READ = 16, 64


def _reads(dialect: str, begun: bytes, reads: Sequence[bytes], *, faithful: bool = False) -> Timed:
    """The middle of a long answer."""
    bench = Bench(dialect, faithful=faithful)

    def feed() -> None:
        translator = bench.translator()
        translator.feed(begun)
        for data in reads:
            translator.feed(data)

    return feed


def _chat_reads() -> Timed:
    data = chunk(b'{"content":" tok"}') * DELTAS_A_READ
    return _reads("chat", chunk(b'{"role":"assistant","content":""}'), [data] * READS)


def _responses_reads(*, faithful: bool) -> Timed:
    whole = responses_answer(READS * DELTAS_A_READ).split(b"\n\n")
    begun, deltas = whole[:4], whole[4 : 4 + READS * DELTAS_A_READ]
    reads = [deltas[at : at + DELTAS_A_READ] for at in range(0, len(deltas), DELTAS_A_READ)]
    return _reads(RESPONSES, _blocks(begun), [_blocks(each) for each in reads], faithful=faithful)


def _blocks(lines: Sequence[bytes]) -> bytes:
    return b"".join(line + b"\n\n" for line in lines)


class _Nowhere:
    """A socket that takes everything."""

    congested = False
    close_code: int | None = None

    async def receive(self) -> bytes | None:
        return None

    def write(self, data: bytes) -> None:
        pass

    async def drained(self) -> None:
        pass

    async def close(self, code: int, reason: str) -> None:
        pass

    def abort(self) -> None:
        pass


def _outbox() -> Timed:
    socket = _Nowhere()
    outbox = Outbox(socket, socket.drained, Tasks(lambda *_: None).spawn)
    made = Bench().translator()
    made.request([])
    ready = made.feed(CHAT_ANSWER)
    return lambda: outbox.send(ready)


def _snapshot() -> Timed:
    bench = Bench()
    return lambda: events.Snapshot(bench.id, bench.create, "m", b"[]", 1, "").render(b"in_progress")


def _encode(_: Sequence[Item]) -> bytes:
    raise AssertionError("nothing of a kept chain is encoded again")


def _long_chain(depth: int) -> tuple[Node, tuple[Item, ...]]:
    items = Bench().create.items
    node: Node | None = None
    for _ in range(depth):
        node = _linked(node, items)
    assert node is not None
    return node, items


def _linked(parent: Node | None, items: tuple[Item, ...]) -> Node:
    return chain.link(
        parent, tenant=TENANT, response="resp", items=items, output=items, open_calls=frozenset(), stored=False,
        fragments={"chat": b'{"role":"user","content":"x"},{"role":"assistant","content":"x"}'},
        before=chain.Pieces() if parent is None else parent.flat["chat"],
    )  # fmt: skip


def _history() -> Timed:
    node, _ = _long_chain(1000)
    return lambda: chain.history(node, "chat", _encode)


def _grown() -> Timed:
    """A link at the end of a long chain, again and again: it takes its pieces over each time."""
    newest, items = _long_chain(1000)

    def grow() -> None:
        nonlocal newest
        newest = _linked(newest, items)

    return grow


def _sse() -> Timed:
    decoder, data = SseDecoder(1 << 20), chunk(b'{"content":" tok"}') * 64
    return lambda: decoder.feed(data)


def _known_items() -> Timed:
    known = KnownItems(Pool(1 << 26), 60, 60, lambda: 0.0)
    parts = [Raw(encode({**_MESSAGE, "n": n})) for n in range(50)]
    return lambda: known.read(TENANT, parts, stored=False)


def _goes_on() -> Timed:
    """A history of 500 items that goes on from a known answer, which its client wrote in its own words."""
    index = PrefixIndex(AgedPool(1 << 26), 60, 60, lambda: 0.0)
    items = tuple(parse_item(encode({**_MESSAGE, "n": n})) for n in range(500))
    said, again = (
        parse_item(encode({"role": "assistant", "content": content}))
        for content in ([{"type": "output_text", "text": "yes"}], "yes")
    )
    node = chain.link(
        None, tenant=TENANT, response="r", items=items, output=(said,), open_calls=frozenset(), stored=False
    )  # fmt: skip
    index.add(index.find(TENANT, items), node)
    asked = (*items, again, parse_item(encode(_MESSAGE)))
    return lambda: index.find(TENANT, asked)


def _digest() -> Timed:
    item = parse_item(encode(_MESSAGE))
    return lambda: canonical(item)


def _turn() -> Timed:
    return Turns(CHAT_ANSWER, create_bytes).ten


PIECES: Mapping[str, Callable[[], Timed]] = {
    "read a small create": lambda: _parse(create_bytes()),
    "read a create with a coding agent's tools": lambda: _parse(create_bytes(**LARGE)),
    "prepare": _prepare,
    "chat: translator and delta": lambda: _translator("chat"),
    "responses: translator and delta": lambda: _translator(RESPONSES),
    "chat: request": _request,
    "chat: an answer of 10 deltas": lambda: _whole_answer("chat", CHAT_ANSWER),
    "responses: an answer of 10 deltas, faithful": lambda: _whole_answer(RESPONSES, responses_answer(), faithful=True),
    "responses: an answer of 10 deltas, repaired": lambda: _whole_answer(RESPONSES, responses_answer()),
    "chat: 16 reads of 64 deltas": _chat_reads,
    "responses: 16 reads of 64 deltas, faithful": lambda: _responses_reads(faithful=True),
    "responses: 16 reads of 64 deltas, repaired": lambda: _responses_reads(faithful=False),
    "outbox: the events of an answer": _outbox,
    "snapshot": _snapshot,
    "chain: history at depth 1,000": _history,
    "chain: link at depth 1,000": _grown,
    "SSE: a read of 64 events": _sse,
    "known: 50 items by their bytes": _known_items,
    "known: what 500 items go on from": _goes_on,
    "digest: canonical form": _digest,
    "ten turns without sockets": _turn,
}
