"""What every store of responses must do; `tests/store/contract.py` holds each implementation to it."""

from __future__ import annotations

from typing import Protocol

from proxy.conversation.chain import Node


class Store(Protocol):
    """Finds `store:true` responses by tenant and id.

    - A tenant's id is exactly as unknown to another tenant as one that never was.
    - `get` returns a node linked up to its root, or None; never a part of a chain.
    - `put` is whole or nothing: cancelled or failed, it leaves no entry behind.
    - What was put is found until it expires (`now` plus its time to live, counted from its last use) or the budget
      makes room for newer entries, least recently used first.
    - `delete` hides an id at once; descendants still find the content through their own chain.
    - `holder` finds the response that an item of an answer came with, or an input item by the id it was listed under;
      whether the item is really there is for the caller to see.
    - `now` is monotonic seconds.
    """

    async def put(self, node: Node, now: float) -> None: ...

    async def get(self, tenant: str, response: str, now: float) -> Node | None: ...

    async def holder(self, tenant: str, item: str, now: float) -> Node | None: ...

    async def delete(self, tenant: str, response: str, now: float) -> bool: ...

    def used_bytes(self) -> int: ...

    async def aclose(self) -> None: ...
