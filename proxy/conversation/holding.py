"""What a set of nodes keeps alive, in bytes: each node once, its ancestors included."""

from __future__ import annotations

from proxy.conversation.chain import Node

_ONE_CHAIN = 2


class Holding:
    """Counts by how many holders each node is kept: taking and giving back cost what changed, not a chain's depth."""

    __slots__ = ("_counted", "_holders", "bytes")

    def __init__(self) -> None:
        self.bytes = 0
        self._holders: dict[Node, int] = {}
        self._counted: dict[Node, int] = {}

    def hold(self, node: Node) -> None:
        """One more holds this node, and so every one before it."""
        each: Node | None = node
        while each is not None:
            holders = self._holders.get(each, 0)
            self._holders[each] = holders + 1
            if holders:
                if each is not node:
                    self._count(each, each.own_bytes)  # its list of pieces went to the node after it
                return
            self._count(each, each.own_bytes)
            each = each.parent

    def release(self, node: Node) -> None:
        """One fewer holds it."""
        each: Node | None = node
        while each is not None:
            holders = self._holders[each] - 1
            if holders:
                self._holders[each] = holders
                return
            del self._holders[each]
            self.bytes -= self._counted.pop(each)
            each = each.parent

    def is_shared(self, node: Node) -> bool:
        """Do several conversations go on from this node? One holder is its own, one the node after it."""
        return self._holders.get(node, 0) > _ONE_CHAIN

    def recount(self, node: Node) -> None:
        """The node's size has changed."""
        if node in self._holders:
            self._count(node, node.own_bytes)

    def _count(self, node: Node, size: int) -> None:
        self.bytes += size - self._counted.get(node, 0)
        self._counted[node] = size

    def clear(self) -> None:
        """Nothing is held."""
        self._holders.clear()
        self._counted.clear()
        self.bytes = 0
