"""Keys as text: lines of `id:base64`, of which the first seals and all open; and a single secret as base64.

Messages say which line is wrong and why. They never show a line: it may hold a key.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping

KEY_BYTES = 32
_ID = re.compile(r"[A-Za-z0-9_-]{1,32}")
# A comma stands for a line's end: many ways to set an environment variable cannot hold more than one line.
_LINE_ENDS = re.compile(r"[\r\n,]+")
_MAKE_ONE = "`openssl rand -base64 32` makes one"


class BadKeys(ValueError):
    """Text that holds no keys. The message continues "the keys in FILE: …" and shows nothing of the text."""


def parse_keys(text: str) -> dict[str, bytes]:
    """Key id → 32 bytes, in the order of the lines; the first seals. Raises `BadKeys`."""
    lines = [line for line in map(str.strip, _LINE_ENDS.split(text)) if line]
    keys: dict[str, bytes] = {}
    for number, line in enumerate(lines, 1):
        name, colon, encoded = line.partition(":")
        if not colon or not _ID.fullmatch(name):
            raise BadKeys(f"line {number} is not id:key, with an id of 1 to 32 letters, digits, _ or -")
        if name in keys:
            raise BadKeys(f"line {number} has the id of a line before it; give each key its own")
        keys[name] = _decoded(encoded, f"the key of line {number}")
    if not keys:
        raise BadKeys(f"there is none; write id:key, with the base64 of {KEY_BYTES} bytes as key ({_MAKE_ONE})")
    return keys


def format_keys(keys: Mapping[str, bytes]) -> str:
    """The text that `parse_keys` reads, a line for each key."""
    return "".join(f"{name}:{base64.b64encode(key).decode()}\n" for name, key in keys.items())


def rotated(keys: Mapping[str, bytes], name: str, key: bytes, keep: int) -> dict[str, bytes]:
    """`keys` with a new one in front, cut to the first `keep`. `name` must be new."""
    return dict([(name, key), *keys.items()][:keep])


def parse_secret(text: str) -> bytes:
    """32 bytes from their base64. Raises `BadKeys`."""
    return _decoded(text.strip(), "it")


def format_secret(secret: bytes) -> str:
    """The text that `parse_secret` reads."""
    return base64.b64encode(secret).decode() + "\n"


def _decoded(encoded: str, what: str) -> bytes:
    plain = encoded.strip().translate(str.maketrans("-_", "+/")).rstrip("=")
    try:
        key = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except ValueError:  # not base64, or not even ASCII
        key = b""
    if len(key) != KEY_BYTES:
        raise BadKeys(f"{what} is not the base64 of {KEY_BYTES} bytes ({_MAKE_ONE})")
    return key
