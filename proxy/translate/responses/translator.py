"""The `responses` dialect: a turn as `POST /responses`, its events passed on or repaired.

The upstream stores nothing: Loopline holds the conversation and sends it whole. Lifecycle events are ours (our id, the
model as the client named it, every key). Of a faithful upstream everything between passes with our sequence numbers,
what is within an item undecoded; what another sends is made into strictly nested items, a delta undecoded too where it
is like the last.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from proxy.errors import Kind, LooplineError
from proxy.models.profile import EVERYTHING, takes
from proxy.translate.base import STEERED, Body, Brief, Result
from proxy.translate.failures import stream_error
from proxy.translate.intake import Intake
from proxy.translate.left_out import LeftOut
from proxy.translate.pieces import separated
from proxy.translate.responses.events import EVENT, RESPONSE, Event, Response, incomplete_details, read_usage
from proxy.translate.responses.fields import OURS, ResponseFields
from proxy.translate.responses.items import ItemShaper
from proxy.translate.responses.passing import Passed
from proxy.translate.responses.repair import Repaired
from proxy.translate.responses.sink import Sink
from proxy.translate.tools.choice import allowed_calls
from proxy.translate.tools.listed import Called
from proxy.wire.codec import Raw, encode, is_null
from proxy.wire.items import Item, string
from proxy.wire.sse import DONE

# They say again what the first event said.
_REPEATED = (b'{"type":"response.in_progress",', b'{"type":"response.queued",')
_FAILED = frozenset({"failed", "cancelled"})
# What an event may be called that we do not know: it stands in `event:` lines as it is.
_NAME = re.compile(r"[\w.:/-]{1,128}")
_STEERED = Raw(encode({"reason": STEERED}))
_INSTRUCTIONS = b'{"type":"message","role":"%b","content":%b}'


class _Asked(NamedTuple):
    """A request up to its input. `instructions` is an item, where they are told as one; `allowed` may be called.

    `harmless` says that nothing happens inside the upstream: what runs there (a hosted tool) may have happened although
    no answer came.
    """

    head: bytes
    instructions: bytes | None
    allowed: frozenset[str] | None
    left_out: list[LeftOut]
    harmless: bool


def _ask(brief: Brief) -> _Asked:
    create, profile = brief.create, brief.profile.responses
    fields = ResponseFields(brief.profile).add_terms(create.terms, brief.tools, brief.lasting)
    allowed = None
    if EVERYTHING not in profile.tools:
        allowed = allowed_calls(brief.tools, create.raw("tool_choice"), profile.tools)
    instructions = fields.instructions
    return _Asked(
        b",".join((b'{"model":' + string(brief.model), b'"stream":true', *fields.members)),
        None if instructions is None else _INSTRUCTIONS % (profile.developer.encode(), instructions),
        allowed,
        fields.left_out,
        all(tool.functions or not takes(profile.tools, tool.kind) for tool in brief.tools.listed),
    )


class ResponsesTranslator:
    """A `Translator` (see base.py) for one turn."""

    dialect = "responses"

    def __init__(self, brief: Brief, *, faithful: bool = False, untold: bool = False) -> None:
        self._brief = brief
        self._create = brief.create
        self._tools = brief.tools
        self._profile = brief.profile.responses
        self._shaper = ItemShaper(brief.tools, self._profile, brief.open_reasoning, brief.is_sealed_here)
        self.encoding = f"responses/{brief.profile.name}"
        self._intake = Intake(brief.max_event_bytes)
        self._sink = Sink(brief.seed, brief.sequence)
        self._first = brief.sequence
        passes = (faithful or self._profile.faithful) and not self._means_others()
        self._answer: Passed | Repaired = (
            Passed(self._sink, brief.seal_reasoning)
            if passes
            else Repaired(self._sink, brief.tools.calls, brief.seal_reasoning)
        )
        self._final: Response | None = None
        self._final_status = ""
        self._upstream_id: str | None = None
        self._left_out: list[LeftOut] = []
        self.delta = b"" if untold else brief.told(self.encoding, self._shaper)

    def tell(self) -> Generator[None, None, None]:
        """Make `delta` in portions; see `Translator.tell`."""
        self.delta = yield from self._brief.telling(self.encoding, self._shaper)

    def _means_others(self) -> bool:
        """Is any function that the upstream is told another kind of tool to the client?"""
        kinds = self._profile.tools
        if EVERYTHING in kinds or not self._tools.listed:
            return False
        return any(function.called != Called("function", function.name) for function in self._tools.functions(kinds))

    @property
    def sequence(self) -> int:
        """The number of the next event."""
        return self._sink.sequence

    @property
    def left_out(self) -> list[LeftOut]:
        """What the request cannot say."""
        left_out = self._left_out + self._shaper.left_out
        if isinstance(self._answer, Repaired):
            left_out += [LeftOut("call", name) for name in self._answer.refused]
        return left_out

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
        return self._sink.sequence > self._first

    @property
    def call_begun(self) -> bool:
        """Has a call been made or begun?"""
        return self._answer.call_begun

    def encode(self, items: Sequence[Item]) -> bytes:
        """Items that are kept, as the server takes them, joined by commas. Raises nothing: the client has no remedy."""
        return self._shaper.encode_kept(items)

    def request(self, history: Sequence[bytes]) -> Body:
        """The request; see `Translator.request`."""
        asked = self._asked()
        own, self._left_out = self._own(), asked.left_out
        if own is not None:
            self._left_out = [*asked.left_out, *own.left_out]
        if isinstance(self._answer, Repaired):
            self._answer.allowed = asked.allowed
        parts = list(filter(None, (*history, self.delta)))  # of some turns nothing is told
        if not parts and not self._create.terms.members.keys() & {"prompt", "instructions"}:
            raise LooplineError(
                Kind.INVALID_REQUEST, "'input' holds nothing that a model could be told.", param="input"
            )
        if asked.instructions is not None:
            parts.insert(0, asked.instructions)
        head = b",".join((asked.head, *(own.members if own is not None else ()), b'"input":['))
        body = [head, *separated(parts), b"]}"]
        return Body("/responses", body, repeatable=asked.harmless)

    def _own(self) -> ResponseFields | None:
        """What belongs to this turn alone, where there is anything that an upstream could be told."""
        own = self._create.own
        return None if own.keys() <= OURS else ResponseFields(self._brief.profile).add_own(own)

    def _asked(self) -> _Asked:
        """What the request says beside its input: made once where the conversation changes nothing of it."""
        brief = self._brief
        if brief.lasting:
            return _ask(brief)
        return brief.create.terms.made(f"responses {brief.model}", (brief.tools, brief.profile), lambda: _ask(brief))

    def feed(self, data: bytes) -> list[bytes]:
        """Events for what arrived; see `Translator.feed`. Nothing arrived where the answer has failed."""
        if not data:
            self._answer.settle()
            return self._sink.take()
        answer, at = self._answer, 0
        try:
            payloads = self._intake.feed(data)
            while at < len(payloads) and self._final is None:  # nothing that follows the end belongs to the answer
                if taken := answer.take_run(payloads, at):
                    at += taken
                else:
                    self._take(payloads[at])
                    at += 1
        except LooplineError:
            self._answer.settle()
            raise
        return self._sink.take()

    def finish(self) -> list[bytes]:
        """The last events; see `Translator.finish`."""
        take = self._take_whole if self._intake.is_document else self._take
        for payload in self._intake.end() if self._final is None else ():
            try:
                take(payload)
            except LooplineError as error:
                # A piece of an event, and nothing more to come, is an early end instead.
                if error.kind is not Kind.UPSTREAM_GARBLED or self._intake.is_document:
                    self._answer.settle()
                    raise
        if self._final is None:
            self._answer.settle()
            raise LooplineError(Kind.UPSTREAM_CLOSED, "The upstream ended its answer before it was whole.")
        return self._sink.take()

    def interrupt(self) -> list[bytes]:
        """The answer ends here, steered; see `Translator.interrupt`."""
        self._final, self._final_status = Response(incomplete_details=_STEERED), "response.incomplete"
        self._answer.interrupt()
        return self._sink.take()

    def result(self) -> Result:
        """The answer; see `Translator.result`."""
        final = self._final or Response()
        incomplete = self._is_cut(final) or self._answer.is_cut
        usage, tokens = read_usage(final.usage)
        return Result(
            items=tuple(self._answer.items),
            output=self.partial(),
            status=b"incomplete" if incomplete else b"completed",
            incomplete=incomplete_details(final.incomplete_details) if incomplete else b"null",
            usage=usage,
            tokens=tokens,
            upstream_id=self._upstream_id,
        )

    def _is_cut(self, final: Response) -> bool:
        if self._final_status == "response.incomplete" or final.status == "incomplete":
            return True
        if not self._profile.hides_length:
            return False
        limit = self._create.value("max_output_tokens")
        tokens = read_usage(final.usage)[1]
        return limit is not None and tokens is not None and tokens.output >= limit

    def partial(self) -> bytes:
        """Items finished so far."""
        return b",".join(item.raw for item in self._answer.items)

    def _take(self, payload: bytes) -> None:
        if payload == DONE or (self._upstream_id is not None and payload.startswith(_REPEATED)):
            return
        try:
            payload.isascii() or payload.decode()  # msgspec does not look at bytes that it leaves undecoded
            event = EVENT.decode(payload)
            if event is None:
                return
            handle = _HANDLERS.get(event.type)
            if handle is not None:
                handle(self, event, payload)
            elif not event.type and not is_null(event.error):
                raise stream_error(event.error, self._brief.context_hint)
            elif _NAME.fullmatch(event.type):
                self._answer.take(event, payload)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            if not payload.strip():
                return  # an empty event, to keep the connection alive
            raise LooplineError(
                Kind.UPSTREAM_GARBLED, "The upstream sent an event that is not valid.", cause=str(error)
            ) from error

    def _lifecycle(self, event: Event, payload: bytes) -> None:
        if not is_null(event.response) and self._upstream_id is None:
            self._upstream_id = RESPONSE.decode(event.response).id

    def _end(self, event: Event, payload: bytes) -> None:
        final = Response() if is_null(event.response) else RESPONSE.decode(event.response)
        if final.status in _FAILED:
            raise stream_error(final.error, self._brief.context_hint)
        self._conclude(final, event.type)

    def _conclude(self, final: Response, status: str) -> None:
        self._final_status = status
        self._answer.end(final.output or (), is_cut=self._is_cut(final))
        self._final = final

    def _drop(self, event: Event, payload: bytes) -> None:
        """An event that only breaks clients."""

    def _failed(self, event: Event, payload: bytes) -> None:
        error = event.error if is_null(event.response) else RESPONSE.decode(event.response).error
        raise stream_error(payload if is_null(error) else error, self._brief.context_hint)

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
            raise stream_error(response.error, self._brief.context_hint)
        if response.output is None:
            raise LooplineError(Kind.UPSTREAM_GARBLED, "The upstream's answer is not a response.")
        self._upstream_id = response.id
        try:
            self._conclude(response, "")
        except (msgspec.DecodeError, RecursionError) as error:
            raise LooplineError(
                Kind.UPSTREAM_GARBLED, "The upstream sent an output item that is not valid.", cause=str(error)
            ) from error


_HANDLERS: Mapping[str, Callable[[ResponsesTranslator, Event, bytes], None]] = {
    "response.created": ResponsesTranslator._lifecycle,
    "response.queued": ResponsesTranslator._lifecycle,
    "response.in_progress": ResponsesTranslator._lifecycle,
    "response.completed": ResponsesTranslator._end,
    "response.incomplete": ResponsesTranslator._end,
    "response.failed": ResponsesTranslator._failed,
    "error": ResponsesTranslator._failed,
    # Names that client libraries give to events of their own (protocol.md, section 10).
    **dict.fromkeys(("raw", "close", "open", "event", "reconnecting", "reconnected"), ResponsesTranslator._drop),
}
