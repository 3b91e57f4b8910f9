"""The `responses` dialect: a turn as `POST /responses`, its events passed on.

The upstream stores nothing: Loopline holds the conversation and sends it whole. Lifecycle events are ours (our id, the
model as the client named it, every key); everything between passes with our sequence numbers. A delta from a faithful
upstream passes undecoded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from proxy.errors import Kind, LooplineError
from proxy.translate.base import STEERED, Body, Brief, Result
from proxy.translate.failures import stream_error
from proxy.translate.intake import Intake
from proxy.translate.left_out import LeftOut
from proxy.translate.responses_events import (
    EVENT,
    HEAD,
    MEMBERS,
    RESPONSE,
    Event,
    Head,
    Open,
    Response,
    output_item,
    read_usage,
    recognised,
)
from proxy.translate.whole import by_index, closed, cut, grown
from proxy.wire.codec import NULL, Raw, encode, is_null
from proxy.wire.items import CALLS, Item, string
from proxy.wire.sse import DONE

# Members that are ours, or that mean nothing to an upstream that keeps no state.
_OURS = frozenset(
    {
        "type",
        "stream_id",
        "generate",
        "previous_response_id",
        "model",
        "store",
        "stream",
        "stream_options",
        "background",
        "client_metadata",
    }
)


# Deltas re-made from a typed decode: type → what else the event must hold.
_DELTAS: Mapping[str, bytes] = {
    "response.output_text.delta": b',"logprobs":[]',
    "response.refusal.delta": b"",
    "response.reasoning_text.delta": b"",
    "response.function_call_arguments.delta": b"",
}
# Events that speak of a part of an item.
_HAS_PART = ("response.content_part.", "response.output_text.", "response.refusal.", "response.reasoning_text.")
_FAILED = frozenset({"failed", "cancelled"})
_FAITHFUL_DELTA = b'{"type":"response.output_text.delta","sequence_number":%d,'
# What an event may be called that we do not know: it stands in `event:` lines as it is.
_NAME = re.compile(r"[\w.:/-]{1,128}")
_IS_DONE = -1
_RIGHT = b'{"type":"%b","sequence_number":%d,'
_STEERED = Raw(encode({"reason": STEERED}))
_INCOMPLETE_BY_LENGTH = b'{"reason":"max_output_tokens"}'


class ResponsesTranslator:
    """A `Translator` (see base.py) for one turn."""

    dialect = "responses"
    keeps_fragments = False  # encoding is a join of the items' own bytes

    def __init__(self, brief: Brief, *, faithful: bool = False) -> None:
        self._brief = brief
        self._create = brief.create
        self._tools = brief.tools
        self._faithful = faithful or brief.profile.responses.faithful
        self.encoding = f"responses/{brief.profile.name}"
        self._intake = Intake(brief.max_event_bytes)
        self._events: list[bytes] = []
        self._items: list[Item] = []
        self._open: dict[int, Open] = {}  # items that were added and are not done, by their index
        self._said: list[bytes] = []  # events since the first of them, decoded only if the turn ends without their end
        self._done: list[Head] = []  # one for each of the items
        self._used: set[int] = set()  # indices that items have
        self._next = 0  # above all of them
        self._final: Response | None = None
        self._final_status = ""
        self._upstream_id: str | None = None
        self._sequence = brief.sequence
        self._has_output = False
        self.left_out: list[LeftOut] = []
        self.delta = self.encode(brief.create.items)

    @property
    def sequence(self) -> int:
        """The number of the next event."""
        return self._sequence

    @property
    def ended(self) -> bool:
        """Has the upstream's terminal event come?"""
        return self._final is not None

    @property
    def whole(self) -> bool:
        """Is nothing missing any more? The terminal event says so."""
        return self._final is not None

    @property
    def has_output(self) -> bool:
        """Has an event with output been made?"""
        return self._has_output

    def encode(self, items: Sequence[Item]) -> bytes:
        """Items as they are, joined by commas."""
        return b",".join(item.raw for item in items)

    def request(self, history: Sequence[bytes]) -> Body:
        """The request; see `Translator.request`."""
        create = self._create
        members = [b'{"model":' + string(self._brief.model) + b',"stream":true,"store":false']
        for name, value in create.members.items():
            if name not in _OURS:
                members.append(encode(name) + b":" + bytes(value))
        parts = [*history, self.delta] if self.delta else list(history)
        if not parts and not create.members.keys() & {"prompt", "instructions"}:
            raise LooplineError(Kind.INVALID_REQUEST, "'input' must not be empty in a new conversation.", param="input")
        body = [b",".join(members), b',"input":[', b",".join(parts), b"]}"]
        # What runs inside the upstream (a hosted tool) may have happened although no answer came.
        harmless = all(tool.functions for tool in self._tools.listed)
        return Body("/responses", body, sum(map(len, history)), repeatable=harmless)

    def feed(self, data: bytes) -> list[bytes]:
        """Events for what arrived; see `Translator.feed`."""
        faithful = self._faithful
        for payload in self._intake.feed(data):
            if self._final is not None:
                break  # nothing that follows the end belongs to the answer
            if faithful and payload.startswith(_FAITHFUL_DELTA % self._sequence) and b'"stream_id"' not in payload:
                self._events.append(payload)
                self._said.append(payload)
                self._sequence += 1
            else:
                self._take(payload)
        taken, self._events = self._events, []
        return taken

    def finish(self) -> list[bytes]:
        """The last events; see `Translator.finish`."""
        take = self._take_whole if self._intake.is_document else self._take
        for payload in self._intake.end():
            try:
                take(payload)
            except LooplineError as error:
                if error.kind is not Kind.UPSTREAM_GARBLED or self._intake.is_document:
                    raise  # a piece of an event, and nothing more to come, is an early end instead
        if self._final is None:
            raise LooplineError(Kind.UPSTREAM_CLOSED, "The upstream ended its answer before it was whole.")
        taken, self._events = self._events, []
        return taken

    @property
    def call_begun(self) -> bool:
        """Has a call been made or begun?"""
        kinds = [item.kind for item in self._items]
        kinds += [open_.head.type or "" for open_ in self._open.values()]
        return any(kind in CALLS for kind in kinds)

    def interrupt(self) -> list[bytes]:
        """The answer ends here, steered; see `Translator.interrupt`."""
        self._final, self._final_status = Response(incomplete_details=_STEERED), "response.incomplete"
        self._close_open("incomplete")
        taken, self._events = self._events, []
        return taken

    def _close_open(self, status: str) -> None:
        """Messages that are open are kept as far as they were said; an unfinished thought or call is dropped."""
        said = by_index(self._said) if self._open else {}
        for index, open_ in self._open.items():
            if open_.head.type == "message":
                kept = cut(open_.raw, said.get(index, ()), index, self._sequence, status)
                if kept is not None:
                    self._tell(*kept)
        self._open, self._said = {}, []

    def _tell(self, item: Item, events: Iterable[bytes]) -> None:
        for event in events:
            self._emit(event)
        self._items.append(item)

    def result(self) -> Result:
        """The answer; see `Translator.result`."""
        final = self._final or Response()
        incomplete = self._final_status == "response.incomplete" or final.status == "incomplete"
        details = bytes(final.incomplete_details)
        usage, tokens = read_usage(final.usage)
        return Result(
            items=tuple(self._items),
            output=self.partial(),
            status=b"incomplete" if incomplete else b"completed",
            incomplete=(details if details != b"null" else _INCOMPLETE_BY_LENGTH) if incomplete else b"null",
            usage=usage,
            tokens=tokens,
            upstream_id=self._upstream_id,
        )

    def partial(self) -> bytes:
        """Items finished so far."""
        return b",".join(item.raw for item in self._items)

    def _emit(self, event: bytes) -> None:
        self._events.append(event)
        self._said.append(event)
        self._sequence += 1
        self._has_output = True

    def _take(self, payload: bytes) -> None:
        if payload == DONE:
            return
        try:
            payload.isascii() or payload.decode()  # msgspec does not look at bytes that it leaves undecoded
            event = EVENT.decode(payload)
            if event is None:
                return
            handle = _HANDLERS.get(event.type)
            if handle is not None:
                handle(self, event, payload)
            elif event.type in _DELTAS and not is_null(event.delta) and event.item_id is not None:
                self._delta(event)
            elif not event.type and not is_null(event.error):
                raise stream_error(event.error)
            elif _NAME.fullmatch(event.type):
                self._pass(event, payload)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            if not payload.strip():
                return  # an empty event, to keep the connection alive
            raise LooplineError(
                Kind.UPSTREAM_GARBLED, "The upstream sent an event that is not valid.", cause=str(error)
            ) from error

    def _delta(self, event: Event) -> None:
        where = b'"item_id":%b,"output_index":%d' % (string(event.item_id or ""), self._index(event))
        if event.type != "response.function_call_arguments.delta":
            where += b',"content_index":%d' % (event.content_index or 0)
        extra = _DELTAS[event.type]
        if extra and event.logprobs is not NULL and not is_null(event.logprobs):
            extra = b',"logprobs":' + bytes(event.logprobs)
        made = b'{"type":"%b","sequence_number":%d,%b,"delta":%b%b}' % (
            event.type.encode(),
            self._sequence,
            where,
            bytes(event.delta),
            extra,
        )
        self._emit(made)

    def _pass(self, event: Event, payload: bytes) -> None:
        # Right as it is: what is looked for stands at the start, since a nested object may have such a member too.
        right = _RIGHT % (event.type.encode(), self._sequence)
        if payload.startswith(right) and payload.endswith(b"}") and event.stream_id is NULL:
            self._emit(payload)
            return
        members = MEMBERS.decode(payload)
        for ours in ("type", "sequence_number", "stream_id"):
            members.pop(ours, None)
        self._emit(encode({"type": event.type, "sequence_number": self._sequence, **self._place(event), **members}))

    def _index(self, event: Event) -> int:
        """llama.cpp sends no indices: items follow one another there, so that the latest open one is meant."""
        if event.output_index is not None:
            return event.output_index
        return next(reversed(self._open), self._next)

    def _place(self, event: Event) -> dict[str, int]:
        """Where an event belongs; what it says itself counts more."""
        if event.item_id is None and event.item is NULL:
            return {}
        place = {"output_index": self._index(event)}
        if event.type.startswith(_HAS_PART):
            place["content_index"] = event.content_index or 0
        return place

    def _item_added(self, event: Event, payload: bytes) -> None:
        head = HEAD.decode(event.item)
        if event.output_index is None:
            event.output_index = self._next
        self._pass(event, payload)
        if not self._open:
            self._said = []
        self._open[self._take_index(event.output_index)] = Open(event.item, head)

    def _item_done(self, event: Event, payload: bytes) -> None:
        item = output_item(event.item)
        index = event.output_index = self._index(event)
        self._pass(event, payload)
        self._open.pop(index, None)
        if not self._open:
            self._said = []
        self._take_index(index)
        self._done.append(HEAD.decode(event.item))
        self._items.append(item)

    def _take_index(self, index: int) -> int:
        self._used.add(index)
        self._next = max(self._next, index + 1)
        return index

    def _lifecycle(self, event: Event, payload: bytes) -> None:
        if not is_null(event.response) and self._upstream_id is None:
            self._upstream_id = RESPONSE.decode(event.response).id

    def _end(self, event: Event, payload: bytes) -> None:
        final = Response() if is_null(event.response) else RESPONSE.decode(event.response)
        if final.status in _FAILED:
            raise stream_error(final.error)
        self._settle(final.output or ())
        incomplete = event.type == "response.incomplete" or final.status == "incomplete"
        self._close_open("incomplete" if incomplete else "completed")
        self._final, self._final_status = final, event.type

    def _settle(self, output: Sequence[Raw]) -> None:
        """The events that items of the final output still lack: clients read items from their events."""
        items = [output_item(raw) for raw in output]
        told = [*((head, _IS_DONE) for head in self._done), *((each.head, at) for at, each in self._open.items())]
        said = by_index(self._said) if self._open else {}
        for position, (item, at) in enumerate(zip(items, recognised(output, told), strict=True)):
            if at is None:
                index = self._take_index(self._next if position in self._used else position)
                self._tell(item, grown(item, index, self._sequence))
            elif at != _IS_DONE:
                del self._open[at]
                self._tell(item, closed(item, said.get(at, ()), at, self._sequence))

    def _drop(self, event: Event, payload: bytes) -> None:
        """An event that only breaks clients."""

    def _failed(self, event: Event, payload: bytes) -> None:
        error = event.error if is_null(event.response) else RESPONSE.decode(event.response).error
        raise stream_error(payload if is_null(error) else error)

    def _take_whole(self, body: bytes) -> None:
        """An upstream that answered with one JSON document although it was asked to stream."""
        try:
            body.decode()
            response = RESPONSE.decode(body)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise LooplineError(
                Kind.UPSTREAM_GARBLED, "The upstream's answer is not valid JSON.", cause=str(error)
            ) from error
        if not is_null(response.error) or response.status in _FAILED:
            raise stream_error(response.error)
        if response.output is None:
            raise LooplineError(Kind.UPSTREAM_GARBLED, "The upstream's answer is not a response.")
        self._settle(response.output)
        self._final, self._upstream_id = response, response.id


_HANDLERS: Mapping[str, Callable[[ResponsesTranslator, Event, bytes], None]] = {
    "response.created": ResponsesTranslator._lifecycle,
    "response.queued": ResponsesTranslator._lifecycle,
    "response.in_progress": ResponsesTranslator._lifecycle,
    "response.output_item.added": ResponsesTranslator._item_added,
    "response.output_item.done": ResponsesTranslator._item_done,
    "response.completed": ResponsesTranslator._end,
    "response.incomplete": ResponsesTranslator._end,
    "response.failed": ResponsesTranslator._failed,
    "error": ResponsesTranslator._failed,
    # Names that client libraries give to events of their own (protocol.md, section 10).
    **dict.fromkeys(("raw", "close", "open", "event", "reconnecting", "reconnected"), ResponsesTranslator._drop),
}
