"""Which tenant a client is, and whether it may come to this door."""

from __future__ import annotations

import hmac
from collections.abc import Collection, Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from proxy.errors import Kind, LooplineError

_CREDENTIAL = ("authorization", "openai-organization", "openai-project")


def tenant_of(headers: Mapping[str, str], secret: bytes) -> str:
    """The tenant that a credential stands for: 32 hex digits. `headers` have lower-case names.

    A keyed hash, so that a tenant's name in a log or a key tells nothing of the credential; a changed key is another
    tenant.
    """
    credential = "\0".join(headers.get(name, "") for name in _CREDENTIAL)
    return hmac.digest(secret, credential.encode(errors="surrogateescape"), "sha256").hex()[:32]


def check_host(host: str | None, *, insecure: bool) -> None:
    """A page of another site that rebinds its name to loopback still sends its own name in `Host`.

    Raises `LooplineError` (forbidden).
    """
    if insecure or _is_loopback(_hostname(f"//{host or ''}")):
        return
    raise LooplineError(
        Kind.FORBIDDEN, f"The Host header {host!r} is not a loopback name, and no client keys are set (--insecure)."
    )


def check_origin(origin: str | None, allowed: Collection[str]) -> None:
    """A browser sends `Origin`, agents do not. Raises `LooplineError` (forbidden) unless it is listed."""
    if origin is None or origin in allowed or "*" in allowed:
        return
    raise LooplineError(Kind.FORBIDDEN, f"The origin {origin!r} is not allowed (server.allowed_origins).")


def _is_loopback(name: str | None) -> bool:
    try:
        return name == "localhost" or ip_address(name or "").is_loopback
    except ValueError:
        return False


def _hostname(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
