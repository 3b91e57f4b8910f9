"""`item_reference`: an item named by its id instead of sent again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from operator import attrgetter

from proxy.conversation.chain import Node, lineage
from proxy.conversation.listing import named_items
from proxy.errors import Kind, LooplineError
from proxy.wire import ids
from proxy.wire.items import Item, item_id

REFERENCE = "item_reference"
_KIND = attrgetter("kind")
Find = Callable[[str], Awaitable[Node | None]]


def any_references(items: tuple[Item, ...]) -> bool:
    """Is there anything to resolve? Most requests have nothing."""
    return REFERENCE in map(_KIND, items)


async def resolve(items: tuple[Item, ...], parent: Node | None, find: Find) -> tuple[Item, ...]:
    """The items with what they refer to in place of references.

    What the conversation holds already is left out: it would stand there twice. Anything else is looked for in the
    response that `find` gives for its id. Raises `LooplineError` (invalid_request) naming the first that is not found.
    It looks at the responses that they are in, and at most once at the whole conversation, for ids that were not minted
    here.
    """
    known = _Known(parent)
    holders: dict[str, Node] = {}
    resolved = []
    for index, item in enumerate(items):
        if item.kind != REFERENCE:
            resolved.append(item)
            continue
        wanted = item_id(item) or ""
        if known.has(wanted):
            continue
        response = ids.item_seed(wanted) or wanted
        holder = holders.get(response) or await find(wanted)
        found = None
        if holder is not None:
            holders[response] = holder
            found = known.items(holder).get(wanted)
        if found is None:
            raise LooplineError(
                Kind.INVALID_REQUEST,
                f"Item with id '{wanted[:100]}' not found. Items are not persisted when `store` is set to false. "
                "Try again with `store` set to true, or remove this item from your input.",
                param=f"input[{index}]",
            )
        resolved.append(found)
    return tuple(resolved)


class _Known:
    """The ids of a conversation's items, read as far as somebody asks."""

    def __init__(self, parent: Node | None) -> None:
        self._parent = parent
        self._by_seed: Mapping[str, Node] | None = None
        self._all: frozenset[str] | None = None
        self._items: dict[Node, dict[str, Item]] = {}

    def has(self, wanted: str) -> bool:
        """Is the item in the conversation?"""
        seed = ids.item_seed(wanted)
        if self._by_seed is None:
            self._by_seed = {ids.seed(node.id): node for node in lineage(self._parent)}
        if seed is not None and (node := self._by_seed.get(seed)) is not None and wanted in self.items(node):
            return True
        if self._all is None:
            self._all = frozenset().union(*map(_names, lineage(self._parent)))
        return wanted in self._all

    def items(self, node: Node) -> Mapping[str, Item]:
        """A response's items by id."""
        if node not in self._items:
            self._items[node] = dict(named_items(node))
        return self._items[node]


def _names(node: Node) -> set[str]:
    return {name for name, _ in named_items(node)}
