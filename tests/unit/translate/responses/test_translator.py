from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.errors import Kind, LooplineError
from proxy.translate.responses.translator import ResponsesTranslator
from tests.conformance.schema import check_turn
from tests.unit.strategies import cuts, dumped, json_values
from tests.unit.translate.turns import DONE, Event, brief, create, items, output, play, responses, sent, sse, text

USAGE = {
    "input_tokens": 7, "input_tokens_details": {"cached_tokens": 3}, "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 2}, "total_tokens": 12,
}  # fmt: skip
MESSAGE: Event = {
    "type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
    "content": [{"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}],
}  # fmt: skip
CALL: Event = {
    "type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}", "status": "completed",
}  # fmt: skip


def message_events(index: int = 0) -> list[Event]:
    """A message as the documentation shows it."""
    at = {"item_id": "msg_1", "output_index": index, "content_index": 0}
    opened = {**MESSAGE, "status": "in_progress", "content": []}
    return [
        {"type": "response.output_item.added", "output_index": index, "item": opened},
        {"type": "response.content_part.added", **at, "part": {**MESSAGE["content"][0], "text": ""}},
        {"type": "response.output_text.delta", **at, "delta": "Hel", "logprobs": []},
        {"type": "response.output_text.delta", **at, "delta": "lo", "logprobs": []},
        {"type": "response.output_text.done", **at, "text": "Hello", "logprobs": []},
        {"type": "response.content_part.done", **at, "part": MESSAGE["content"][0]},
        {"type": "response.output_item.done", "output_index": index, "item": MESSAGE},
    ]


def call_events(index: int = 1) -> list[Event]:
    at = {"item_id": "fc_1", "output_index": index}
    opened = {**CALL, "arguments": "", "status": "in_progress"}
    return [
        {"type": "response.output_item.added", "output_index": index, "item": opened},
        {"type": "response.function_call_arguments.delta", **at, "delta": "{}"},
        {"type": "response.function_call_arguments.done", **at, "name": "f", "arguments": "{}"},
        {"type": "response.output_item.done", "output_index": index, "item": CALL},
    ]  # fmt: skip


def begun(response: str = "up_1") -> list[Event]:
    return [{"type": f"response.{kind}", "response": {"id": response}} for kind in ("created", "queued", "in_progress")]


def ended(kind: str = "completed", **members: Any) -> Event:
    return {"type": f"response.{kind}", "response": {"id": "up_1", "status": kind, **members}}


def numbered(events: list[Event], start: int = 0) -> list[bytes]:
    """With the upstream's own numbers, where they belong, and no space between tokens."""
    rights = [{"type": e["type"], "sequence_number": n, **e} for n, e in enumerate(events, start)]
    return [json.dumps(each, separators=(",", ":")).encode() for each in rights]


def answered(*events: object) -> list[Event]:
    told = play(responses(), [sse(*events)])
    check_turn(told)
    return told


def failure(*payloads: object) -> LooplineError:
    translator = responses()
    with pytest.raises(LooplineError) as raised:  # noqa: PT012
        translator.feed(sse(*payloads))
        translator.finish()
    return raised.value


# --- what the upstream gets ---


def test_a_create_is_passed_on_but_for_what_is_ours() -> None:
    made = create(
        model="alias", input="c", stream=True, store=True, generate=True, previous_response_id="resp_1", stream_id="a",
        client_metadata={"a": "b"}, instructions="i", temperature=0.5, tools=[{"type": "web_search"}], new_member=[1],
        include=["reasoning.encrypted_content"],
    )  # fmt: skip
    assert sent(responses(made)) == {
        "model": "up", "stream": True, "store": False, "instructions": "i", "temperature": 0.5, "new_member": [1],
        "tools": [{"type": "web_search"}], "include": ["reasoning.encrypted_content"],
        "input": [{"type": "message", "role": "user", "content": "c"}],
    }  # fmt: skip


def test_items_pass_byte_for_byte_in_order() -> None:
    raw = b'{ "type":"reasoning","id":"rs_1", "encrypted_content":"gA\\u0041","x":1.50 }'
    translator = responses(create(input=[{"role": "user", "content": "new"}]))
    body = b"".join(translator.request([raw, b'{"type":"message"}']).parts)
    assert raw + b',{"type":"message"},{"type":"message","role"' in body
    assert json.loads(body)["input"][0]["encrypted_content"] == "gAA"
    assert translator.encode(items({"type": "compaction", "id": "x"})) == b'{"type": "compaction", "id": "x"}'


def test_nothing_to_say_is_the_clients_error() -> None:
    with pytest.raises(LooplineError) as raised:
        responses(create(input=[])).request([])
    assert raised.value.param == "input"
    assert sent(responses(create(input=[], instructions="i")))["input"] == []


@pytest.mark.parametrize(
    ("tools", "repeatable"),
    [([], True), ([{"type": "function", "name": "f"}, {"type": "custom", "name": "g"}], True),
     ([{"type": "mcp"}], False)],
)  # fmt: skip
def test_a_turn_that_runs_tools_upstream_is_never_repeated(tools: list[Event], repeatable: bool) -> None:
    assert responses(create(tools=tools)).request([]).repeatable is repeatable


# --- what the client gets ---


def test_a_stream_keeps_its_items_and_gets_our_lifecycle_and_numbers() -> None:
    # Its numbers are one ahead of ours: it began with `queued` too.
    told = answered(*numbered([*begun(), *message_events(), *call_events(), ended(usage=USAGE)]))
    assert text(told) == "Hello"
    assert output(told) == [MESSAGE, CALL]
    assert told[-1]["response"]["usage"]["input_tokens_details"] == {"cached_tokens": 3, "cache_write_tokens": 0}
    assert [event["type"] for event in told].count("response.created") == 1


def test_a_server_without_numbers_and_indices_gets_them() -> None:
    """llama.cpp sends no sequence_number, output_index or content_index at all."""
    bare = [
        {key: value for key, value in event.items() if not key.endswith("_index")}
        for event in (*message_events(), *call_events())
    ]
    told = answered(*begun(), *bare, ended())
    assert told == answered(*begun(), *message_events(), *call_events(), ended())


@pytest.mark.parametrize("kind", ["incomplete", "completed"])
def test_an_incomplete_answer_is_incomplete_under_any_name(kind: str) -> None:
    """vLLM ends a cut stream with response.completed and the status inside."""
    cut = {**MESSAGE, "status": "incomplete"}
    events = [*message_events()[:-1], {**message_events()[-1], "item": cut}]
    told = answered(*events, {"type": f"response.{kind}", "response": {"status": "incomplete"}})
    assert told[-1]["type"] == "response.incomplete"
    assert told[-1]["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    given_ = answered(*events, ended("incomplete", incomplete_details={"reason": "content_filter"}))
    assert given_[-1]["response"]["incomplete_details"] == {"reason": "content_filter"}


@pytest.mark.parametrize(
    "end",
    [
        ended("failed", error={"code": "server_error", "message": "boom"}),
        {"type": "response.completed", "response": {"status": "failed", "error": {"message": "boom"}}},
        {"type": "error", "code": "server_error", "message": "boom", "param": None},
        {"type": "error", "error": {"message": "boom", "code": 500}},
        {"error": {"message": "boom", "code": 500}},
    ],
)
def test_a_failure_in_any_form_ends_the_turn_as_failed(end: Event) -> None:
    stream = [*begun(), *message_events(), *call_events()[:2], end]
    told = play(responses(), [sse(*stream)])
    check_turn(told)
    assert told[-1]["response"]["error"] == {"code": "server_error", "message": "boom"}
    assert output(told) == [MESSAGE]
    assert failure(*stream).kind is Kind.UPSTREAM_FAILED


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (ended("failed"), Kind.UPSTREAM_FAILED),
        ({"type": "response.completed", "response": {"status": "cancelled"}}, Kind.UPSTREAM_FAILED),
        ({"type": "response.failed"}, Kind.UPSTREAM_FAILED),
    ],
)
def test_a_failure_without_a_reason_is_one_too(end: Event, kind: Kind) -> None:
    error = failure(*message_events(), end)
    assert error.kind is kind
    assert error.message


@pytest.mark.parametrize("tail", [b"", b'data: {"type":"response.comp', b"data: [DONE]\n\n", b": ping\n\n"])
def test_an_end_before_the_end_is_no_answer(tail: bytes) -> None:
    translator = responses()
    translator.feed(sse(*message_events()) + tail)
    with pytest.raises(LooplineError) as raised:
        translator.finish()
    assert raised.value.kind is Kind.UPSTREAM_CLOSED


def test_the_last_event_may_lack_its_blank_line() -> None:
    told = play(responses(), [sse(*message_events(), ended()).rstrip()])
    assert told[-1]["type"] == "response.completed"


def test_items_that_only_the_end_tells_are_told_as_events_too() -> None:
    """Clients read items from output_item.done alone."""
    told = play(responses(), [sse(*begun(), ended(output=[MESSAGE, CALL]))])
    done = [event["item"] for event in told if event["type"] == "response.output_item.done"]
    assert done == output(told) == [MESSAGE, CALL]
    assert [event["sequence_number"] for event in told] == list(range(len(told)))


def is_told_as_it_ended(told: list[Event], *wanted: Event) -> None:
    """Each item is added once, done once, and the output is the items that were done, in order."""
    check_turn(told)
    kinds = [event["type"] for event in told]
    done = [event["item"] for event in told if event["type"] == "response.output_item.done"]
    assert done == output(told) == list(wanted)
    assert kinds.count("response.output_item.added") == len(wanted)


def test_items_that_only_the_end_tells_are_told_although_others_were_done() -> None:
    end = ended(output=[MESSAGE, CALL])
    is_told_as_it_ended(answered(*begun(), *message_events(), end), MESSAGE, CALL)
    one, two = {**CALL, "id": "fc_2", "call_id": "c2"}, {**CALL, "id": "fc_3", "call_id": "c3"}
    is_told_as_it_ended(answered(*message_events(), ended(output=[MESSAGE, one, two])), MESSAGE, one, two)


@pytest.mark.parametrize("events", [message_events(), call_events(0)], ids=["message", "call"])
@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("end", range(1, 8))
def test_an_item_that_was_left_open_gets_the_events_that_it_lacks(events: list[Event], indexed: bool, end: int) -> None:
    item = events[-1]["item"]
    stream = [each if indexed else {k: v for k, v in each.items() if not k.endswith("_index")} for each in events]
    told = answered(*begun(), *stream[:end], ended(output=[item]))
    is_told_as_it_ended(told, item)
    deltas = [event["delta"] for event in told if event["type"].endswith(".delta")]
    assert "".join(deltas) == ("Hello" if item is MESSAGE else "{}")


def test_items_that_a_faithful_upstream_left_open_are_closed_each_with_its_own() -> None:
    first, second = message_events()[:3], call_events()[:2]
    told = play(responses(faithful=True), [sse(*first, *second, ended(output=[MESSAGE, CALL]))])
    done = [event["item"] for event in told if event["type"] == "response.output_item.done"]
    assert done == output(told) == [MESSAGE, CALL]
    assert [event["delta"] for event in told if event["type"].endswith(".delta")] == ["Hel", "{}", "lo"]


def test_a_message_left_open_that_the_end_does_not_tell_is_kept_as_far_as_it_was_said() -> None:
    told = answered(*message_events()[:4], ended())
    is_told_as_it_ended(told, MESSAGE)


def test_an_item_with_another_id_in_the_end_is_not_told_twice() -> None:
    drifted = ended(output=[{**MESSAGE, "id": "msg_9"}, {**CALL, "id": "fc_9"}])
    is_told_as_it_ended(answered(*message_events(), *call_events(), drifted), MESSAGE, CALL)


def test_an_item_before_those_that_were_done_is_told_after_them() -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": []}
    told = play(responses(faithful=True), [sse(*message_events(1), ended(output=[thought, MESSAGE]))])
    done = [event for event in told if event["type"] == "response.output_item.done"]
    assert [event["item"] for event in done] == output(told) == [MESSAGE, thought]
    assert [event["output_index"] for event in done] == [1, 0]


def test_nothing_after_the_end_belongs_to_the_answer() -> None:
    for faithful in (False, True):
        translator = responses(faithful=faithful)
        late = b'{"type":"response.output_text.delta","sequence_number":2,"item_id":"m","delta":"late"}'
        assert not translator.whole
        assert translator.feed(sse(ended(), late, {"type": "error", "message": "late"}, b"{")) == []
        assert translator.whole
        assert translator.finish() == []


@pytest.mark.parametrize("name", ["raw", "close", "open", "event", "reconnecting", "reconnected", 'a"b', "a b", "x\n"])
def test_events_that_break_clients_do_not_pass(name: str) -> None:
    assert responses().feed(sse({"type": name, "sequence_number": 2, "x": 1})) == []


@pytest.mark.parametrize("faithful", [False, True])
@pytest.mark.parametrize(
    "event",
    [
        b'{"type":"slug:x","sequence_number":2,"stream_id":"theirs","n":1}',
        b'{"type":"slug:x","sequence_number":2,"stream\\u005fid":null}',
        b'{"type":"response.output_text.delta","sequence_number":2,"item_id":"m","delta":"a","stream_id":"theirs"}',
        b'{"type":"response.output_item.added","sequence_number":2,"stream_id":"theirs","item":{"type":"x"}}',
    ],
)
def test_an_upstreams_lane_never_reaches_a_client(faithful: bool, event: bytes) -> None:
    made = responses(faithful=faithful).feed(sse(event))
    assert made
    assert not any("stream_id" in json.loads(each) for each in made)


@pytest.mark.parametrize("cut", [1, 9, 10_000])
def test_one_json_document_instead_of_a_stream_is_an_answer(cut: int) -> None:
    body = json.dumps(
        {"id": "up_1", "status": "completed", "output": [MESSAGE, CALL], "usage": USAGE, "error": None}, indent=2
    ).encode()
    told = play(responses(), [body[i : i + cut] for i in range(0, len(body), cut)])
    assert output(told) == [MESSAGE, CALL]
    assert [event["item"] for event in told if event["type"] == "response.output_item.done"] == output(told)
    assert told[-1]["response"]["usage"]["total_tokens"] == 12


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"{}", Kind.UPSTREAM_GARBLED),
        (b'{"detail":"x"}', Kind.UPSTREAM_GARBLED),
        (b'{"output":[', Kind.UPSTREAM_GARBLED),
        (b'{"output":[{"type":"message","x":"\xff"}]}', Kind.UPSTREAM_GARBLED),
        (b'{"output":[7]}', Kind.UPSTREAM_GARBLED),
        (b'{"output":[],"status":"failed"}', Kind.UPSTREAM_FAILED),
        (b'{"error":{"message":"no","code":"invalid_prompt"}}', Kind.UPSTREAM_REJECTED),
        (b"", Kind.UPSTREAM_CLOSED),
    ],
)
def test_a_document_that_is_no_answer_fails(body: bytes, kind: Kind) -> None:
    translator = responses()
    translator.feed(body)
    with pytest.raises(LooplineError) as raised:
        translator.finish()
    assert raised.value.kind is kind


def test_log_probabilities_that_were_asked_for_arrive() -> None:
    logprobs = [{"token": "Hel", "logprob": -0.5, "top_logprobs": []}]
    events = message_events()
    events[2] = {**events[2], "logprobs": logprobs}
    told = answered(*events, ended())
    assert [event["logprobs"] for event in told if event["type"] == "response.output_text.delta"] == [logprobs, []]


TOLD_FIRST = {"token": "Hel", "logprob": -0.5, "top_logprobs": [{"token": "x", "logprob": -2.0}]}
TOLD_LAST = {"token": "lö", "logprob": -0.5, "top_logprobs": []}
IN_ITEM = [
    {**TOLD_FIRST, "bytes": [72, 101, 108], "top_logprobs": [{"token": "x", "logprob": -2.0, "bytes": [120]}]},
    {**TOLD_LAST, "bytes": [108, 195, 182]},
]


def with_logprobs(where: str) -> list[Event]:
    """A message's events, with log-probabilities in one place."""
    events = message_events()
    part = {**MESSAGE["content"][0], "logprobs": IN_ITEM}
    if where == "deltas":
        events[2]["logprobs"], events[3]["logprobs"] = [TOLD_FIRST], [TOLD_LAST]
    elif where == "done":
        events[4]["logprobs"] = [TOLD_FIRST, TOLD_LAST]
    elif where == "part":
        events[5]["part"] = part
    else:
        events[6]["item"] = {**MESSAGE, "content": [part]}
    return events


def logprobs_at_the_end(told: list[Event]) -> tuple[Any, Any]:
    """Those of the text's end and of the part's."""
    check_turn(told)
    (text_done,) = (event for event in told if event["type"] == "response.output_text.done")
    (part_done,) = (event for event in told if event["type"] == "response.content_part.done")
    assert output(told)[0]["content"] == [part_done["part"]]
    return text_done["logprobs"], part_done["part"]["logprobs"]


@pytest.mark.parametrize("where", ["deltas", "done", "part", "item"])
def test_log_probabilities_reach_the_end_of_the_text_and_the_item(where: str) -> None:
    events = with_logprobs(where)
    told = play(responses(profile="vllm"), [sse(*events, ended(output=[]))])
    assert logprobs_at_the_end(told) == ([TOLD_FIRST, TOLD_LAST], IN_ITEM)
    if where == "item":  # nothing but the item in the end
        for faithful in (False, True):
            made = responses(faithful=faithful, profile="openai" if faithful else "vllm")
            told = play(made, [sse(ended(output=[events[6]["item"]]))])
            assert logprobs_at_the_end(told) == ([TOLD_FIRST, TOLD_LAST], IN_ITEM)
            (delta,) = (event for event in told if event["type"] == "response.output_text.delta")
            assert delta["logprobs"] == [TOLD_FIRST, TOLD_LAST]


def test_log_probabilities_of_a_message_that_was_left_open_are_told_at_its_end() -> None:
    open_ = with_logprobs("deltas")[:4]
    told = play(responses(), [sse(*open_, ended())])
    assert logprobs_at_the_end(told) == ([TOLD_FIRST, TOLD_LAST], IN_ITEM)
    told = play(responses(faithful=True, profile="openai"), [sse(*open_, ended())])
    assert logprobs_at_the_end(told) == ([TOLD_FIRST, TOLD_LAST], IN_ITEM)
    told = play(responses(faithful=True, profile="openai"), [sse(*open_, ended(output=[MESSAGE]))])
    assert logprobs_at_the_end(told) == ([TOLD_FIRST, TOLD_LAST], [])  # the item is as the upstream says it is


@pytest.mark.parametrize(
    "event",
    [
        {"type": "error", "code": "context_length_exceeded", "message": "too long"},
        {"type": "response.failed", "response": {"error": {"code": "context_length_exceeded", "message": "too long"}}},
        {"type": "response.completed", "response": {
            "status": "failed", "error": {"code": "context_length_exceeded", "message": "too long"}}},
        {"error": {"code": "context_length_exceeded", "message": "too long"}},
    ],
)  # fmt: skip
def test_what_to_do_about_a_prompt_too_long_is_told_inside_a_stream_too(event: Event) -> None:
    made = ResponsesTranslator(replace(brief(create()), context_hint="Do this."))
    with pytest.raises(LooplineError, match=r"too long\. Do this\."):
        made.feed(sse(event))


def test_what_to_do_about_a_prompt_too_long_is_told_in_a_document_too() -> None:
    made = ResponsesTranslator(replace(brief(create()), context_hint="Do this."))
    made.feed(dumped({"status": "failed", "error": {"code": "context_length_exceeded", "message": "too long"}}))
    with pytest.raises(LooplineError, match=r"too long\. Do this\."):
        made.finish()


def test_events_that_we_do_not_know_pass() -> None:
    odd = {"type": "slug:thing", "n": 123456789012345678901234567890, "deep": [{"a": 1.50}]}
    told = play(responses(), [sse(odd, *message_events(), ended())])
    assert told[2] == {"type": "slug:thing", "sequence_number": 2, "n": odd["n"], "deep": odd["deep"]}


@pytest.mark.parametrize("usage", [None, {}, {"input_tokens": None}, "many", {"input_tokens": "7"}])
def test_usage_as_far_as_it_can_be_read(usage: Any) -> None:
    told = answered(*message_events(), ended(usage=usage))
    got = told[-1]["response"]["usage"]
    assert got is None or got["total_tokens"] == 0


def test_counts_that_no_upstream_can_mean_are_not_passed_on() -> None:
    below = answered(*message_events(), ended(usage={"input_tokens": -5, "output_tokens": 3, "total_tokens": -2}))
    assert [below[-1]["response"]["usage"][f"{name}_tokens"] for name in ("input", "output", "total")] == [0, 3, 3]
    for absurd in ({"input_tokens": 10**399}, {"output_tokens_details": {"reasoning_tokens": 2**53 + 1}}):
        assert answered(*message_events(), ended(usage=absurd))[-1]["response"]["usage"] is None


@pytest.mark.parametrize("item", [7, None, {}, {"type": 7}, []])
def test_an_item_that_is_none_is_the_upstreams_fault(item: Any) -> None:
    assert failure({"type": "response.output_item.done", "output_index": 0, "item": item}).kind is Kind.UPSTREAM_GARBLED


def test_a_faithful_upstreams_deltas_pass_untouched_and_others_are_made_right() -> None:
    right = b'{"type":"response.output_text.delta","sequence_number":2,"item_id":"m","delta":"a","obfuscation":"x"}'
    wrong = right.replace(b'"sequence_number":2', b'"sequence_number":9')
    translator = responses(faithful=True)
    first, second = translator.feed(sse(right, wrong))
    assert first == right
    assert json.loads(second)["sequence_number"] == 3
    made = responses().feed(sse(right))
    assert not any("obfuscation" in json.loads(each) for each in made)


def test_an_event_that_is_right_passes_untouched_and_one_that_only_looks_so_does_not() -> None:
    right = b'{"type":"slug:x","sequence_number":2,"n":1.50,"a":{ "b":1}}'
    nested = b'{"type":"slug:x","sequence_number":9,"a":{"sequence_number":3,"b":1}}'
    first, second = responses().feed(sse(right, nested))
    assert first == right
    assert json.loads(second) == {"type": "slug:x", "sequence_number": 3, "a": {"sequence_number": 3, "b": 1}}


def test_an_event_ends_with_its_brace_so_that_lanes_can_tag_it() -> None:
    padded = b'{"type":"response.output_item.added","sequence_number":2,"output_index":0,"item":{"type":"message"}}  '
    assert responses().feed(b"data: " + padded + b"\n\n")[0].endswith(b"}")


# --- any bytes ---


def outcome(translator: ResponsesTranslator, reads: list[bytes]) -> tuple[list[Event], str | None]:
    out: list[bytes] = []
    kind: str | None = None
    try:
        for read in reads:
            out += translator.feed(read)
        out += translator.finish()
        translator.result()
    except LooplineError as error:
        kind = error.kind.value
        out += translator.feed(b"")
    assert translator.sequence == len(out) + 2
    made = [json.loads(event.decode()) for event in out]
    assert [event["sequence_number"] for event in made] == list(range(2, len(out) + 2))
    return made, kind


@given(st.booleans(), st.sampled_from([[ended()], [ended("failed")], []]), st.data())
@settings(deadline=None, max_examples=60)
def test_where_the_reads_fall_changes_nothing(with_numbers: bool, end: list[Event], data: st.DataObject) -> None:
    events = [*begun(), *message_events(), *call_events(), *end]
    stream = sse(*numbered(events)) if with_numbers else sse(*events)
    assert outcome(responses(), data.draw(cuts(stream))) == outcome(responses(), [stream])


WORDS = ("type", "response", "item", "error", "delta", "item_id", "output_index", "content_index", "status", "output")
KINDS = (
    "response.output_item.done",
    "response.output_text.delta",
    "response.completed",
    "response.failed",
    "error",
    "message",
)


@given(st.lists(json_values(*WORDS, *KINDS), max_size=4), st.booleans())
@settings(deadline=None, max_examples=80)
def test_any_json_from_an_upstream_gives_events_or_a_named_failure(values: list[Any], stream: bool) -> None:
    outcome(responses(), [sse(*values, DONE)] if stream else [dumped(value) for value in values])


PIECES = st.sampled_from(
    [b"data: ", b"\n\n", b'{"type":"', b"response.x", b'"}', b"\r", b"[DONE]", b"\xff", b'","sequence_number":2,"a":1}']
)


@given(st.lists(st.one_of(st.binary(max_size=20), PIECES), max_size=12))
@settings(deadline=None, max_examples=80)
def test_any_bytes_from_an_upstream_give_events_or_a_named_failure(reads: list[bytes]) -> None:
    outcome(responses(), reads)


@pytest.mark.parametrize(
    "payload",
    [
        b'{"type":"response.output_text.delta","item_id":"m","delta":"\xff"}',
        b'{"type":"response.x","sequence_number":2,"y":"\xed\xa0\x80"}',
        b'{"type":"response.x","sequence_number":2,"y":"\\ud800"}',
        b'{"type":"response.x","y":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"type":"response.x","y":NaN}',
        b"[]",
        b"7",
    ],
)
def test_malformed_events_are_garbled_and_never_reach_the_client(payload: bytes) -> None:
    assert failure(payload).kind is Kind.UPSTREAM_GARBLED


def deltas(count: int, start: int, kind: str = "output_text") -> list[bytes]:
    at = {"item_id": "m", "output_index": 0, "content_index": 0, "logprobs": []}
    made = numbered([{"type": f"response.{kind}.delta", **at, "delta": "?"} for _ in range(count)], start)
    return [each.replace(b"?", "é".encode()) for each in made]


@pytest.mark.parametrize(
    "kind",
    ["output_text", "refusal", "reasoning_text", "reasoning_summary_text", "function_call_arguments",
     "custom_tool_call_input"],
)  # fmt: skip
def test_right_deltas_pass_as_they_are_and_one_with_a_wrong_number_is_renumbered(kind: str) -> None:
    right, wrong = deltas(200, 2, kind), deltas(1, 999, kind)
    made = responses(faithful=True).feed(sse(*right, *wrong, *deltas(3, 203, kind)))
    assert made[:200] == right
    assert [json.loads(each)["sequence_number"] for each in made] == list(range(2, 206))


def test_deltas_that_are_no_text_are_not_passed_on() -> None:
    broken = [each.replace("é".encode(), b"\xff") for each in deltas(1, 12)]
    translator = responses(faithful=True)
    with pytest.raises(LooplineError) as raised:
        translator.feed(sse(*deltas(10, 2), *broken))
    assert raised.value.kind is Kind.UPSTREAM_GARBLED
