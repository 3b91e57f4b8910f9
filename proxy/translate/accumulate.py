"""An answer as it grows: events out, finished items kept.

Upstreams interleave text, reasoning and calls as they like; clients need each item opened, filled and closed before
the next one opens (Open Responses, item lifecycle). What arrives for an item that may not open yet waits.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping

import msgspec

from proxy.errors import Kind, LooplineError
from proxy.translate.calls import COMPLETED, INCOMPLETE, CallWriter, call_writer
from proxy.translate.tools import Called
from proxy.wire import server_events as events
from proxy.wire.codec import encode
from proxy.wire.items import Item

_MAX_CALL_ID = 64
# Many times what an agent runs side by side; a model that repeats itself must not make calls without end.
MAX_CALLS = 1024


class _Waiting:
    """What waits for its item to open: pieces of one call, or pieces of one kind that came one after another."""

    __slots__ = ("call_id", "deltas", "key", "kind", "name")

    def __init__(self, kind: str, key: int = -1) -> None:
        self.kind = kind
        self.key = key
        self.deltas: list[str] = []
        self.call_id = ""
        self.name = ""


class _Object:
    """A JSON object that comes in pieces: is it whole? Each piece is looked at once, the object decoded once."""

    __slots__ = ("_closed", "_depth", "_escaped", "_in_string", "_looked_at", "_whole")

    def __init__(self) -> None:
        self._looked_at = 0
        self._depth = 0
        self._in_string = self._escaped = self._closed = self._whole = False

    def is_whole(self, parts: list[str]) -> bool:
        """`parts` are all of the pieces, each time."""
        for part in parts[self._looked_at :]:
            if not self._closed:
                self._closed = self._look(part)
                if self._closed:
                    # A value that has ended is whole now or never: what follows can only be white space.
                    self._whole = _is_json("".join(parts))
                    break
            else:
                self._whole = self._whole and not part.strip(_WHITE_SPACE)
        self._looked_at = len(parts)
        return self._whole

    def _look(self, part: str) -> bool:
        """Is the last bracket closed within `part`?"""
        skipped = 0 if self._escaped else -1
        for match in _MARKS.finditer(part):
            at, mark = match.start(), match.group()
            if at == skipped:
                continue
            if mark == '"':
                self._in_string = not self._in_string
            elif mark == "\\":
                skipped = at + 1
            elif not self._in_string:
                self._depth += 1 if mark in "{[" else -1
                if self._depth <= 0:
                    return True
        self._escaped = skipped == len(part)
        return False


_MARKS = re.compile(r'["\\{}\[\]]')
_WHITE_SPACE = " \t\n\r"


def _is_json(text: str) -> bool:
    if not text.rstrip(_WHITE_SPACE).endswith("}"):
        return False
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


class _Open:
    """The item being written: its id, what was written, and the constant start of its delta events."""

    __slots__ = ("call_id", "head", "id", "key", "kind", "object", "parts", "writer")

    def __init__(self, kind: str, item_id: bytes, head: bytes, key: int = -1) -> None:
        self.kind = kind
        self.id = item_id
        self.head = head
        self.key = key
        self.parts: list[str] = []
        self.object = _Object()
        self.call_id = ""
        self.writer: CallWriter | None = None

    @property
    def holds_up(self) -> bool:
        """Is this a call whose arguments are not whole? Nothing may follow it yet."""
        return self.writer is not None and not self.object.is_whole(self.parts)


class Answer:
    """Builds strictly nested items from what an upstream says, and the events that tell of them.

    Feed it `text`, `refusal`, `reasoning` and `call`; then `close` once. `take()` returns the events since the last
    take. `items` are the finished items, in order. `seed` is 32 hex digits that make the ids. `calls` says what a
    function's name means to the client. `seal` makes the encrypted content of reasoning, where it is wanted.
    """

    def __init__(
        self,
        seed: str,
        sequence: int,
        calls: Mapping[str, Called] | None = None,
        seal: Callable[[str], str] | None = None,
    ) -> None:
        self._calls = calls or {}
        self._seal = seal
        self.items: list[Item] = []
        self.sequence = sequence
        self.has_output = False
        self._seed = seed.encode()
        self._events: list[bytes] = []
        self._open: _Open | None = None
        self._waiting: deque[_Waiting] = deque()
        self._waiting_calls: dict[int, _Waiting] = {}
        self._closed_calls: set[int] = set()
        self._call_ids: set[str] = set()
        self._minted = 0

    def take(self) -> list[bytes]:
        """The events since the last take."""
        taken, self._events = self._events, []
        return taken

    def text(self, delta: str) -> None:
        """Some of the answer's text."""
        open_ = self._open
        if open_ is not None and open_.kind == "text" and not self._waiting:
            # The hot path of every turn: one join, no dict.
            open_.parts.append(delta)
            self._events.append(b"%b%d%b%b}" % (open_.head, self.sequence, _DELTA, encode(delta)))
            self.sequence += 1
        else:
            self._wait("text", delta)

    def refusal(self, delta: str) -> None:
        """Some of a refusal."""
        self._write("refusal", delta)

    def reasoning(self, delta: str) -> None:
        """Some raw reasoning."""
        self._write("reasoning", delta)

    def call(self, key: int, call_id: str, name: str, arguments: str) -> None:
        """Some of the function call numbered `key`; `call_id` and `name` may come once or each time.

        Raises `LooplineError` (upstream_garbled) for a call above `MAX_CALLS`.
        """
        open_ = self._open
        if open_ is not None and open_.key == key:
            self._append(open_, arguments)
        elif key not in self._closed_calls:  # one that was whole and is closed can only be followed by white space
            self._wait_call(key, call_id, name, arguments)

    def close(self, status: bytes = COMPLETED) -> None:
        """The answer has ended; an open item gets `status`. An answer without any item becomes an empty message.

        Raises `LooplineError` (upstream_garbled) for a call that never got a name.
        """
        self._release(ending=True)
        self._close_open(status)
        if not self.items:  # nothing was said, or nothing but a call that was cut
            self._open_part("text")
            self._close_open(status)

    @property
    def call_begun(self) -> bool:
        """Has a call been made or begun?"""
        begun = self._open is not None and self._open.kind == "call"
        return begun or bool(self._closed_calls) or bool(self._waiting_calls)

    def interrupt(self) -> None:
        """The answer ends here: what was said stays, an unfinished thought or call is dropped."""
        self._waiting.clear()
        self._waiting_calls.clear()
        if self._open is not None and self._open.kind in ("call", "reasoning"):
            self._open = None
        self._close_open(INCOMPLETE)

    def output(self) -> bytes:
        """The finished items joined by commas."""
        return b",".join(item.raw for item in self.items)

    def _write(self, kind: str, delta: str) -> None:
        open_ = self._open
        # What waits came first, even where it is of the open item's kind.
        if open_ is not None and open_.kind == kind and not self._waiting:
            self._append(open_, delta)
        else:
            self._wait(kind, delta)

    def _append(self, open_: _Open, delta: str) -> None:
        if not delta:
            return
        open_.parts.append(delta)
        self._emit_delta(open_, delta if open_.writer is None else open_.writer.delta(delta))

    def _emit_delta(self, open_: _Open, delta: str) -> None:
        if delta:
            self._emit(b"%b%d%b%b}" % (open_.head, self.sequence, _DELTA, encode(delta)))

    def _wait(self, kind: str, delta: str) -> None:
        if not self._waiting or self._waiting[-1].kind != kind:
            self._waiting.append(_Waiting(kind))
        self._waiting[-1].deltas.append(delta)
        self._release(ending=False)

    def _wait_call(self, key: int, call_id: str, name: str, arguments: str) -> None:
        call = self._waiting_calls.get(key)
        if call is None:
            call = self._waiting_calls[key] = self._begin_call(key)
            self._waiting.append(call)
        call.deltas.append(arguments)
        call.call_id = call.call_id or call_id
        call.name = call.name or name
        self._release(ending=False)

    def _begin_call(self, key: int) -> _Waiting:
        # One may be open besides; it is none of those that wait, and not closed.
        begun = len(self._closed_calls) + len(self._waiting_calls) + (self._open is not None and self._open.key >= 0)
        if begun >= MAX_CALLS:
            raise LooplineError(Kind.UPSTREAM_GARBLED, f"The upstream made more than {MAX_CALLS} calls in one answer.")
        return _Waiting("call", key)

    def _release(self, *, ending: bool) -> None:
        """Write what waits, as far as items may follow each other; a call must be whole before the next item opens."""
        while self._waiting:
            if not ending and self._open is not None and self._open.holds_up:
                return
            first = self._waiting[0]
            if first.kind == "call" and not first.name and not ending:
                return
            self._waiting.popleft()
            if first.kind == "call":
                del self._waiting_calls[first.key]
                self._append(self._open_call(first), "".join(first.deltas))
            else:
                open_ = self._open_part(first.kind)
                for delta in first.deltas:
                    self._append(open_, delta)

    def _open_part(self, kind: str) -> _Open:
        if self._open is not None and self._open.kind == kind:
            return self._open
        self._close_open(COMPLETED)
        self.has_output = True
        prefix, added, part, delta, extra = _SHAPES[kind]
        item_id = self._mint(prefix)
        at = b'"item_id":"%b","output_index":%d,"content_index":0' % (item_id, len(self.items))
        self._event(b"response.output_item.added", b'"output_index":%d,"item":%b' % (len(self.items), added % item_id))
        self._event(b"response.content_part.added", b'%b,"part":%b' % (at, part(b'""')))
        self._open = _Open(kind, item_id, b'{"type":"%b",%b%b,"sequence_number":' % (delta, at, extra))
        return self._open

    def _open_call(self, call: _Waiting) -> _Open:
        if not call.name:
            raise LooplineError(Kind.UPSTREAM_GARBLED, "The upstream called a function without naming it.")
        self._close_open(COMPLETED)
        self.has_output = True
        writer = call_writer(call.name, self._calls)
        item_id = self._mint(writer.prefix)
        # The upstream's own id goes back to it in the history, where some templates and parsers rely on its form.
        call_id = call.call_id
        if not call_id or len(call_id) > _MAX_CALL_ID or call_id in self._call_ids:
            call_id = self._mint(b"call").decode()
        self._call_ids.add(call_id)
        index = len(self.items)
        head = b'{"type":"%b.delta","item_id":"%b","output_index":%d,"sequence_number":'
        open_ = self._open = _Open("call", item_id, head % (writer.streams, item_id, index), call.key)
        open_.call_id, open_.writer = call_id, writer
        if writer.streams:
            self._tell_added(index, writer.added(item_id, call_id))
        return open_

    def _tell_added(self, index: int, item: bytes) -> None:
        self._event(b"response.output_item.added", b'"output_index":%d,"item":%b' % (index, item))

    def _close_open(self, status: bytes) -> None:
        open_, self._open = self._open, None
        if open_ is None:
            return
        if open_.writer is not None:
            self._close_call(open_, open_.writer, status)
            return
        index = len(self.items)
        raw = self._close_part(open_, encode("".join(open_.parts)), index, status)
        self.items.append(Item("reasoning" if open_.kind == "reasoning" else "message", raw, _ROLES[open_.kind]))
        self._event(b"response.output_item.done", b'"output_index":%d,"item":%b' % (index, raw))

    def _close_call(self, open_: _Open, writer: CallWriter, status: bytes) -> None:
        self._closed_calls.add(open_.key)
        if status == COMPLETED and not open_.parts:
            self._append(open_, "{}")  # a function without parameters; clients parse what they get
        index = len(self.items)
        self._emit_delta(open_, writer.rest())
        ended = writer.ended(open_.id, open_.call_id, "".join(open_.parts), status)
        if ended is None:
            return
        if writer.streams:
            at = b'"item_id":"%b","output_index":%d,%b' % (open_.id, index, ended.done)
            self._event(b"%b.done" % writer.streams, at)
        else:
            self._tell_added(index, ended.item.replace(_COMPLETED, _IN_PROGRESS))
        self.items.append(Item(writer.kind, ended.item, None, open_.call_id, status != COMPLETED))
        self._event(b"response.output_item.done", b'"output_index":%d,"item":%b' % (index, ended.item))

    def _close_part(self, open_: _Open, text: bytes, index: int, status: bytes) -> bytes:
        done, member, part, item = _ENDINGS[open_.kind]
        at = b'"item_id":"%b","output_index":%d,"content_index":0' % (open_.id, index)
        whole = part(text)
        self._event(done, b'%b,"%b":%b%b' % (at, member, text, _SHAPES[open_.kind][4]))
        self._event(b"response.content_part.done", b'%b,"part":%b' % (at, whole))
        made = item % (open_.id, status, whole)
        if open_.kind == "reasoning" and self._seal is not None:
            return b'%b,"encrypted_content":%b}' % (made[:-1], encode(self._seal("".join(open_.parts))))
        return made

    def _event(self, kind: bytes, rest: bytes) -> None:
        self._emit(events.event(kind, self.sequence, rest))

    def _emit(self, event: bytes) -> None:
        self._events.append(event)
        self.sequence += 1

    def _mint(self, prefix: bytes) -> bytes:
        self._minted += 1
        return b"%b_%b%04x" % (prefix, self._seed, self._minted)


_DELTA = b',"delta":'
_COMPLETED, _IN_PROGRESS = b'"status":"completed"}', b'"status":"in_progress"}'

_MESSAGE = b'{"type":"message","id":"%b","status":"%b","role":"assistant","content":[%b]}'
_REASONING = b'{"type":"reasoning","id":"%b","status":"%b","summary":[],"content":[%b]}'
_NEW_MESSAGE = b'{"type":"message","id":"%b","status":"in_progress","role":"assistant","content":[]}'
_NEW_REASONING = b'{"type":"reasoning","id":"%b","status":"in_progress","summary":[],"content":[]}'
_ROLES = {"text": "assistant", "refusal": "assistant", "reasoning": None}

# Kind → id prefix, the item when added, its part, the delta event, what else a delta holds.
_SHAPES = {
    "text": (b"msg", _NEW_MESSAGE, events.text_part, b"response.output_text.delta", b',"logprobs":[]'),
    "refusal": (b"msg", _NEW_MESSAGE, events.refusal_part, b"response.refusal.delta", b""),
    "reasoning": (b"rs", _NEW_REASONING, events.reasoning_part, b"response.reasoning_text.delta", b""),
}

# Kind → the event that ends its text, the member that holds it, its part, the item when done.
_ENDINGS = {
    "text": (b"response.output_text.done", b"text", events.text_part, _MESSAGE),
    "refusal": (b"response.refusal.done", b"refusal", events.refusal_part, _MESSAGE),
    "reasoning": (b"response.reasoning_text.done", b"text", events.reasoning_part, _REASONING),
}
