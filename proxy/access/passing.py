"""What of /v1 a caller may have passed on: everything with a credential of its own, a list of paths otherwise."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Protocol
from urllib.parse import unquote_plus

import msgspec

from proxy.errors import Kind, LooplineError
from proxy.wire.codec import Raw, decode, decode_object, encode

_STR = msgspec.json.Decoder(str)
# A key that is written with escapes, or twice, could be one model here and another upstream.
_PLAIN_KEY = b'"model"'
_ESCAPED = re.compile(rb"\\u006", re.IGNORECASE)
# Another charset makes other members of the same bytes.
_JSON_TYPE = re.compile(r'application/json\s*(?:;\s*charset="?utf-8"?\s*)?', re.IGNORECASE)
_SAFE_PATH = re.compile(r"[A-Za-z0-9/_~.-]*")
# Headers that some server believes more than what was checked, and what it takes from them. A hyphen stands for an
# underscore too: CGI and WSGI make one of both.
_OVERRIDES: Mapping[str, str] = {
    "x-original-url": "the target: Symfony, Zend and Laminas, as from IIS",
    "x-rewrite-url": "the target: the same, as from ISAPI_Rewrite",
    "x-original-uri": "the target: ingress controllers and their authorizers",
    "x-forwarded-uri": "the target: Traefik and Caddy, and what is behind them",
    "x-forwarded-path": "the target: API gateways",
    "x-forwarded-prefix": "what stands before the path: Spring, ASP.NET, Starlette behind Traefik",
    "x-forwarded-method": "the method: Traefik and Caddy",
    "x-envoy-original-path": "the target: Envoy",
    "x-http-method": "the method: OData",
    "x-http-method-override": "the method: Rails, Express, Spring, Google's APIs",
    "x-method-override": "the method: IBM's servers",
}
# With an underscore they are headers of their own here, and to some servers the ones that say how a body is read.
_ABOUT_BODIES = ("content_", "transfer_")


class Allowed(Protocol):
    """What a caller may use. `is_own_key`: it came in with a key that this server gave out, so that the upstream's
    credential is not the caller's."""

    @property
    def is_own_key(self) -> bool: ...

    def allows(self, model: str) -> bool:
        """May it ask for a model of this name?"""
        ...


# The model is the body's, the method that of the request (`_method`: Rails, Laravel, Symfony).
_NOT_IN_QUERIES = frozenset({"model", "_method"})
_PAIRS = re.compile("[&;]")


def is_plain_json(content_type: str) -> bool:
    """Is it a Content-Type that every server reads as JSON in UTF-8?"""
    return _JSON_TYPE.fullmatch(content_type.strip()) is not None


def overrides(name: str) -> bool:
    """Could a header of this lower-case name have another request read than the one that was checked?"""
    return name.replace("_", "-") in _OVERRIDES or name.startswith(_ABOUT_BODIES)


def check_path(path: str, patterns: Sequence[str]) -> None:
    """`path` is what follows /v1/, as it was sent. Raises `LooplineError` (forbidden) unless a pattern names it."""
    if _SAFE_PATH.fullmatch(path) and any(_matches(path, pattern) for pattern in patterns):
        return
    raise LooplineError(Kind.FORBIDDEN, "This path is not passed on with a key of this server (passthrough.paths).")


def check_query(query: str) -> None:
    """`query` is what follows the `?`, as it was sent. Raises `LooplineError` (invalid_request) for one that some
    server believes more than the body that is checked."""
    for pair in _PAIRS.split(query):
        name = unquote_plus(pair.partition("=")[0]).partition("[")[0].strip().lower()
        if name in _NOT_IN_QUERIES:
            raise LooplineError(
                Kind.INVALID_REQUEST,
                f"'{name}' may not stand in the address with a key of this server; leave it out.",
                param=name,
            )


def _matches(path: str, pattern: str) -> bool:
    """`*` stands for one segment or more."""
    return fnmatchcase(path, pattern) and not path.endswith("/")


Resolve = Callable[[str], str]


def check_model(name: str, allowed: Allowed) -> None:
    """Raises `LooplineError` (model_not_found): a model that is kept from a caller does not exist for it."""
    if not allowed.allows(name):
        raise LooplineError(Kind.MODEL_NOT_FOUND, f"The model '{name}' does not exist here.", param="model")


def checked_json(body: bytes, allowed: Allowed, resolve: Resolve) -> bytes:
    """The JSON body to send: its model checked, and under the upstream's name where `resolve` gives another.

    Every other byte stays, but for a body that names a model twice or with escapes: it is joined anew from its
    members, so that the upstream reads the model that was checked. Raises `LooplineError`.
    """
    members = decode_object(body, "The body")
    if "model" not in members:
        raise LooplineError(Kind.MISSING_PARAMETER, "Missing required parameter: 'model'.", param="model")
    for other in members:
        if other != "model" and other.lower() == "model":  # some servers read names without regard to case
            raise LooplineError(Kind.INVALID_REQUEST, f"'{other}' stands beside 'model': leave it out.", param=other)
    name = decode(_STR, members["model"], "'model'", "model")
    check_model(name, allowed)
    resolved = resolve(name)
    ambiguous = body.count(_PLAIN_KEY) != 1 or _ESCAPED.search(body) is not None
    if not ambiguous:
        return body if resolved == name else _spliced(body, resolved)
    return _joined({**members, "model": Raw(encode(resolved))})


def _spliced(body: bytes, resolved: str) -> bytes:
    """`body`, in which the key stands once, with another value after it."""
    return re.sub(rb'("model"\s*:\s*)"(?:[^"\\]|\\.)*"', lambda match: match[1] + encode(resolved), body, count=1)


def _joined(members: dict[str, Raw]) -> bytes:
    return b"{" + b",".join(encode(name) + b":" + bytes(value) for name, value in members.items()) + b"}"
