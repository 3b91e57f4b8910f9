"""WebSocket frames for server messages (RFC 6455 section 5.2): text, unmasked, uncompressed.

RFC 7692 section 6 lets an endpoint send a message uncompressed after compression was negotiated. A message above
`FRAGMENT_BYTES` is cut, so that a pong waits behind at most one fragment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

FRAGMENT_BYTES = 256 * 1024

_TEXT, _CONTINUATION, _CLOSE, _FIN = 0x01, 0x00, 0x08, 0x80
_REASON_BYTES = 123


def frames(messages: Sequence[bytes]) -> list[bytes]:
    """Text messages as frames, header and payload in one; a frame is never cut again, where a pong would break it."""
    known, headers = len(_HEADERS), _HEADERS
    if max(map(len, messages), default=0) < known:
        return [headers[len(message)] + message for message in messages]
    out: list[bytes] = []
    for message in messages:
        size = len(message)
        if size < known:
            out.append(headers[size] + message)
        else:
            out += _cut(message)
    return out


def close_frame(code: int, reason: str = "") -> bytes:
    """A close, its reason cut to what there is room for."""
    said = reason.encode()[:_REASON_BYTES].decode(errors="ignore").encode()
    return bytes((_FIN | _CLOSE, 2 + len(said))) + code.to_bytes(2, "big") + said


def _cut(message: bytes) -> Iterator[bytes]:
    size, view = len(message), memoryview(message)
    for start in range(0, size, FRAGMENT_BYTES):
        piece = view[start : start + FRAGMENT_BYTES]
        opcode = (_TEXT if start == 0 else _CONTINUATION) | (_FIN if start + len(piece) == size else 0)
        yield b"".join((bytes((opcode,)), _length(len(piece)), piece))


def _length(size: int) -> bytes:
    if size < 126:
        return bytes((size,))
    if size < 65536:
        return b"\x7e" + size.to_bytes(2, "big")
    return b"\x7f" + size.to_bytes(8, "big")


# Those of nearly every event, made once.
_HEADERS = [bytes((_FIN | _TEXT,)) + _length(size) for size in range(2048)]
