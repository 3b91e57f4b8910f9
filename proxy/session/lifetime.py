"""Why and when a socket ends by our will. Pure."""

from __future__ import annotations

from proxy.errors import Kind, LooplineError

_JITTER = 0.1


def expires_after(lifetime_s: float, share: float) -> float:
    """Seconds a socket lives; `share` (0 to 1) of a tenth sooner, so that a fleet does not come back as one."""
    return lifetime_s * (1 - _JITTER * share)


def expired(lifetime_s: float) -> LooplineError:
    """The end of a socket's time, in the words that clients know (protocol.md 1.8)."""
    return LooplineError(
        Kind.CONNECTION_LIMIT,
        f"Responses websocket connection limit reached ({lifetime_s / 60:g} minutes). "
        "Create a new websocket connection to continue.",
    )


def restarting() -> LooplineError:
    """The server is about to end."""
    return LooplineError(Kind.SHUTTING_DOWN, "The server is shutting down.")
