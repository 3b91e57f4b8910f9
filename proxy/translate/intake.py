"""What an upstream answers with: a stream of events, or one JSON document although a stream was asked for."""

from __future__ import annotations

from proxy.errors import Kind, LooplineError
from proxy.wire.sse import SseDecoder


class Intake:
    """Takes reads, gives payloads; `is_document` once the answer is seen to be one JSON document.

    Raises `LooplineError` (upstream_garbled) for an event or document above `max_event_bytes`.
    """

    __slots__ = ("_document", "_max_bytes", "_size", "_sse", "is_document")

    def __init__(self, max_event_bytes: int) -> None:
        self._sse = SseDecoder(max_event_bytes)
        self._max_bytes = max_event_bytes
        self._document: list[bytes] | None = []
        self._size = 0
        self.is_document = False

    def feed(self, data: bytes) -> list[bytes]:
        """The payloads that `data` completes."""
        if self._document is None:
            return self._sse.feed(data)
        if not self.is_document:
            start = data[:1]
            if start.isspace():
                start = data.lstrip()[:1]
            if start not in (b"", b"{"):
                if self._document:
                    data = b"".join((*self._document, data))
                self._document = None
                return self._sse.feed(data)
            self.is_document = start == b"{"
        self._document.append(data)
        self._size += len(data)
        if self._size > self._max_bytes:
            raise LooplineError(
                Kind.UPSTREAM_GARBLED,
                f"The upstream's answer is larger than {self._max_bytes} bytes (upstream.max_event_bytes).",
            )
        return []

    def end(self) -> list[bytes]:
        """What was still incomplete; the document, where the answer is one."""
        if self._document is None:
            return self._sse.end()
        document = b"".join(self._document)
        return [document] if document.strip() else []
