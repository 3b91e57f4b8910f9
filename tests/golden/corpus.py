"""The golden corpus: what each kind of server is sent for one request, and what a client is told of one stream.

    tests/golden/requests/<name>.json   a create (or the name of a captured one), and the request for every profile
    tests/golden/streams/<name>.json    a stream as a server sent it, and what the client is told

An expectation is written as what differs from another one beside it, so that a difference between servers is what a
reader sees. `make golden` writes all expectations anew: read the diff before you keep it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from proxy.conversation import chain
from proxy.errors import LooplineError
from proxy.models.profile import profiles
from proxy.translate.base import Brief, Translator
from proxy.translate.chat.translator import ChatTranslator
from proxy.translate.responses.translator import ResponsesTranslator
from proxy.translate.tools.listed import ToolMemo
from proxy.wire.client_events import Create, Limits, parse_create
from proxy.wire.codec import decode_object
from tests.unit.translate.turns import SEED, play

HERE = Path(__file__).parent
DIALECTS = ("chat", "responses")
# The one that others are compared with, by dialect: a Responses request is compared with the create itself.
BASE = {"chat": "generic", "responses": "create"}
# What stands in for text that was sealed here: `SEALED <text>` is opened to the text.
SEALED = "SEALED "
# Ours, whatever the client says: they would make every comparison longer.
_OURS = frozenset(
    {"type", "stream", "store", "model", "previous_response_id", "stream_id", "generate", "client_metadata"}
)

Json = dict[str, Any]


def cases(kind: str) -> list[Path]:
    """The files of one kind, `requests` or `streams`."""
    return sorted((HERE / kind).glob("*.json"))


def create_of(case: Json) -> Create:
    """The create of a case, given or captured."""
    given = case["create"]
    members = json.loads((HERE / given).read_text()) if isinstance(given, str) else given
    data = json.dumps(members).encode()
    return parse_create(decode_object(data), len(data), Limits())


def brief(create: Create, profile: str) -> Brief:
    """What a translator is told; sealing is made readable."""
    lasting = chain.lasting(None, create.items)
    return Brief(
        create=create,
        model=create.model or "model",
        tools=ToolMemo().read("tenant", create.raw("tools"), lasting),
        profile=profiles()[profile],
        seed=SEED,
        sequence=2,
        max_event_bytes=1 << 20,
        lasting=lasting,
        open_reasoning=lambda text: text.removeprefix(SEALED) if text.startswith(SEALED) else None,
        seal_reasoning=(lambda text: SEALED + text) if create.wants_sealed else None,
    )


def translator(create: Create, profile: str, dialect: str) -> Translator:
    """The translator of one profile."""
    told = brief(create, profile)
    return ChatTranslator(told) if dialect == "chat" else ResponsesTranslator(told)


def requested(create: Create, profile: str, dialect: str) -> Json:
    """What the server is sent: `body`, and `left_out` where something is; or `error`."""
    try:
        made = translator(create, profile, dialect)
        if not create.generate:
            return {"body": {}}  # a warm-up: the server is not asked
        body = json.loads(b"".join(made.request([]).parts))
    except LooplineError as error:
        return {"error": {"status": error.status, "code": error.code, "param": error.param, "message": error.message}}
    left_out = [" ".join(each) for each in made.left_out]
    return {"body": body, **({"left_out": left_out} if left_out else {})}


def all_requested(create: Create) -> dict[str, dict[str, Json]]:
    """By dialect and profile, in full."""
    names = [name for name in profiles() if name != "simulated"]
    return {dialect: {name: requested(create, name, dialect) for name in names} for dialect in DIALECTS}


def base_of(create: Create) -> Json:
    """The create as the body that a lossless server would get."""
    members = {name: json.loads(bytes(raw)) for name, raw in create.members.items() if name not in _OURS}
    ours = {"model": create.model or "model", "stream": True, "store": False}
    return {"body": {**members, **ours, "input": [json.loads(item.raw) for item in create.items]}}


def told_apart(create: Create, full: Mapping[str, Mapping[str, Json]]) -> Json:
    """The expectations as they are written: each as what differs from one before it."""
    written: Json = {}
    for dialect, by_profile in full.items():
        before: dict[str, Json] = {"create": base_of(create)} if dialect == "responses" else {}
        order = sorted(by_profile, key=lambda name: (name != "generic", name))
        written[dialect] = {}
        for name in order:
            written[dialect][name] = _written(by_profile[name], before)
            before[name] = by_profile[name]
    return written


def _written(made: Json, before: Mapping[str, Json]) -> Any:
    same = next((name for name, other in before.items() if other == made), None)
    if same is not None:
        return same
    likes = [name for name, other in before.items() if "body" in other and "body" in made]
    if not likes:
        return made
    nearest = min(likes, key=lambda name: len(json.dumps(_difference(made["body"], before[name]["body"]))))
    return {"as": nearest, **_difference(made["body"], before[nearest]["body"]), **_beside(made)}


def _beside(made: Json) -> Json:
    return {key: value for key, value in made.items() if key != "body"}


def _difference(body: Json, other: Json) -> Json:
    changed = {key: value for key, value in body.items() if key not in other or other[key] != value}
    without = [key for key in other if key not in body]
    return {**({"but": changed} if changed else {}), **({"without": without} if without else {})}


def read_back(create: Create, written: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Json]]:
    """The written expectations in full: what `told_apart` made short."""
    full: dict[str, dict[str, Json]] = {}
    for dialect, by_profile in written.items():
        known: dict[str, Json] = {"create": base_of(create)}
        for name, short in by_profile.items():
            known[name] = known[short] if isinstance(short, str) else _full(short, known)
        full[dialect] = {name: made for name, made in known.items() if name != "create"}
    return full


def _full(short: Json, known: Mapping[str, Json]) -> Json:
    if "as" not in short:
        return short
    body = {key: value for key, value in known[short["as"]]["body"].items() if key not in short.get("without", ())}
    rest = {key: value for key, value in short.items() if key not in ("as", "but", "without")}
    return {"body": {**body, **short.get("but", {})}, **rest}


# --- streams ---


def stream_of(case: Json) -> bytes:
    """The bytes that the server sent: a captured file, or the payloads of its events."""
    given = case["stream"]
    if isinstance(given, str):
        return (HERE / given).read_bytes()
    return b"".join(b"data: " + _payload(each) + b"\n\n" for each in given)


def _payload(each: Any) -> bytes:
    return each.encode() if isinstance(each, str) else json.dumps(each).encode()


def events_of(case: Json, chunk_bytes: int = 0) -> list[Json]:
    """The whole turn's events as a client gets them, read in pieces of `chunk_bytes` (0: at once)."""
    create = create_of(case)
    sent = stream_of(case)
    size = chunk_bytes or len(sent)
    reads = [sent[at : at + size] for at in range(0, len(sent), size)]
    return play(translator(create, case["profile"], case["dialect"]), reads, create)


def told(events: list[Json]) -> Json:
    """Events as they are written: one line each, deltas that follow one another as one."""
    ended = events[-1]["response"]
    shown = {key: ended[key] for key in ("incomplete_details", "error", "usage", "output") if ended[key] is not None}
    return {"events": list(_lines(events)), "ended": {"status": ended["status"], **shown}}


def _lines(events: list[Json]) -> Iterator[str]:
    said, stem = "", ""
    for event in [*events, {"type": ""}]:
        place = " ".join(str(event[key]) for key in _PLACES if key in event)
        if event["type"].endswith(".delta") and f"{event['type']} {place}" == stem:
            said += event["delta"]
            continue
        if stem:
            yield f"{stem} {json.dumps(said, ensure_ascii=False)}"
            stem = ""
        if event["type"].endswith(".delta"):
            stem, said = f"{event['type']} {place}", event["delta"]
        elif event["type"]:
            kind = event.get("item", event.get("part", {})).get("type", "")
            yield " ".join(part for part in (event["type"], place, kind) if part)


_PLACES = ("output_index", "content_index", "summary_index")


# --- writing ---


def written(path: Path) -> str:
    """A case's file with its expectation made anew."""
    case = json.loads(path.read_text())
    if path.parent.name == "requests":
        create = create_of(case)
        case["upstream"] = told_apart(create, all_requested(create))
    else:
        case["told"] = told(events_of(case))
    return json.dumps(case, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Write all expectations, or those whose names are given."""
    wanted = sys.argv[1:]
    for kind in ("requests", "streams"):
        for path in cases(kind):
            if not wanted or path.stem in wanted:
                path.write_text(written(path))


if __name__ == "__main__":
    main()
