from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from proxy.access.sealing import Sealer
from proxy.errors import Kind, LooplineError
from proxy.models.profile import Profile, profiles
from proxy.translate.chat.halves import Halves
from proxy.translate.chat.translator import ChatTranslator
from proxy.wire.client_events import Create
from tests.conformance.schema import check_turn
from tests.unit.translate.answer.test_calls import check_calls
from tests.unit.translate.turns import (
    DONE,
    Event,
    brief,
    calls,
    chat,
    chunk,
    create,
    items,
    output,
    play,
    sent,
    sse,
    text,
    tool_call,
)

USAGE = {
    "prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12,
    "prompt_tokens_details": {"cached_tokens": 3}, "completion_tokens_details": {"reasoning_tokens": 2},
}  # fmt: skip
WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object"}}


def answered(*payloads: object) -> list[Event]:
    """The turn for one stream, held to the contract."""
    told = play(chat(), [sse(*payloads)])
    check_turn(told)
    return told


def failure(*payloads: object) -> LooplineError:
    translator = chat()
    with pytest.raises(LooplineError) as raised:  # noqa: PT012
        translator.feed(sse(*payloads))
        translator.finish()
    return raised.value


# --- what the upstream gets ---


def test_a_plain_turn_is_a_plain_request() -> None:
    assert sent(chat(create(input="hi", store=False, metadata={"a": "b"}, client_metadata={}, user="u"))) == {
        "model": "up",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [{"role": "user", "content": "hi"}],
    }


def test_settings_of_a_turn_are_translated_and_absent_ones_stay_absent() -> None:
    made = create(temperature=0.5, top_p=0.25, max_output_tokens=9, presence_penalty=1, frequency_penalty=-1)
    body = sent(chat(made))
    assert {name: body[name] for name in ("temperature", "top_p", "max_tokens")} == {
        "temperature": 0.5,
        "top_p": 0.25,
        "max_tokens": 9,
    }
    assert (body["presence_penalty"], body["frequency_penalty"]) == (1, -1)


def test_instructions_come_first_then_the_history_then_what_is_new() -> None:
    translator = chat(create(instructions='be "brief"', input="c"))
    history = [translator.encode(items({"role": "user", "content": "a"})), b'{"role":"assistant","content":"b"}']
    messages = sent(translator, history)["messages"]
    assert [(each["role"], each["content"]) for each in messages] == [
        ("system", 'be "brief"'),
        ("user", "a"),
        ("assistant", "b"),
        ("user", "c"),
    ]


def test_nothing_to_say_is_the_clients_error() -> None:
    with pytest.raises(LooplineError) as raised:
        chat(create(input=[])).request([])
    assert (raised.value.kind, raised.value.param) == (Kind.INVALID_REQUEST, "input")
    assert sent(chat(create(input=[])), [b'{"role":"user","content":"a"}'])["messages"]


def test_tools_and_their_choice_go_along() -> None:
    tools = [{**WEATHER, "strict": True}, {"type": "web_search"}]
    made = create(tools=tools, tool_choice="required", parallel_tool_calls=False)
    translator = chat(made)
    body = sent(translator)
    assert body["tools"] == [
        {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}, "strict": True}}
    ]
    assert (body["tool_choice"], body["parallel_tool_calls"]) == ("required", False)
    assert translator.left_out == [("tool", "web_search")]


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ({"type": "text"}, None),
        (None, None),
        ({"type": "json_object"}, {"type": "json_object"}),
        (
            {"type": "json_schema", "name": "n", "schema": {"a": 1}, "strict": True},
            {"type": "json_schema", "json_schema": {"name": "n", "schema": {"a": 1}, "strict": True}},
        ),
        (
            {"type": "json_schema", "schema": {}},
            {"type": "json_schema", "json_schema": {"name": "response", "schema": {}}},
        ),
    ],
)  # fmt: skip
def test_a_text_format_becomes_a_response_format(asked: Any, wanted: Any) -> None:
    assert sent(chat(create(text={"format": asked}))).get("response_format") == wanted


@pytest.mark.parametrize("asked", [{"type": "grammar"}, {"type": "json_schema"}, {"type": 7}, "json", {}])
def test_a_text_format_that_is_none_is_named(asked: Any) -> None:
    with pytest.raises(LooplineError) as raised:
        chat(create(text={"format": asked})).request([])
    assert (raised.value.status, raised.value.param) == (400, "text.format")


@pytest.mark.parametrize(("effort", "passed"), [("low", True), ("high", True), ("xhigh", False), (None, False)])
def test_an_effort_goes_along_where_engines_know_it(effort: str | None, passed: bool) -> None:
    assert ("reasoning_effort" in sent(chat(create(reasoning={"effort": effort})))) is passed


# --- what the client gets ---


def test_a_stream_of_text_is_a_completed_message_with_its_usage() -> None:
    told = answered(
        chunk(role="assistant", content=""),
        chunk(content="Hel"),
        chunk(content="lo"),
        chunk("stop"),
        {"id": "chatcmpl-1", "choices": [], "usage": USAGE},
        DONE,
    )
    assert (told[-1]["type"], text(told)) == ("response.completed", "Hello")
    assert told[-1]["response"]["usage"] == {
        "input_tokens": 7,
        "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 12,
    }


@pytest.mark.parametrize(
    ("usage", "counts"),
    [
        ({"prompt_tokens": 7, "completion_tokens": 5}, (7, 5, 12)),
        ({"prompt_tokens": 7, "completion_tokens": None, "total_tokens": None}, (7, 0, 7)),
        ({"prompt_tokens": 7, "completion_tokens": 5, "prompt_tokens_details": None}, (7, 5, 12)),
        (None, None),
        ("many", None),
        ({"prompt_tokens": "7"}, None),
        ({"prompt_tokens": -5, "completion_tokens": 5, "total_tokens": -1}, (0, 5, 5)),
        ({"prompt_tokens": int("9" * 400), "completion_tokens": 5}, None),
        ({"prompt_tokens": 2**53, "completion_tokens": 1}, None),
        ({"prompt_tokens": 2**53, "completion_tokens": 0}, (2**53, 0, 2**53)),
        ({"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 2**60}, None),
        ({"prompt_tokens": 7, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 2**60}}, None),
    ],
)
def test_usage_as_far_as_it_can_be_read(usage: Any, counts: tuple[int, int, int] | None) -> None:
    told = answered(chunk(content="x"), {"usage": {"prompt_tokens": 1}}, {**chunk("stop"), "usage": usage}, DONE)
    got = told[-1]["response"]["usage"]
    if counts is None and usage is not None:
        assert got is None
    elif usage is None:  # what an earlier chunk said stands
        assert got["input_tokens"] == 1
    else:
        assert (got["input_tokens"], got["output_tokens"], got["total_tokens"]) == counts


@pytest.mark.parametrize(
    ("reason", "why"),
    [("length", "max_output_tokens"), ("model_length", "max_output_tokens"), ("content_filter", "content_filter")],
)
def test_a_cut_answer_is_incomplete_and_never_completed(reason: str, why: str) -> None:
    told = answered(chunk(content="Hel"), chunk(reason), DONE)
    assert told[-1]["type"] == "response.incomplete"
    assert told[-1]["response"]["incomplete_details"] == {"reason": why}
    assert [item["status"] for item in output(told)] == ["incomplete"]


@pytest.mark.parametrize("reason", ["stop", "tool_calls", "function_call", "anything"])
def test_other_ends_are_completions(reason: str) -> None:
    assert answered(chunk(content="x"), chunk(reason), DONE)[-1]["type"] == "response.completed"


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_an_answer_that_the_engine_gave_up_is_a_failure(reason: str) -> None:
    assert failure(chunk(content="x"), chunk(reason), DONE).kind is Kind.UPSTREAM_FAILED


@pytest.mark.parametrize("reason", ["stop", "length", "tool_calls"])
@pytest.mark.parametrize("tail", [b"", b": ping\n\n", b'data: {"choices":[],"usa'])
def test_an_answer_is_whole_with_its_finish_reason_whatever_reading_does_then(reason: str, tail: bytes) -> None:
    translator = chat()
    assert not translator.whole
    translator.feed(sse(chunk(content="x")))
    assert not translator.whole
    translator.feed(sse(chunk(reason)) + tail)
    assert (translator.whole, translator.ended) == (True, False)
    translator.finish()
    assert translator.result().items


def test_an_engine_that_gave_up_is_whole_and_no_answer() -> None:
    translator = chat()
    translator.feed(sse(chunk(content="x"), chunk("abort")))
    assert translator.whole
    with pytest.raises(LooplineError):
        translator.finish()


@pytest.mark.parametrize("apart", [False, True])
def test_nothing_after_the_end_belongs_to_the_answer(apart: bool) -> None:
    after = sse(chunk(content="more"), b"{broken", {"error": {"message": "late"}})
    reads = [sse(chunk(content="x"), chunk("stop"), DONE), after]
    translator = chat()
    made = [event for read in (reads if apart else [b"".join(reads)]) for event in translator.feed(read)]
    translator.finish()
    assert not any(b"more" in event for event in made)
    assert json.loads(translator.result().items[0].raw)["content"][0]["text"] == "x"


def both(delta: Any, finish: str | None = None, **message: Any) -> Event:
    return {"choices": [{"index": 0, "delta": delta, "message": message, "finish_reason": finish}]}


@pytest.mark.parametrize("delta", [{}, None, {"role": "assistant"}, {"content": ""}, {"tool_calls": []}])
def test_a_message_counts_where_the_delta_beside_it_says_nothing(delta: Any) -> None:
    assert text(answered(both(delta, content="Hel"), both(delta, "stop", content="lo"), DONE)) == "Hello"


def test_a_message_that_repeats_what_the_deltas_said_is_not_said_again() -> None:
    told = answered(chunk(content="Hel"), both({"content": "lo"}, content="Hello"), both({}, "stop", content="Hello"))
    assert text(told) == "Hello"


SPLIT = [rb"a\ud83d", rb"\ude00b\uD83D", rb"\uDE00"]


@pytest.mark.parametrize("member", ["content", "reasoning_content", "reasoning", "refusal"])
def test_a_character_cut_in_two_is_one_character(member: str) -> None:
    pieces = [b'{"choices":[{"delta":{"%b":"%b"}}]}' % (member.encode(), piece) for piece in SPLIT]
    told = answered(*pieces, chunk(**{member: "c"}), chunk("stop"), DONE)
    (part,) = output(told)[0]["content"]
    assert (part.get("text") or part.get("refusal")) == "a😀b😀c"


def test_a_character_cut_in_two_within_arguments_goes_to_its_own_call() -> None:
    call = b'{"choices":[{"delta":{"tool_calls":[{"index":%d,"id":"c%d","function":{"name":"f","arguments":"%b"}}]}}]}'
    pieces = [
        call % (0, 0, rb"{\"a\":\"\ud83d"), call % (1, 1, rb"{\"b\":\"\ud83d"),
        call % (0, 0, rb"\ude00\"}"), call % (1, 1, rb"\ude01\"}"),
    ]  # fmt: skip
    assert [made[2] for made in calls(answered(*pieces, chunk("stop"), DONE))] == ['{"a":"😀"}', '{"b":"😁"}']


def test_an_answer_cut_within_a_character_ends_before_it() -> None:
    told = answered(chunk(content="a"), rb'{"choices":[{"delta":{"content":"b\ud83d"}}]}', chunk("length"), DONE)
    assert (text(told), told[-1]["type"]) == ("ab", "response.incomplete")


def test_chunks_that_are_whole_are_never_decoded_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    mended: list[bytes] = []
    monkeypatch.setattr(Halves, "mend", lambda _, payload: mended.append(payload))
    answered(chunk(content="😀"), rb'{"choices":[{"delta":{"content":"\ud83d\ude00"}}]}', chunk("stop"), DONE)
    assert mended == []


def test_no_done_is_needed_after_a_finish_reason() -> None:
    assert answered(chunk(content="x"), chunk("stop"))[-1]["type"] == "response.completed"


def test_the_last_event_may_lack_its_blank_line() -> None:
    stream = sse(chunk(content="x"), chunk("stop")).rstrip(b"\n")
    assert play(chat(), [stream])[-1]["type"] == "response.completed"


@pytest.mark.parametrize(
    "stream",
    [
        b"",
        sse(chunk(content="Hel")),
        sse(chunk("", content="Hel")),
        sse(chunk(content="Hel")) + b'data: {"choices":[{"del',
        sse(chunk(content="Hel")) + b"data: [DO",
        b": ping\n\n",
    ],
)
def test_an_end_before_the_end_is_no_answer(stream: bytes) -> None:
    translator = chat()
    translator.feed(stream)
    with pytest.raises(LooplineError) as raised:
        translator.finish()
    assert raised.value.kind is Kind.UPSTREAM_CLOSED
    told = play(chat(), [stream])
    check_turn(told)
    assert told[-1]["type"] == "response.failed"


def test_what_came_before_a_failure_is_told_and_only_what_was_done_is_in_the_output() -> None:
    stream = sse(chunk(reasoning="hm"), chunk(content="Hel"), {"error": {"message": "boom", "code": 500}})
    told = play(chat(), [stream])
    check_turn(told)
    assert [event["delta"] for event in told if event["type"].endswith("delta")] == ["hm", "Hel"]
    assert [item["type"] for item in output(told)] == ["reasoning"]
    assert told[-1]["response"]["error"]["message"] == "boom"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"message": "worker died", "type": "internal", "code": 500}, Kind.UPSTREAM_FAILED),
        ({"message": "no", "code": 400}, Kind.UPSTREAM_REJECTED),
        ({"message": "slow", "code": "429"}, Kind.UPSTREAM_RATE_LIMITED),
        ({"message": "no", "code": "context_length_exceeded"}, Kind.CONTEXT_LENGTH),
        ("just text", Kind.UPSTREAM_FAILED),
        (["odd"], Kind.UPSTREAM_FAILED),
    ],
)
def test_an_error_in_the_stream_is_the_upstreams_word(error: Any, kind: Kind) -> None:
    raised = failure(chunk(content="x"), {"error": error}, DONE)
    assert raised.kind is kind
    assert raised.message


def test_null_errors_null_events_and_empty_events_are_nothing() -> None:
    nothing: tuple[object, ...] = (b"null", b"", b"  ", {}, {"choices": None}, {"choices": []})
    told = answered(*nothing, {**chunk(content="x"), "error": None}, *nothing, chunk("stop"), DONE)
    assert text(told) == "x"


def test_other_choices_are_not_this_answer() -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": "length"}]}
    told = answered(other, chunk(content="yes"), chunk("stop"), other, DONE)
    assert (text(told), told[-1]["type"]) == ("yes", "response.completed")


@pytest.mark.parametrize("member", ["reasoning", "reasoning_content"])
def test_reasoning_comes_before_text_as_an_item_of_its_own(member: str) -> None:
    told = answered(chunk(**{member: "hm"}), chunk(**{member: "m"}), chunk(content="x"), chunk("stop"), DONE)
    assert [item["type"] for item in output(told)] == ["reasoning", "message"]
    assert output(told)[0]["content"] == [{"type": "reasoning_text", "text": "hmm"}]


def test_reasoning_under_two_names_is_told_once() -> None:
    told = answered(chunk(reasoning="hm", reasoning_content="hm"), chunk("stop"), DONE)
    assert output(told)[0]["content"][0]["text"] == "hm"


def test_a_refusal_is_a_part_of_its_own() -> None:
    told = answered(chunk(refusal="I can"), chunk(refusal="not"), chunk("stop"), DONE)
    assert output(told)[0]["content"] == [{"type": "refusal", "refusal": "I cannot"}]


def test_a_call_in_pieces_is_one_call() -> None:
    told = answered(
        tool_call(0, "c1", "weather", ""), tool_call(0, None, None, '{"ci'), tool_call(0, None, None, 'ty":"Paris"}'),
        chunk("tool_calls"), DONE,
    )  # fmt: skip
    assert calls(told) == [("c1", "weather", '{"city":"Paris"}')]
    assert told[-1]["type"] == "response.completed"


def test_a_call_at_once_is_streamed_all_the_same() -> None:
    told = answered(tool_call(0, "c1", "weather", '{"city":"Paris"}'), chunk("stop"), DONE)
    assert [e["type"] for e in told if "arguments" in e["type"]] == [
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
    ]


@pytest.mark.parametrize("late_id", [False, True])
def test_parallel_calls_that_are_all_numbered_0_are_told_apart(late_id: bool) -> None:
    first = [tool_call(0, "c1", "f", '{"a":1}')]
    if late_id:
        first = [tool_call(0, None, "f", ""), tool_call(0, "c1", None, '{"a":1}')]
    told = answered(*first, tool_call(0, "c2", "f", '{"a"'), tool_call(0, None, None, ":2}"), chunk("tool_calls"), DONE)
    assert [(name, arguments) for _, name, arguments in calls(told)] == [("f", '{"a":1}'), ("f", '{"a":2}')]


def test_calls_without_a_number_are_numbered_by_their_place() -> None:
    both = [{"id": f"c{n}", "function": {"name": name, "arguments": "{}"}} for n, name in ((1, "f"), (2, "g"))]
    assert calls(answered(chunk(tool_calls=both), chunk("tool_calls"), DONE)) == [("c1", "f", "{}"), ("c2", "g", "{}")]


def test_a_call_that_repeats_its_id_and_name_is_one_call() -> None:
    told = answered(
        *(tool_call(0, "c1", "f", piece) for piece in ('{"a"', ":1", "}")), chunk("tool_calls"), DONE
    )  # fmt: skip
    assert calls(told) == [("c1", "f", '{"a":1}')]


def test_a_call_without_a_name_fails_the_turn() -> None:
    error = failure(tool_call(0, "c1", None, "{}"), chunk("tool_calls"))
    assert error.kind is Kind.UPSTREAM_GARBLED


def test_a_cut_call_is_incomplete_and_leaves_no_open_call() -> None:
    translator = chat()
    told = play(translator, [sse(tool_call(0, "c1", "f", '{"a'), chunk("length"), DONE)])
    check_turn(told)
    assert [(item["type"], item["status"]) for item in output(told)] == [("function_call", "incomplete")]
    assert translator.encode(translator.result().items) == b""


@pytest.mark.parametrize("cut", [1, 7, 10_000])
def test_one_json_document_instead_of_a_stream_is_an_answer(cut: int) -> None:
    message = {
        "role": "assistant", "content": "Hello", "reasoning_content": "hm",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    }  # fmt: skip
    body = json.dumps(
        {"id": "x", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": USAGE}, indent=1
    ).encode()
    told = play(chat(), [body[i : i + cut] for i in range(0, len(body), cut)])
    check_turn(told)
    assert [item["type"] for item in output(told)] == ["reasoning", "message", "function_call"]
    assert told[-1]["response"]["usage"]["total_tokens"] == 12


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"error":{"message":"no","code":400}}', Kind.UPSTREAM_REJECTED),
        (b"{}", Kind.UPSTREAM_CLOSED),
        (b'{"choices":[{"mess', Kind.UPSTREAM_GARBLED),
        (b'{"choices":7}', Kind.UPSTREAM_GARBLED),
        (b"<html>", Kind.UPSTREAM_CLOSED),
    ],
)
def test_a_document_that_is_no_answer_fails(body: bytes, kind: Kind) -> None:
    translator = chat()
    translator.feed(body)
    with pytest.raises(LooplineError) as raised:
        translator.finish()
    assert raised.value.kind is kind


def test_an_answer_goes_back_into_the_history_as_one_message() -> None:
    translator = chat()
    play(
        translator,
        [sse(chunk(reasoning="hm"), chunk(content="x"), tool_call(0, "c1", "f", "{}"), chunk("tool_calls"), DONE)],
    )
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    assert json.loads(translator.encode(translator.result().items)) == {
        "role": "assistant", "content": "x", "reasoning_content": "hm", "tool_calls": [call],
    }  # fmt: skip


@pytest.mark.parametrize(
    "payload",
    [
        b'{"choices":[{"delta":{"content":"\xff"}}]}',
        b'{"choices":[{"delta":{"content":"\\ud800x"}}]}',
        b'{"choices":[{"delta":{"content":"\\udc00"}}]}',
        b'{"choices":[{"delta":{"content":"\\ud800"}}]}\n\ndata: {"choices":[{"delta":{"content":"x"}}]}',
        b'{"choices":' + b"[" * 100_000,
        b'{"usage":{"prompt_tokens":' + b"9" * 10_000 + b"}}x",
        b'{"choices":[{"index":NaN}]}',
        b'{"choices":[{"index":1e400}]}',
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_malformed_chunks_are_garbled(payload: bytes) -> None:
    assert failure(chunk(content="x"), payload).kind is Kind.UPSTREAM_GARBLED


# --- what servers do differently ---


@pytest.mark.parametrize("finish", ["function_call", "stop"])
def test_a_call_as_it_was_before_tools_is_a_call(finish: str) -> None:
    pieces = [{"name": "f", "arguments": ""}, {"arguments": '{"a"'}, {"name": None, "arguments": ":1}"}]
    told = answered(*(chunk(function_call=piece) for piece in pieces), chunk(finish), DONE)
    ((_, name, arguments),) = calls(told)
    assert (name, arguments, told[-1]["type"]) == ("f", '{"a":1}', "response.completed")


def test_whole_calls_in_chunks_of_their_own_need_neither_numbers_nor_ids() -> None:
    for number in ({}, {"index": 0}):
        made = [chunk(tool_calls=[{**number, "function": {"name": n, "arguments": "{}"}}]) for n in ("f", "g", "g")]
        assert [name for _, name, _ in calls(answered(*made, chunk("tool_calls"), DONE))] == ["f", "g", "g"]


def test_pieces_without_number_id_or_name_go_on_with_the_latest_call() -> None:
    told = answered(
        tool_call(0, "c1", "f", "{}"), tool_call(1, "c2", "g", '{"a"'), tool_call(None, None, None, ":1}"),
        chunk("tool_calls"), DONE,
    )  # fmt: skip
    assert calls(told) == [("c1", "f", "{}"), ("c2", "g", '{"a":1}')]


def test_text_reasoning_and_whole_calls_may_share_a_chunk() -> None:
    both = [{"index": n, "id": f"c{n}", "function": {"name": "f", "arguments": "{}"}} for n in (0, 1)]
    told = answered(chunk("tool_calls", content="x", reasoning="hm", tool_calls=both), DONE)
    assert [item["type"] for item in output(told)] == ["reasoning", "message", "function_call", "function_call"]


@pytest.mark.parametrize(
    ("first", "second", "said"), [("hm", "hm", "hm"), ("hm, yes", "hm", "hm, yes"), ("", "hm", "hm"), ("a", "b", "ab")]
)
def test_reasoning_under_both_names_is_neither_doubled_nor_lost(first: str, second: str, said: str) -> None:
    told = answered(chunk(reasoning_content=first, reasoning=second), chunk("stop"), DONE)
    assert output(told)[0]["content"][0]["text"] == said


def test_a_content_may_be_a_list_of_parts() -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "h"}, {"type": "text", "text": "m"}]},
        {"type": "thinking", "thinking": "!"}, {"type": "text", "text": "a"}, "b", {"type": "image_url"},
        {"type": "refusal", "refusal": "no"},
    ]  # fmt: skip
    for told in (answered(chunk(content=parts), chunk("stop"), DONE), answered(both(None, "stop", content=parts))):
        contents = [item["content"][0] for item in output(told)]
        assert [part.get("text", part.get("refusal")) for part in contents] == ["hm!", "ab", "no"]


def test_a_character_cut_in_two_within_a_part_is_one_character() -> None:
    pieces = [b'{"choices":[{"delta":{"content":[{"type":"text","text":"%b"}]}}]}' % piece for piece in SPLIT]
    assert text(answered(*pieces, chunk("stop"), DONE)) == "a😀b😀"


# --- log-probabilities, annotations, sealed reasoning ---

LOGGED = msgspec.structs.replace(
    profiles()["generic"],
    chat=msgspec.structs.replace(profiles()["generic"].chat, fields={"top_logprobs": "top_logprobs"}),
)
TOP = [{"token": "b", "logprob": -2.5, "bytes": [98]}]


def logged(token: str | None, *tokens: str, **delta: Any) -> Event:
    """A chunk with log-probabilities."""
    content = [{"token": each, "logprob": -0.5, "bytes": None, "top_logprobs": TOP} for each in tokens]
    made = chunk(**({} if token is None else {"content": token}), **delta)
    made["choices"][0]["logprobs"] = {"content": content}
    return made


def with_profile(made: Create, *payloads: object, profile: Profile = LOGGED) -> list[Event]:
    told = play(ChatTranslator(replace(brief(made), profile=profile)), [sse(*payloads)], made)
    check_turn(told)
    return told


def tokens(logprobs: list[Event]) -> list[str]:
    return [each["token"] for each in logprobs]


@pytest.mark.parametrize("asked", [{"top_logprobs": 1}, {"include": ["message.output_text.logprobs"]}])
def test_log_probabilities_that_were_asked_for_are_told_with_their_text(asked: Any) -> None:
    told = with_profile(
        create(**asked), logged(None, "hm", reasoning="hm"), logged("a", "a"), logged("", "\ufffd"),
        logged("é!", "é", "!"), chunk(content="?"), chunk("stop"), DONE,
    )  # fmt: skip
    deltas = [event for event in told if event["type"] == "response.output_text.delta"]
    assert [(event["delta"], tokens(event["logprobs"])) for event in deltas] == [
        ("a", ["a"]), ("é!", ["\ufffd", "é", "!"]), ("?", []),
    ]  # fmt: skip
    assert deltas[0]["logprobs"][0] == {
        "token": "a", "logprob": -0.5, "top_logprobs": [{"token": "b", "logprob": -2.5}],
    }  # fmt: skip
    (done,) = [event for event in told if event["type"] == "response.output_text.done"]
    assert done["logprobs"] == [each for event in deltas for each in event["logprobs"]]
    kept = output(told)[1]["content"][0]["logprobs"]
    assert tokens(kept) == ["a", "\ufffd", "é", "!"]
    assert kept[2] == {"token": "é", "logprob": -0.5, "bytes": [0xC3, 0xA9], "top_logprobs": TOP}


def test_a_whole_answers_log_probabilities_are_those_of_a_streamed_one() -> None:
    made = create(top_logprobs=1)
    streamed = with_profile(made, logged("a", "a"), logged("b", "b"), chunk("stop"))
    whole = logged(None, "a", "b")
    whole["choices"][0] |= {"message": {"content": "ab"}, "finish_reason": "stop"}
    assert output(with_profile(made, whole))[0]["content"] == output(streamed)[0]["content"]


def test_log_probabilities_behind_a_call_wait_with_their_text() -> None:
    told = with_profile(
        create(top_logprobs=1), tool_call(0, "c1", "f", "{"), logged("a", "a"), chunk(content="b"),
        tool_call(0, None, None, "}"), chunk("stop"),
    )  # fmt: skip
    assert text(told) == "ab"
    assert tokens(output(told)[1]["content"][0]["logprobs"]) == ["a"]


@pytest.mark.parametrize("odd", [7, {"content": 7}, {"content": [{}]}, {"content": None}, None])
def test_log_probabilities_that_are_none_cost_the_answer_nothing(odd: Any) -> None:
    made = chunk("stop", content="a")
    made["choices"][0]["logprobs"] = odd
    assert text(with_profile(create(top_logprobs=1), made)) == "a"
    assert text(answered(made)) == "a"


def test_log_probabilities_that_nobody_asked_for_are_not_told() -> None:
    (item,) = output(with_profile(create(), logged("a", "a"), chunk("stop")))
    assert item["content"][0]["logprobs"] == []


def test_citations_are_told_beside_the_text_and_kept() -> None:
    cited = [{"type": "url_citation", "url_citation": {"url": f"u{n}", "title": "t", "start_index": 0, "end_index": n}}
             for n in (1, 2)]  # fmt: skip
    flat = [{"type": "url_citation", "url": f"u{n}", "title": "t", "start_index": 0, "end_index": n} for n in (1, 2)]
    pieces = [chunk(content="ab"), chunk(content="c", annotations=cited[:1]), chunk(annotations=cited[1:])]
    streamed = play(chat(), [sse(*pieces, chunk("stop"))])
    whole = play(chat(), [sse(both(None, "stop", content="abc", annotations=cited))])
    added = [event for event in streamed if event["type"] == "response.output_text.annotation.added"]
    assert [(event["annotation_index"], event["annotation"]) for event in added] == list(enumerate(flat))
    for told in (streamed, whole):
        check_calls(told)
        assert (text(told), output(told)[0]["content"][0]["annotations"]) == ("abc", flat)


@pytest.mark.parametrize("odd", [7, {}, [7], [{"type": "url_citation"}], [{"type": "other", "url": "u"}], []])
def test_annotations_that_are_none_cost_the_answer_nothing(odd: Any) -> None:
    (item,) = output(answered(chunk(content="a", annotations=odd), chunk("stop")))
    assert (item["content"][0]["text"], item["content"][0]["annotations"]) == ("a", [])


SEALER = Sealer({"k": b"0" * 32})


def sealing() -> ChatTranslator:
    return ChatTranslator(replace(brief(create()), seal_reasoning=lambda said: SEALER.seal("t", said)))


@pytest.mark.parametrize("finish", ["stop", "length"])
def test_reasoning_is_sealed_for_a_client_that_wants_to_send_it_back(finish: str) -> None:
    told = play(sealing(), [sse(chunk(reasoning="hm "), chunk(reasoning="é"), chunk(finish), DONE)])
    check_turn(told)
    item = output(told)[0]
    assert SEALER.open("t", item["encrypted_content"]) == "hm é" == item["content"][0]["text"]
    assert SEALER.open("other", item["encrypted_content"]) is None
    assert item["status"] == ("completed" if finish == "stop" else "incomplete")


def test_a_thought_that_a_steer_interrupts_is_dropped_and_one_that_was_whole_stays_sealed() -> None:
    translator = sealing()
    translator.feed(sse(chunk(reasoning="hm"), chunk(content="a"), chunk(reasoning="hmm")))
    translator.interrupt()
    assert [item.kind for item in translator.result().items] == ["reasoning", "message"]
    assert SEALER.open("t", json.loads(translator.result().items[0].raw)["encrypted_content"]) == "hm"


def test_nothing_is_sealed_unasked() -> None:
    assert "encrypted_content" not in output(answered(chunk(reasoning="hm"), chunk("stop")))[0]


def test_log_probabilities_that_wait_for_text_are_joined_once() -> None:
    made = create(top_logprobs=1)
    translator = chat(made, profile="vllm")
    token = {"token": "a", "logprob": -0.1, "bytes": [97], "top_logprobs": []}
    silent = {"choices": [{"index": 0, "delta": {"content": ""}, "logprobs": {"content": [token]}}]}
    spoken = {"choices": [{"index": 0, "delta": {"content": "a"}, "logprobs": {"content": [token]}}]}
    told = play(translator, [sse(*[silent] * 3, spoken, chunk("stop"), DONE)], made)
    (item,) = output(told)
    assert len(item["content"][0]["logprobs"]) == 4


def test_hosted_calls_without_ids_get_the_same_in_a_chain_and_in_a_full_resend() -> None:
    def searched(query: str) -> Event:
        return {"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": query}}

    def ids(encoded: bytes) -> list[str]:
        return [call["id"] for message in json.loads(b"[%b]" % encoded) for call in message.get("tool_calls", ())]

    first, second = items({"role": "user", "content": "a"}, searched("x")), items(searched("y"), searched("y"))
    translator = chat()
    chained = ids(translator.encode(first)) + ids(translator.encode(second))
    assert chained == ids(translator.encode((*first, *second)))[:2] + chained[2:]
    assert len(set(chained)) == 3
