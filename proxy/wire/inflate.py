"""Compressed bodies, inflated piece by piece within bounds. No I/O.

One coding at a time: a body compressed twice is what attacks are made of. Source: RFC 9110, section 8.4; RFC 9659 for
the window of zstd.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Protocol

from backports.zstd import DecompressionParameter, ZstdDecompressor, ZstdError

from proxy.errors import Kind, LooplineError

PIECE_BYTES = 256 * 1024
# Below this a high ratio proves nothing: short bodies of one repeated word are no attack.
_FREE_BYTES = 1024 * 1024
_ZSTD_WINDOW_LOG = 23  # 8 MiB: RFC 9659 allows no more over HTTP
_GZIP_BITS, _ZLIB_BITS, _RAW_BITS = 31, 15, -15


class TooLarge(Exception):
    """The body inflates to more than it may."""


class _Machine(Protocol):
    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Zlib:
    """zlib with zstd's manners: what did not fit waits inside."""

    def __init__(self, bits: int) -> None:
        self._inner = zlib.decompressobj(bits)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)


def _zstd(_: bytes) -> _Machine:
    return ZstdDecompressor(options={DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG})


def _gzip(_: bytes) -> _Machine:
    return _Zlib(_GZIP_BITS)


def _deflate(start: bytes) -> _Machine:
    """Some clients leave out zlib's header, which the name demands: the first two bytes tell."""
    headed = len(start) > 1 and start[0] & 0x0F == 8 and (start[0] << 8 | start[1]) % 31 == 0
    return _Zlib(_ZLIB_BITS if headed else _RAW_BITS)


_CODINGS = {"zstd": _zstd, "gzip": _gzip, "x-gzip": _gzip, "deflate": _deflate}
CODINGS = ", ".join(name for name in _CODINGS if not name.startswith("x-"))


def coding_of(headers: list[str]) -> str | None:
    """The one coding that `Content-Encoding` names, None for none.

    Raises `LooplineError` (unsupported_media) for several or an unknown one.
    """
    named = [part.strip().lower() for header in headers for part in header.split(",")]
    codings = [name for name in named if name not in ("", "identity")]
    if not codings:
        return None
    if len(codings) > 1:
        raise LooplineError(Kind.UNSUPPORTED_MEDIA, "Content-Encoding names several codings; use one.")
    if codings[0] not in _CODINGS:
        raise LooplineError(
            Kind.UNSUPPORTED_MEDIA,
            f"Content-Encoding '{codings[0][:40]}' is not supported; use one of {CODINGS}, or none.",
        )
    return codings[0]


class Inflater:
    """One body. `max_bytes` bounds what it inflates to, `max_ratio` how many times its compressed size (0: any)."""

    def __init__(self, coding: str, max_bytes: int, max_ratio: int) -> None:
        self._coding = coding
        self._max_bytes = max_bytes
        self._max_ratio = max_ratio
        self._machine: _Machine | None = None
        self._start = b""
        self._bytes_in = 0
        self._bytes_out = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What `data` inflates to, in pieces of at most `PIECE_BYTES`; whoever takes them may wait in between.

        Raises `LooplineError` (invalid_request) for what is not so compressed, `TooLarge`.
        """
        self._bytes_in += len(data)
        if self._machine is None:
            data = self._start + data
            if len(data) < 2:  # not enough to tell one kind of deflate from the other
                self._start = data
                return
            self._machine = _CODINGS[self._coding](data)
        while True:
            if self._machine.eof:
                if data or self._machine.unused_data:
                    raise self._wrong("something follows its end")
                return
            piece = self._inflate(self._machine, data)
            data = b""
            if piece:
                yield piece
            if len(piece) < PIECE_BYTES:
                if self._machine.unused_data:
                    raise self._wrong("something follows its end")
                return

    def finish(self) -> None:
        """The body has ended. Raises `LooplineError` (invalid_request) where it is cut off."""
        if self._machine is None or not self._machine.eof:
            raise self._wrong("it is cut off")

    def _inflate(self, machine: _Machine, data: bytes) -> bytes:
        try:
            piece = machine.decompress(data, PIECE_BYTES)
        except (zlib.error, ZstdError) as error:
            raise self._wrong(str(error).lower().rstrip(".")) from None
        self._bytes_out += len(piece)
        if self._bytes_out > self._max_bytes:
            raise TooLarge(f"The body inflates to more than {self._max_bytes} bytes (limits.frame_bytes).")
        allowed = max(_FREE_BYTES, self._max_ratio * self._bytes_in)
        if self._max_ratio and self._bytes_out > allowed:
            raise TooLarge(
                f"The body inflates to more than {self._max_ratio} times its size (limits.inflate_ratio); "
                "send it uncompressed."
            )
        return piece

    def _wrong(self, why: str) -> LooplineError:
        return LooplineError(Kind.INVALID_REQUEST, f"The body is not valid {self._coding}: {why}.")
