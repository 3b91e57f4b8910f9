"""What settings must agree on, and what is said where two of them exclude each other."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from pydantic_core import PydanticCustomError

if TYPE_CHECKING:
    from proxy.settings.model import Settings

CONFLICT = "conflict"  # the type of the error


class Disagreement(NamedTuple):
    """A setting, what it `needs` in words, and the setting that it needs it of, if it is one."""

    key: str
    needs: str
    other: str = ""


def check(settings: Settings) -> None:
    """Raises `PydanticCustomError` of type `CONFLICT`, with the members of the first `Disagreement`, where one is."""
    for found in disagreements(settings):
        raise PydanticCustomError(CONFLICT, "{key}: {needs} {other}", found._asdict())


def disagreements(settings: Settings) -> Iterator[Disagreement]:
    """Every one there is."""
    server, limits, memory_bytes = settings.server, settings.limits, settings.store.memory_bytes
    hard, soft, admin = limits.frame_hard_bytes, limits.frame_bytes, server.admin_port != 0
    half_tls = bool(server.tls_cert) is not bool(server.tls_key)
    missing, given = ("server.tls_key", "server.tls_cert") if server.tls_cert else ("server.tls_cert", "server.tls_key")
    exposed, admin_exposed = (not (server.insecure or is_loopback(at)) for at in (server.host, server.admin_host))
    keyless = server.status == "key" and not (server.status_key_env or server.status_key_file)
    for broken, key, needs, other in (
        (hard <= soft, "limits.frame_hard_bytes", "it must exceed", "limits.frame_bytes"),
        (limits.history_bytes > memory_bytes, "limits.history_bytes", "it must not exceed", "store.memory_bytes"),
        (admin and server.admin_port == server.port, "server.admin_port", "it must differ from", "server.port"),
        (half_tls, missing, "TLS needs it beside", given),
        (exposed and not settings.access.keys_file, "server.host", _EXPOSED, ""),
        (0 < limits.memory_bytes < hard, "limits.memory_bytes", "it must not be below", "limits.frame_hard_bytes"),
        (keyless, "server.status", "it needs a key in", "server.status_key_file"),
        (admin and admin_exposed, "server.admin_host", _ADMIN_EXPOSED, ""),
    ):
        if broken:
            yield Disagreement(key, needs, other)


_OPEN = (
    "other machines could reach it and there are no client keys: whoever connects could use the upstream or read the "
    "metrics. Keep it on 127.0.0.1, "
)
_EXPOSED = (
    _OPEN + "make client keys (loopline keys create) and name their file in access.keys_file, or pass --insecure "
    "(server.insecure = true) if the network keeps strangers out"
)
_ADMIN_EXPOSED = (
    "other machines could reach it, and no key guards the metrics. Keep it on 127.0.0.1, or pass --insecure "
    "(server.insecure = true) if the network keeps strangers out"
)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`. A name other than localhost counts as reachable."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"
