"""Server-sent events, both ways (WHATWG HTML, "Server-sent events").

Upstreams put everything that matters into `data:`, so the decoder yields data alone; `event:`, `id:`, `retry:` and
comments are passed over.
"""

from __future__ import annotations

import re

from proxy.errors import Kind, LooplineError

DONE = b"[DONE]"
DONE_FRAME = b"data: [DONE]\n\n"

_BREAK = b"\n\n"
_ENDED = _BREAK + DONE_FRAME
_DATA = b"\ndata: "
_NEXT = re.compile(rb"\n\nevent: [^\n]*\ndata: ")
_BOM = b"\xef\xbb\xbf"
_TYPE_STARTS_AT = len(b'{"type":"')


class SseDecoder:
    """Incremental decoder: give it what a read returned, get the data of every event that is complete.

    An event larger than `max_event_bytes` raises `LooplineError` (upstream_garbled).
    """

    __slots__ = ("_after_cr", "_carry", "_max_event_bytes", "_pending", "_size", "_started")

    def __init__(self, max_event_bytes: int) -> None:
        self._max_event_bytes = max_event_bytes
        self._pending: list[bytes] = []  # pieces of an event still open; joined once, when it ends
        self._size = 0
        self._carry = b""  # a trailing LF: the next read may make it half of a blank line; or a part of a BOM
        self._after_cr = False  # the last read ended with CR: an LF that follows belongs to it
        self._started = False

    def feed(self, data: bytes) -> list[bytes]:
        """The data of the events completed by `data`, in order, without those that have none."""
        if self._after_cr or b"\r" in data:
            data = self._normalised(data)
        if self._carry:
            data, self._carry = self._carry + data, b""
        if not self._started:
            if len(data) < len(_BOM) and _BOM.startswith(data):
                self._carry = data
                return []
            data = data.removeprefix(_BOM)
            self._started = True
        if self._size + len(data) > self._max_event_bytes:
            self._check_sizes(data)
        if not self._pending and data.endswith(_BREAK):
            return _plain(data) or _payloads(data.split(_BREAK))
        if _BREAK not in data:
            self._keep(data)
            return []
        head, _, rest = data.rpartition(_BREAK)
        whole = b"".join((*self._pending, head, _BREAK))
        self._pending, self._size = [], 0
        self._keep(rest)
        return _plain(whole) or _payloads(whole.split(_BREAK))

    def end(self) -> list[bytes]:
        """What is left when the stream ends without a blank line."""
        rest = b"".join((*self._pending, self._carry))
        self._pending, self._carry, self._size = [], b"", 0
        return _payloads([rest.strip(b"\n")])

    def _keep(self, data: bytes) -> None:
        if data.endswith(b"\n"):
            data, self._carry = data[:-1], b"\n"
        if data:
            self._pending.append(data)
            self._size += len(data)

    def _check_sizes(self, data: bytes) -> None:
        """A read may hold many small events, so that its own size says nothing."""
        if max(map(len, b"".join((*self._pending, data)).split(_BREAK))) > self._max_event_bytes:
            raise LooplineError(
                Kind.UPSTREAM_GARBLED,
                f"The upstream sent an event of more than {self._max_event_bytes} bytes (upstream.max_event_bytes).",
            )

    def _normalised(self, data: bytes) -> bytes:
        if self._after_cr and data:
            data, self._after_cr = data.removeprefix(b"\n"), False
        if data:
            self._after_cr = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _plain(data: bytes) -> list[bytes] | None:
    """Whole events of the two forms that servers send, taken apart by one split; None for any other form.

    Chat Completions servers send one `data:` line an event, Responses servers an `event:` line before it.
    """
    if data.startswith(b"data: "):
        payloads = data[6:-2].split(b"\n\ndata: ")
        return payloads if data.count(b"\n") == 2 * len(payloads) else None
    if data.startswith(b"event: "):
        if data.endswith(_ENDED):  # what ends a stream has no type; one that ends twice is read line by line
            typed = _typed(data[: -len(DONE_FRAME)])
            return None if typed is None else [*typed, DONE]
        return _typed(data)
    return None


def _typed(data: bytes) -> list[bytes] | None:
    """The data of events of two lines each, `event:` and `data:`; None where one is not."""
    named = data.find(_DATA)
    payloads = _NEXT.split(data[named + len(_DATA) : -len(_BREAK)])
    # Line ends that belong to nothing else would stand in a name or a payload.
    plain = named == data.find(b"\n") and data.count(b"\n") == 3 * len(payloads)
    return payloads if plain else None


def _payloads(blocks: list[bytes]) -> list[bytes]:
    out = []
    for block in blocks:
        # Nearly every event is one `data:` line, with an `event:` line before it or without.
        start = block.find(b"\n") + 1 if block.startswith(b"event:") else 0
        if block.startswith(b"data: ", start) and block.find(b"\n", start) < 0:
            out.append(block[start + 6 :])
        elif block:
            data = _data_of(block)
            if data is not None:
                out.append(data)
    return out


def _data_of(block: bytes) -> bytes | None:
    lines = [
        value[1:] if value.startswith(b" ") else value
        for name, _, value in (line.partition(b":") for line in block.split(b"\n"))
        if name == b"data"
    ]
    return b"\n".join(lines) if lines else None


def event_type(event: bytes) -> bytes:
    """The type of one of our own events, whose first key is always `type`."""
    return event[_TYPE_STARTS_AT : event.index(b'"', _TYPE_STARTS_AT)]


def append_frame(out: list[bytes], event: bytes) -> None:
    """Append one event as an SSE frame: `event:` equals its type, no `id:` (Open Responses, streaming)."""
    if b"\n" in event or b"\r" in event:
        # Members come as clients and upstreams wrote them, and a line break would end the `data:` line. In JSON it
        # can only stand between tokens: inside a string it is escaped.
        event = event.translate(None, b"\r\n")
    out.append(b"event: " + event_type(event) + b"\ndata: ")
    out.append(event)
    out.append(_BREAK)
