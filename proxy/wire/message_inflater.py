"""Compressed WebSocket messages, inflated piece by piece (RFC 7692, section 7.2.2). No I/O."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

PIECE_BYTES = 256 * 1024
_WINDOW_BITS = -15  # no header; inflates what was compressed with any smaller window too
_SLICE_BYTES = 64 * 1024  # zlib copies what it has not taken yet for each piece that it gives
_TAIL = b"\x00\x00\xff\xff"  # which senders leave out
# A stream may end within a message (BFINAL, section 7.2.3.4); ends alone must not keep anybody busy.
_MOST_ENDS = 16


class NotDeflated(Exception):
    """What came is no deflated data."""


class MessageInflater:
    """The messages of one socket, in order: each may refer to those before it."""

    def __init__(self) -> None:
        self._made: zlib._Decompress | None = None  # 7 kB that a socket which sends nothing compressed never needs
        self._fresh = True

    def feed(self, message: bytes) -> Iterator[bytes]:
        """What a message inflates to, in pieces of at most `PIECE_BYTES`; whoever takes them may wait in between, and
        must have taken all before the next message. Raises `NotDeflated`.
        """
        if not message:  # of a sender that has nothing to say, and leaves out all of it
            return
        ends = 0
        for data in _slices(message):
            while data:
                piece = self._inflate(data)
                if piece:
                    yield piece
                data = self._machine.unconsumed_tail
                if self._machine.eof:
                    data, ends = self._machine.unused_data, ends + 1
                    if ends > _MOST_ENDS:
                        raise NotDeflated(f"more than {_MOST_ENDS} streams in one message")
                    self._start()
        if not self._fresh:  # else there is nothing whose end could be missing
            yield from self._finish()

    def _finish(self) -> Iterator[bytes]:
        data = _TAIL
        while data:
            piece = self._inflate(data)
            if piece:
                yield piece
            data = self._machine.unconsumed_tail
        if self._machine.eof:
            self._start()

    @property
    def _machine(self) -> zlib._Decompress:
        if self._made is None:
            self._made = zlib.decompressobj(_WINDOW_BITS)
        return self._made

    def _start(self) -> None:
        self._made, self._fresh = None, True

    def _inflate(self, data: bytes) -> bytes:
        self._fresh = False
        try:
            return self._machine.decompress(data, PIECE_BYTES)
        except zlib.error:
            raise NotDeflated("damaged") from None


def _slices(message: bytes) -> Iterator[bytes]:
    return (message[at : at + _SLICE_BYTES] for at in range(0, len(message), _SLICE_BYTES))
