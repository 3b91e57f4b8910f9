"""Reading settings: flags over environment over file over defaults. Every bad setting is one `BadSetting`."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from proxy.settings.catalog import CATALOG, CONFIG_ENV, ENV_NAMES, PREFIX, Setting
from proxy.settings.model import Conflict, Endpoint, Settings


class BadSetting(Exception):
    """A setting that cannot be used. The message is one line: key, origin, value (never a secret), what is allowed."""


class Found(NamedTuple):
    """A value as it was given, and where: `flag --port`, `environment LOOPLINE_PORT`, `file /etc/loopline.toml`."""

    value: Any
    origin: str


class Loaded(NamedTuple):
    """Settings, and where each one that is not at its default came from (key → origin)."""

    settings: Settings
    origins: Mapping[str, str]


def load(config: Path | None, flags: Mapping[str, object], environ: Mapping[str, str]) -> Settings:
    """Read every setting. `flags` is keyed like `CATALOG`: `{"server.port": 0}`. Raises `BadSetting`."""
    return read(config, flags, environ).settings


def read(config: Path | None, flags: Mapping[str, object], environ: Mapping[str, str]) -> Loaded:
    """`load`, with the origin of each setting. `config` wins over $LOOPLINE_CONFIG. Raises `BadSetting`."""
    if config is None and environ.get(CONFIG_ENV):
        config = Path(environ[CONFIG_ENV])
    found = _from_file(config) if config else {}
    found |= _from_environ(environ)
    found |= _from_flags(flags)
    settings = _build(found)
    _reject_unknown_names(settings.endpoint, environ)
    if settings.endpoint.ca_bundle and not Path(settings.endpoint.ca_bundle).is_file():
        raise _bad("endpoints[0].ca_bundle", found, "there is no such file")
    api_key(settings.endpoint, environ)
    return Loaded(settings, {key: value.origin for key, value in found.items()})


def api_key(endpoint: Endpoint, environ: Mapping[str, str]) -> str | None:
    """The endpoint's API key, or None where none is named.

    In order: $NAME, the file named by $NAME_FILE, `api_key_file`. Raises `BadSetting` if one is named and none is
    there; the message never holds the key.
    """
    if not (endpoint.api_key_env or endpoint.api_key_file):
        return None
    name, key = endpoint.api_key_env, "endpoints[0].api_key_env"
    if name and environ.get(name):
        return _clean_key(environ[name], key, name)
    if name and environ.get(f"{name}_FILE"):
        return _key_from_file(environ[f"{name}_FILE"], key)
    if endpoint.api_key_file:
        return _key_from_file(endpoint.api_key_file, "endpoints[0].api_key_file")
    shown = CATALOG[key].shown(name)
    raise BadSetting(f"{key}: {shown} is named, but neither it nor the same name with _FILE is set in the environment")


def _key_from_file(path: str, key: str) -> str:
    shown = CATALOG["endpoints[0].api_key_file"].shown(path)
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a path no system takes
        reason = error.strerror if isinstance(error, OSError) else "not a readable text file"
        raise BadSetting(f"{key}: cannot read the key's file {shown}: {reason}") from None
    return _clean_key(text, key, shown)


def _clean_key(text: str, key: str, where: str) -> str:
    """The key without surrounding space; anything an HTTP header could not carry is refused."""
    stripped = text.strip()
    if not re.fullmatch(r"[\x21-\x7e]+", stripped):
        problem = "is empty" if not stripped else "holds characters that an API key cannot have"
        raise BadSetting(f"{key}: the key in {where} {problem}")
    return stripped


# --- Sources ---------------------------------------------------------------------------------------------------------


def _from_file(path: Path) -> dict[str, Found]:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadSetting(f"cannot read the settings file {path}: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadSetting(f"the settings file {path} is not TOML: {error}") from None
    origin, found = f"file {path}", dict[str, Found]()
    for section, table in tables.items():
        if section not in Settings.model_fields:
            raise BadSetting(f"{origin}: unknown table [{section}]{_nearest(section, Settings.model_fields)}")
        prefix, table = _table(section, table, origin)
        for name, value in table.items():
            key = f"{prefix}.{name}"
            if key not in CATALOG:
                known = [setting.name for setting in CATALOG.values() if setting.section == section]
                raise BadSetting(f"{origin}: unknown setting {key}{_nearest(name, known)}")
            found[key] = Found(value, origin)
    return found


def _table(section: str, value: object, origin: str) -> tuple[str, dict[str, Any]]:
    """The key prefix and the settings of one top-level entry of the file."""
    if section != "endpoints":
        if not isinstance(value, dict):
            raise BadSetting(f"{origin}: {section} is a table: write [{section}]")
        return section, value
    if not isinstance(value, list) or not all(isinstance(table, dict) for table in value):
        raise BadSetting(f"{origin}: endpoints is a list of tables: write [[endpoints]]")
    if len(value) != 1:
        raise BadSetting(f"{origin}: endpoints has {len(value)} entries; exactly one is supported")
    return "endpoints[0]", value[0]


def _from_environ(environ: Mapping[str, str]) -> dict[str, Found]:
    """Variables of `ENV_NAMES` that are set and not empty. Lists and tables are JSON."""
    found: dict[str, Found] = {}
    for name, key in ENV_NAMES.items():
        text = environ.get(name, "")
        if not text or _is_service_link(name, text):
            continue
        if key in found and environ[found[key].origin.removeprefix("environment ")] != text:
            raise BadSetting(f"{key}: {found[key].origin} and {name} are both set and differ; keep one")
        found.setdefault(key, Found(_parsed(CATALOG[key], text, name), f"environment {name}"))
    return found


def _parsed(setting: Setting, text: str, name: str) -> object:
    if not setting.is_container:
        return text
    try:
        return json.loads(text)
    except ValueError:
        raise BadSetting(
            f"{setting.key} from environment {name}: {setting.shown(text)} is not JSON; use {setting.allowed}, as JSON"
        ) from None


def _from_flags(flags: Mapping[str, object]) -> dict[str, Found]:
    for key in flags:
        if key not in CATALOG:
            raise BadSetting(f"unknown setting {key}{_nearest(key, CATALOG)}")
    return {key: Found(value, f"flag {CATALOG[key].flag or key}") for key, value in flags.items()}


# A Kubernetes service called loopline (or loopline-…) puts these into every container of its namespace.
_SERVICE_LINK = re.compile(
    rf"{PREFIX}(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)


def _is_service_link(name: str, text: str) -> bool:
    return bool(_SERVICE_LINK.fullmatch(name) or (name.endswith("_PORT") and re.match(r"(tcp|udp|sctp)://", text)))


def _reject_unknown_names(endpoint: Endpoint, environ: Mapping[str, str]) -> None:
    known = {CONFIG_ENV, *ENV_NAMES, endpoint.api_key_env, f"{endpoint.api_key_env}_FILE"}
    for name, text in environ.items():
        if name.startswith(PREFIX) and name not in known and not _is_service_link(name, text):
            raise BadSetting(f"environment: unknown setting {name}{_nearest(name, [CONFIG_ENV, *ENV_NAMES])}")


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


# --- Building --------------------------------------------------------------------------------------------------------


def _build(found: Mapping[str, Found]) -> Settings:
    tables: dict[str, Any] = {}
    for key, value in found.items():
        setting = CATALOG[key]
        tables.setdefault(setting.section, {})[setting.name] = value.value
    if "endpoints" in tables:
        tables["endpoints"] = [tables["endpoints"]]
    try:
        return Settings.model_validate(tables)
    except ValidationError as error:
        raise _explained(error, found) from None


def _explained(error: ValidationError, found: Mapping[str, Found]) -> BadSetting:
    """The first problem, in our words: pydantic's would show values that may be secret."""
    problem = error.errors(include_url=False)[0]
    conflict = problem.get("ctx", {}).get("error")
    if isinstance(conflict, Conflict):
        return _bad(conflict.key, found, f"{conflict.needs} {_about(conflict.other, found)}".rstrip())
    section, *rest = problem["loc"]
    key = f"endpoints[0].{rest[1]}" if section == "endpoints" else f"{section}.{rest[0]}"
    return _bad(key, found, f"use {CATALOG[key].allowed}")


def _bad(key: str, found: Mapping[str, Found], needs: str) -> BadSetting:
    value, origin = _value(key, found)
    return BadSetting(f"{key} from {origin}: {CATALOG[key].shown(value)} is not allowed: {needs}")


def _about(key: str, found: Mapping[str, Found]) -> str:
    if not key:
        return ""
    value, origin = _value(key, found)
    return f"{key}, which is {CATALOG[key].shown(value)} from {origin}"


def _value(key: str, found: Mapping[str, Found]) -> Found:
    return found.get(key) or Found(CATALOG[key].field.default, "the defaults")
