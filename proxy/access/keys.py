"""Client keys: what one is, and how a store of them is asked. Pure.

A token is `llk_` and 256 random bits. What is kept of it is its SHA-256: a slow hash defends secrets that can be
guessed, and nobody guesses 256 random bits, while every connection and every frame of every client would pay for it.
Finding is a look-up by that hash, so an unknown token costs what a known one costs, and no comparison stops early at
the first byte that differs from a secret.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Protocol
from urllib.parse import unquote_to_bytes

import msgspec

PREFIX = "llk_"
_TOKEN_BYTES = 32
_SIGN = PREFIX.encode()
_MAX_LAYERS = 8
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")
_HASH = re.compile(r"[0-9a-f]{64}")
_SPAN = re.compile(r"([1-9][0-9]{0,4})([hdwy])")
_HOURS = {"h": 1, "d": 24, "w": 24 * 7, "y": 24 * 365}


class BadKey(ValueError):
    """A key, or a file of keys, that is none. The message shows no token and no hash."""


class KeyLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What one key may do, within what the settings allow everybody; 0 leaves it at the settings. Sizes are bytes."""

    connections: int = 0
    turns: int = 0
    requests_per_minute: int = 0
    tokens_per_minute: int = 0
    lanes: int = 0
    history_bytes: int = 0
    frame_bytes: int = 0
    tools: int = 0
    background_turns: int = 0


class Key(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One client key. `hash` is the SHA-256 of its token in hex.

    `models` are patterns (`*` and `?` match) of the names that it may use; empty for all. Keys with the same `tenant`
    share conversations; one without is a tenant of its own.
    """

    id: str
    name: str
    hash: str
    created_at: datetime
    tenant: str = ""
    models: tuple[str, ...] = ()
    expires_at: datetime | None = None
    limits: KeyLimits = KeyLimits()

    def __repr__(self) -> str:
        return f"Key({self.id}, {self.name!r})"

    def expired(self, wall_s: float) -> bool:
        """Is its time over, at `wall_s` seconds since 1970?"""
        return self.expires_at is not None and wall_s >= self.expires_at.timestamp()

    def allows(self, model: str) -> bool:
        """May it use a model of this name?"""
        return not self.models or any(fnmatchcase(model, pattern) for pattern in self.models)


class KeyStore(Protocol):
    """Where keys are kept. Both answers are immediate: a store across a network keeps a copy and hears of changes.

    A revoked key is None from the moment on when the store knows of it. Expiry is the caller's to check.
    """

    def find(self, token: str) -> Key | None:
        """The key of a token."""
        ...

    def get(self, key_id: str) -> Key | None:
        """The key of an id, as it is now."""
        ...


class Keys:
    """A `KeyStore` of keys that are given; `replace` gives it others."""

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        self.replace(keys)

    def __len__(self) -> int:
        return len(self._by_id)

    def replace(self, keys: Iterable[Key]) -> None:
        """These keys, and no others, count from now on."""
        self._by_id: Mapping[str, Key] = {key.id: key for key in keys}
        self._by_hash: Mapping[str, Key] = {key.hash: key for key in self._by_id.values()}

    def find(self, token: str) -> Key | None:
        return self._by_hash.get(token_hash(token))

    def get(self, key_id: str) -> Key | None:
        return self._by_id.get(key_id)


def token_hash(token: str) -> str:
    """What is kept of a token: 64 hex digits."""
    return hashlib.sha256(token.encode(errors="surrogateescape")).hexdigest()


def holds_key(text: str) -> bool:
    """May a text have a token in it, in letters of either case, and however often it is percent-encoded?

    Of one that is encoded 8 times or more nobody can say: it counts as one that has.
    """
    data = text.encode(errors="surrogateescape")
    for _ in range(_MAX_LAYERS):
        if _SIGN in data.lower():
            return True
        decoded = unquote_to_bytes(data) if b"%" in data else data
        if decoded == data:
            return False
        data = decoded
    return True


def make_key(
    name: str,
    now: datetime,
    random: Callable[[int], bytes],
    *,
    tenant: str = "",
    models: Sequence[str] = (),
    expires: timedelta | None = None,
    limits: KeyLimits | None = None,
) -> tuple[Key, str]:
    """A new key and its token, which exists nowhere else. `random` gives that many random bytes. Raises `BadKey`."""
    token = PREFIX + base64.urlsafe_b64encode(random(_TOKEN_BYTES)).decode().rstrip("=")
    key = Key(
        id="key_" + random(6).hex(),
        name=name,
        hash=token_hash(token),
        created_at=now,
        tenant=tenant,
        models=tuple(models),
        expires_at=None if expires is None else now + expires,
        limits=limits or KeyLimits(),
    )
    _check(key)
    return key, token


def parse_span(text: str) -> timedelta:
    """`12h`, `90d`, `6w` or `1y` as a time. Raises `BadKey`."""
    match = _SPAN.fullmatch(text)
    if match is None:
        raise BadKey(f"{text[:20]!r} is not a time such as 12h, 90d, 6w or 1y")
    return timedelta(hours=int(match[1]) * _HOURS[match[2]])


def read_lines(text: str) -> list[Key]:
    """The keys of a file: one JSON object a line. Raises `BadKey`, which names the line and shows nothing of it."""
    keys: list[Key] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            key = _KEY.decode(line)
            _check(key)
        except msgspec.ValidationError as error:
            raise BadKey(f"line {number}: {error}") from None
        except (msgspec.DecodeError, RecursionError):
            raise BadKey(f"line {number} is not a JSON object") from None
        except BadKey as error:
            raise BadKey(f"line {number}: {error}") from None
        keys.append(key)
    for what in ("id", "name", "hash"):
        given = [getattr(key, what) for key in keys]
        if len(set(given)) != len(given):
            raise BadKey(f"two keys have the same {what}")
    return keys


def write_lines(keys: Iterable[Key]) -> str:
    """The text that `read_lines` reads."""
    return "".join(msgspec.json.encode(key).decode() + "\n" for key in keys)


_KEY = msgspec.json.Decoder(Key)


def _check(key: Key) -> None:
    for what, text in (("name", key.name), ("id", key.id), ("tenant", key.tenant or "own")):
        if not _NAME.fullmatch(text):
            raise BadKey(f"its {what} is not 1 to 64 letters, digits, '_', '.', '@' or '-'")
    if not _HASH.fullmatch(key.hash):
        raise BadKey("its hash is not 64 hex digits")
    if any(not pattern or pattern != pattern.strip() for pattern in key.models):
        raise BadKey("one of its models is empty or has space around it")
    if key.created_at.tzinfo is None or (key.expires_at is not None and key.expires_at.tzinfo is None):
        raise BadKey("its times need a time zone, such as a Z at the end")
    if any(getattr(key.limits, name) < 0 for name in KeyLimits.__struct_fields__):
        raise BadKey("a limit is below 0")
