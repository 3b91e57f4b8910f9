"""Reading settings: flags over environment over file over defaults. Every bad setting is one `BadSetting`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from proxy.settings.catalog import CATALOG, CONFIG_ENV
from proxy.settings.model import Conflict, Endpoint, Settings
from proxy.settings.sources import BadSetting, Environment, File, Flags, nearest


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
    environment = Environment(environ)
    sources = (Flags(flags), environment, *([File(config)] if config else []))
    found = _found(sources)
    try:
        settings = Settings(_build_sources=(sources, {}))
    except ValidationError as error:
        raise _explained(error, found, f"file {config}") from None
    environment.refuse_unknown(settings.endpoint)
    if settings.endpoint.ca_bundle and not Path(settings.endpoint.ca_bundle).is_file():
        raise _bad("endpoints[0].ca_bundle", found, "there is no such file")
    api_key(settings.endpoint, environ)
    return Loaded(settings, {key: value.origin for key, value in found.items()})


def _found(sources: Sequence[Flags | Environment | File]) -> dict[str, Found]:
    """What was given, by key, from the strongest source that gave it. `sources`: the strongest first."""
    found: dict[str, Found] = {}
    for source in reversed(sources):
        tables = source()
        for key, setting in CATALOG.items():
            if setting.name in tables.get(setting.section, {}):
                found[key] = Found(tables[setting.section][setting.name], source.origin(key))
    return found


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
    except (OSError, ValueError, RuntimeError) as error:  # not UTF-8, a path no system takes; ~ of nobody
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


# --- Messages --------------------------------------------------------------------------------------------------------


def _explained(error: ValidationError, found: Mapping[str, Found], file: str) -> BadSetting:
    """The first problem, in our words: pydantic's would show values that may be secret."""
    problem = error.errors(include_url=False)[0]
    conflict = problem.get("ctx", {}).get("error")
    if isinstance(conflict, Conflict):
        return _bad(conflict.key, found, f"{conflict.needs} {_about(conflict.other, found)}".rstrip())
    section, *rest = problem["loc"]
    if not rest:  # flags and environment give known names only
        return BadSetting(f"{file}: unknown table [{section}]{nearest(str(section), Settings.model_fields)}")
    name = str(rest[1] if section == "endpoints" else rest[0])
    key = f"endpoints[0].{name}" if section == "endpoints" else f"{section}.{name}"
    if key in CATALOG:
        return _bad(key, found, f"use {CATALOG[key].allowed}")
    known = [setting.name for setting in CATALOG.values() if setting.section == section]
    return BadSetting(f"{file}: unknown setting {key}{nearest(name, known)}")


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
