"""Reading settings: flags over environment over file over defaults. Every bad setting is one `BadSetting`."""

from __future__ import annotations

import difflib
import re
import ssl
from collections import UserDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import EnvSettingsSource, InitSettingsSource, TomlConfigSettingsSource

from proxy.settings.agreement import CONFLICT
from proxy.settings.catalog import CATALOG, CONFIG_ENV, ENV_NAMES, PREFIX
from proxy.settings.certificate import BadCertificate, server_context
from proxy.settings.headers import parse_headers
from proxy.settings.keys import BadKeys, parse_keys, parse_secret
from proxy.settings.model import Endpoint, Settings

T = TypeVar("T")
_SHORTEST_KEY = 16  # of /status, which nothing keeps from being guessed at


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


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret as it was found: the setting that named it, where it was (for messages), its file if it was in one."""

    text: str = field(repr=False)
    key: str
    shown: str
    path: Path | None = None


def load(config: Path | None, flags: Mapping[str, object], environ: Mapping[str, str]) -> Settings:
    """Read every setting. `flags` is keyed like `CATALOG`: `{"server.port": 0}`. Raises `BadSetting`."""
    return read(config, flags, environ).settings


def read(config: Path | None, flags: Mapping[str, object], environ: Mapping[str, str]) -> Loaded:
    """`load`, with the origin of each setting. `config` wins over $LOOPLINE_CONFIG. Raises `BadSetting`."""
    if config is None and environ.get(CONFIG_ENV):
        config = Path(environ[CONFIG_ENV])
    environment = _Environment(environ)
    sources: list[_Source] = [_Flags(flags), environment, *([_File(Settings, str(config))] if config else [])]
    found = {key: value for source in reversed(sources) for key, value in _found(source)}
    try:
        settings = Settings(_build_sources=(tuple(sources), {}))
    except ValidationError as error:
        raise _explained(error, found, config) from None
    environment.refuse_unknown(settings)
    _check_ca_bundle(settings.endpoint.ca_bundle, found)
    _check_certificate(settings, found)
    api_key(settings.endpoint, environ)
    sealing_keys(settings, environ)
    tenant_secret(settings, environ)
    tracing_headers(settings, environ)
    status_key(settings, environ)
    return Loaded(settings, {key: value.origin for key, value in found.items()})


def _check_ca_bundle(path: str, found: Mapping[str, Found]) -> None:
    if not path:
        return
    if not Path(path).is_file():
        raise _bad("endpoints[0].ca_bundle", found, "there is no such file")
    try:
        ssl.create_default_context(cafile=path)
    except ssl.SSLError:
        raise _bad("endpoints[0].ca_bundle", found, "it holds no certificates in PEM form") from None


def _check_certificate(settings: Settings, found: Mapping[str, Found]) -> None:
    server = settings.server
    if server.tls_cert:
        try:
            server_context(server.tls_cert, server.tls_key, server.tls_minimum)
        except BadCertificate as error:
            raise _bad(error.key, found, str(error)) from None


def api_key(endpoint: Endpoint, environ: Mapping[str, str]) -> str | None:
    """The endpoint's API key, or None where none is named.

    In order: $NAME, the file named by $NAME_FILE, `api_key_file`. Raises `BadSetting` if one is named and none is
    there; the message never holds the key.
    """
    secret = _secret("endpoints[0].api_key", endpoint.api_key_env, endpoint.api_key_file, environ)
    return None if secret is None else _clean_key(secret.text, secret.key, secret.shown)


def sealing_source(settings: Settings, environ: Mapping[str, str]) -> Secret | None:
    """The text of the sealing keys, or None where none is named; in the order of `api_key`. Raises `BadSetting`."""
    return _secret("reasoning.keys", settings.reasoning.keys_env, settings.reasoning.keys_file, environ)


def sealing_keys(settings: Settings, environ: Mapping[str, str]) -> Mapping[str, bytes] | None:
    """The sealing keys, key id → 32 bytes, or None where none are named. Raises `BadSetting`, which shows no key."""
    secret = sealing_source(settings, environ)
    return None if secret is None else _parsed(secret, "keys", parse_keys)


def tenant_secret(settings: Settings, environ: Mapping[str, str]) -> bytes | None:
    """The secret of the tenants' names, 32 bytes, or None where none is named. Raises `BadSetting`."""
    state = settings.state
    secret = _secret("state.tenant_secret", state.tenant_secret_env, state.tenant_secret_file, environ)
    return None if secret is None else _parsed(secret, "secret", parse_secret)


def tracing_headers(settings: Settings, environ: Mapping[str, str]) -> Mapping[str, str]:
    """Headers for the collector of traces, none where none are named. Raises `BadSetting`, which shows none."""
    tracing = settings.tracing
    secret = _secret("tracing.headers", tracing.headers_env, tracing.headers_file, environ)
    return {} if secret is None else _parsed(secret, "headers", parse_headers)


def status_key(settings: Settings, environ: Mapping[str, str]) -> str | None:
    """The key that /status asks for, or None where it asks for none. Raises `BadSetting`, which shows no key."""
    server = settings.server
    if server.status != "key":
        return None
    secret = _secret("server.status_key", server.status_key_env, server.status_key_file, environ)
    if secret is None:
        return None
    key = _clean_key(secret.text, secret.key, secret.shown)
    if len(key) < _SHORTEST_KEY:
        raise BadSetting(f"{secret.key}: the key in {secret.shown} has fewer than {_SHORTEST_KEY} characters")
    return key


def _parsed(secret: Secret, what: str, parse: Callable[[str], T]) -> T:
    try:
        return parse(secret.text)
    except BadKeys as error:
        raise BadSetting(f"{secret.key}: the {what} in {secret.shown}: {error}") from None


def _secret(stem: str, name: str, path: str, environ: Mapping[str, str]) -> Secret | None:
    """What the settings `<stem>_env` and `<stem>_file`, whose values are `name` and `path`, point to."""
    key, file_key = f"{stem}_env", f"{stem}_file"
    if name and environ.get(name):
        return Secret(environ[name], key, name)
    if name and environ.get(f"{name}_FILE"):
        return _from_file(environ[f"{name}_FILE"], key, file_key)
    if path:
        return _from_file(path, file_key, file_key)
    if not name:
        return None
    shown = CATALOG[key].shown(name)
    raise BadSetting(f"{key}: {shown} is named, but neither it nor the same name with _FILE is set in the environment")


def _from_file(path: str, key: str, file_key: str) -> Secret:
    shown = CATALOG[file_key].shown(path)
    try:
        file = Path(path).expanduser()
        return Secret(file.read_text(encoding="utf-8"), key, shown, file)
    except (OSError, ValueError, RuntimeError) as error:  # not UTF-8, a path no system takes; ~ of nobody
        reason = error.strerror if isinstance(error, OSError) else "not a readable text file"
        raise BadSetting(f"{key}: cannot read the key's file {shown}: {reason}") from None


def _clean_key(text: str, key: str, where: str) -> str:
    """The key without surrounding space; anything an HTTP header could not carry is refused."""
    stripped = text.strip()
    if not re.fullmatch(r"[\x21-\x7e]+", stripped):
        problem = "is empty" if not stripped else "holds characters that an API key cannot have"
        raise BadSetting(f"{key}: the key in {where} {problem}")
    return stripped


# --- Sources ---------------------------------------------------------------------------------------------------------


class _Flags(InitSettingsSource):
    """What was typed, keyed like `CATALOG`. Raises `BadSetting` on a key that is not in it."""

    def __init__(self, flags: Mapping[str, object]) -> None:
        tables: dict[str, dict[str, object]] = {}
        for key, value in flags.items():
            if key not in CATALOG:
                raise BadSetting(f"unknown setting {key}{_nearest(key, CATALOG)}")
            tables.setdefault(CATALOG[key].section, {})[CATALOG[key].name] = _whole(value)
        super().__init__(Settings, tables)

    def origin(self, key: str) -> str:
        return f"flag {CATALOG[key].flag or key}"


class _Environment(EnvSettingsSource):
    """Variables of `ENV_NAMES` that are not empty. Raises `BadSetting` if two names of one setting differ."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__(Settings, case_sensitive=True, env_nested_delimiter=".")
        self._environ = {name: text for name, text in environ.items() if not _is_service_link(name, text)}
        self._names: dict[str, str] = {}
        # The library reads `section.name`: our names are flatter, and a setting may have two.
        self.env_vars = variables = dict[str, str | None]()
        for name, key in ENV_NAMES.items():
            if text := self._environ.get(name):
                first = self._names.setdefault(key, name)
                if variables.setdefault(f"{CATALOG[key].section}.{CATALOG[key].name}", text) != text:
                    raise BadSetting(f"{key}: environment {first} and {name} are both set and differ; keep one")

    def origin(self, key: str) -> str:
        return f"environment {self._names[key]}"

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        try:
            return _whole(super().decode_complex_value(field_name, field, value))
        except ValueError:
            key, setting = next((key, setting) for key, setting in CATALOG.items() if setting.field is field)
            needs = f"{setting.shown(value)} is not JSON; use {setting.allowed}, as JSON"
            raise BadSetting(f"{key} from {self.origin(key)}: {needs}") from None

    def refuse_unknown(self, settings: Settings) -> None:
        """Raise `BadSetting` for a name with our prefix that is no setting and holds no secret that one names."""
        named = (
            settings.server.status_key_env,
            *(settings.endpoint.api_key_env, settings.reasoning.keys_env, settings.state.tenant_secret_env),
            settings.tracing.headers_env,
        )
        known = {CONFIG_ENV, *ENV_NAMES, *named, *(f"{name}_FILE" for name in named)}
        for name in self._environ:
            if name.startswith(PREFIX) and name not in known:
                raise BadSetting(f"environment: unknown setting {name}{_nearest(name, [CONFIG_ENV, *ENV_NAMES])}")


class _File(TomlConfigSettingsSource):
    """The settings file. Raises `BadSetting` if it cannot be read, is not TOML, or a section in it is no table."""

    def origin(self, _key: str) -> str:
        return f"file {self.toml_file_path}"

    def _read_files(self, files: Any, *_: Any, **__: Any) -> dict[str, Any]:
        """The file's tables. The library's own method takes a missing file for an empty one."""
        try:
            tables = self._read_file(Path(files))
        except OSError as error:
            raise BadSetting(f"cannot read the settings file {files}: {error.strerror}") from None
        except ValueError as error:
            raise BadSetting(f"the settings file {files} is not TOML: {error}") from None
        return {section: self._table(section, table) for section, table in tables.items()}

    def _table(self, section: str, table: Any) -> Any:
        """A section as a table, which merges with those of other sources; unknown ones are left to validation."""
        if section not in Settings.model_fields:
            return table
        listed, tables = section == "endpoints", table if isinstance(table, list) else [table]
        if isinstance(table, list) is not listed or not all(isinstance(one, dict) for one in tables):
            needs = f"a list of tables: write [[{section}]]" if listed else f"a table: write [{section}]"
            raise BadSetting(f"{self.origin('')}: {section} is {needs}")
        if len(tables) != 1:
            raise BadSetting(f"{self.origin('')}: {section} has {len(tables)} entries; exactly one is supported")
        return {name: _whole(value) for name, value in tables[0].items()}


_Source = _Flags | _Environment | _File


def _found(source: _Source) -> Iterator[tuple[str, Found]]:
    """What `source` gives, by key; names that no setting has are left to validation."""
    tables = source()
    for key, setting in CATALOG.items():
        if setting.name in tables.get(setting.section, {}):
            yield key, Found(tables[setting.section][setting.name], source.origin(key))


def _whole(value: Any) -> Any:
    """`value` so that it replaces a weaker source's instead of merging with it, as the library does with any dict."""
    return UserDict(value) if isinstance(value, dict) else value


# A Kubernetes service called loopline (or loopline-…) puts these into every container of its namespace.
_SERVICE_LINK = re.compile(rf"{PREFIX}(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)")


def _is_service_link(name: str, text: str) -> bool:
    return bool(_SERVICE_LINK.fullmatch(name) or (name.endswith("_PORT") and re.match(r"(tcp|udp|sctp)://", text)))


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


# --- Messages --------------------------------------------------------------------------------------------------------


def _explained(error: ValidationError, found: Mapping[str, Found], config: Path | None) -> BadSetting:
    """The first problem, in our words: pydantic's would show values that may be secret."""
    problem = error.errors(include_url=False)[0]
    if problem["type"] == CONFLICT:
        return _bad(found=found, **problem["ctx"])
    section, *rest = problem["loc"]
    if not rest:  # only the file can hold an unknown name: the other sources know theirs
        return BadSetting(f"file {config}: unknown table [{section}]{_nearest(str(section), Settings.model_fields)}")
    prefix, name = ("endpoints[0]", str(rest[1])) if section == "endpoints" else (section, str(rest[0]))
    if setting := CATALOG.get(f"{prefix}.{name}"):
        return _bad(setting.key, found, f"use {setting.allowed}")
    known = [setting.name for setting in CATALOG.values() if setting.section == section]
    return BadSetting(f"file {config}: unknown setting {prefix}.{name}{_nearest(name, known)}")


def _bad(key: str, found: Mapping[str, Found], needs: str, other: str = "") -> BadSetting:
    """`key` has a value that is not allowed; `other` is the setting that explains why."""
    value, origin = _value(key, found)
    other_value, other_origin = _value(other or key, found)
    about = f" {other}, which is {CATALOG[other].shown(other_value)} from {other_origin}" if other else ""
    return BadSetting(f"{key} from {origin}: {CATALOG[key].shown(value)} is not allowed: {needs}{about}")


def _value(key: str, found: Mapping[str, Found]) -> Found:
    return found.get(key) or Found(CATALOG[key].field.default, "the defaults")
