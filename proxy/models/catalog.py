"""What an upstream serves, read from its GET answers alone, and which model a client's name means.

Asking by a generation would cost somebody tokens; `/v1/models`, `/props` and the like tell enough.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from proxy.errors import Kind, LooplineError
from proxy.models.profile import Profile, Signs, generic, profiles
from proxy.wire.codec import NULL, Raw

_SHOWN = 5
CHAT, RESPONSES = "chat", "responses"


class _Model(msgspec.Struct):
    id: str
    owned_by: Raw = NULL


class _Models(msgspec.Struct):
    data: list[Raw]


_MODELS = msgspec.json.Decoder(_Models)
_MODEL = msgspec.json.Decoder(_Model)


class Catalog(NamedTuple):
    """What one endpoint serves, and what kind of server it is.

    `names` is None where the upstream would not say: then every name is passed on. `entries` are its model objects as
    it gave them, by name.
    """

    dialect: str
    profile: Profile
    names: frozenset[str] | None
    entries: Mapping[str, bytes]


def read_catalog(url: str, dialect: str, profile: Profile | None, answers: Mapping[str, bytes | None]) -> Catalog:
    """`answers` maps `/models` and the paths that profiles ask for to the body of a 200, or None.

    `profile` is the one that settings name, None to recognise it; `dialect` may be auto.
    """
    entries, owners = _entries(answers.get("/models"))
    profile = profile or recognise(url, owners, answers)
    return Catalog(
        profile.dialect if dialect == "auto" else dialect, profile, frozenset(entries) if entries else None, entries
    )


def recognise(url: str, owners: Sequence[str], answers: Mapping[str, bytes | None]) -> Profile:
    """The profile whose signs a server shows: its host first, then what its models say, then what it answers.

    Signs of two kinds at once (a gateway before several servers) are no sign.
    """
    host = urlsplit(url).hostname or ""
    shows: tuple[Callable[[Signs], bool], ...] = (
        lambda signs: any(fnmatchcase(host, pattern) for pattern in signs.hosts),
        lambda signs: any(owner in signs.owners for owner in owners),
        lambda signs: any(text.encode() in (answers.get(path) or b"") for path, text in signs.answers.items()),
    )
    for shown in shows:
        found = [profile for profile in profiles().values() if shown(profile.signs)]
        if len(found) == 1:
            return found[0]
    return generic()


def questions() -> list[str]:
    """The paths beside `/models` by whose answers some profile is recognised."""
    return list(dict.fromkeys(path for profile in profiles().values() for path in profile.signs.answers))


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


class Names:
    """Which upstream model a client's name means: exact alias, pattern, served name, default."""

    def __init__(self, aliases: Mapping[str, str], default: str) -> None:
        self._aliases = dict(aliases)
        self._default = default
        self._targets = frozenset(aliases.values()) | {default}

    @property
    def default(self) -> str:
        """The model for names that are not known, or empty."""
        return self._default

    @property
    def exact(self) -> tuple[str, ...]:
        """Aliases without a pattern: names that clients may be shown."""
        return tuple(name for name in self._aliases if not set(name) & set("*?["))

    def knows(self, model: str, catalog: Catalog) -> bool:
        """Is it an upstream's name that the upstream lists or the settings name? Others come from clients alone."""
        return model in self._targets or (catalog.names is not None and model in catalog.names)

    def resolve(self, name: str | None, catalog: Catalog, allows: Callable[[str], bool] = lambda _: True) -> str:
        """The upstream's name. Raises `LooplineError` (missing_parameter, model_not_found).

        `allows` says which names the client may use, an alias by its own name. One that it may not use is exactly as
        unknown as one that there is not.
        """
        default = self._default if self._default and allows(self._default) else ""
        if name is None:
            if not default:
                raise LooplineError(
                    Kind.MISSING_PARAMETER,
                    "Missing required parameter: 'model' (there is no default: setting models.default).",
                    param="model",
                )
            return default
        allowed = allows(name)
        alias = self._alias(name)
        if alias is not None and allowed:
            return alias
        if allowed and (catalog.names is None or name in catalog.names):
            return name
        if default:
            return default
        raise LooplineError(
            Kind.MODEL_NOT_FOUND,
            f"The model '{name}' does not exist here; {_some(sorted(filter(allows, catalog.names or ())))}, "
            "or set an alias (models.aliases) or a default (models.default).",
            param="model",
        )

    def _alias(self, name: str) -> str | None:
        if name in self._aliases:
            return self._aliases[name]
        for pattern, target in self._aliases.items():
            if fnmatchcase(name, pattern):
                return target
        return None


def _some(names: Sequence[str]) -> str:
    if not names:
        return "this upstream lists none for you. Name one that you may use"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"this upstream serves {', '.join(names[:_SHOWN])}{more}. Name one of them"
