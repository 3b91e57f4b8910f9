"""The `chat` dialect: a turn as `POST /chat/completions`, its chunks as events.

Source: API reference, Chat Completions; habits of vLLM, llama.cpp and transformers as observed (upstreams/README.md).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from proxy.errors import Kind, LooplineError
from proxy.translate.answer.accumulate import COMPLETED, INCOMPLETE, Answer
from proxy.translate.base import STEERED, Body, Brief, Result, Tokens, counted
from proxy.translate.chat.calls import CallKeys
from proxy.translate.chat.chunks import CHUNK, USAGE, Choice, Chunk, Delta, Function, Part, said
from proxy.translate.chat.fields import ChatFields, own_members, wants_logprobs
from proxy.translate.chat.halves import Halves
from proxy.translate.chat.items import ItemEncoder, is_written_so, join_messages, said_alone
from proxy.translate.chat.marks import NOTHING, Logged, joined, marks, read_annotations, read_logprobs
from proxy.translate.chat.plain import PlainChunks
from proxy.translate.failures import stream_error
from proxy.translate.intake import Intake
from proxy.translate.left_out import LeftOut
from proxy.translate.tools.choice import allowed_calls, chat_tools
from proxy.translate.tools.listed import left_out_tools
from proxy.wire import server_events as events
from proxy.wire.codec import NULL, Raw, is_null
from proxy.wire.items import Item, string
from proxy.wire.sse import DONE

_HEAD = b'{"model":%b,"stream":true'
_WITH_USAGE = b',"stream_options":{"include_usage":true}'


# finish_reason → the response's reason for being incomplete.
_INCOMPLETE: Mapping[str, bytes] = {
    "length": b'{"reason":"max_output_tokens"}',
    "max_tokens": b'{"reason":"max_output_tokens"}',
    "model_length": b'{"reason":"max_output_tokens"}',
    "content_filter": b'{"reason":"content_filter"}',
    STEERED: b'{"reason":"steered"}',
}
# finish_reason of an answer that an engine gave up (vLLM, SGLang): what came is not the whole of it.
_FAILED = frozenset({"abort", "error"})
# Reasons that another one, in a later chunk, does not undo.
_LASTING = _INCOMPLETE.keys() | _FAILED

_NO_FUNCTION = Function()


class _Asked(NamedTuple):
    """A request up to its messages. `instructions` is a JSON string, `allowed` the functions that may be called."""

    head: bytes
    instructions: bytes | None
    allowed: frozenset[str] | None
    left_out: list[LeftOut]


def _ask(brief: Brief) -> _Asked:
    create, profile, choice = brief.create, brief.profile.chat, brief.create.raw("tool_choice")
    tools = chat_tools(
        brief.tools,
        choice,
        strict=profile.strict,
        named=profile.named_choice == "function",
        obeyed="tool_choice" not in profile.ignored,
    )
    allowed = allowed_calls(brief.tools, choice)
    fields = ChatFields(create.terms, profile, brief.lasting, has_tools=bool(tools))
    head = _HEAD % string(brief.model) + (_WITH_USAGE if profile.usage else b"")
    return _Asked(
        b",".join((head, *fields.members, *tools)),
        create.raw("instructions"),
        allowed,
        [*left_out_tools(brief.tools), *fields.left_out],
    )


class ChatTranslator:
    """A `Translator` (see base.py) for one turn."""

    dialect = "chat"

    def __init__(self, brief: Brief, *, untold: bool = False) -> None:
        self._brief = brief
        self._create = brief.create
        self._tools = brief.tools
        self._profile = brief.profile.chat
        self.encoding = f"chat/{brief.profile.name}"
        self._answer = Answer(brief.seed, brief.sequence, brief.tools.calls, brief.seal_reasoning)
        self._intake = Intake(brief.max_event_bytes)
        self._finish_reason: str | None = None
        self._done = False
        self._keys: CallKeys | None = None  # made with the first call
        self._wants_logprobs = wants_logprobs(brief.create.terms, brief.profile.chat)
        self._logged: list[Logged] = []  # of tokens that gave no text yet
        self._by_message = False
        self._decode: Callable[[bytes], Chunk | None] = CHUNK.decode
        self._halves = Halves()
        self._plain = PlainChunks()
        self._usage = NULL
        self._upstream_id: str | None = None
        self._items = ItemEncoder(brief.tools, brief.profile.chat, brief.open_reasoning)
        self._left_out: list[LeftOut] = []
        self.delta = b"" if untold else brief.told(self.encoding, self._items)

    def tell(self) -> Generator[None, None, None]:
        """Make `delta` in portions; see `Translator.tell`."""
        self.delta = yield from self._brief.telling(self.encoding, self._items)

    @property
    def sequence(self) -> int:
        """The number of the next event."""
        return self._answer.sequence

    @property
    def left_out(self) -> list[LeftOut]:
        """What the request cannot say."""
        return [*self._left_out, *self._items.left_out, *(LeftOut("call", name) for name in self._answer.refused)]

    @property
    def ended(self) -> bool:
        """Has `[DONE]` come?"""
        return self._done

    @property
    def whole(self) -> bool:
        """Has the model stopped? What may follow is usage or `[DONE]`."""
        return self._done or self._finish_reason is not None

    @property
    def has_output(self) -> bool:
        """Has an event with output been made?"""
        return self._answer.has_output

    def encode(self, items: Sequence[Item]) -> bytes:
        """Items as messages, joined by commas."""
        said = self._answer.only_text
        if said is not None and len(items) == 1 and items[0] is self._answer.items[0] and is_written_so(said):
            return said_alone(b"assistant", said)  # most answers: what was just written need not be read again
        return self._items.encode(items)

    def request(self, history: Sequence[bytes]) -> Body:
        """The request; see `Translator.request`."""
        asked = self._asked()
        self._answer.allowed, self._left_out = asked.allowed, asked.left_out
        own = own_members(self._create.own, self._profile)
        head = b",".join((asked.head, *own, b'"messages":['))
        messages = join_messages(asked.instructions, [*history, self.delta], self._profile)
        return Body("/chat/completions", [head, *messages, b"]}"], repeatable=True)

    def _asked(self) -> _Asked:
        """What the request says beside its messages: made once where the conversation changes nothing of it."""
        brief = self._brief
        if brief.lasting:
            return _ask(brief)
        return brief.create.terms.made(f"chat {brief.model}", (brief.tools, brief.profile), lambda: _ask(brief))

    def feed(self, data: bytes) -> list[bytes]:
        """Events for what arrived; see `Translator.feed`."""
        payloads, plain, at = self._intake.feed(data), self._plain, 0
        while at < len(payloads):
            if texts := plain.read(payloads, at):
                self._answer.spoken(plain.kind, texts)
                at += len(texts)
            else:
                self._take(payloads[at])
                at += 1
        return self._answer.take()

    def finish(self) -> list[bytes]:
        """The last events; see `Translator.finish`."""
        for payload in self._intake.end():
            self._take_rest(payload)
        if self._finish_reason is None and not self._done:
            raise LooplineError(Kind.UPSTREAM_CLOSED, "The upstream ended its answer before it was whole.")
        if self._finish_reason in _FAILED:
            raise LooplineError(
                Kind.UPSTREAM_FAILED, "The upstream gave its answer up.", cause=f"finish_reason {self._finish_reason}"
            )
        self._answer.close(INCOMPLETE if self._finish_reason in _INCOMPLETE else COMPLETED)
        return self._answer.take()

    @property
    def call_begun(self) -> bool:
        """Has a call been made or begun?"""
        return self._answer.call_begun

    def interrupt(self) -> list[bytes]:
        """The answer ends here, steered; see `Translator.interrupt`."""
        self._finish_reason = STEERED
        self._answer.interrupt()
        return self._answer.take()

    def result(self) -> Result:
        """The answer; see `Translator.result`."""
        reason = _INCOMPLETE.get(self._finish_reason or "")
        tokens = _tokens(self._usage)
        return Result(
            items=tuple(self._answer.items),
            output=self._answer.output(),
            status=COMPLETED if reason is None else INCOMPLETE,
            incomplete=reason or b"null",
            usage=b"null"
            if tokens is None
            else events.usage(tokens.input, tokens.cached, tokens.output, tokens.reasoning, tokens.total),
            tokens=tokens,
            upstream_id=self._upstream_id,
        )

    def partial(self) -> bytes:
        """Items finished so far."""
        return self._answer.output()

    def _take_rest(self, payload: bytes) -> None:
        """What was left without its end: the last event, where only its blank line is missing, or a piece of it."""
        try:
            self._take(payload)
        except LooplineError as error:
            if error.kind is not Kind.UPSTREAM_GARBLED or self._intake.is_document:
                raise

    def _take(self, payload: bytes) -> None:
        if self._done or payload == DONE:  # nothing that follows the end belongs to the answer
            self._done = True
            self._plain.forget()
            return
        try:
            chunk = self._decode(payload)
        except (msgspec.DecodeError, RecursionError) as error:
            if not payload.strip():
                return  # an empty event, to keep the connection alive
            chunk = self._mended(payload, error)
        if chunk is None:
            return  # llama.cpp's first event of some streams is `data: null`
        if chunk.error is not NULL and not is_null(chunk.error):
            raise stream_error(chunk.error, self._brief.context_hint)
        if chunk.usage is not NULL and not is_null(chunk.usage):
            self._usage = chunk.usage
        if self._upstream_id is None:
            self._upstream_id = chunk.id
        for choice in chunk.choices or ():
            if choice.index == 0:
                self._take_choice(choice, payload)
        if self._finish_reason is None and not self._wants_logprobs and not self._by_message and not self._halves:
            self._plain.learn(payload, chunk)

    def _mended(self, payload: bytes, error: Exception) -> Chunk | None:
        """A chunk that msgspec refused, if only for one half of a character or a member of an odd type."""
        try:
            mended = self._halves.mend(payload)
            chunk = CHUNK.decode(mended)
        except (ValueError, RecursionError, OverflowError):
            raise LooplineError(
                Kind.UPSTREAM_GARBLED, "The upstream sent a chunk that is not valid.", cause=str(error)
            ) from error
        # The other half comes in the next chunk, which may look whole: until then every chunk goes this way.
        self._decode = _unpaired if self._halves else CHUNK.decode
        self._plain.forget()
        return chunk

    def _spoken(self, delta: Delta | None, message: Delta) -> Delta | None:
        """What a choice says that has a message too, beside its delta or instead of it."""
        if delta is not None and not delta.is_empty:
            return delta
        if self._answer.has_output and not self._by_message:
            return delta  # the whole of it once more, after its pieces
        self._by_message = True
        return message

    def _take_choice(self, choice: Choice, payload: bytes) -> None:
        delta = choice.delta if choice.message is None else self._spoken(choice.delta, choice.message)
        if delta is not None:
            if delta.reasoning_content or delta.reasoning:
                self._answer.reasoning(delta.thought)
            content = delta.content
            if self._wants_logprobs or delta.annotations:
                self._take_marked(delta, payload)
            elif content:
                # The hot path of every turn: one string.
                if isinstance(content, str):
                    self._answer.text(content)
                else:
                    self._say_pieces(content)
            if delta.refusal:
                self._answer.refusal(delta.refusal)
            if delta.tool_calls or delta.function_call:
                self._take_calls(delta)
        if choice.finish_reason and self._finish_reason not in _LASTING:  # some servers write "" in every chunk
            self._finish_reason = choice.finish_reason

    def _say_pieces(self, content: list[Part | str]) -> None:
        for kind, text in said(content):
            self._answer.say(kind, text)

    def _take_marked(self, delta: Delta, payload: bytes) -> None:
        """Content with its log-probabilities and annotations, which go with the last of its text."""
        logged = read_logprobs(payload) if self._wants_logprobs else NOTHING
        annotations = read_annotations(delta.annotations)
        pieces = said(delta.content)
        last = max((number for number, (kind, _) in enumerate(pieces) if kind == "text"), default=None)
        for number, (kind, text) in enumerate(pieces):
            if number == last:
                self._answer.marked_text(text, marks(joined([*self._logged, logged]), annotations))
                self._logged = []
            else:
                self._answer.say(kind, text)
        if last is None and annotations:
            self._answer.marked_text("", marks(NOTHING, annotations))
        if delta.is_empty:  # a piece of a character; tokens of a thought or of a call are no text's
            self._logged.append(logged)

    def _take_calls(self, delta: Delta) -> None:
        calls = delta.tool_calls or ()
        if self._keys is None:
            self._keys = CallKeys(self._answer.is_whole, self._answer.names)
        for position, call in enumerate(calls):
            key = self._keys.of(call, position, alone=len(calls) == 1)
            function = call.function or _NO_FUNCTION
            self._answer.call(key, call.id or "", function.name or "", function.text)
        if delta.function_call and not calls:
            key = self._keys.of_legacy(delta.function_call)
            self._answer.call(key, "", delta.function_call.name or "", delta.function_call.text)


def _unpaired(payload: bytes) -> Chunk | None:
    raise msgspec.DecodeError(f"half of a character was missing before {len(payload)} bytes")


def _tokens(raw: Raw) -> Tokens | None:
    try:
        usage = USAGE.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None  # the answer is whole; only its price is unknown
    if usage is None:
        return None
    cached = usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details else None
    reasoning = usage.completion_tokens_details.reasoning_tokens if usage.completion_tokens_details else None
    return counted(usage.prompt_tokens, cached, usage.completion_tokens, reasoning, usage.total_tokens)
