"""The one choice of JSON library, and what each way of being malformed is called.

msgspec checks escapes and nesting while it skips over undecoded parts, but not whether the bytes are UTF-8, so text
is checked once per frame or body, here.
"""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from proxy.errors import Kind, LooplineError

T = TypeVar("T")

Raw = msgspec.Raw
# msgspec knows no union with Raw: an optional undecoded member is a Raw that may be null.
NULL = Raw(b"null")
encode = msgspec.json.Encoder().encode

_TEXT = msgspec.json.Decoder(str)
_OBJECT = msgspec.json.Decoder(dict[str, Raw])
# No request has a tenth of it. Millions fit into a body, cost a hundred times their bytes, and each is looked at.
MAX_MEMBERS = 512
SMALL_BYTES = 64 * 1024  # members are counted afterwards: the other decoder takes 3 µs more for each
_ARRAY = msgspec.json.Decoder(list[Raw])
_SURROGATE = ("surrogate", "end of hex escape")
# A high surrogate right before a string's end msgspec takes for truncated input.
_HIGH_ALONE = re.compile(rb"(?<!\\)(?:\\\\)*\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])")


def decode_object(data: bytes, what: str = "The message") -> dict[str, Raw]:
    """The members of a JSON object, values undecoded (slices that pin `data`).

    Raises `LooplineError`: invalid_unicode, invalid_json, too_deep, and invalid_request above `MAX_MEMBERS`.
    """
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise LooplineError(Kind.INVALID_UNICODE, f"{what} is not valid UTF-8 (byte {error.start}).") from None
    return decode_members(data, what)


def decode_members(data: bytes | Raw, what: str, param: str | None = None) -> dict[str, Raw]:
    """The same for what was checked to be UTF-8."""
    small = len(memoryview(data)) <= SMALL_BYTES
    _counting.seen = 0
    try:
        members = decode(_OBJECT if small else _BOUNDED, data, what, param)
    except _TooMany:
        members = None
    if members is None or len(members) > MAX_MEMBERS:
        raise LooplineError(Kind.INVALID_REQUEST, f"{what} has more than {MAX_MEMBERS} members.", param=param)
    return members if small else {str(name): value for name, value in members.items()}


class _Name(str):
    """A member's name, for which the decoder asks `_Counting`."""

    __slots__ = ()


class _TooMany(Exception):
    """The decoder need not go on."""


class _Counting:
    """Counts the members of one object while they are decoded, and stops it at too many."""

    seen = 0

    def __call__(self, _kind: type, name: str) -> _Name:
        self.seen += 1
        if self.seen > MAX_MEMBERS:
            raise _TooMany
        return _Name(name)


_counting = _Counting()
_BOUNDED: msgspec.json.Decoder[dict[str, Raw]] = msgspec.json.Decoder(dict[_Name, Raw], dec_hook=_counting)


def decode_text(inside: bytes) -> str:
    """The text of a valid JSON string that is given without its quotes."""
    return _TEXT.decode(b'"%b"' % inside)


def is_null(raw: Raw) -> bool:
    """Is this undecoded value null (or the default of an absent member)?"""
    return raw == NULL


def decode_array(data: bytes | Raw, what: str, param: str | None = None) -> list[Raw]:
    """The elements of a JSON array, undecoded."""
    return decode(_ARRAY, data, what, param)


def decode(decoder: msgspec.json.Decoder[T], data: bytes | Raw, what: str, param: str | None = None) -> T:
    """Decode by `decoder`; every way to fail is a `LooplineError` naming `what`."""
    try:
        return decoder.decode(data)
    except RecursionError:
        raise LooplineError(Kind.TOO_DEEP, f"{what} is nested too deeply.", param=param) from None
    except msgspec.ValidationError as error:
        raise LooplineError(Kind.INVALID_REQUEST, f"{what} is invalid: {error}.", param=param) from None
    except msgspec.DecodeError as error:
        # A UTF-8 fault inside a decoded string surfaces here too; the surrogate ones have no class of their own.
        text = str(error)
        if any(word in text for word in _SURROGATE) or ("truncated" in text and _HIGH_ALONE.search(data)):
            raise LooplineError(
                Kind.INVALID_UNICODE, f"{what} holds an unpaired UTF-16 surrogate.", param=param
            ) from None
        raise LooplineError(Kind.INVALID_JSON, f"{what} is not valid JSON: {text}.", param=param) from None
