"""Headers as they pass a proxy: what belongs to one connection stays there (RFC 9110 7.6.1)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

RawHeaders = Sequence[tuple[bytes, bytes]]

_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-authentication-info",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_ENDS = re.compile(rb"[\r\n\0]")
# Say how the message is to be read, to everybody on its way (RFC 9110 7.6.1): a Connection header that took one of
# them away would have the body read otherwise than it was sent, or than it was checked.
_NEVER_NAMED = frozenset({b"content-length", b"content-type", b"content-encoding", b"content-range", b"host"})


def end_to_end(headers: RawHeaders, less: Collection[bytes] = ()) -> list[tuple[bytes, bytes]]:
    """`headers` without those of the connection, those that `Connection` names, and `less` (lower case).

    Order, case and repetitions stay. An underscore counts as a hyphen: some servers read it as one.
    """
    gone = _HOP_BY_HOP | _named(headers) | frozenset(less)
    return [(name, value) for name, value in headers if name.lower().replace(b"_", b"-") not in gone]


def _named(headers: RawHeaders) -> frozenset[bytes]:
    """What the `Connection` headers name."""
    named = (token.strip().lower() for value in values(headers, b"connection") for token in value.split(b","))
    return frozenset(named) - _NEVER_NAMED


def splits(headers: RawHeaders) -> bool:
    """Does a header hold what would end it elsewhere? Parsers of answers are lenient."""
    return any(_ENDS.search(name) or _ENDS.search(value) for name, value in headers)


def values(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    """The values of every header `name` (lower case), in order."""
    return [value for known, value in headers if known.lower() == name]
