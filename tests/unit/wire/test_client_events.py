from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.errors import Kind, LooplineError
from proxy.wire.client_events import Create, Limits, parse_create, parse_message
from proxy.wire.codec import decode_object
from tests.unit.strategies import dumped


def create(**members: Any) -> Create:
    data = dumped({"input": "hi", **members})
    return parse_create(decode_object(data), len(data), Limits())


def refused(limits: Limits | None = None, **members: Any) -> LooplineError:
    with pytest.raises(LooplineError) as raised:
        parse_create(decode_object(dumped(members)), 0, limits or Limits())
    assert raised.value.type == "invalid_request_error"
    return raised.value


def test_a_message_gives_its_type_and_its_members() -> None:
    kind, members = parse_message(b'{"type":"response.create","model":"m","input":[]}')
    assert (kind, set(members)) == ("response.create", {"type", "model", "input"})


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"{}", Kind.MISSING_PARAMETER),
        (b'{"type":7}', Kind.INVALID_REQUEST),
        (b'{"type":null}', Kind.INVALID_REQUEST),
        (b"[1]", Kind.INVALID_REQUEST),
        (b"nonsense", Kind.INVALID_JSON),
    ],
)
def test_a_message_without_a_type_is_an_error(data: bytes, kind: Kind) -> None:
    with pytest.raises(LooplineError) as raised:
        parse_message(data)
    assert raised.value.kind is kind


def test_a_create_reads_what_it_acts_on_and_keeps_the_rest() -> None:
    made = create(model="m", store=False, previous_response_id="resp_1", client_metadata={"a": "b"}, temperature=0.50)
    assert (made.model, made.store, made.parent_id, made.generate) == ("m", False, "resp_1", True)
    assert made.raw("client_metadata") == b'{"a": "b"}'
    assert made.raw("input") is None
    assert made.raw("absent") is None


def test_null_equals_omitted() -> None:
    made = create(model=None, previous_response_id=None, store=None, generate=None, tools=None, conversation=None)
    assert (made.model, made.parent_id, made.store, made.generate) == (None, None, True, True)
    assert made.members == {}


def test_what_a_client_sends_needlessly_is_taken() -> None:
    made = create(stream=True, background=False, stream_options={"include_obfuscation": False}, unknown=[1])
    assert made.value("stream") is True


@pytest.mark.parametrize("given", ["text", "", " \u2028 😀"])
def test_input_may_be_a_string(given: str) -> None:
    (item,) = create(input=given).items
    assert json.loads(item.raw) == {"type": "message", "role": "user", "content": given}


def test_input_may_be_items_with_and_without_a_type() -> None:
    items = create(input=[{"role": "user", "content": "a"}, {"type": "reasoning", "summary": []}]).items
    assert [item.kind for item in items] == ["message", "reasoning"]
    assert create(input=[]).items == ()


@pytest.mark.parametrize("warm", [{"generate": False}, {"prompt_cache_options": {"prewarm": True}}])
def test_a_warm_up_needs_no_input(warm: dict[str, Any]) -> None:
    made = parse_create(decode_object(dumped(warm)), 0, Limits())
    assert (made.generate, made.items) == (False, ())


@pytest.mark.parametrize("options", [{}, {"prewarm": False}, {"prewarm": None}, {"mode": "auto"}])
def test_other_cache_options_are_no_warm_up(options: dict[str, Any]) -> None:
    assert create(prompt_cache_options=options).generate


@pytest.mark.parametrize(
    ("members", "kind", "param"),
    [
        ({}, Kind.MISSING_PARAMETER, "input"),
        ({"input": None}, Kind.MISSING_PARAMETER, "input"),
        ({"input": 7}, Kind.INVALID_REQUEST, "input"),
        ({"input": {"role": "user"}}, Kind.INVALID_REQUEST, "input"),
        ({"input": [{"role": "user"}, 7]}, Kind.INVALID_REQUEST, "input[1]"),
        ({"input": [{"content": "x"}]}, Kind.INVALID_REQUEST, "input[0]"),
        ({"input": "x", "conversation": "conv_1"}, Kind.UNSUPPORTED_PARAMETER, "conversation"),
        ({"input": "x", "background": True}, Kind.UNSUPPORTED_PARAMETER, "background"),
        ({"input": "x", "model": 7}, Kind.INVALID_REQUEST, "model"),
        ({"input": "x", "store": "yes"}, Kind.INVALID_REQUEST, "store"),
        ({"input": "x", "metadata": {"a": 1}}, Kind.INVALID_REQUEST, "metadata"),
        ({"input": "x", "tools": {}}, Kind.INVALID_REQUEST, "tools"),
        ({"input": "x", "max_output_tokens": 1.5}, Kind.INVALID_REQUEST, "max_output_tokens"),
        ({"input": "x", "temperature": 10**400}, Kind.INVALID_REQUEST, "temperature"),
        ({"input": "x", "reasoning": "high"}, Kind.INVALID_REQUEST, "reasoning"),
    ],
)
def test_a_wrong_member_is_named(members: dict[str, Any], kind: Kind, param: str) -> None:
    error = refused(**members)
    assert (error.kind, error.param) == (kind, param)
    assert param.partition("[")[0] in error.message


@pytest.mark.parametrize("name", ["max_output_tokens", "temperature", "top_logprobs"])
def test_a_number_that_no_machine_holds_is_the_clients_error(name: str) -> None:
    data = b'{"input":"x","%b":%b}' % (name.encode(), b"9" * 10_000)
    with pytest.raises(LooplineError, match=name) as raised:
        parse_create(decode_object(data), len(data), Limits())
    assert (raised.value.kind, raised.value.param) == (Kind.INVALID_REQUEST, name)


def test_a_limit_of_ours_never_replaces_the_clients() -> None:
    assert create().limited(9).raw("max_output_tokens") == b"9"
    assert create().limited(9).value("max_output_tokens") == 9
    assert create(max_output_tokens=5).limited(9).raw("max_output_tokens") == b"5"
    assert create(max_output_tokens=None).limited(9).raw("max_output_tokens") == b"9"
    assert create().limited(0).raw("max_output_tokens") is None


def test_items_and_tools_are_bounded_and_the_message_names_the_setting() -> None:
    many = refused(Limits(input_items=1), input=[{"role": "user"}] * 2)
    assert (many.param, "limits.input_items" in many.message) == ("input", True)
    tools = refused(Limits(tools=1), input="x", tools=[{}, {}])
    assert (tools.param, "limits.tools" in tools.message) == ("tools", True)


def test_deep_items_are_refused_and_not_crashed_on() -> None:
    deep = b'{"input":[{"type":"x","y":' + b"[" * 100_000 + b"]" * 100_000 + b"}]}"
    with pytest.raises(LooplineError) as raised:
        decode_object(deep)
    assert raised.value.kind is Kind.TOO_DEEP


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("include", ["x"] * 40_000),
        ("metadata", {str(number): "x" for number in range(20_000)}),
        ("text", {"format": {"type": "json_schema", "schema": {"x": "y" * 2**20}}}),
        ("tools", [{"type": "function", "name": "f", "parameters": {"x": "y" * 2**23}}]),
    ],
)
def test_members_that_are_decoded_have_a_size(name: str, value: Any) -> None:
    with pytest.raises(LooplineError) as raised:
        create(**{name: value})
    assert (raised.value.kind, raised.value.param) == (Kind.INVALID_REQUEST, name)
