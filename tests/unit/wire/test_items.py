from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from proxy.errors import Kind, LooplineError, Source
from proxy.wire.codec import Raw
from proxy.wire.items import (
    CALL_OF_OUTPUT,
    MAX_PARTS,
    Item,
    calls_after,
    pair_calls,
    parse_item,
    require_answers,
    revive_cut_calls,
    user_message,
)
from tests.unit.strategies import dumped, json_values

NONE: frozenset[str] = frozenset()


def item(**members: Any) -> Item:
    return parse_item(dumped(members))


def call(call_id: str, kind: str = "function_call", **members: Any) -> Item:
    return item(type=kind, call_id=call_id, name="f", arguments="{}", **members)


def output(call_id: str, kind: str = "function_call_output") -> Item:
    return item(type=kind, call_id=call_id, output="x")


def test_an_item_keeps_its_bytes_and_what_we_do_not_know() -> None:
    raw = b'{ "type":"reasoning","id":"rs_1", "encrypted_content":"gAAA\\u0041","x":{"y":[1.50]} }'
    parsed = parse_item(raw)
    assert (parsed.kind, parsed.raw) == ("reasoning", raw)


def test_an_item_does_not_keep_the_frame_it_came_in() -> None:
    assert type(parse_item(Raw(b'{"type":"reasoning"}')).raw) is bytes


@pytest.mark.parametrize("given_type", [b'"type":null,', b'"type":"message","type":null,', b""])
def test_a_message_without_a_type_gets_one(given_type: bytes) -> None:
    parsed = parse_item(b'{%b"role":"user","content":"hi","type_":1}' % given_type)
    assert (parsed.kind, parsed.role) == ("message", "user")
    # Whatever a parser does with members that come twice, the type is there.
    pairs = json.loads(parsed.raw, object_pairs_hook=list)
    assert [value for name, value in pairs if name == "type"] == ["message"]
    assert dict(pairs) == {"type": "message", "role": "user", "content": "hi", "type_": 1}


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"{}", "neither a 'type' nor a 'role'"),
        (b'{"type":null,"role":null}', "neither a 'type' nor a 'role'"),
        (b'{"id":"fc_1","call_id":"c1","output":"x"}', "neither a 'type' nor a 'role'"),
        (b"[]", "is invalid"),
        (b'"text"', "is invalid"),
        (b'{"type":7}', "is invalid"),
        (b'{"type":"function_call","call_id":7}', "is invalid"),
    ],
)
def test_what_is_no_item_is_named(raw: bytes, message: str) -> None:
    with pytest.raises(LooplineError, match=message) as raised:
        parse_item(raw, "input[3]")
    assert (raised.value.kind, raised.value.param) == (Kind.INVALID_REQUEST, "input[3]")
    assert "input[3]" in raised.value.message


@pytest.mark.parametrize("raw", [b'{"id":"msg_1"}', b'{"type":null, "id":"msg_1"}'])
def test_an_id_alone_refers_to_an_item(raw: bytes) -> None:
    parsed = parse_item(raw)
    assert (parsed.kind, json.loads(parsed.raw)) == ("item_reference", {"type": "item_reference", "id": "msg_1"})


def test_a_string_input_is_a_users_message() -> None:
    made = user_message(Raw(b'"a \\"b\\" \\ud83d\\ude00"'))
    assert json.loads(made.raw) == {"type": "message", "role": "user", "content": 'a "b" 😀'}
    assert made.role == "user"


@pytest.mark.parametrize("answer", sorted(CALL_OF_OUTPUT))
def test_each_kind_of_output_answers_its_kind_of_call(answer: str) -> None:
    asked = call("c1", CALL_OF_OUTPUT[answer])
    assert pair_calls(NONE, [asked]) == {"c1"}
    answered = item(type=answer, id="c1") if answer == "local_shell_call_output" else output("c1", answer)
    assert pair_calls(frozenset({"c1"}), [answered]) == NONE
    assert pair_calls(NONE, [asked, answered]) == NONE


def test_an_output_without_its_call_is_refused_by_name() -> None:
    for items in ([output("c9")], [call("c1"), output("c1"), output("c1")], [output("c1"), call("c1")]):
        with pytest.raises(
            LooplineError, match=r"^No tool call found for function call output with call_id c[19]\.$"
        ) as raised:
            pair_calls(NONE, items)
        assert (raised.value.kind, raised.value.status, raised.value.param) == (Kind.UNPAIRED_CALL, 400, "input")


def test_an_output_without_a_call_id_is_refused() -> None:
    with pytest.raises(LooplineError, match="No tool call found"):
        pair_calls(frozenset({"c1"}), [item(type="function_call_output", output="x")])


@pytest.mark.parametrize("server", [{}, {"execution": "server"}, {"execution": "server", "call_id": "c1"}])
def test_a_tool_search_of_a_servers_own_needs_no_answer(server: dict[str, Any]) -> None:
    asked = item(type="tool_search_call", arguments={}, **server)
    found = item(type="tool_search_output", tools=[], **server)
    for items in ([asked, found], [asked], [found]):
        assert pair_calls(NONE, items) == calls_after(NONE, items) == NONE
    assert pair_calls(frozenset({"c1"}), [found]) == {"c1"}


@pytest.mark.parametrize("execution", [None, "client"])
def test_a_tool_search_of_the_clients_is_answered_by_its_call_id(execution: str | None) -> None:
    asked = item(type="tool_search_call", call_id="c1", arguments={}, execution=execution)
    found = item(type="tool_search_output", call_id="c1", tools=[], execution=execution)
    assert pair_calls(NONE, [asked]) == calls_after(NONE, [asked]) == {"c1"}
    assert pair_calls(frozenset({"c1"}), [found]) == NONE
    with pytest.raises(LooplineError, match=r"^No tool call found for tool search call output with call_id c1\.$"):
        pair_calls(NONE, [found])


@pytest.mark.parametrize("kind", ["mcp_call", "mcp_approval_request", "program", "program_output", "web_search_call"])
def test_what_a_server_runs_needs_no_answer(kind: str) -> None:
    assert pair_calls(NONE, [call("c1", kind)]) == calls_after(NONE, [call("c1", kind)]) == NONE


def test_members_of_unknown_items_are_their_own_affair() -> None:
    assert item(type="novel", execution={"server": 1}).kind == "novel"


def test_parallel_calls_may_be_answered_in_any_order() -> None:
    assert pair_calls(frozenset({"a", "b", "c"}), [output("c"), output("a")]) == {"b"}


def test_a_call_that_was_cut_off_is_nobodys_to_answer() -> None:
    cut = call("c1", status="incomplete")
    assert cut.unfinished
    assert pair_calls(NONE, [cut]) == NONE
    assert calls_after(NONE, [cut]) == NONE


def test_calls_of_an_answer_are_open_unless_it_answers_them_itself() -> None:
    assert calls_after(NONE, [item(type="reasoning"), call("a"), call("b"), output("a")]) == {"b"}


def test_open_calls_must_be_answered_before_the_model_is_asked() -> None:
    require_answers(NONE)
    with pytest.raises(LooplineError, match=r"^No tool output found for function call a\.$") as raised:
        require_answers(frozenset({"b", "a"}))
    assert (raised.value.status, raised.value.param, raised.value.code) == (400, "input", None)


@given(json_values("type", "role", "message", "call_id", "id", "status", "incomplete", "function_call_output", "user"))
@settings(deadline=None, max_examples=100)
def test_any_json_is_an_item_or_a_clients_error(value: Any) -> None:
    try:
        parsed = parse_item(dumped(value))
    except LooplineError as error:
        outcome: object = error.source
    else:
        outcome = json.loads(parsed.raw)["type"] == parsed.kind
    assert outcome in (True, Source.CLIENT)


def test_a_cut_call_counts_as_made_only_where_it_is_answered() -> None:
    cut = Item("function_call", b"{}", None, "a", True)
    other = Item("function_call", b"{}", None, "b", True)
    output = Item("function_call_output", b"{}", None, "a")
    message = Item("message", b"{}", "user")
    made = replace(cut, unfinished=False)
    assert revive_cut_calls((output, message), (cut, other)) == (made, output, message)
    assert revive_cut_calls((cut, other, output), (cut,)) == (made, other, output)
    untouched = (message, other)
    assert revive_cut_calls(untouched, (cut,)) is untouched


@pytest.mark.parametrize("unfinished", [False, True])
def test_a_cut_call_that_its_client_sends_again_stands_there_once(unfinished: bool) -> None:
    cut = Item("function_call", b"{}", None, "a", True)
    again = Item("function_call", b'{"status":"completed"}', None, "a", unfinished)
    output = Item("function_call_output", b"{}", None, "a")
    assert revive_cut_calls((again, output), (cut,)) == (replace(again, unfinished=False), output)


def test_an_item_has_no_more_members_than_a_request() -> None:
    raw = b'{"role":"user","content":"hi",%b}' % b",".join(b'"k%d":1' % at for at in range(100_000))
    with pytest.raises(LooplineError, match="more than 512 members") as caught:
        parse_item(raw, "input[3]")
    assert caught.value.param == "input[3]"
    assert parse_item(b'{"role":"user","content":"%b"}' % (b"x" * 100_000)).kind == "message"


@pytest.mark.parametrize("member", ["content", "output"])
def test_parts_of_an_item_are_bounded(member: str) -> None:
    part = b'{"type":"input_text","text":"x"}'
    item = b'{"type":"message","role":"user","%b":[%b]}'
    assert parse_item(item % (member.encode(), b",".join([part] * MAX_PARTS))).kind == "message"
    with pytest.raises(LooplineError) as raised:
        parse_item(item % (member.encode(), b",".join([part] * (MAX_PARTS + 1))), "input[0]")
    assert (raised.value.kind, raised.value.param) == (Kind.INVALID_REQUEST, "input[0]")
    assert member in raised.value.message
