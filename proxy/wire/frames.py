"""WebSocket frames for server messages (RFC 6455 section 5.2): text, unmasked, uncompressed.

RFC 7692 section 6 lets an endpoint send a message uncompressed after compression was negotiated. A message above
`FRAGMENT_BYTES` is cut, so that a pong waits behind at most one fragment.
"""

from __future__ import annotations

FRAGMENT_BYTES = 256 * 1024

_TEXT, _CONTINUATION, _FIN = 0x01, 0x00, 0x80
_FIN_TEXT = _FIN | _TEXT


def append_message(out: list[bytes], payload: bytes) -> None:
    """Append header and payload of one text message to `out`, which is joined into a single write later."""
    size = len(payload)
    if size < 126:
        out.append(bytes((_FIN_TEXT, size)))
    elif size < 65536:
        out.append(b"\x81\x7e" + size.to_bytes(2, "big"))
    elif size <= FRAGMENT_BYTES:
        out.append(b"\x81\x7f" + size.to_bytes(8, "big"))
    else:
        _append_fragments(out, payload)
        return
    out.append(payload)


def _append_fragments(out: list[bytes], payload: bytes) -> None:
    size = len(payload)
    view = memoryview(payload)
    for start in range(0, size, FRAGMENT_BYTES):
        piece = view[start : start + FRAGMENT_BYTES]
        opcode = (_TEXT if start == 0 else _CONTINUATION) | (_FIN if start + len(piece) == size else 0)
        out.append(bytes((opcode,)) + _length(len(piece)))
        out.append(bytes(piece))


def _length(size: int) -> bytes:
    if size < 126:
        return bytes((size,))
    if size < 65536:
        return b"\x7e" + size.to_bytes(2, "big")
    return b"\x7f" + size.to_bytes(8, "big")
