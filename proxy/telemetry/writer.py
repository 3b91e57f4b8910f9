"""Finished log lines on their way to stderr, in a thread of their own."""

from __future__ import annotations

import atexit
import threading
from collections import deque
from collections.abc import Sequence
from typing import BinaryIO

# How long lines gather before they are written: each waking of the thread costs a tenth of a millisecond.
_GATHER_S = 0.2
_BATCH_LINES = 1000
# How long the end of the process waits for lines still to be written.
_FLUSH_S = 1.0


class Writer:
    """Writes lines in a thread: whoever reads our stderr slowly must not hold up a turn.

    Lines gather for 0.2 s, or until there are many, or one is urgent; their order stays. What does not fit into the
    bounded queue is dropped, and how much is said once there is room again. At the end of the process, and at an
    exception that ends it, what is left is written.
    """

    def __init__(self, stream: BinaryIO, max_lines: int = 10_000) -> None:
        self._stream = stream
        self._max_lines = max_lines
        # Lines, and events that are set once all lines before them are written.
        self._lines: deque[str | bytes | threading.Event] = deque()
        self._dropped = 0
        self._news, self._hurry = threading.Event(), threading.Event()
        threading.Thread(target=self._run, name="log", daemon=True).start()
        atexit.register(self.flush)

    def write(self, line: str | bytes) -> None:
        """A line, without its end, to be written soon. From any thread."""
        self.write_all((line,))

    def write_all(self, new: Sequence[str | bytes]) -> None:
        """Several lines, in their order."""
        if not new:
            return
        lines = self._lines
        room = self._max_lines - len(lines)
        if room < len(new):
            self._dropped += len(new) - max(0, room)
            if room <= 0:
                return
            new = new[:room]
        elif self._dropped:
            lines.append(f"{self._dropped} log lines were dropped: stderr was not read fast enough")
            self._dropped = 0
        lines.extend(new)
        if not self._news.is_set():
            self._news.set()
        if len(lines) >= _BATCH_LINES and not self._hurry.is_set():
            self._hurry.set()

    def write_now(self, line: str | bytes) -> None:
        """A line that is not to wait."""
        self.write(line)
        self._hurry.set()

    def flush(self) -> None:
        """Give the thread a moment to write what is left."""
        written = threading.Event()
        self._lines.append(written)
        self._news.set()
        self._hurry.set()
        written.wait(_FLUSH_S)

    def _run(self) -> None:
        while True:
            self._news.wait()
            self._hurry.wait(_GATHER_S)
            # Before what is there is taken: whatever comes from now on sets them again.
            self._hurry.clear()
            self._news.clear()
            while self._lines:
                self._write_some()

    def _write_some(self) -> None:
        batch: list[bytes] = []
        written: threading.Event | None = None
        while self._lines and len(batch) < _BATCH_LINES and written is None:
            line = self._lines.popleft()
            if isinstance(line, threading.Event):
                written = line
            else:
                batch.append(line if isinstance(line, bytes) else line.encode(errors="replace"))
        try:
            if batch:
                self._stream.write(b"\n".join(batch) + b"\n")
                self._stream.flush()
        except (OSError, ValueError):
            pass  # a closed stderr has no reader; the server goes on
        finally:
            if written is not None:
                written.set()
