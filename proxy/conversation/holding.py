"""What a set of nodes keeps alive, in bytes: each node once, its ancestors included."""

from __future__ import annotations

from proxy.conversation.chain import Node


class Holding:
    """Counts by how many holders each node is kept: taking and giving back cost what changed, not a chain's depth."""

    def __init__(self) -> None:
        self.bytes = 0
        self._holders: dict[Node, int] = {}

    def hold(self, node: Node) -> None:
        """One more holds this node, and so every one before it."""
        each: Node | None = node
        while each is not None:
            holders = self._holders.get(each, 0)
            self._holders[each] = holders + 1
            if holders:
                return
            self.bytes += each.own_bytes
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
            self.bytes -= each.own_bytes
            each = each.parent

    def clear(self) -> None:
        """Nothing is held."""
        self._holders.clear()
        self.bytes = 0
