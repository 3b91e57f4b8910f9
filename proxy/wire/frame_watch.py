"""What a client's frames are, read off their headers before anybody parses them (RFC 6455, section 5.2). Pure."""

from __future__ import annotations

from enum import Enum, auto

_FIN, _RSV1, _CONTROL, _OPCODE = 0x80, 0x40, 0x08, 0x0F
_MASKED, _LENGTH = 0x80, 0x7F
_TWO_BYTES = 126
_LENGTH_BYTES = {_TWO_BYTES: 2, 127: 8}
# The first byte of a text message in one frame, and what is before the payload of one whose length has two bytes.
_WHOLE_TEXT, _LONG_HEADER = 0x81, 8
_SHORTEST_LONG = _LONG_HEADER + 126
# All reserved bits: whoever parses this closes with 1002, once what came before it has been served.
_BREAKS = b"\xf0\x80"
# The end of a message that has begun, a message of nothing, a close that says nothing.
_ENDS, _NOTHING, _CLOSES = b"\x80\x80mask", b"\x81\x80mask", b"\x88\x80mask"
_CLOSE = 8
# One read of the smallest frames is 40,000 of them, a tenth of a second for whoever else is served.
_FRAMES_AT_ONCE = 512


class Content(Enum):
    """How a message comes out of the parser."""

    PLAIN = auto()
    DEFLATED = auto()
    CUT = auto()  # it was too large, and is not there


class FrameWatch:
    """Stands before a parser that knows nothing of compression and lets some breaks of the protocol pass.

    `bytes` have come of the message that is not whole yet, headers included. `contents` has an entry for each message
    that the parser was handed, in order. One that is larger than `max_bytes` ends there and is `CUT`. Once `deaf`, by
    that or because it is told so, it hands on no frame that begins, but that the client closes. A frame costs a few
    steps, however long; of many that come together `unread` is what the next `feed` is to get, once others had theirs.
    """

    __slots__ = (
        *("broken", "bytes", "contents", "deaf", "max_bytes", "unread"),
        *("_deflate", "_left", "_open", "_rest", "_size", "_skip"),
    )

    def __init__(self, max_bytes: int, *, deflate: bool = False) -> None:
        self.bytes = 0
        self.contents: list[Content] = []
        self.deaf = False
        self.broken = False
        self.unread = b""
        self.max_bytes = max_bytes
        self._deflate = deflate  # was permessage-deflate agreed on?
        self._rest = b""  # of a header that is not whole
        self._left = 0  # bytes of payload that are still to come
        self._open = False  # has a message begun whose last frame has not?
        self._size = 0  # of that message's payload, as far as its headers say
        self._skip = False  # is the present frame kept from the parser?

    @property
    def begun(self) -> bool:
        """Is something there that is not whole?"""
        return self._open or self._left > 0 or self._rest != b""

    def feed(self, data: bytes) -> bytes:
        """What came next. Returns what the parser gets in its place: whole headers, whose first reserved bit is gone
        where it says that a message is compressed, and a frame that it refuses instead of one that must not be.
        """
        if self._is_one_whole_text(data):
            self.contents.append(Content.PLAIN)
            return data
        if self.broken:
            return b""
        self.bytes -= len(self._rest)
        data, self._rest = self._rest + data, b""
        out: list[bytes] = []
        at = start = frames = 0
        while at < len(data) and not self.broken:
            if self._left:
                step = min(self._left, len(data) - at)
                self._left -= step
            elif frames == _FRAMES_AT_ONCE:
                data, self.unread = data[:at], data[at:]
                break
            else:
                frames += 1
                header = _header(data, at)
                if header is None:
                    self._rest = data[at:]
                    break
                step = len(header)
                handed = self._begin(header)
                if handed != header:
                    out += (data[start:at], handed)
                    start = at + step
            at += step
            if self._skip:
                start = at
            self.bytes = self.bytes + step if self._open or self._left else 0
        self.bytes += len(self._rest)
        if self.broken:
            return b"".join(out)
        return b"".join((*out, data[start:at])) if out or self._rest or start else data

    def _is_one_whole_text(self, data: bytes) -> bool:
        """Is it one uncompressed text message and nothing else, as nearly every read is?"""
        if len(data) < _SHORTEST_LONG or data[0] != _WHOLE_TEXT or self.begun or self.deaf or self.broken:
            return False
        size = _LONG_HEADER + (data[2] << 8 | data[3])
        return data[1] == _MASKED | _TWO_BYTES and len(data) == size <= self.max_bytes

    def _begin(self, header: bytes) -> bytes:
        """A frame begins: what the parser gets for its header."""
        first, code = header[0], header[1] & _LENGTH
        width = _LENGTH_BYTES.get(code, 0)
        self._left = int.from_bytes(header[2 : 2 + width]) if width else code
        self._skip = self.deaf
        if self.deaf:
            return _CLOSES if first & _OPCODE == _CLOSE else b""
        if not header[1] & _MASKED:
            return self._break()
        if first & _CONTROL:
            return header
        begins = bool(first & _OPCODE)
        if begins and self._open:
            return self._break()
        return self._begin_data(header, begins)

    def _begin_data(self, header: bytes, begins: bool) -> bytes:
        first, continues = header[0], self._open
        self._open = not first & _FIN
        self._size = self._left + (self._size if continues else 0)
        if self._size > self.max_bytes:
            return self._cut(continues)
        if not begins:
            return header
        deflated = bool(self._deflate and first & _RSV1)
        self.contents.append(Content.DEFLATED if deflated else Content.PLAIN)
        return bytes((first & ~_RSV1,)) + header[1:] if deflated else header

    def _cut(self, continues: bool) -> bytes:
        self.deaf = self._skip = True
        if continues:
            self.contents.pop()
        self.contents.append(Content.CUT)
        return _ENDS if continues else _NOTHING

    def _break(self) -> bytes:
        self.broken = True
        self._open, self._left = False, 0
        return _BREAKS


def _header(data: bytes, at: int) -> bytes | None:
    """The header that stands there; None while it is not whole."""
    if len(data) - at < 2:
        return None
    second = data[at + 1]
    size = 2 + _LENGTH_BYTES.get(second & _LENGTH, 0) + (4 if second & _MASKED else 0)
    return data[at : at + size] if at + size <= len(data) else None
