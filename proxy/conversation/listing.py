"""What a response was made from, item by item, as `GET …/input_items` lists it.

That is the whole context: the input and output of every earlier response of the chain, then the response's own input.
A call that was cut off stands once more in the input that answers it; it is listed where it was made.
Every item has an id: the client's or the model's where there is one, else one that is made from the response and the
item's place, the same each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain as joined
from typing import NamedTuple

import msgspec

from proxy.conversation.chain import Node, lineage
from proxy.errors import Kind, LooplineError
from proxy.wire import ids
from proxy.wire.codec import NULL, Raw, decode, encode, is_null
from proxy.wire.items import CALLS, Item, item_id, string

_PREFIXES: Mapping[str, str] = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "compaction": "cmp",
}
# 5 µs each; a conversation may have hundreds of thousands.
_LOOKED_AT_ONCE = 500


class Context(NamedTuple):
    """What one response was made from: its id, what it continues, its own input."""

    response: str
    parent: Node | None
    items: tuple[Item, ...]


class Page(NamedTuple):
    """One page of a list: objects of JSON with their ids."""

    entries: list[tuple[str, bytes]]
    has_more: bool

    def render(self) -> bytes:
        """The list object."""
        first, last = (self.entries[0][0], self.entries[-1][0]) if self.entries else (None, None)
        return b'{"object":"list","data":[%b],"first_id":%b,"last_id":%b,"has_more":%b}' % (
            b",".join(body for _, body in self.entries),
            encode(first),
            encode(last),
            b"true" if self.has_more else b"false",
        )


def context_of(node: Node) -> Context:
    """The context of a finished response."""
    return Context(node.id, node.parent, node.items)


def named_inputs(response: str, items: tuple[Item, ...], *, backwards: bool = False) -> Iterator[tuple[str, Item]]:
    """A response's input items with their ids."""
    for number in _numbers(items, backwards):
        item = items[number]
        prefix = _PREFIXES.get(item.kind, "item")
        yield item_id(item) or ids.input_item_id(prefix, response, number), item


def named_items(node: Node, *, backwards: bool = False) -> Iterator[tuple[str, Item]]:
    """All items of a response with their ids, its input first."""
    yield from _in_order(named_inputs(node.id, node.items, backwards=backwards), node, backwards)


def _in_order(inputs: Iterator[tuple[str, Item]], node: Node, backwards: bool) -> Iterator[tuple[str, Item]]:
    parts = (inputs, _named_outputs(node, backwards))
    yield from joined.from_iterable(reversed(parts) if backwards else parts)


def _named_outputs(node: Node, backwards: bool) -> Iterator[tuple[str, Item]]:
    for number in _numbers(node.output, backwards):
        item = node.output[number]
        yield item_id(item) or ids.input_item_id("item", node.id, len(node.items) + number), item


def _numbers(items: tuple[Item, ...], backwards: bool) -> Iterable[int]:
    return reversed(range(len(items))) if backwards else range(len(items))


def paging(context: Context, *, after: str | None, limit: int, newest_first: bool) -> Iterator[Page | None]:
    """At most `limit` items after the one named `after`. Raises `LooplineError` (invalid_request) for an unknown one.

    Costs what it passes over: the first page of the newest items looks at no others. The last that it yields is the
    page; None before it says that it has looked at many items, and that others may have their turn.
    """
    listed = _newest_first(context) if newest_first else _oldest_first(context)
    if after is not None:
        for number, (name, _) in enumerate(listed, 1):
            if name == after:
                break
            if not number % _LOOKED_AT_ONCE:
                yield None
        else:
            raise LooplineError(Kind.INVALID_REQUEST, f"No item with id '{after[:100]}' in this list.", param="after")
    entries: list[tuple[str, bytes]] = []
    for name, item in listed:
        if len(entries) == limit:
            yield Page(entries, has_more=True)
            return
        entries.append((name, shown_item(name, item)))
    yield Page(entries, has_more=False)


def _oldest_first(context: Context) -> Iterator[tuple[str, Item]]:
    for node in lineage(context.parent):
        yield from _in_order(_listed_inputs(context_of(node)), node, False)
    yield from _listed_inputs(context)


def _newest_first(context: Context) -> Iterator[tuple[str, Item]]:
    yield from _listed_inputs(context, backwards=True)
    node = context.parent
    while node is not None:
        yield from _in_order(_listed_inputs(context_of(node), backwards=True), node, True)
        node = node.parent


def _listed_inputs(context: Context, *, backwards: bool = False) -> Iterator[tuple[str, Item]]:
    """A response's own input, without the cut calls of the response before it, which are listed there."""
    response, parent, items = context
    cut = {item.call_id for item in parent.output if item.unfinished} if parent is not None else ()
    for name, item in named_inputs(response, items, backwards=backwards):
        if item.kind not in CALLS or item.call_id not in cut:
            yield name, item


class _Message(msgspec.Struct):
    id: Raw = NULL
    status: Raw = NULL
    content: Raw = NULL


_MEMBERS = msgspec.json.Decoder(dict[str, Raw])
_MESSAGE = msgspec.json.Decoder(_Message)
_PARTS = {"assistant": b'[{"type":"output_text","text":%b,"annotations":[]}]'}
_INPUT_PART = b'[{"type":"input_text","text":%b}]'


def shown_item(name: str, item: Item) -> bytes:
    """An item as lists show it: with its id, and a message with parts and a status, however short it was written."""
    message = decode(_MESSAGE, item.raw, "The item")
    added: dict[str, Raw] = {}
    if is_null(message.id):
        added["id"] = Raw(string(name))
    if item.kind == "message":
        if is_null(message.status):
            added["status"] = Raw(b'"completed"')
        if bytes(memoryview(message.content)[:1]) == b'"':
            added["content"] = Raw(_PARTS.get(item.role or "", _INPUT_PART) % bytes(message.content))
    members = decode(_MEMBERS, item.raw, "The item")
    return encode({**members, **added}) if added else item.raw
