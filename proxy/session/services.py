"""What turns are handed: services, who asks, and where a conversation is held."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from proxy.access.gate import Grant, unbounded
from proxy.access.sealing import Sealer
from proxy.conversation.chain import Node
from proxy.conversation.store import Store
from proxy.http_client import HttpClient
from proxy.models.cache import CatalogCache
from proxy.models.catalog import Names
from proxy.session.known import Known
from proxy.session.portions import Portions
from proxy.session.stopping import Timers
from proxy.telemetry.observer import Observer
from proxy.translate.tools.listed import ToolMemo
from proxy.upstream.endpoint import Endpoint
from proxy.wire.terms import TermsMemo


@dataclass(frozen=True, slots=True)
class Services:
    """What every turn uses; built once by `proxy/app.py`. `clock` is monotonic seconds, `wall` seconds since 1970."""

    client: HttpClient
    endpoints: Sequence[Endpoint]
    catalogs: CatalogCache
    names: Names
    store: Store
    tools: ToolMemo
    terms: TermsMemo
    observer: Observer
    clock: Callable[[], float]
    wall: Callable[[], float]
    early_events_s: float
    history_bytes: int
    max_event_bytes: int
    max_output_bytes: int
    sealer: Sealer
    known: Known | None = None
    timers: Timers = field(default_factory=Timers)
    portions: Portions = field(default_factory=Portions)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: tenant, the headers of the upgrade or the POST, with lower-case names, what it may use, and from where.

    `address` is the client's, `grant` what its key allows.
    """

    tenant: str
    headers: Mapping[str, str]
    grant: Grant = field(default_factory=unbounded)
    address: str = ""


class Holder(Protocol):
    """Where a turn's conversation is kept beside the store: the lanes of a socket."""

    def find(self, response: str) -> Node | None:
        """A response that a lane of this socket holds."""
        ...

    def advance(self, node: Node) -> None:
        """The turn's own lane now holds `node`."""
        ...

    def evict(self, node: Node) -> None:
        """The turn's own lane holds `node` no longer, if it did."""
        ...


class NoHolder:
    """HTTP has no socket to hold anything."""

    def find(self, response: str) -> Node | None:
        return None

    def advance(self, node: Node) -> None:
        pass

    def evict(self, node: Node) -> None:
        pass
