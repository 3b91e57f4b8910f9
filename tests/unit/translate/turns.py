"""One turn without a socket: a create, what the upstream sends, and the events that a client would get."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from proxy.errors import LooplineError
from proxy.models.profile import profiles
from proxy.translate.base import Brief, Translator
from proxy.translate.chat.translator import ChatTranslator
from proxy.translate.responses.translator import ResponsesTranslator
from proxy.translate.tools.listed import ToolMemo, Tools
from proxy.wire import server_events as events
from proxy.wire.client_events import Create, Limits, parse_create
from proxy.wire.codec import decode_object
from proxy.wire.error_events import failed_error
from proxy.wire.items import Item, parse_item
from tests.unit.strategies import dumped

Event = dict[str, Any]

SEED = "0123456789abcdef" * 2
RESPONSE = "resp_lp1000001234567" + SEED
LIMIT = 1 << 20


def create(**members: Any) -> Create:
    """A create; its input is `hi` unless it says otherwise."""
    data = dumped({"input": "hi", **members})
    return parse_create(decode_object(data), len(data), Limits())


def items(*members: Event) -> tuple[Item, ...]:
    """Items as a client sends them."""
    return tuple(parse_item(dumped(each), f"input[{index}]") for index, each in enumerate(members))


def tools_of(made: Create) -> Tools:
    """The tools of a create, read."""
    return ToolMemo().read("t", made.raw("tools"))


def brief(made: Create, model: str = "up", limit: int = LIMIT, profile: str = "generic") -> Brief:
    """What a translator is told."""
    return Brief(made, model, tools_of(made), profiles()[profile], SEED, sequence=2, max_event_bytes=limit)


def chat(made: Create | None = None, model: str = "up", limit: int = LIMIT, profile: str = "generic") -> ChatTranslator:
    """A chat translator at the start of its turn."""
    return ChatTranslator(brief(made or create(), model, limit, profile))


def responses(
    made: Create | None = None, model: str = "up", *, faithful: bool = False, profile: str = "generic"
) -> ResponsesTranslator:
    """A Responses translator at the start of its turn."""
    return ResponsesTranslator(brief(made or create(), model, profile=profile), faithful=faithful)


def sent(translator: Translator, history: Sequence[bytes] = ()) -> Event:
    """The body that the upstream gets."""
    body: Event = json.loads(b"".join(translator.request(history).parts))
    return body


def play(translator: Translator, reads: Iterable[bytes], made: Create | None = None) -> list[Event]:
    """The whole turn, as `Turn` tells it: created, in_progress, what comes, and one terminal event."""
    shot = events.Snapshot(RESPONSE, made or create(), "m", b"[]", 1_700_000_000)
    out: list[bytes] = []
    started = b'"response":' + shot.render(b"in_progress")
    out += [events.event(b"response.created", 0, started), events.event(b"response.in_progress", 1, started)]
    try:
        for read in reads:
            out += translator.feed(read)
            if translator.ended:
                break
        out += translator.finish()
    except LooplineError as error:
        out += translator.feed(b"")
        ended = shot.render(b"failed", output=translator.partial(), error=failed_error(error))
        kind = b"response.failed"
    else:
        result = translator.result()
        at = 1_700_000_001 if result.status == b"completed" else None
        ended = shot.render(
            result.status, output=result.output, usage=result.usage, incomplete=result.incomplete, completed_at=at
        )
        kind = b"response." + result.status
    out.append(events.event(kind, translator.sequence, b'"response":' + ended))
    return [json.loads(each) for each in out]


def sse(*payloads: object) -> bytes:
    """Events of an upstream; bytes go as they are."""
    datas = [each if isinstance(each, bytes) else dumped(each) for each in payloads]
    return b"".join(b"data: " + data + b"\n\n" for data in datas)


def chunk(finish: str | None = None, **delta: Any) -> Event:
    """A chat completion chunk."""
    return {"id": "chatcmpl-1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def tool_call(
    index: int | None = 0, call_id: str | None = None, name: str | None = None, arguments: str | None = None
) -> Event:
    """A chunk with a piece of a tool call; None is left out."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    call = {key: value for key, value in (("index", index), ("id", call_id)) if value is not None}
    return chunk(tool_calls=[{**call, "function": function}])


DONE = b"[DONE]"


def output(told: Sequence[Event]) -> list[Event]:
    """The items of the terminal event."""
    made: list[Event] = told[-1]["response"]["output"]
    return made


def calls(told: Sequence[Event]) -> list[tuple[str, str, str]]:
    """Call id, name and arguments of each function call in the output."""
    return [
        (each["call_id"], each["name"], each["arguments"]) for each in output(told) if each["type"] == "function_call"
    ]


def text(told: Sequence[Event]) -> str:
    """The output's text."""
    return "".join(part["text"] for each in output(told) if each["type"] == "message" for part in each["content"])
