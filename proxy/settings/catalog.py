"""Every setting as the outside names it: key in the file, flag, environment names, what is allowed, what may be shown.

Derived from the models; the example file, the command's help and the documentation derive from here.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple, get_args, get_origin

from pydantic.fields import FieldInfo

from proxy.settings.model import Endpoint, Settings
from proxy.settings.types import Says

PREFIX = "LOOPLINE_"
CONFIG_ENV = PREFIX + "CONFIG"

FLAGS: Mapping[str, str] = {
    "server.host": "--host",
    "server.port": "--port",
    "server.admin_port": "--admin-port",
    "server.insecure": "--insecure",
    "endpoints[0].url": "--upstream",
    "endpoints[0].dialect": "--dialect",
    "endpoints[0].api_key_env": "--api-key-env",
    "store.kind": "--store",
    "log.format": "--log-format",
    "log.level": "--log-level",
}
# A value is shown only if it matches: the rest may hold a secret, or be one put in the wrong place.
_VARIABLE, _PATH = r"([A-Z][A-Z0-9_]*)?", r"((~|\.{0,2})/.*)?"
_SHOWN_IF: Mapping[str, str] = {
    "endpoints[0].url": r"[^@?#]*",
    "endpoints[0].api_key_env": _VARIABLE,
    "endpoints[0].api_key_file": _PATH,
    "endpoints[0].headers": r"\{\}",
    "endpoints[0].query": r"\{\}",
    "endpoints[0].proxy": r"[^@?#]*",
    "server.tls_key": _PATH,
    "server.status_key_env": _VARIABLE,
    "server.status_key_file": _PATH,
    "access.keys_file": _PATH,
    "reasoning.keys_env": _VARIABLE,
    "reasoning.keys_file": _PATH,
    "state.tenant_secret_env": _VARIABLE,
    "state.tenant_secret_file": _PATH,
    "tracing.endpoint": r"[^@?#]*",
    "tracing.headers_env": _VARIABLE,
    "tracing.headers_file": _PATH,
}


class Setting(NamedTuple):
    """One setting as the outside names it. `key` is `server.port` or `endpoints[0].url`."""

    key: str
    section: str
    name: str
    field: FieldInfo

    @property
    def description(self) -> str:
        return self.field.description or ""

    @property
    def flag(self) -> str | None:
        return FLAGS.get(self.key)

    @property
    def choices(self) -> tuple[str, ...]:
        """The values of a setting that has a fixed set, else nothing."""
        return get_args(self.field.annotation) if get_origin(self.field.annotation) is Literal else ()

    @property
    def env(self) -> tuple[str, ...]:
        """Environment names; the first one counts in documentation."""
        section = "endpoint" if self.section == "endpoints" else self.section
        long = f"{PREFIX}{section}_{self.name}".upper()
        short = PREFIX + self.flag.lstrip("-").replace("-", "_").upper() if self.flag else long
        return tuple(dict.fromkeys((short, long)))

    @property
    def allowed(self) -> str:
        if self.choices:
            return "one of " + ", ".join(self.choices) if len(self.choices) > 1 else self.choices[0]
        if self.field.annotation is bool:
            return "true or false"
        return next(mark.text for mark in self.field.metadata if isinstance(mark, Says))

    @property
    def is_container(self) -> bool:
        """Whether the value is a list or a table: JSON in the environment."""
        return get_origin(self.field.annotation) in (tuple, Mapping)

    def hides(self, value: object) -> bool:
        """Whether `value` may be a secret."""
        return not re.fullmatch(_SHOWN_IF.get(self.key, "(?s:.*)"), str(value))

    def shown(self, value: object) -> str:
        """`value` for a message: shortened, or `(hidden)` where it may be a secret."""
        return "(hidden)" if self.hides(value) else textwrap.shorten(repr(value), 80, placeholder=" …")


def _catalog() -> Iterator[Setting]:
    for section, table in Settings.model_fields.items():
        model, prefix = (Endpoint, "endpoints[0]") if section == "endpoints" else (table.annotation, section)
        for name, field in model.model_fields.items():  # type: ignore[union-attr]
            yield Setting(f"{prefix}.{name}", section, name, field)


CATALOG: Mapping[str, Setting] = {setting.key: setting for setting in _catalog()}
ENV_NAMES: Mapping[str, str] = {name: setting.key for setting in CATALOG.values() for name in setting.env}
