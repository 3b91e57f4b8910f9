"""Settings made into what they set: the objects that `proxy/app.py` puts together. Nothing is started here."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from proxy.access.accounts import Quota
from proxy.access.key_file import KeyFile
from proxy.access.sealing import Sealer
from proxy.conversation.memory import MemoryStore
from proxy.models.cache import CatalogCache
from proxy.models.catalog import Names
from proxy.models.chosen import chosen_profiles
from proxy.server.passthrough import PassthroughRules
from proxy.session.known import Known
from proxy.session.services import Services
from proxy.settings import Access, BadSetting, Limits, Settings, api_key, is_loopback, tracing_headers
from proxy.settings import Endpoint as EndpointSettings
from proxy.telemetry.observer import Observers
from proxy.translate.tools.listed import ToolMemo
from proxy.upstream.endpoint import Endpoint
from proxy.upstream.http import Http1Client
from proxy.wire.terms import TermsMemo

if TYPE_CHECKING:
    from proxy.telemetry.tracing import Tracing


def passthrough_rules(settings: Settings) -> PassthroughRules:
    """What may be passed on, and how."""
    passthrough, server = settings.passthrough, settings.server
    return PassthroughRules(
        enabled=passthrough.enabled,
        paths=passthrough.paths,
        tunnel=passthrough.upgrades == "tunnel",
        exposed=server.insecure or not is_loopback(server.host) or bool(server.trusted_proxies),
        body_bytes=settings.limits.frame_bytes,
        receive_s=settings.server.receive_s,
        stall_s=settings.server.client_stall_s,
    )


def make_services(settings: Settings, observer: Observers, sealer: Sealer) -> Services:
    """What turns use. Raises `BadSetting` where an endpoint's profile is none."""
    known = chosen_profiles(settings)
    client = Http1Client(keepalive_s=settings.upstream.keepalive_s, connect_s=settings.upstream.connect_timeout_s)
    return Services(
        client=client,
        endpoints=tuple(make_endpoint(endpoint, settings) for endpoint in settings.endpoints),
        catalogs=CatalogCache(client, settings.models.cache_ttl_s, time.monotonic, known),
        names=Names(settings.models.aliases, settings.models.default),
        store=MemoryStore(settings.store.memory_bytes, settings.store.ttl_s),
        tools=ToolMemo(ttl_s=settings.models.cache_ttl_s, clock=time.monotonic),
        terms=TermsMemo(ttl_s=settings.models.cache_ttl_s, clock=time.monotonic),
        observer=observer,
        clock=time.monotonic,
        wall=time.time,
        early_events_s=settings.server.early_events_s,
        history_bytes=settings.limits.history_bytes,
        max_event_bytes=settings.upstream.max_event_bytes,
        max_output_bytes=settings.upstream.max_output_bytes,
        sealer=sealer,
        known=_known(settings),
    )


def _known(settings: Settings) -> Known | None:
    prefix = settings.prefix
    if not prefix.memory_bytes:
        return None
    return Known(prefix.memory_bytes, prefix.unstored_ttl_s, settings.store.ttl_s, time.monotonic)


def make_tracing(settings: Settings) -> Tracing | None:
    """What makes traces, None where that is off. Raises `BadSetting`, also where OpenTelemetry is not installed."""
    if not settings.tracing.enabled or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    try:
        from proxy.telemetry.tracing import open_tracing  # late: who does not trace needs none of it
    except ModuleNotFoundError as error:
        missing = f"there is no module {error.name}"
        raise BadSetting(f"tracing.enabled: {missing}; pip install 'loopline[otel]' brings it") from None
    return open_tracing(settings, tracing_headers(settings, os.environ))


def load_keys(settings: Settings) -> KeyFile | None:
    """The client keys that the settings name, None where none are required. Raises `BadSetting`."""
    named = settings.access.keys_file
    if not named:
        return None
    try:
        keys = KeyFile(Path(named).expanduser())
    except FileNotFoundError:
        raise BadSetting(f"access.keys_file: there is no {named}; loopline keys create makes it") from None
    except (OSError, ValueError, RuntimeError) as error:  # no keys; a path that no system takes; ~ of nobody
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadSetting(f"access.keys_file: cannot read {named}: {reason}") from None
    if keys.open_to_all:
        structlog.get_logger().warning(f"access.keys_file: {named} is open to every user: chmod 600 closes it")
    return keys


def quota(limits: Access | Limits) -> Quota:
    """Bounds of one key or tenant, or of everybody."""
    return Quota(
        connections=limits.connections,
        turns=limits.turns,
        background_turns=limits.background_turns,
        requests_per_minute=limits.requests_per_minute,
        tokens_per_minute=limits.tokens_per_minute,
        memory_bytes=limits.memory_bytes,
    )


def make_endpoint(endpoint: EndpointSettings, settings: Settings) -> Endpoint:
    """One endpoint, with its key from the environment or a file."""
    return Endpoint(
        endpoint.name,
        endpoint.url,
        key=api_key(endpoint, os.environ),
        headers=endpoint.headers,
        query=endpoint.query,
        forward=endpoint.forward_headers,
        ca_bundle=endpoint.ca_bundle,
        proxy=endpoint.proxy,
        dialect=endpoint.dialect,
        profile=endpoint.profile,
        faithful=endpoint.faithful,
        client_credentials=endpoint.client_credentials == "yes"
        or (endpoint.client_credentials == "auto" and len(settings.endpoints) == 1),
        max_output_tokens=endpoint.max_output_tokens,
        context_hint=endpoint.context_hint,
        first_byte_s=settings.upstream.first_byte_timeout_s,
        idle_s=settings.upstream.idle_timeout_s,
    )
