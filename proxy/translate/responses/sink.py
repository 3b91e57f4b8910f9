"""Where the events of an answer gather: numbered, with ids that are plain and never repeated."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from proxy.wire import server_events as events
from proxy.wire.codec import Raw, encode

# An id that can stand in any event as it is, within the 64 characters that clients keep.
_PLAIN = re.compile(r"[\w.:-]{1,64}", re.ASCII)
_MAX_CHARS = 64
_OURS = frozenset({"type", "sequence_number", "stream_id"})


class Sink:
    """Events ready for the client. `sequence` is the number of the next one, `seed` makes the ids that are missing."""

    __slots__ = ("_call_ids", "_events", "_ids", "_minted", "_seed", "sequence")

    def __init__(self, seed: str, sequence: int) -> None:
        self._seed = seed.encode()
        self._events: list[bytes] = []
        self._ids: set[str] = set()
        self._call_ids: set[str] = set()
        self._minted = 0
        self.sequence = sequence

    def take(self) -> list[bytes]:
        """The events since the last take."""
        taken, self._events = self._events, []
        return taken

    def emit(self, event: bytes) -> None:
        """An event that has its number."""
        self._events.append(event)
        self.sequence += 1

    def emit_all(self, made: Sequence[bytes]) -> None:
        """Events that have their numbers."""
        self._events += made
        self.sequence += len(made)

    def emit_deltas(self, head: bytes, rest: bytes, texts: Sequence[bytes]) -> None:
        """An event for each of `texts`, the insides of JSON strings. `head` stands before its number, `rest` after it.

        They are our own, with ids that are plain: no percent sign is in them.
        """
        form = b'%b%%d%b,"delta":"%%b"}' % (head, rest)
        self.emit_all([form % numbered for numbered in enumerate(texts, self.sequence)])

    def say(self, kind: str, rest: bytes) -> None:
        """An event of `kind`; `rest` are its other members, without braces."""
        self.emit(events.event(kind.encode(), self.sequence, rest))

    def pass_on(self, kind: str, members: Mapping[str, Raw]) -> bytes:
        """An upstream's event with our number, on no lane of its own."""
        told = {name: value for name, value in members.items() if name not in _OURS}
        event = encode({"type": kind, "sequence_number": self.sequence, **told})
        self.emit(event)
        return event

    def own_id(self, wanted: str | None, prefix: bytes) -> str:
        """`wanted`, where it is plain and was not had before; else a new id."""
        if not wanted or wanted in self._ids or not _PLAIN.fullmatch(wanted):
            wanted = self._mint(prefix)
        self._ids.add(wanted)
        return wanted

    def own_call_id(self, wanted: str) -> str:
        """The same for a call's id, which goes back to the upstream: some rely on its form, however odd."""
        if not wanted or wanted in self._call_ids or len(wanted) > _MAX_CHARS:
            wanted = self._mint(b"call")
        self._call_ids.add(wanted)
        return wanted

    def _mint(self, prefix: bytes) -> str:
        self._minted += 1
        return f"{prefix.decode()}_{self._seed.decode()}{self._minted:04x}"
