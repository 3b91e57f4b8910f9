"""What one socket may take: the server's bounds, and those of a key. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache

from proxy.access.gate import Grant
from proxy.wire.client_events import Limits


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Bounds of one socket. Sizes are bytes, times seconds.

    `stall_s` is what a client may take to make room, `lifetime_s` how long a socket lives (0: for ever) and
    `lifetime_grace_s` what a running turn may take beyond that. A turn silent for `keepalive_s` gets a text event
    (0: never).
    """

    frame_bytes: int = 64 * 1024 * 1024
    queued_turns: int = 64
    queued_bytes: int = 64 * 1024 * 1024
    lanes: int = 32
    running_turns: int = 16
    stall_s: float = 30.0
    lifetime_s: float = 3600.0
    lifetime_grace_s: float = 30.0
    keepalive_s: float = 25.0
    request: Limits = field(default_factory=Limits)

    def of(self, grant: Grant) -> SessionLimits:
        """The limits of one client's socket."""
        if grant.key is None:
            return self
        bounds = {"frame_bytes": self.frame_bytes, "lanes": self.lanes, "tools": self.request.tools}
        return _bounded(self, **{name: grant.bound(name, general) for name, general in bounds.items()})


@lru_cache(maxsize=256)  # one object for all sockets of a key, not one for each
def _bounded(limits: SessionLimits, *, frame_bytes: int, lanes: int, tools: int) -> SessionLimits:
    return replace(limits, frame_bytes=frame_bytes, lanes=lanes, request=limits.request._replace(tools=tools))
