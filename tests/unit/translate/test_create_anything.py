"""Any message as a create: a request in each dialect and a snapshot, or a failure that is the client's own."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.errors import Kind, LooplineError, Source
from proxy.translate.base import Translator
from proxy.translate.tools.listed import ToolMemo
from proxy.wire.client_events import Limits, parse_create, parse_message
from proxy.wire.error_events import error_event
from proxy.wire.items import pair_calls, require_answers
from proxy.wire.server_events import Snapshot
from tests.conformance.schema import RESPONSE_KEYS
from tests.unit.strategies import dumped, json_values
from tests.unit.translate.turns import chat, responses

MEMBERS = (
    "model", "previous_response_id", "store", "generate", "instructions", "temperature", "max_output_tokens", "tools",
    "reasoning", "text", "include", "metadata", "tool_choice", "parallel_tool_calls", "prompt_cache_options", "stream",
    "background", "top_logprobs", "truncation", "service_tier",
)  # fmt: skip
WORDS = (
    "type", "role", "content", "user", "assistant", "message", "function", "function_call", "function_call_output",
    "call_id", "name", "arguments", "output", "format", "json_schema", "schema", "effort", "input_text", "input_image",
)  # fmt: skip
VALUES = json_values(*WORDS)


def road(data: bytes) -> tuple[list[bytes], LooplineError | None]:
    """What a turn does with a message before it goes upstream: the JSON it made, and the failure that ended it."""
    made: list[bytes] = []
    try:
        _, members = parse_message(data)
        create = parse_create(members, len(data), Limits())
        require_answers(pair_calls(frozenset(), create.items))
        tools = ToolMemo().read("t", create.raw("tools"))
        made.append(Snapshot("resp_1", create, create.model or "m", tools.echo, 1).render(b"in_progress"))
        translators: list[Translator] = [responses(create), chat(create)]
        for translator in translators:
            made.append(b"".join(translator.request([]).parts))
    except LooplineError as error:
        return made, error
    return made, None


def check(data: bytes) -> LooplineError | None:
    made, error = road(data)
    read = [json.loads(each.decode()) for each in made]
    assert not read or set(read[0]) == RESPONSE_KEYS
    assert [body["model"] for body in read[1:]] == ["up"] * len(read[1:])
    if error is not None:
        assert error.source is Source.CLIENT
        assert json.loads(error_event(error))["status"] == error.status
    return error


@given(
    st.dictionaries(st.sampled_from(MEMBERS), VALUES, max_size=4),
    st.one_of(VALUES, st.just("hi"), st.lists(st.dictionaries(st.sampled_from(WORDS), VALUES, max_size=5), max_size=3)),
)
@settings(deadline=None, max_examples=60)
def test_any_object_is_a_turn_or_the_clients_error(members: dict[str, Any], given_input: Any) -> None:
    check(dumped({"type": "response.create", "input": given_input, **members}))


@given(st.one_of(VALUES.map(dumped), st.binary(max_size=60)))
@settings(deadline=None, max_examples=100)
def test_any_message_is_a_turn_or_the_clients_error(data: bytes) -> None:
    check(data)


CREATE = b'{"type":"response.create","input":%b}'
DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (CREATE % b"NaN", Kind.INVALID_JSON),
        (CREATE % b'"x","temperature":Infinity', Kind.INVALID_JSON),
        (CREATE % b'"x","temperature":-1e999', Kind.INVALID_REQUEST),
        (CREATE % (b'"x","top_logprobs":' + b"9" * 100_000), Kind.INVALID_REQUEST),
        (CREATE % DEEP, Kind.TOO_DEEP),
        (CREATE % (b'"x","tools":' + DEEP), Kind.TOO_DEEP),
        (CREATE % (b'[{"role":"user","content":' + DEEP + b"}]"), Kind.TOO_DEEP),
        (CREATE % b'"\\ud800"', Kind.INVALID_UNICODE),
        (CREATE % b'[{"role":"user","content":"\\udfff"}]', Kind.INVALID_UNICODE),
        (CREATE % b'"x","metadata":{"\\ud800":"x"}', Kind.INVALID_UNICODE),
        (CREATE % b'"\xff"', Kind.INVALID_UNICODE),
        (CREATE % b'"x","\xc3":1', Kind.INVALID_UNICODE),
        (CREATE % b'"x"' + b"\0", Kind.INVALID_JSON),
    ],
)
def test_what_breaks_parsers_is_named(data: bytes, kind: Kind) -> None:
    error = check(data)
    assert error is not None
    assert error.kind is kind


@pytest.mark.parametrize(
    "members",
    [
        b'"model":"a","model":"b","input":7,"input":"x"',
        b'"tool_choice":99999999999999999999999999999999999999',
        b'"tools":[{"type":"function","name":"f","parameters":{"maximum":1e400,"n":99999999999999999999999999}}]',
        b'"metadata":{"a":"\\ud83d\\ude00"}',
        b'"unknown":{"deep":' + b"[" * 300 + b"]" * 300 + b"}",
    ],
)
def test_what_is_odd_but_legal_goes_through(members: bytes) -> None:
    error = check(b'{"type":"response.create","input":"x",' + members + b"}")
    assert error is None or error.param == "tool_choice"


def test_no_depth_between_fine_and_too_deep_crashes() -> None:
    """The recursion limit counts Python's frames too: what one step accepts a later, deeper one may not."""
    places = (b'"x","unknown":%b', b'"x","tools":%b', b'[{"role":"user","y":%b}]', b'"x","text":{"format":%b}')
    outcomes = set()
    for depth in range(900, 1010, 2):
        for place in places:
            _, error = road(CREATE % (place % (b"[" * depth + b"]" * depth)))
            outcomes.add("fine" if error is None else error.kind.value)
    assert {"fine", "too_deep"} <= outcomes
