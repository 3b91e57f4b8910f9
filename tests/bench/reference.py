"""A fixed mix of what the hot path is made of: the yardstick of every budget, timed right before each function."""

from __future__ import annotations

import msgspec

_DECODE = msgspec.json.Decoder(dict).decode
_ENCODE = msgspec.json.Encoder().encode
_DOCUMENT = b'{"type":"message","role":"user","content":[{"type":"input_text","text":"%b"}],"n":12}' % (b"word " * 40)


def reference() -> bytes:
    """JSON read and written, members looked up and changed, bytes searched, cut and joined, small calls."""
    out: list[bytes] = []
    for number in range(20):
        members = _DECODE(_DOCUMENT)
        members["n"] = _next(number)
        members["seen"] = {name: len(name) for name in members}
        encoded = _ENCODE(members)
        at = encoded.find(b'"content"')
        out.append(encoded[at : at + 40])
    return b",".join(out)


def _next(number: int) -> int:
    return number + 1
