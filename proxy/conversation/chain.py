"""Conversations as chains of finished responses.

A node holds its own delta and output and points at its parent; it is never changed, so a fork is two nodes with one
parent and everything before them shared. Memory grows with what is new in each turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter

import msgspec

from proxy.wire.items import Item
from proxy.wire.server_events import Shown

# What an item costs beside its bytes: the tuple, the strings, a slot in its node's tuple.
_ITEM_OVERHEAD_BYTES = 200
_NODE_OVERHEAD_BYTES = 600
# Items whose effect lasts in their conversation, beyond the place where they stand.
LASTING = frozenset({"additional_tools", "tool_search_output", "configuration_update"})
_SHOWN_OVERHEAD_BYTES = 500
_DEAD = frozenset({b"failed", b"cancelled"})
_CALL_BYTES = 150  # an id in the set of open calls
_LISTED_BYTES = 8  # a place in the list of a chain's pieces

_KIND = attrgetter("kind")

Encoder = Callable[[Sequence[Item]], bytes]


class Pieces(list[bytes]):
    """What stands between commas in a body, and how many bytes it is: to measure a thousand pieces costs more than to
    join them.
    """

    __slots__ = ("size",)

    def __init__(self, pieces: Sequence[bytes] = ()) -> None:
        super().__init__(pieces)
        self.size = sum(map(len, pieces))

    def add(self, pieces: Sequence[bytes]) -> None:
        """These follow."""
        self.extend(pieces)
        self.size += sum(map(len, pieces))

    def copy(self) -> Pieces:
        """The same pieces in a list of its own."""
        made = Pieces.__new__(Pieces)  # `__init__` would measure nothing
        made.extend(self)
        made.size = self.size
        return made


class Node(msgspec.Struct, frozen=True, eq=False, weakref=True):
    """One finished response; a Struct, since one is made for each turn.

    `items` is the delta that the client sent, `output` what the model answered, `open_calls` the ids of calls that no
    output has answered yet. `lasting` are the items of the chain that are in
    `LASTING`, from the root on. `own_bytes` counts this node, `total_bytes` all nodes up to the root, as they were when
    each was made; both are bytes.
    `upstream_id` is the upstream's own id of the response, a hint. `shown` is what there is to be shown of a stored
    response beside its output; one that failed or was cancelled is kept to be shown alone, and continues as nothing.
    `fragments` caches the node in an upstream's dialect, by the encoding's name: a part that can always be made again.
    None stands for the items' bytes, as they are: a dialect that takes them so holds nothing twice. `flat` has, by the
    encoding's name, all pieces from the root to this node. A chain has one such list, on its newest node: what is
    linked after it takes the list over, so that nobody walks a chain that only grows. None says that it was given away:
    a fork has none before it goes on itself, since a thousand answers to one question would hold a thousand.
    """

    tenant: str
    id: str
    parent: Node | None
    items: tuple[Item, ...]
    output: tuple[Item, ...]
    open_calls: frozenset[str]
    stored: bool
    endpoint: str
    upstream_id: str | None
    bare_bytes: int
    total_bytes: int
    depth: int
    fragments: dict[str, bytes | None] = {}  # made anew for each
    flat: dict[str, Pieces | None] = {}
    lasting: tuple[Item, ...] = ()
    shown: Shown | None = None

    @property
    def own_bytes(self) -> int:
        """What the node takes in memory now, its kept fragments and its list of pieces included."""
        size = self.bare_bytes
        for fragment in self.fragments.values():  # loops: it is asked for several times a turn
            if fragment is not None:
                size += len(fragment)
        for pieces in self.flat.values():
            if pieces is not None:
                size += _LISTED_BYTES * len(pieces)
        return size

    def lighten(self) -> None:
        """Let go of what can be made again."""
        self.fragments.clear()
        self.flat.clear()

    @property
    def continues(self) -> bool:
        """Can a later response continue this one?"""
        return self.shown is None or self.shown.status not in _DEAD

    def render(self) -> bytes | None:
        """The response object as its client was last told; None where it is not kept to be shown."""
        return None if self.shown is None else self.shown.render(b",".join(item.raw for item in self.output))


def link(
    parent: Node | None,
    *,
    tenant: str,
    response: str,
    items: tuple[Item, ...],
    output: tuple[Item, ...],
    open_calls: frozenset[str],
    stored: bool,
    endpoint: str = "",
    upstream_id: str | None = None,
    fragments: Mapping[str, bytes] | None = None,
    before: Pieces | None = None,
    shown: Shown | None = None,
) -> Node:
    """A new node after `parent`. `before` is the parent's `history` in the one encoding of `fragments`, if it is at
    hand: the node takes the list over.

    Raises ValueError where the parent is another tenant's.
    """
    if parent is not None and parent.tenant != tenant:
        raise ValueError("a chain never crosses tenants")
    raws = _raws(items, output)
    raw_bytes = sum(map(len, raws))
    kept = {encoding: _other_than(raws, raw_bytes, made) for encoding, made in (fragments or {}).items()}
    own = _NODE_OVERHEAD_BYTES + raw_bytes + _ITEM_OVERHEAD_BYTES * len(raws)
    if parent is None or open_calls is not parent.open_calls:
        own += _CALL_BYTES * len(open_calls)
    if shown is not None:
        # Tools and instructions are sent again with every turn, mostly the same: a chain holds them once.
        shown, held = shown.sharing(parent.shown if parent is not None else None)
        own += _SHOWN_OVERHEAD_BYTES + held
    made = Node(
        tenant=tenant,
        id=response,
        parent=parent,
        items=items,
        output=output,
        open_calls=open_calls,
        stored=stored,
        endpoint=endpoint,
        upstream_id=upstream_id,
        bare_bytes=own,
        total_bytes=own + sum(map(len, filter(None, kept.values()))) + (parent.total_bytes if parent else 0),
        depth=parent.depth + 1 if parent else 1,
        fragments=kept,
        lasting=lasting(parent, items + output),
        shown=shown,
    )
    if before is not None:
        ((encoding, fragment),) = kept.items()
        if parent is None or parent.flat.get(encoding, before) is not None:
            before.add(_pieces(raws, fragment))
            made.flat[encoding] = before
        if parent is not None:
            parent.flat[encoding] = None
    return made


def lasting(parent: Node | None, items: Sequence[Item]) -> tuple[Item, ...]:
    """The items that last after `parent` and `items`; the parent's own tuple where nothing is added.

    Of items with the same bytes the last is kept: it says all that the others did, and a client that repeats one in
    every turn does not make its turns dearer.
    """
    before = parent.lasting if parent else ()
    if LASTING.isdisjoint(map(_KIND, items)):
        return before
    added = {item.raw: item for item in reversed(items) if item.kind in LASTING}
    return (*(item for item in before if item.raw not in added), *reversed(added.values()))


def items_bytes(items: Sequence[Item]) -> int:
    """What items cost in memory, in bytes."""
    return sum(len(item.raw) for item in items) + _ITEM_OVERHEAD_BYTES * len(items)


def lineage(node: Node | None) -> list[Node]:
    """The nodes of a chain, root first."""
    nodes = []
    while node is not None:
        nodes.append(node)
        node = node.parent
    nodes.reverse()
    return nodes


def history(node: Node | None, encoding: str, encode: Encoder, *, keep: bool = True) -> Pieces:
    """A chain in an upstream's encoding, in pieces to be joined by commas, encoded only where not yet known.

    `keep` says whether what had to be made is kept on its node. The list is the caller's, who may hand it to `link`. A
    node that was continued already has given its own away: to continue it again walks its chain.
    """
    if node is None:
        return Pieces()
    kept = node.flat.get(encoding)
    if kept is not None:
        return kept.copy()
    pieces = Pieces()
    for each in lineage(node):
        raws = _raws(each.items, each.output)
        if encoding in each.fragments:
            fragment = each.fragments[encoding]
        else:
            made = b",".join(filter(None, (encode(each.items), encode(each.output))))
            fragment = _other_than(raws, sum(map(len, raws)), made)
            if keep:
                each.fragments[encoding] = fragment
        pieces.add(_pieces(raws, fragment))
    return pieces


def _raws(items: tuple[Item, ...], output: tuple[Item, ...]) -> list[bytes]:
    return [item.raw for item in items + output]


def _pieces(raws: list[bytes], fragment: bytes | None) -> list[bytes]:
    """A node's own part of its chain's pieces; `raws` are its items' bytes."""
    if fragment is None:
        return raws
    return [fragment] if fragment else []


def _other_than(raws: list[bytes], raw_bytes: int, fragment: bytes) -> bytes | None:
    """The fragment, None where it is the items' own bytes."""
    if raw_bytes + max(0, len(raws) - 1) != len(fragment):
        return fragment
    return None if fragment == b",".join(raws) else fragment
