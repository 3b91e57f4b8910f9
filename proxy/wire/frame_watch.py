"""How much of a message has arrived, read off the frames' headers alone (RFC 6455, section 5.2). Pure."""

from __future__ import annotations

_CONTROL = 0x8
_LENGTH_BYTES = {126: 2, 127: 8}


class FrameWatch:
    """Follows what a client sends. `bytes` have come of the message that is not whole yet, headers included.

    It judges nothing: frames that are wrong are for whoever parses them. A frame costs a few steps, however long.
    """

    __slots__ = ("_header", "_left", "_open", "bytes")

    def __init__(self) -> None:
        self.bytes = 0
        self._header = b""  # of a frame that has begun, as far as it is there
        self._left = 0  # bytes of payload that are still to come
        self._open = False  # has a message begun whose last frame has not?

    @property
    def begun(self) -> bool:
        """Is something there that is not whole?"""
        return self._open or self._left > 0 or self._header != b""

    def feed(self, data: bytes) -> None:
        """What came next."""
        at = 0
        while at < len(data):
            if self._left:
                taken = min(self._left, len(data) - at)
                self._left -= taken
            else:
                taken = self._take_header(data, at)
            at += taken
            self.bytes += taken
            if not self.begun:
                self.bytes = 0

    def _take_header(self, data: bytes, at: int) -> int:
        have = len(self._header)
        self._header += data[at : at + 14 - have]
        size = _header_size(self._header)
        if size is None or len(self._header) < size:
            return len(self._header) - have
        header, self._header = self._header[:size], b""
        code = header[1] & 0x7F
        width = _LENGTH_BYTES.get(code, 0)
        self._left = int.from_bytes(header[2 : 2 + width]) if width else code
        if not header[0] & _CONTROL:
            self._open = not header[0] & 0x80
        return size - have


def _header_size(header: bytes) -> int | None:
    """Bytes of the header that begins so; None while it does not say."""
    if len(header) < 2:
        return None
    return 2 + _LENGTH_BYTES.get(header[1] & 0x7F, 0) + (4 if header[1] & 0x80 else 0)
