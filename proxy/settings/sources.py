"""The places a setting may come from, as sources of pydantic-settings. Each can name the origin of a value it gave."""

from __future__ import annotations

import difflib
import re
from collections import UserDict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_settings import EnvSettingsSource, InitSettingsSource, TomlConfigSettingsSource

from proxy.settings.catalog import CATALOG, CONFIG_ENV, ENV_NAMES, PREFIX
from proxy.settings.model import Endpoint, Settings


class BadSetting(Exception):
    """A setting that cannot be used. The message is one line: key, origin, value (never a secret), what is allowed."""


class Flags(InitSettingsSource):
    """What was typed, keyed like `CATALOG`. Raises `BadSetting` on a key that is not in it."""

    def __init__(self, flags: Mapping[str, object]) -> None:
        tables: dict[str, dict[str, object]] = {}
        for key, value in flags.items():
            if key not in CATALOG:
                raise BadSetting(f"unknown setting {key}{nearest(key, CATALOG)}")
            tables.setdefault(CATALOG[key].section, {})[CATALOG[key].name] = _whole(value)
        super().__init__(Settings, tables)

    def origin(self, key: str) -> str:
        return f"flag {CATALOG[key].flag or key}"


class Environment(EnvSettingsSource):
    """Variables of `ENV_NAMES` in `environ`, unless empty; lists and tables are JSON.

    Raises `BadSetting` if two names of one setting differ, and, when called, on what is not JSON.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__(Settings, case_sensitive=True, env_nested_delimiter=".")
        self._environ, self._names = environ, dict[str, str]()
        for name, key in ENV_NAMES.items():
            text = environ.get(name)
            if text and not _is_service_link(name, text) and environ[self._names.setdefault(key, name)] != text:
                raise BadSetting(f"{key}: {self.origin(key)} and {name} are both set and differ; keep one")
        # The library reads `section.name`; our names are flatter, and some settings have two.
        self.env_vars = {f"{CATALOG[key].section}.{CATALOG[key].name}": environ[self._names[key]] for key in self._names}

    def origin(self, key: str) -> str:
        return f"environment {self._names[key]}"

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        try:
            return _whole(super().decode_complex_value(field_name, field, value))
        except ValueError:
            setting = next(setting for setting in CATALOG.values() if setting.field is field)
            told = f"{setting.key} from {self.origin(setting.key)}: {setting.shown(value)}"
            raise BadSetting(f"{told} is not JSON; use {setting.allowed}, as JSON") from None

    def refuse_unknown(self, endpoint: Endpoint) -> None:
        """Raise `BadSetting` for a name with our prefix that is no setting and holds no key of `endpoint`."""
        known = {CONFIG_ENV, *ENV_NAMES, endpoint.api_key_env, f"{endpoint.api_key_env}_FILE"}
        for name, text in self._environ.items():
            if name.startswith(PREFIX) and name not in known and not _is_service_link(name, text):
                raise BadSetting(f"environment: unknown setting {name}{nearest(name, [CONFIG_ENV, *ENV_NAMES])}")


class File(TomlConfigSettingsSource):
    """The settings file. Raises `BadSetting` if it cannot be read, is not TOML, or a table in it is none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        super().__init__(Settings, path)

    def origin(self, key: str = "") -> str:
        return f"file {self._path}"

    def _read_files(self, files: object, deep_merge: bool = False) -> dict[str, Any]:
        """The tables. The library's own would take a missing file for an empty one."""
        try:
            tables = self._read_file(self._path)
        except OSError as error:
            raise BadSetting(f"cannot read the settings file {self._path}: {error.strerror}") from None
        except ValueError as error:  # not UTF-8, not TOML, or a path no system takes
            raise BadSetting(f"the settings file {self._path} is not TOML: {error}") from None
        return {section: self._table(section, table) for section, table in tables.items()}

    def _table(self, section: str, table: Any) -> Any:
        """A table that merges with those of other sources. What is in an unknown one is left to validation."""
        if section == "endpoints":
            table = self._only(table)
        elif section in Settings.model_fields and not isinstance(table, dict):
            raise BadSetting(f"{self.origin()}: {section} is a table: write [{section}]")
        return {name: _whole(value) for name, value in table.items()} if isinstance(table, dict) else table

    def _only(self, tables: Any) -> Any:
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise BadSetting(f"{self.origin()}: endpoints is a list of tables: write [[endpoints]]")
        if len(tables) != 1:
            raise BadSetting(f"{self.origin()}: endpoints has {len(tables)} entries; exactly one is supported")
        return tables[0]


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: what may have been meant, or nothing."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _whole(value: Any) -> Any:
    """`value`, not to be merged: a table of headers or aliases replaces that of a weaker source. Only dicts merge."""
    return UserDict(value) if isinstance(value, dict) else value


# A Kubernetes service called loopline (or loopline-…) puts these into every container of its namespace.
_SERVICE_LINK = re.compile(
    rf"{PREFIX}(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)


def _is_service_link(name: str, text: str) -> bool:
    return bool(_SERVICE_LINK.fullmatch(name) or (name.endswith("_PORT") and re.match(r"(tcp|udp|sctp)://", text)))
