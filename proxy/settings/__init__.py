"""Every setting, once: type, default, unit in its name, description; read once into one immutable `Settings`.

`load` takes flags over environment over file over defaults and raises `BadSetting`, whose one-line message names the
key, where it came from, the value and what is allowed. The values of keys, headers and query parameters appear in no
message and no repr.
"""

from proxy.settings.agreement import is_loopback
from proxy.settings.catalog import CATALOG, CONFIG_ENV, ENV_NAMES, FLAGS, Setting
from proxy.settings.model import (
    Access,
    Endpoint,
    Limits,
    Log,
    Models,
    Passthrough,
    Reasoning,
    Server,
    Settings,
    State,
    Store,
    Tracing,
    Upstream,
)
from proxy.settings.reading import (
    BadSetting,
    Loaded,
    Secret,
    api_key,
    load,
    read,
    sealing_keys,
    sealing_source,
    status_key,
    tenant_secret,
    tracing_headers,
)
from proxy.settings.text import effective, example

__all__ = [
    "CATALOG",
    "CONFIG_ENV",
    "ENV_NAMES",
    "FLAGS",
    "Access",
    "BadSetting",
    "Endpoint",
    "Limits",
    "Loaded",
    "Log",
    "Models",
    "Passthrough",
    "Reasoning",
    "Secret",
    "Server",
    "Setting",
    "Settings",
    "State",
    "Store",
    "Tracing",
    "Upstream",
    "api_key",
    "effective",
    "example",
    "is_loopback",
    "load",
    "read",
    "sealing_keys",
    "sealing_source",
    "status_key",
    "tenant_secret",
    "tracing_headers",
]
