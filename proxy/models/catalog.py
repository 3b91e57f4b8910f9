"""What an upstream serves, read from its GET answers alone, and which model a client's name means.

Asking by a generation would cost somebody tokens; `/v1/models`, `/version` and `/props` tell enough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from proxy.errors import Kind, LooplineError
from proxy.wire.codec import NULL, Raw

_SHOWN = 5
CHAT, RESPONSES = "chat", "responses"
UNKNOWN = "unknown"

# Hosts that speak the Responses API in full; every other server is asked in Chat Completions, which all of them have.
_RESPONSES_HOSTS: Mapping[str, str] = {"api.openai.com": "openai", "api.x.ai": "xai"}

# `owned_by` in a model list → the engine that says so.
_OWNERS: Mapping[str, str] = {
    "vllm": "vllm",
    "sglang": "sglang",
    "llamacpp": "llama.cpp",
    "library": "ollama",
    "openai": "openai",
    "system": "openai",
    "xai": "xai",
    "loopline-simulate": "simulated upstream",
}


class _Model(msgspec.Struct):
    id: str
    owned_by: Raw = NULL


class _Models(msgspec.Struct):
    data: list[Raw]


class _Version(msgspec.Struct):
    version: str


_MODELS = msgspec.json.Decoder(_Models)
_MODEL = msgspec.json.Decoder(_Model)
_VERSION = msgspec.json.Decoder(_Version)


class Catalog(NamedTuple):
    """What one endpoint serves.

    `names` is None where the upstream would not say: then every name is passed on. `entries` are its model objects as
    it gave them, by name.
    """

    dialect: str
    engine: str
    names: frozenset[str] | None
    entries: Mapping[str, bytes]


def read_catalog(url: str, dialect: str, answers: Mapping[str, bytes | None]) -> Catalog:
    """`answers` maps `/models`, `/version` and `/props` to the body of a 200, or None."""
    entries, owners = _entries(answers.get("/models"))
    engine = _engine(url, owners, answers)
    if dialect == "auto":
        dialect = RESPONSES if urlsplit(url).hostname in _RESPONSES_HOSTS else CHAT
    return Catalog(dialect, engine, frozenset(entries) if entries else None, entries)


def _entries(body: bytes | None) -> tuple[dict[str, bytes], list[str]]:
    entries: dict[str, bytes] = {}
    owners: list[str] = []
    try:
        listed = _MODELS.decode(body or b"").data
    except (msgspec.DecodeError, RecursionError):
        return entries, owners
    for raw in listed:
        try:
            model = _MODEL.decode(raw)
        except (msgspec.DecodeError, RecursionError):
            continue
        entries[model.id] = bytes(raw)
        owners.append(bytes(model.owned_by).decode(errors="replace").strip('"').lower())
    return entries, owners


def _engine(url: str, owners: Sequence[str], answers: Mapping[str, bytes | None]) -> str:
    known = _RESPONSES_HOSTS.get(urlsplit(url).hostname or "")
    if known:
        return known
    for owner in owners:
        if owner in _OWNERS:
            return _OWNERS[owner]
    if answers.get("/props"):
        return "llama.cpp"
    try:
        return f"unknown (version {_VERSION.decode(answers.get('/version') or b'').version})"
    except (msgspec.DecodeError, RecursionError):
        return UNKNOWN


class Names:
    """Which upstream model a client's name means: exact alias, pattern, served name, default."""

    def __init__(self, aliases: Mapping[str, str], default: str) -> None:
        self._aliases = dict(aliases)
        self._default = default

    @property
    def default(self) -> str:
        """The model for names that are not known, or empty."""
        return self._default

    @property
    def exact(self) -> tuple[str, ...]:
        """Aliases without a pattern: names that clients may be shown."""
        return tuple(name for name in self._aliases if not set(name) & set("*?["))

    def resolve(self, name: str | None, catalog: Catalog) -> str:
        """The upstream's name. Raises `LooplineError` (missing_parameter, model_not_found)."""
        if name is None:
            if not self._default:
                raise LooplineError(
                    Kind.MISSING_PARAMETER,
                    "Missing required parameter: 'model' (there is no default: setting models.default).",
                    param="model",
                )
            return self._default
        alias = self._alias(name)
        if alias is not None:
            return alias
        if catalog.names is None or name in catalog.names:
            return name
        if self._default:
            return self._default
        raise LooplineError(
            Kind.MODEL_NOT_FOUND,
            f"The model '{name}' does not exist here; this upstream serves {_some(catalog.names)}. "
            "Name one of them, or set an alias (models.aliases) or a default (models.default).",
            param="model",
        )

    def _alias(self, name: str) -> str | None:
        if name in self._aliases:
            return self._aliases[name]
        for pattern, target in self._aliases.items():
            if fnmatchcase(name, pattern):
                return target
        return None


def _some(names: frozenset[str]) -> str:
    shown = sorted(names)[:_SHOWN]
    return ", ".join(shown) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
