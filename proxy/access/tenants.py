"""Which tenant a client is, and whether it may come to this door."""

from __future__ import annotations

import hmac
from collections.abc import Collection, Mapping
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

from proxy.errors import Kind, LooplineError

_LONGEST_NAME = 253 + len(":65535")
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
    if insecure or (host is not None and len(host) <= _LONGEST_NAME and _is_loopback(host)):
        return
    raise LooplineError(
        Kind.FORBIDDEN, f"The Host header {host!r} is not a loopback name, and no client keys are set (--insecure)."
    )


def check_origin(origin: str | None, allowed: Collection[str]) -> None:
    """A browser sends `Origin`, agents do not. Raises `LooplineError` (forbidden) unless it is listed."""
    if origin is None or origin in allowed or "*" in allowed:
        return
    raise LooplineError(Kind.FORBIDDEN, f"The origin {origin!r} is not allowed (server.allowed_origins).")


@lru_cache(maxsize=256)  # clients name a server in few ways, and each would be taken apart anew
def _is_loopback(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname
        return name == "localhost" or ip_address(name or "").is_loopback
    except ValueError:
        return False
