"""The answers that come on one connection, parsed by llhttp as they arrive. No I/O.

llhttp frames (RFC 9112, section 6); what is decided here is what an answer may cost, which of them was asked for, and
whether the connection can carry another. Leniencies are those that aiohttp grants answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

import httptools

# llama.cpp, nginx and the APIs behind them stay below 8 KiB; gateways with long cookies and policies reach 30.
MAX_HEAD_BYTES = 64 * 1024
MAX_HEADERS = 256
_TOO_LONG = f"more than {MAX_HEAD_BYTES} bytes of head"
_FIRST, _SWITCHED, _FIRST_FINAL = 100, 101, 200
_CODING = b"content-encoding"

RawHeaders = list[tuple[bytes, bytes]]


class Headers(Mapping[str, str]):
    """Headers of an answer, matched without regard to case; of a repeated name the first counts."""

    def __init__(self, raw: RawHeaders) -> None:
        self._raw = raw

    @cached_property
    def _known(self) -> dict[str, str]:
        known: dict[str, str] = {}
        for name, value in self._raw:
            known.setdefault(_text(name).lower(), _text(value).rstrip(" \t"))
        return known

    def __getitem__(self, name: str) -> str:
        return self._known[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


class _Refused(Exception):
    """The parser is to stop here. Its text is ours: it may stand in a log."""


class Answers:
    """Call `begin` for each request, then `feed` what arrives, `end` when nothing more will.

    `parts` is what of the body has arrived and was not taken yet: whoever takes it clears the list. `headed` and
    `complete` say how far the answer is, `keep` whether the connection can carry another request after it, `garbled`
    (a reason for the log) that it is no HTTP. `touched`: has anything of it arrived?
    """

    __slots__ = (
        "__weakref__",
        "_bodiless",
        "_framing_bytes",
        "_interim",
        "_parser",
        "complete",
        "garbled",
        "headed",
        "keep",
        "on_body",
        "parts",
        "raw_headers",
        "status",
        "touched",
    )

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.on_body = self.parts.append  # the parser calls it for every chunk: no function of ours in between
        self.raw_headers: RawHeaders = []
        self.status = 0
        self.headed = self.complete = self.keep = self.touched = True
        self.garbled: str | None = None
        self._interim = self._bodiless = False
        self._framing_bytes = 0
        self._parser = parser = httptools.HttpResponseParser(self)
        parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )

    def begin(self, *, bodiless: bool = False) -> None:
        """A request is sent, `bodiless` where its answer has no body whatever its head says (HEAD)."""
        self.raw_headers = []
        self.status = 0
        self.headed = self.complete = self.touched = False
        self._bodiless = bodiless
        self._framing_bytes = 0

    def feed(self, data: bytes) -> None:
        """Take what has arrived."""
        if self.complete:
            self.keep = False  # nothing was asked
            return
        self.touched = True
        parts = len(self.parts)
        # Bytes that are no body: heads, and what may stand between chunks and after them.
        self._framing_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.keep = False
            if not self.complete:
                self.garbled = str(error.__context__ or error)
            return
        if self.headed and len(self.parts) > parts:
            self._framing_bytes = 0
        elif self._framing_bytes > MAX_HEAD_BYTES and not self.complete:
            self.keep = False
            self.garbled = _TOO_LONG

    def end(self) -> bool:
        """Nothing more will arrive: is the answer whole?"""
        self.keep = False
        if self.headed and not self.complete and self.garbled is None:
            self.complete = self._lasts_to_the_end()
        return self.complete

    def coding(self) -> str:
        """The body's Content-Encoding, lower case; empty for none."""
        for name, value in self.raw_headers:
            if len(name) == len(_CODING) and name.lower() == _CODING:
                coding = _text(value).strip().lower()
                return "" if coding == "identity" else coding
        return ""

    def _lasts_to_the_end(self) -> bool:
        """Is the end of the connection the end of the body? Where nothing else says where it ends."""
        known = Headers(self.raw_headers)
        coding = known.get("transfer-encoding")
        if coding is not None:
            return not coding.lower().endswith("chunked")
        return "content-length" not in known

    # What the parser calls.

    def on_message_begin(self) -> None:
        if self.complete:
            # Its body must not be taken for part of the last one.
            raise _Refused("an answer to nothing")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.headed:
            return  # trailers mean nothing here
        if len(self.raw_headers) == MAX_HEADERS:
            raise _Refused(f"more than {MAX_HEADERS} headers")
        if b"\0" in value:
            raise _Refused("NUL in a header")
        self.raw_headers.append((name, value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if self._framing_bytes > MAX_HEAD_BYTES and sum(map(_size, self.raw_headers)) > MAX_HEAD_BYTES:
            raise _Refused(_TOO_LONG)
        if status < _FIRST_FINAL:
            if status < _FIRST or status == _SWITCHED:
                raise _Refused("no status, or a switch that nobody asked for")
            self._interim = True
            self.raw_headers.clear()
            return
        self.status = status
        self.headed = True
        if self._bodiless:
            self.complete = True
            raise _Refused("an answer without the body that its head tells of")

    def on_message_complete(self) -> None:
        if self._interim:
            self._interim = False
        else:
            self.complete = True
            self.keep = self._parser.should_keep_alive()


def _size(header: tuple[bytes, bytes]) -> int:
    return len(header[0]) + len(header[1])
