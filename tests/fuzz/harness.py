"""Two functions that take any bytes: what a client sends (`one_request`) and what an upstream answers (`one_stream`).

Each travels the part of a turn's road that is pure and raises `AssertionError` for whatever a user would suffer from:
another exception than a documented `LooplineError`, an event that is not valid, output or work out of proportion. They
know nothing of who calls them: hypothesis in `test_fuzz.py`, atheris in `run.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from proxy.conversation import chain
from proxy.errors import Kind, LooplineError, Source
from proxy.models.profile import profiles
from proxy.translate.base import Brief, Result, Translator
from proxy.translate.chat.translator import ChatTranslator
from proxy.translate.left_out import WHAT, describe
from proxy.translate.responses.translator import ResponsesTranslator
from proxy.translate.tools.listed import ToolMemo
from proxy.wire import server_events
from proxy.wire.client_events import Create, Limits, parse_create, parse_message
from proxy.wire.codec import decode_object
from proxy.wire.error_events import error_event, failed_error
from proxy.wire.items import Item, pair_calls, parse_item, require_answers
from tests.fuzz.shapes import check_body, check_events, check_paired
from tests.unit.translate.turns import RESPONSE, SEED

Json = dict[str, Any]

CASES = [(name, dialect) for name in profiles() for dialect in ("chat", "responses")]
MAX_EVENT_BYTES = 1 << 17
# Sealed text is marked, not encrypted, so that what comes out can be read.
SEALED = "SEALED "
# What the smallest input makes the most of: an item with all of its events, for one short chunk.
_OUT_FACTOR, _OUT_BYTES = 80, 4096
# A kind of tool becomes a function with a description, whatever its size.
_BODY_FACTOR, _BODY_BYTES = 32, 16384
_FIRST_SEQUENCE = 2

# Kinds of failure that a client's message may have.
CLIENT_KINDS = frozenset(
    {
        Kind.INVALID_JSON, Kind.INVALID_UNICODE, Kind.TOO_DEEP, Kind.INVALID_REQUEST, Kind.MISSING_PARAMETER,
        Kind.UNSUPPORTED_PARAMETER, Kind.UNSUPPORTED_MEDIA, Kind.UNPAIRED_CALL,
    }
)  # fmt: skip
# Kinds of failure that an upstream's answer may have.
UPSTREAM_KINDS = frozenset(kind for kind in Kind if kind.value.startswith("upstream_")) | {
    Kind.CONTEXT_LENGTH,
    Kind.QUOTA,
}


def briefed(create: Create, profile: str, *, sealing: bool | None = None) -> Brief:
    """What a translator of the profile is told of a turn that has no parent."""
    lasting = chain.lasting(None, create.items)
    wanted = create.wants_sealed if sealing is None else sealing
    return Brief(
        create=create,
        model="up",
        tools=ToolMemo().read("tenant", create.raw("tools"), lasting),
        profile=profiles()[profile],
        seed=SEED,
        sequence=_FIRST_SEQUENCE,
        max_event_bytes=MAX_EVENT_BYTES,
        lasting=lasting,
        open_reasoning=lambda text: text.removeprefix(SEALED) if text.startswith(SEALED) else None,
        seal_reasoning=(lambda text: SEALED + text) if wanted else None,
    )


def translator(brief: Brief, dialect: str) -> Translator:
    """The dialect's translator."""
    return ChatTranslator(brief) if dialect == "chat" else ResponsesTranslator(brief)


def created(members: Json) -> Create:
    """A create of these members."""
    data = json.dumps(members).encode()
    return parse_create(decode_object(data), len(data), Limits())


# --- requests ---


def one_request(data: bytes) -> None:
    """Any bytes as a client's message: a body for every profile in both dialects, or the client's documented error."""
    try:
        members = decode_object(data)  # the body of a POST
        if "type" in members:
            members = parse_message(data)[1]
        create = parse_create(members, len(data), Limits())
        open_calls = pair_calls(frozenset(), create.items)
        require_answers(open_calls)
        tools = ToolMemo().read("tenant", create.raw("tools"), chain.lasting(None, create.items))
    except LooplineError as error:
        _check_refusal(error)
        return
    snapshot = server_events.Snapshot(RESPONSE, create, create.model or "m", tools.echo, 1)
    json.loads(snapshot.render(b"in_progress"))
    for profile, dialect in CASES:
        _one_body(create, profile, dialect)


def _one_body(create: Create, profile: str, dialect: str) -> None:
    try:
        made = translator(briefed(create, profile), dialect)
        body = b"".join(made.request([]).parts)
    except LooplineError as error:
        _check_refusal(error)
        return
    assert len(body) <= _BODY_FACTOR * create.size + _BODY_BYTES, f"{len(body)} bytes of {create.size}"
    assert all(each.what in WHAT for each in made.left_out)
    json.loads(server_events.Snapshot(RESPONSE, create, "m", b"[]", 1, describe(made.left_out)).render(b"in_progress"))
    check_body(json.loads(body.decode()), dialect)


def _check_refusal(error: LooplineError) -> None:
    assert error.kind in CLIENT_KINDS, f"a client's message made a failure of kind {error.kind}: {error!r}"
    assert error.source is Source.CLIENT
    assert error.message
    told = json.loads(error_event(error))
    assert told["type"] == "error"
    assert type(told["status"]) is int


# --- streams ---


class StreamInput(NamedTuple):
    """The bytes of `one_stream` taken apart: two bytes choose what is asked of whom, two the reads, the rest is sent.

    `reads` is the size of each read (0: all at once), `steer_after` the number of reads after which the turn is
    steered (0: never).
    """

    profile: str
    dialect: str
    create: Create
    reads: int
    steer_after: int
    sent: bytes

    @classmethod
    def of(cls, data: bytes) -> StreamInput:
        """Short input is filled with zeros."""
        case, create, reads, steer_after = data[:HEAD_BYTES].ljust(HEAD_BYTES, b"\0")
        return cls(
            *CASES[case % len(CASES)], CREATES[create % len(CREATES)], reads, steer_after % 32, data[HEAD_BYTES:]
        )


HEAD_BYTES = 4


def head_of(profile: str, dialect: str, create: int = 0, reads: int = 0, steer_after: int = 0) -> bytes:
    """The first bytes of an input of `one_stream`."""
    return bytes((CASES.index((profile, dialect)), create, reads, steer_after))


class Told(NamedTuple):
    """What came of a stream: the events after the first two, and the failure, if there was one."""

    events: list[bytes]
    failure: LooplineError | None
    result: Result | None
    translator: Translator


def one_stream(data: bytes) -> None:
    """Any bytes as an upstream's answer: valid events in order and one end, or the upstream's documented failure."""
    given = StreamInput.of(data)
    told = _turn(given, given.reads)
    _check_told(given, told)
    if given.reads and not given.steer_after:
        whole = _turn(given, 0)
        assert _outcome(told) == _outcome(whole), "where the reads fell changed what was told"


def _outcome(told: Told) -> tuple[list[bytes], Kind | None]:
    return told.events, told.failure.kind if told.failure else None


def _turn(given: StreamInput, size: int) -> Told:
    """The turn's translation as `Turn` drives it, from accepted answer to result."""
    made = translator(briefed(given.create, given.profile), given.dialect)
    events: list[bytes] = []
    try:
        for count, read in enumerate(_reads(given.sent, size), 1):
            events += made.feed(read)
            if made.ended:
                break
            if count == given.steer_after and not made.call_begun:
                events += made.interrupt()
                return Told(events, None, made.result(), made)
        events += made.finish()
    except LooplineError as error:
        events += made.feed(b"")
        return Told(events, error, None, made)
    return Told(events, None, made.result(), made)


def _reads(sent: bytes, size: int) -> Iterator[bytes]:
    step = size or len(sent) or 1
    return (sent[at : at + step] for at in range(0, len(sent), step))


def _check_told(given: StreamInput, told: Told) -> None:
    made, result = told.translator, told.result
    size = sum(map(len, told.events))
    allowed = _OUT_FACTOR * len(given.sent) + _OUT_BYTES
    assert size <= allowed, f"{size} bytes of events from {len(given.sent)}"
    assert made.sequence == _FIRST_SEQUENCE + len(told.events)
    if told.failure is not None:
        assert told.failure.kind in UPSTREAM_KINDS, f"an upstream's answer made {told.failure!r}"
        assert told.failure.message
    shot = server_events.Snapshot(RESPONSE, given.create, "m", b"[]", 1_700_000_000)
    assert made.has_output or not told.events
    check_events(
        [*_first(shot), *told.events, _last(shot, told)], faithful=profiles()[given.profile].responses.faithful
    )
    if result is not None:
        _check_result(given, result, made)


def _first(shot: server_events.Snapshot) -> list[bytes]:
    started = b'"response":' + shot.render(b"in_progress")
    kinds = (b"response.created", b"response.in_progress")
    return [server_events.event(kind, number, started) for number, kind in enumerate(kinds)]


def _last(shot: server_events.Snapshot, told: Told) -> bytes:
    result, made = told.result, told.translator
    if result is None:
        assert told.failure is not None
        ended = shot.render(b"failed", output=made.partial(), error=failed_error(told.failure))
        return server_events.event(b"response.failed", made.sequence, b'"response":' + ended)
    at = 1_700_000_001 if result.status == b"completed" else None
    ended = shot.render(
        result.status, output=result.output, usage=result.usage, incomplete=result.incomplete, completed_at=at
    )
    return server_events.event(b"response." + result.status, made.sequence, b'"response":' + ended)


def _check_result(given: StreamInput, result: Result, made: Translator) -> None:
    assert result.status in (b"completed", b"incomplete")
    assert (result.incomplete == b"null") == (result.status == b"completed")
    assert result.output == b",".join(item.raw for item in result.items)
    for item in result.items:
        read = parse_item(item.raw, "output")
        assert (read.kind, read.call_id) == (item.kind, item.call_id)
    usage = json.loads(result.usage)
    assert (usage is None) == (result.tokens is None)
    json.loads(b"[" + made.encode(result.items) + b"]")  # as it is kept for the next turn
    _check_next(given, result)


# What a client answers a call with, by the call's type.
_ANSWERS: dict[str, Json] = {
    "function_call": {"type": "function_call_output", "output": "ok"},
    "custom_tool_call": {"type": "custom_tool_call_output", "output": "ok"},
    "shell_call": {"type": "shell_call_output", "output": []},
    "local_shell_call": {"type": "local_shell_call_output", "output": "ok"},
    "apply_patch_call": {"type": "apply_patch_call_output", "status": "completed"},
    "tool_search_call": {"type": "tool_search_output", "tools": [], "execution": "client"},
}


def answer_of(call: Json) -> Json:
    """A client's answer to a call."""
    return {**_ANSWERS[call["type"]], "call_id": call["call_id"]}


def _check_next(given: StreamInput, result: Result) -> None:
    """The answer, sent back with all its calls answered, is a request that the same server takes."""
    if not {item.kind for item in result.items} <= _KNOWN:
        return
    if profiles()[given.profile].responses.faithful and any(
        item.kind in _ANSWERS and not item.call_id for item in result.items
    ):
        return  # what such a server says passes as it is: nobody could answer a call that it gave no id
    answers = [json.dumps(answer_of(json.loads(item.raw))).encode() for item in result.items if _is_open(item)]
    items = [b'{"role":"user","content":"hi"}', *(item.raw for item in result.items), *answers]  # every digit as it was
    members = [json.dumps(name).encode() + b":" + bytes(raw) for name, raw in given.create.members.items()]
    data = b"{" + b",".join([*members, b'"input":[' + b",".join(items) + b"]"]) + b"}"
    create = parse_create(decode_object(data), len(data), Limits())
    require_answers(pair_calls(frozenset(), create.items))
    read = json.loads(b"".join(translator(briefed(create, given.profile), given.dialect).request([]).parts))
    check_body(read, given.dialect)
    if given.dialect == "chat":
        check_paired(read["messages"])


def _is_open(item: Item) -> bool:
    return item.kind in _ANSWERS and item.call_id is not None and not item.unfinished


_KNOWN = frozenset({"message", "reasoning", *_ANSWERS})


# --- what is asked in streams ---

_FUNCTION = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}
_NAMED: Sequence[Json] = (
    {"type": "custom", "name": "exec"},
    {"type": "custom", "name": "patch", "format": {"type": "grammar", "syntax": "lark", "definition": "start: X"}},
    {"type": "namespace", "name": "files", "description": "Files.", "tools": [{**_FUNCTION, "name": "read"}]},
    {"type": "namespace", "name": "notes", "description": "Notes.", "tools": [{"type": "custom", "name": "write"}]},
)
_OWN: Sequence[Json] = (
    {"type": "shell"},
    {"type": "local_shell"},
    {"type": "apply_patch"},
    {"type": "tool_search", "execution": "client"},
)
# Chosen by number: append only, or kept findings mean something else.
CREATES: Sequence[Create] = tuple(
    created({"model": "m", "input": "hi", **members})
    for members in (
        {},
        {"tools": [_FUNCTION]},
        {"tools": [_FUNCTION, *_NAMED]},
        {"tools": [_FUNCTION, *_NAMED, *_OWN]},
        {"tools": [_FUNCTION, *_NAMED, *_OWN], "include": ["reasoning.encrypted_content"]},
        {"include": ["reasoning.encrypted_content", "message.output_text.logprobs"], "top_logprobs": 2},
        {"tools": [{**_FUNCTION, "name": "odd name"}, {"type": "custom", "name": "é" * 70}]},
    )
)
