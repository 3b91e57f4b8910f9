"""What a client says to a Responses server of which nothing else is known arrives as it was said, to the last digit."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.wire.client_events import Limits, parse_create
from proxy.wire.codec import decode_object
from tests.fuzz.harness import briefed, translator
from tests.unit.strategies import TEXT, dumped, json_values
from tests.unit.translate.turns import create

# Not xai: it refuses types that it does not know, so that requests are shaped for it.
PROFILES = ("generic", "openai")
# Ours: what they say is done here, or is not for the upstream.
OURS = ("type", "model", "stream", "store", "previous_response_id", "client_metadata", "stream_id", "generate")
# What has tests of its own, or is refused.
_NOT_HERE = (
    "input", "tools", "tool_choice", "conversation", "background", "prompt_cache_options", "stream_options"
)  # fmt: skip
NAMES = st.one_of(st.sampled_from(["x_new", "moderation", "user_location", "context_management"]), TEXT).filter(
    lambda name: name not in (*OURS, *_READ, *_NOT_HERE)
)
VALUES = json_values("type", "message", "content", "input_text", "id", "call_id", "status")

# Members whose types are checked.
_READ: dict[str, st.SearchStrategy[Any]] = {
    "instructions": TEXT,
    "temperature": st.floats(0, 2),
    "top_p": st.floats(0, 1),
    "presence_penalty": st.integers(-2, 2),
    "frequency_penalty": st.floats(-2, 2),
    "top_logprobs": st.integers(0, 20),
    "max_output_tokens": st.integers(16, 10**6),
    "max_tool_calls": st.integers(1, 100),
    "parallel_tool_calls": st.booleans(),
    "truncation": st.sampled_from(["auto", "disabled"]),
    "service_tier": st.sampled_from(["auto", "flex", "new"]),
    "safety_identifier": TEXT,
    "prompt_cache_key": TEXT,
    "user": TEXT,
    "metadata": st.dictionaries(TEXT, TEXT, max_size=3),
    "reasoning": st.dictionaries(st.sampled_from(["effort", "summary", "x_new"]), VALUES, max_size=3),
    "text": st.dictionaries(st.sampled_from(["verbosity", "x_new"]), VALUES, max_size=2),
    "include": st.lists(TEXT, max_size=3),
}
_CREATES = st.builds(
    lambda read, unknown: {**unknown, **read},
    st.fixed_dictionaries({}, optional=_READ),
    st.dictionaries(NAMES, VALUES, max_size=4),
)
_MEMBERS = st.dictionaries(TEXT.map("x_{}".format), VALUES, max_size=4)
# Members that nobody here has heard of, in items and tools that all three servers know; and whole new ones.
_KNOWN = st.one_of(
    st.builds(lambda more, said: {"type": "message", "role": "user", "content": said, **more}, _MEMBERS, TEXT),
    st.builds(lambda more: {"type": "message", "role": "assistant", "phase": "final_answer", **more}, _MEMBERS),
    st.builds(
        lambda more, seal: {"type": "reasoning", "summary": [], "encrypted_content": seal, **more}, _MEMBERS, TEXT
    ),
    st.builds(lambda more: {"type": "compaction", "encrypted_content": "gAAAA", **more}, _MEMBERS),
    st.builds(lambda more: {"type": "web_search_call", "id": "ws_1", "status": "completed", **more}, _MEMBERS),
)
_NEW = st.builds(lambda more: {"type": "x_new", **more}, _MEMBERS)
_ITEMS = {"generic": _KNOWN | _NEW, "openai": _KNOWN | _NEW}
_SEARCH = st.builds(lambda more: {"type": "web_search", **more}, _MEMBERS)
_TOOLS = {"generic": _SEARCH | _NEW, "openai": _SEARCH | _NEW}


@pytest.mark.parametrize("profile", PROFILES)
@given(_CREATES, st.data())
@settings(deadline=None, max_examples=60)
def test_a_request_arrives_as_it_was_said(profile: str, said: dict[str, Any], data: st.DataObject) -> None:
    items = data.draw(st.lists(_ITEMS[profile], min_size=1, max_size=4))
    said = {**said, "tools": data.draw(st.lists(_TOOLS[profile], min_size=1, max_size=2))}
    ours = {"model": "mine", "store": True, "client_metadata": {"a": "b"}, "stream_id": "s", "generate": True}
    made = create(**said, **ours, type="response.create", input=items)
    body = b"".join(translator(briefed(made, profile), "responses").request([]).parts)
    told = {name: value for name, value in said.items() if value is not None}  # null is the same as nothing
    assert _exact(body) == _exact(dumped({**told, "model": "up", "stream": True, "store": False, "input": items}))


@pytest.mark.parametrize("profile", PROFILES)
@given(st.data())
@settings(deadline=None, max_examples=30)
def test_items_of_earlier_turns_arrive_byte_for_byte(profile: str, data: st.DataObject) -> None:
    some = st.lists(_ITEMS[profile], min_size=1, max_size=3)
    earlier, now = data.draw(some), data.draw(some)
    before = translator(briefed(create(input=earlier), profile), "responses")
    body = b"".join(translator(briefed(create(input=now), profile), "responses").request([before.delta]).parts)
    assert body.endswith(b'"input":[' + b",".join(map(dumped, [*earlier, *now])) + b"]}")


def test_numbers_keep_every_digit() -> None:
    raw = b'{"input":"hi","x_new":[1.10,1e400,99999999999999999999999,-0],"temperature":0.70}'
    members = json.loads(raw, parse_float=lambda text: text, parse_int=lambda text: text)
    made = parse_create(decode_object(raw), len(raw), Limits())
    for profile in PROFILES:
        body = _exact(b"".join(translator(briefed(made, profile), "responses").request([]).parts))
        assert (body["x_new"], body["temperature"]) == (members["x_new"], members["temperature"])


def _exact(data: bytes) -> dict[str, Any]:
    """JSON with its numbers as they are written."""
    read: dict[str, Any] = json.loads(data, parse_float=lambda text: text, parse_int=lambda text: text)
    return read
