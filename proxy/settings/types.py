"""The types of settings: what each allows, and how that is said where a value is refused."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Annotated, NamedTuple
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints


class Says(NamedTuple):
    """What a type allows, in words; stands beside the validators in the type's metadata."""

    text: str


def _number(value: object) -> object:
    if isinstance(value, bool):  # pydantic would read `port = true` as 1
        raise ValueError("a boolean is not a number")
    return value


def _http_url(value: str) -> str:
    parts = urlsplit(value)
    whole = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
    if not whole or set(value) & set("@?# "):
        raise ValueError("not a plain http URL")
    return value.rstrip("/")


def _proxy_url(value: str) -> str:
    if value and not (urlsplit(value).scheme in ("http", "https") and urlsplit(value).hostname):
        raise ValueError("not an http URL")
    return value


def _network(value: str) -> str:
    ipaddress.ip_network(value, strict=False)
    return value


_Whole = BeforeValidator(_number)
Port = Annotated[int, Field(ge=0, le=65535), _Whole, Says("a whole number from 0 to 65535")]
Count = Annotated[int, Field(ge=1), _Whole, Says("a whole number, at least 1")]
Whole = Annotated[int, Field(ge=0), _Whole, Says("a whole number, 0 or more")]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False), _Whole, Says("a number of seconds above 0")]
Wait = Annotated[float, Field(ge=0, allow_inf_nan=False), _Whole, Says("a number of seconds, 0 or more")]
Text = Annotated[str, Says("a text")]
Host = Annotated[
    str,
    Field(pattern=r"^[^\s/]+$"),
    AfterValidator(lambda host: host.strip("[]")),
    Says("a host name or an IP address"),
]
Url = Annotated[str, AfterValidator(_http_url), Says("an http:// or https:// URL without user name, query or fragment")]
UrlOrNot = Annotated[
    str,
    AfterValidator(lambda value: value and _http_url(value)),
    Says("an http:// or https:// URL without user name, query or fragment, or nothing"),
]
Ratio = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False), _Whole, Says("a number from 0 to 1")]
ProxyUrl = Annotated[str, AfterValidator(_proxy_url), Says("an http:// or https:// URL, or nothing")]
EnvName = Annotated[str, Field(pattern=r"^([A-Za-z_][A-Za-z0-9_]*)?$"), Says("a variable's name, not the key itself")]
Origin = Annotated[str, Field(pattern=r"^[a-z][a-z0-9+.-]*://[^/?#\s]+$")]
Origins = Annotated[tuple[Origin, ...], Says('a list of origins such as ["https://app.example"]')]
Network = Annotated[str, AfterValidator(_network)]
Networks = Annotated[tuple[Network, ...], Says('a list of addresses and networks such as ["10.0.0.0/8", "::1"]')]
PathPattern = Annotated[str, Field(pattern=r"^[A-Za-z0-9_~.-][A-Za-z0-9/_~.*-]*$")]
PathPatterns = Annotated[tuple[PathPattern, ...], Says('a list of paths below /v1/ such as ["embeddings", "audio/*"]')]
HeaderName = Annotated[str, StringConstraints(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")]
HeaderText = Annotated[str, Field(pattern=r"^[^\x00-\x08\x0a-\x1f\x7f]*$")]
LowerName = Annotated[HeaderName, StringConstraints(to_lower=True)]
HeaderNames = Annotated[tuple[LowerName, ...], Says('a list of header names such as ["x-id"]')]
Headers = Annotated[Mapping[HeaderName, HeaderText], Says("a table of header names and texts")]
Texts = Annotated[Mapping[str, str], Says("a table of names and texts")]
