"""How the last attempt at each endpoint went: what /readyz and /status tell, with metrics and without."""

from __future__ import annotations

import time

from proxy.errors import Kind
from proxy.telemetry.numbers import Numbers
from proxy.telemetry.observer import NoObserver, TurnRecord

# What says that an endpoint cannot serve; a refusal of one request does not.
_DOWN = frozenset(
    kind.value
    for kind in (
        Kind.UPSTREAM_UNREACHABLE,
        Kind.UPSTREAM_TIMEOUT,
        Kind.UPSTREAM_CLOSED,
        Kind.UPSTREAM_GARBLED,
        Kind.UPSTREAM_UNAVAILABLE,
    )
)
_DOWN_FOR_S = 30.0


class Health(NoObserver):
    """An `Observer` of attempts; `up` is the gauge that they set."""

    def __init__(self, up: Numbers) -> None:
        self._up = up
        self._failures: dict[str, tuple[str, float]] = {}

    def turn_ended(self, record: TurnRecord) -> None:
        if record.accepted_s is not None and record.error not in _DOWN:
            self._up.child(record.endpoint).value = 1

    def upstream_failed(self, endpoint: str, kind: str) -> None:
        if endpoint and kind in _DOWN:
            self._up.child(endpoint).value = 0
            self._failures[endpoint] = (kind, time.monotonic())

    def health(self, endpoint: str) -> tuple[str, str]:
        """`up`, `down` or `unknown`, and the kind of failure.

        A failure is forgotten after half a minute: who is not asked because it was down would stay down for ever.
        """
        up = self._up.children.get((endpoint,))
        if up is not None and up.value:
            return "up", ""
        kind, failed_s = self._failures.get(endpoint, ("", 0.0))
        return ("down", kind) if kind and time.monotonic() - failed_s < _DOWN_FOR_S else ("unknown", kind)
