"""Conversations as chains of finished responses.

A node holds its own delta and output and points at its parent; it is never changed, so a fork is two nodes with one
parent and everything before them shared. Memory grows with what is new in each turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from proxy.wire.items import Item

# What an item costs beside its bytes: the tuple, the strings, a slot in its node's tuple.
_ITEM_OVERHEAD_BYTES = 200
_NODE_OVERHEAD_BYTES = 600
# Items whose effect lasts in their conversation, beyond the place where they stand.
LASTING = frozenset({"additional_tools", "tool_search_output", "configuration_update"})
_CALL_BYTES = 150  # an id in the set of open calls

Encoder = Callable[[Sequence[Item]], bytes]


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One finished response.

    `items` is the delta that the client sent, `output` what the model answered, `open_calls` the ids of calls that no
    output has answered yet. `lasting` are the items of the chain that are in
    `LASTING`, from the root on. `own_bytes` counts this node, `total_bytes` all nodes up to the root; both are bytes.
    `upstream_id` is the upstream's own id of the response, a hint. `fragments` caches the node in an upstream's
    dialect, by the encoding's name: a part that can always be made again.
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
    own_bytes: int
    total_bytes: int
    depth: int
    fragments: dict[str, bytes] = field(default_factory=dict)
    lasting: tuple[Item, ...] = ()


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
    fragments: dict[str, bytes] | None = None,
) -> Node:
    """A new node after `parent`. Raises ValueError where the parent is another tenant's."""
    if parent is not None and parent.tenant != tenant:
        raise ValueError("a chain never crosses tenants")
    fragments = {} if fragments is None else fragments
    own = (
        _NODE_OVERHEAD_BYTES
        + items_bytes(items)
        + items_bytes(output)
        + sum(len(fragment) for fragment in fragments.values())
    )
    if parent is None or open_calls is not parent.open_calls:
        own += _CALL_BYTES * len(open_calls)
    return Node(
        tenant=tenant,
        id=response,
        parent=parent,
        items=items,
        output=output,
        open_calls=open_calls,
        stored=stored,
        endpoint=endpoint,
        upstream_id=upstream_id,
        own_bytes=own,
        total_bytes=own + (parent.total_bytes if parent else 0),
        depth=parent.depth + 1 if parent else 1,
        fragments=fragments,
        lasting=lasting(parent, (*items, *output)),
    )


def lasting(parent: Node | None, items: Sequence[Item]) -> tuple[Item, ...]:
    """The items that last after `parent` and `items`; its own tuple where nothing is added."""
    before = parent.lasting if parent else ()
    return before + added if (added := tuple(item for item in items if item.kind in LASTING)) else before


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


def history(node: Node | None, encoding: str, encode: Encoder, *, keep: bool) -> list[bytes]:
    """A chain in an upstream's encoding: one fragment a node, empty ones left out, encoded only where not yet known.

    `keep` says whether a fragment that had to be made is kept on its node; where encoding is but a join of bytes that
    are there already, keeping it would hold them twice.
    """
    fragments = []
    for each in lineage(node):
        fragment = each.fragments.get(encoding)
        if fragment is None:
            fragment = b",".join(part for part in (encode(each.items), encode(each.output)) if part)
            if keep:
                each.fragments[encoding] = fragment
        if fragment:
            fragments.append(fragment)
    return fragments
