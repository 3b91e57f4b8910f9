"""An answer as it grows: events out, finished items kept.

Upstreams interleave text, reasoning and calls as they like; clients need each item opened, filled and closed before
the next one opens (Open Responses, item lifecycle). What arrives for an item that may not open yet waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

from proxy.errors import Kind, LooplineError
from proxy.translate.answer.calls import COMPLETED, INCOMPLETE, CallWriter, call_writer
from proxy.translate.answer.making import NO_ARGUMENTS, Open, Waiting, begins_arguments
from proxy.translate.answer.names import Names
from proxy.translate.answer.parts import SHAPES, Marks, marked_delta, place, whole_part
from proxy.translate.tools.listed import Called
from proxy.wire import server_events as events
from proxy.wire.codec import decode_text, encode
from proxy.wire.items import Item

__all__ = ["COMPLETED", "INCOMPLETE", "MAX_CALLS", "Answer"]

_MAX_CALL_ID = 64
_DELTA = b',"delta":'
# Many times what an agent runs side by side; a model that repeats itself must not make calls without end.
MAX_CALLS = 1024


class Answer:
    """Builds strictly nested items from what an upstream says, and the events that tell of them.

    Feed it `text`, `marked_text`, `refusal`, `reasoning` and `call`; then `close` once. `take()` returns the events
    since the last take. `items` are the finished items, in order. `seed` is 32 hex digits that make the ids. `calls`
    says what a function's name means to the client, `names` are those names. `seal` makes the encrypted content of
    reasoning, where it is wanted. `allowed` are the functions that may be called, None for all: a call of any other is
    no part of the answer (a client's `tool_choice` is a hard limit, whatever a model does).
    """

    def __init__(
        self,
        seed: str,
        sequence: int,
        calls: Mapping[str, Called] | None = None,
        seal: Callable[[str], str] | None = None,
    ) -> None:
        self._calls = calls or {}
        self._names: Names | None = None
        self._seal = seal
        self.allowed: frozenset[str] | None = None
        self._refused_calls: set[int] = set()
        self.refused: list[str] = []
        self.items: list[Item] = []
        self.sequence = sequence
        self.has_output = False
        self._seed = seed.encode()
        self._events: list[bytes] = []
        self._open: Open | None = None
        self._cut = False
        self._waiting: deque[Waiting] = deque()
        self._waiting_calls: dict[int, Waiting] = {}
        self._closed_calls: set[int] = set()
        self._call_ids: set[str] = set()
        self._minted = 0
        self._last_text: bytes | None = None

    @property
    def names(self) -> Names:
        """The names of the functions on offer; made with the first call, which many answers lack."""
        if self._names is None:
            self._names = Names(self._calls)
        return self._names

    def take(self) -> list[bytes]:
        """The events since the last take."""
        taken, self._events = self._events, []
        return taken

    def text(self, delta: str) -> None:
        """Some of the answer's text."""
        self.say("text", delta)

    def spoken(self, kind: str, texts: Sequence[bytes]) -> None:
        """Some text, reasoning or refusal in pieces that are JSON already, their quotes left out."""
        open_ = self._open
        if open_ is not None and open_.kind == kind and not self._waiting:
            # The hot path of every turn: one join an event, nothing decoded.
            head, sequence = open_.head, self.sequence
            open_.said += texts
            self._events += [b'%b%d,"delta":"%b"}' % (head, sequence + n, text) for n, text in enumerate(texts)]
            self.sequence = sequence + len(texts)
        else:
            for text in texts:
                self.say(kind, decode_text(text))

    def marked_text(self, delta: str, marks: Marks) -> None:
        """Some of the answer's text, perhaps none, and what stands beside it."""
        open_ = self._open
        if open_ is not None and open_.kind == "text" and not self._waiting:
            self._mark(open_, delta, marks)
        else:
            self._wait("text", delta, marks)

    def refusal(self, delta: str) -> None:
        """Some of a refusal."""
        self.say("refusal", delta)

    def reasoning(self, delta: str) -> None:
        """Some raw reasoning."""
        self.say("reasoning", delta)

    def call(self, key: int, call_id: str, name: str, arguments: str) -> None:
        """Some of the call numbered `key`; `call_id` and `name` may come once or each time, the name in pieces.

        Raises `LooplineError` (upstream_garbled) for a call above `MAX_CALLS`.
        """
        open_ = self._open
        if open_ is not None and open_.key == key:
            self._append_arguments(open_, arguments)
        elif (
            key not in self._closed_calls and key not in self._refused_calls
        ):  # one that was whole and is closed can only be followed by white space
            self._wait_call(key, call_id, name, arguments)

    def is_whole(self, key: int) -> bool:
        """Has the call numbered `key` all of its arguments?"""
        if self._open is not None and self._open.key == key:
            return self._open.is_whole
        call = self._waiting_calls.get(key)
        return key in self._closed_calls if call is None else call.object.is_whole(call.deltas)

    def close(self, status: bytes = COMPLETED) -> None:
        """The answer has ended; its last item gets `status`, or a call that of its arguments.

        An answer without any item becomes an empty message. Raises `LooplineError` (upstream_garbled) for a call that
        never got a name, unless the answer was cut, and for one whose arguments make no item of its kind.
        """
        self._cut = status != COMPLETED
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

    @property
    def only_text(self) -> bytes | None:
        """The JSON string of an answer that is one message of one text; None for any other."""
        return self._last_text if len(self.items) == 1 else None

    def output(self) -> bytes:
        """The finished items joined by commas."""
        return b",".join(item.raw for item in self.items)

    def say(self, kind: str, delta: str) -> None:
        """Some text, reasoning or refusal."""
        open_ = self._open
        # What waits came first, even where it is of the open item's kind.
        if open_ is not None and open_.kind == kind and not self._waiting:
            self._append(open_, delta)
        else:
            self._wait(kind, delta)

    def _append(self, open_: Open, delta: str) -> None:
        if not delta:
            return
        if open_.writer is None:
            text = encode(delta)
            open_.said.append(text[1:-1])
            self._emit(b"%b%d%b%b}" % (open_.head, self.sequence, _DELTA, text))
        else:
            open_.parts.append(delta)
            self._emit_delta(open_, open_.writer.delta(delta))

    def _append_arguments(self, open_: Open, arguments: str) -> None:
        if not open_.parts and arguments == NO_ARGUMENTS:
            open_.is_held = True  # told at the end, if nothing takes its place: see `NO_ARGUMENTS`
        elif open_.is_held and arguments.strip():
            open_.is_held = False
            self._append(open_, arguments if begins_arguments(arguments) else NO_ARGUMENTS + arguments)
        elif not open_.is_held:
            self._append(open_, arguments)

    def _emit_delta(self, open_: Open, delta: str) -> None:
        if delta:
            self._emit(b"%b%d%b%b}" % (open_.head, self.sequence, _DELTA, encode(delta)))

    def _mark(self, open_: Open, delta: str, marks: Marks) -> None:
        at = place(open_.id, len(self.items))
        if delta:
            open_.said.append(encode(delta)[1:-1])
            self._event(b"response.output_text.delta", at + marked_delta(delta, marks))
        open_.marks.append(marks)
        first, open_.annotations = open_.annotations, open_.annotations + len(marks.annotations)
        for index, annotation in enumerate(marks.annotations, first):
            told = b'%b,"annotation_index":%d,"annotation":%b' % (at, index, annotation)
            self._event(b"response.output_text.annotation.added", told)

    def _wait(self, kind: str, delta: str, marks: Marks | None = None) -> None:
        if not self._waiting or self._waiting[-1].kind != kind:
            self._waiting.append(Waiting(kind))
        waiting = self._waiting[-1]
        if marks is not None:
            waiting.marks[len(waiting.deltas)] = marks
        waiting.deltas.append(delta)
        self._release(ending=False)

    def _wait_call(self, key: int, call_id: str, name: str, arguments: str) -> None:
        call = self._waiting_calls.get(key)
        if call is None:
            call = self._waiting_calls[key] = self._begin_call(key)
            self._waiting.append(call)
        call.add(arguments)
        call.has_arguments = call.has_arguments or bool(arguments)
        call.call_id = call.call_id or call_id
        call.name = self.names.joined(call.name, name)
        self._release(ending=False)

    def _begin_call(self, key: int) -> Waiting:
        # One may be open besides; it is none of those that wait, and not closed.
        closed = len(self._closed_calls) + len(self._refused_calls)
        begun = closed + len(self._waiting_calls) + (self._open is not None and self._open.key >= 0)
        if begun >= MAX_CALLS:
            raise LooplineError(Kind.UPSTREAM_GARBLED, f"The upstream made more than {MAX_CALLS} calls in one answer.")
        return Waiting("call", key)

    def _release(self, *, ending: bool) -> None:
        """Write what waits, as far as items may follow each other; a call must be whole before the next item opens."""
        while self._waiting:
            if not ending and self._open is not None and self._open.holds_up(self._waiting[-1].kind):
                return
            first = self._waiting[0]
            if first.kind == "call" and not ending and not self._is_named(first):
                return
            self._waiting.popleft()
            if first.kind == "call":
                del self._waiting_calls[first.key]
                if first.name and self.allowed is not None and first.name not in self.allowed:
                    self._refused_calls.add(first.key)
                    self.refused.append(first.name)
                elif first.name or not self._cut:
                    self._append_arguments(self._open_call(first), "".join(first.deltas))
            else:
                self._write_waiting(self._open_part(first.kind), first)

    def _is_named(self, call: Waiting) -> bool:
        """Is its name whole? What follows a name, be it arguments or another item, ends it."""
        followed = call.has_arguments or len(self._waiting) > 1
        return bool(call.name) and (followed or self.names.is_whole(call.name))

    def _write_waiting(self, open_: Open, waiting: Waiting) -> None:
        for number, delta in enumerate(waiting.deltas):
            marks = waiting.marks.get(number)
            if marks is None:
                self._append(open_, delta)
            else:
                self._mark(open_, delta, marks)

    def _open_part(self, kind: str) -> Open:
        if self._open is not None and self._open.kind == kind:
            return self._open
        self._close_open(COMPLETED)
        shape = SHAPES[kind]
        item_id, index = self._mint(shape.prefix), len(self.items)
        at = place(item_id, index)
        self._tell_added(index, shape.added % item_id)
        self._event(b"response.content_part.added", b'%b,"part":%b' % (at, shape.part(b'""')))
        head = b'{"type":"%b.delta",%b%b,"sequence_number":' % (shape.events, at, shape.extra)
        self._open = Open(kind, item_id, head)
        return self._open

    def _open_call(self, call: Waiting) -> Open:
        if not call.name:
            raise LooplineError(Kind.UPSTREAM_GARBLED, "The upstream called a function without naming it.")
        self._close_open(COMPLETED)
        writer = call_writer(call.name, self._calls)
        item_id = self._mint(writer.prefix)
        # The upstream's own id goes back to it in the history, where some templates and parsers rely on its form.
        call_id = call.call_id
        if not call_id or len(call_id) > _MAX_CALL_ID or call_id in self._call_ids:
            call_id = self._mint(b"call").decode()
        self._call_ids.add(call_id)
        index = len(self.items)
        head = b'{"type":"%b.delta","item_id":"%b","output_index":%d,"sequence_number":'
        open_ = self._open = Open("call", item_id, head % (writer.streams, item_id, index), call.key)
        open_.call_id, open_.writer = call_id, writer
        if writer.streams:
            self._tell_added(index, writer.added(item_id, call_id))
        return open_

    def _tell_added(self, index: int, item: bytes) -> None:
        self.has_output = True
        self._event(b"response.output_item.added", b'"output_index":%d,"item":%b' % (index, item))

    def _close_open(self, status: bytes) -> None:
        open_, self._open = self._open, None
        if open_ is None:
            return
        if open_.writer is not None:
            self._close_call(open_, open_.writer, status)
            return
        shape = SHAPES[open_.kind]
        self._tell_done(Item(shape.kind, self._close_part(open_, status), shape.role))

    def _tell_done(self, item: Item) -> None:
        index = len(self.items)
        self.items.append(item)
        self._event(b"response.output_item.done", b'"output_index":%d,"item":%b' % (index, item.raw))

    def _close_call(self, open_: Open, writer: CallWriter, status: bytes) -> None:
        self._closed_calls.add(open_.key)
        if self._cut:  # several may have been growing when a limit cut the answer, or none
            status = COMPLETED if open_.is_whole else INCOMPLETE
        if status == COMPLETED:
            if not open_.parts:
                self._append(open_, NO_ARGUMENTS)  # a function without parameters; clients parse what they get
            self._emit_delta(open_, writer.rest())
        ended = writer.ended(open_.id, open_.call_id, "".join(open_.parts), status)
        if ended is None:
            return
        index = len(self.items)
        if writer.streams:
            at = b'"item_id":"%b","output_index":%d,%b' % (open_.id, index, ended.done)
            self._event(b"%b.done" % writer.streams, at)
        else:
            self._tell_added(index, ended.added)
        self._tell_done(Item(writer.kind, ended.item, None, open_.call_id, status != COMPLETED))

    def _close_part(self, open_: Open, status: bytes) -> bytes:
        """The whole item; tells of the end of its part."""
        shape = SHAPES[open_.kind]
        text = b'"%b"' % b"".join(open_.said)
        self._last_text = text if open_.kind == "text" else None
        at = place(open_.id, len(self.items))
        part, extra = whole_part(shape, text, open_.marks)
        self._event(b"%b.done" % shape.events, b'%b,"%b":%b%b' % (at, shape.member, text, extra))
        self._event(b"response.content_part.done", b'%b,"part":%b' % (at, part))
        made = shape.item % (open_.id, status, part)
        if open_.kind == "reasoning" and self._seal is not None:
            return b'%b,"encrypted_content":%b}' % (made[:-1], encode(self._seal(decode_text(text[1:-1]))))
        return made

    def _event(self, kind: bytes, rest: bytes) -> None:
        self._emit(events.event(kind, self.sequence, rest))

    def _emit(self, event: bytes) -> None:
        self._events.append(event)
        self.sequence += 1

    def _mint(self, prefix: bytes) -> bytes:
        self._minted += 1
        return b"%b_%b%04x" % (prefix, self._seed, self._minted)
