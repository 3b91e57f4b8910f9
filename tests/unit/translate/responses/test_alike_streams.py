"""Streams that are repaired: undecoded or decoded, the client gets and the chain keeps the same, byte for byte."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.errors import LooplineError
from proxy.translate.alike import Alike
from proxy.translate.responses.translator import ResponsesTranslator
from tests.unit.strategies import cuts
from tests.unit.translate.turns import brief, create, sse

CAPTURED = Path(__file__).parents[3] / "golden" / "captured" / "streams"
STREAMS = sorted(CAPTURED.glob("*-responses-*.sse"))
# `run` is a custom tool: a server without them is told a function, whose calls mean another kind of item.
TOOLS = [{"type": "function", "name": "f"}, {"type": "custom", "name": "run"}]
BRIEFS = {name: brief(create(tools=TOOLS), profile=name) for name in ("vllm", "llamacpp", "transformers", "generic")}
Outcome = tuple[Any, ...]


class _Counting(Alike):
    """Counts what was read undecoded."""

    seen = 0

    def read(self, payloads: Sequence[bytes], start: int) -> list[bytes]:
        texts = super().read(payloads, start)
        _Counting.seen += len(texts)
        return texts


def outcome(reads: Sequence[bytes], profile: str = "vllm") -> Outcome:
    """Every event and all that is kept, in bytes."""
    translator = ResponsesTranslator(BRIEFS[profile])
    events: list[bytes] = []
    failed = None
    try:
        for read in reads:
            events += translator.feed(read)
        events += translator.finish()
        result = translator.result()
        kept: object = result, [item.raw for item in result.items]
    except LooplineError as error:
        failed = error.kind, error.message
        events += translator.feed(b"")
        kept = translator.partial()
    return events, kept, failed, translator.sequence, translator.left_out, translator.call_begun


def decoded(reads: Sequence[bytes], profile: str = "vllm") -> Outcome:
    """The same, with every event decoded."""
    with patch.object(Alike, "read", lambda *_: []):
        return outcome(reads, profile)


def undecoded(stream: bytes) -> int:
    """How many events of a stream were not decoded."""
    _Counting.seen = 0
    with patch("proxy.translate.responses.repair.Alike", _Counting):
        outcome([stream])
    return _Counting.seen


def frames(stream: bytes) -> list[bytes]:
    return [frame + b"\n\n" for frame in stream.split(b"\n\n") if frame]


# --- what servers send ---


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: str(path.stem))
def test_real_streams_are_told_the_same_however_they_are_cut(path: Path) -> None:
    stream, profile = path.read_bytes(), path.name.partition("-")[0]
    wanted = decoded([stream], profile)
    by_frame = frames(stream)
    middles = [piece for frame in by_frame for piece in (frame[: len(frame) // 2], frame[len(frame) // 2 :])]
    blank_apart = [piece for frame in by_frame for piece in (frame[:-1], frame[-1:])]
    for reads in ([stream], by_frame, middles, blank_apart):
        assert outcome(reads, profile) == wanted
    for size in (1, 2, 7, 100, 1000):
        assert outcome([stream[at : at + size] for at in range(0, len(stream), size)], profile) == wanted


@given(st.sampled_from(STREAMS).map(Path.read_bytes), st.data(), st.sampled_from(["vllm", "llamacpp", "generic"]))
@settings(deadline=None, max_examples=150)
def test_a_frame_that_is_changed_is_told_the_same(stream: bytes, data: st.DataObject, profile: str) -> None:
    changed = bytearray(stream)
    for at in data.draw(st.lists(st.integers(0, len(stream) - 1), max_size=4)):
        changed[at : at + data.draw(st.integers(0, 2))] = data.draw(st.sampled_from(_PIECES))
    reads = data.draw(cuts(bytes(changed)))
    assert outcome(reads, profile) == decoded(reads, profile)


_PIECES = [b"", b'"', b"\\", b"\x00", b"\n", b"\xff", b"0", b",", b"}", b'"delta":"x",', b"\\u0061", "é".encode(), b" "]


def _of_kind(kind: str, deltas: int, **place: object) -> list[dict[str, object]]:
    names = {"output_text": "message", "reasoning_text": "reasoning", "function_call_arguments": "function_call"}
    named = {"name": "f", "call_id": "c"} if kind == "function_call_arguments" else {}
    at = {"output_index": 0, **place}
    item = {"type": names[kind], "id": "x", **named}
    said = {"type": f"response.{kind}.delta", "item_id": "x", **at, "delta": " é"}
    return [
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        *({**said, "sequence_number": 20 + number} for number in range(deltas)),
    ]


@pytest.mark.parametrize("kind", ["output_text", "reasoning_text", "function_call_arguments"])
@pytest.mark.parametrize("place", [{}, {"content_index": 0}, {"content_index": 0, "logprobs": []}])
def test_ordinary_deltas_are_not_decoded(kind: str, place: dict[str, object]) -> None:
    stream = sse(*_of_kind(kind, 60, **place))
    assert undecoded(stream) == 59
    assert outcome([stream]) == decoded([stream])


@pytest.mark.parametrize("name", ["vllm-responses-text", "llamacpp-responses-text", "transformers-responses-text"])
def test_most_deltas_of_real_servers_are_not_decoded(name: str) -> None:
    stream = (CAPTURED / f"{name}.sse").read_bytes()
    assert undecoded(stream) >= 0.6 * len(re.findall(rb'^data: .*text\.delta"', stream, re.MULTILINE))


# --- what no server should send ---

# Insides of JSON strings: escaped, halves of a character, none at all, and what looks like the rest of the event.
_ODD = [
    b"", "é".encode(), "😀".encode(), b"\\n", b'\\"', b"\\\\", b"\\/", b"\\u00e9", b"\\ud83d", b"\\ude00",
    b"\\ud83d\\ude00", b"\xff", b"\xe9", b"\xf0\x9f", b"\t", b"\x00", b"\x7f", b"\\b", b"\\q", b"\\", b'"', b'"}',
    b'\\"delta\\":\\"z', b'","delta":"z', b'","d\\u0065lta":"z', b"{}", b'","type":"response.refusal.delta', b'","n":"',
    b'","sequence_number":7,"n":"', b'","logprobs":[{"token":"a","logprob":-1}],"n":"', b'","item_id":"other', b"%d",
    b'","content_index":1,"n":"', b"%",
]  # fmt: skip
# Members beside the ordinary ones, before or behind them: what counts is said last.
_BESIDE = [
    b'"delta":"a"', b'"d\\u0065lta":"a"', b'"note":{"delta":"a"}', b'"note":"delta"', b'"note":{"sequence_number":1}',
    b'"sequence_number":1', b'"note":"a\\/b"', b'"note":"100%d"', b'"note":"\xc3\xa9"', b'"note":"\xff"',
    b'"name":"run"',
    b'"note":"\\"delta\\":\\"a\\""', b'"content_index":1', b'"logprobs":[ ]', b'"stream_id":"s"', b'"output_index":1',
    b'"logprobs":null', b'"logprobs":[{"token":"a","logprob":-1}]', b'"obfuscation":"xY"', b'"item_id":"other"',
    b'"item_id":null', b'"item_id":7', b'"type":"response.refusal.delta"', b'"part":{"type":"output_text","text":"a"}',
    b'"response":{"id":"x"}', b'"error":{"message":"x"}', b'"code":7',
]  # fmt: skip
_NUMBERS = [
    b"01", b"0%d", b"%d5", b'"%d"', b"%d.0", b"-%d", b"%d %d", b"%d,%d", b"",
    b"null", b"x", b" %d", b"%d ", b"\t%d", b"1e%d",
]  # fmt: skip
# How a server writes an event: `KIND`, `NUMBER` and `INSIDE` are filled in.
_FORMS = [
    b'{"content_index":0,"delta":"INSIDE","item_id":"x","output_index":0,"sequence_number":NUMBER,"type":"KIND"}',
    b'{"type":"KIND","sequence_number":NUMBER,"item_id":"x","output_index":0,"content_index":0,"delta":"INSIDE"}',
    b'{"type":"KIND","item_id":"x","delta":"INSIDE"}', b'{"type":"KIND","delta":"INSIDE","output_index":0}',
    b'{"type": "KIND", "sequence_number": NUMBER, "item_id": "x", "delta": "INSIDE", "logprobs": []}',
    b'{"type":"KIND","delta":"INSIDE","sequence_number":NUMBER}',
]  # fmt: skip
_ITEMS = {
    b"response.output_text.delta": b'{"type":"message","id":"x"}',
    b"response.refusal.delta": b'{"type":"message","id":"x"}',
    b"response.reasoning_text.delta": b'{"type":"reasoning","id":"x"}',
    b"response.reasoning_summary_text.delta": b'{"type":"reasoning","id":"x"}',
    b"response.function_call_arguments.delta": b'{"type":"function_call","id":"x","name":"f","call_id":"1"}',
    b"response.custom_tool_call_input.delta": b'{"type":"custom_tool_call","id":"x","name":"run","call_id":"1"}',
}
_MAPPED = b'{"type":"function_call","id":"x","name":"run","call_id":"1"}'
_ADDED = b'{"type":"response.output_item.added","output_index":%d,"item":%b}'
_END = b'{"type":"response.completed","response":{"id":"up","status":"completed"}}'
_OTHERS = [
    b'{"type":"response.output_item.done","output_index":0,"item":{"type":"message","id":"x","content":[]}}',
    b'{"type":"response.output_item.done","item":{"type":"function_call","id":"x","name":"f","call_id":"1"}}',
    b'{"type":"response.content_part.added","item_id":"x","content_index":1,"part":{"type":"output_text","text":""}}',
    b'{"type":"response.content_part.done","item_id":"x","content_index":0,"part":{"type":"output_text","text":"ab"}}',
    b'{"type":"response.output_text.done","item_id":"x","content_index":0,"text":"aa"}',
    b'{"type":"response.output_text.delta","item_id":"x","content_index":1,"delta":"other part"}',
    b'{"type":"response.output_text.annotation.added","item_id":"x","annotation":{"type":"url_citation"}}',
    b'{"type":"response.reasoning_text.delta","item_id":"y","delta":"other item"}',
    _ADDED % (1, b'{"type":"reasoning","id":"y"}'),
    _ADDED % (1, b'{"type":"message","id":"x","role":"assistant"}'),
    _ADDED % (0, b'{"type":"function_call","id":"y","name":"f","call_id":"2"}'),
    _ADDED % (1, b'{"type":"function_call","id":"y","name":"run","call_id":"3"}'),
    b'{"type":"response.in_progress","response":{"id":"up"}}', b'{"type":"keepalive"}', b"", b"null", b"[DONE]", b"[]",
]  # fmt: skip


def _filled(form: bytes, kind: bytes, number: bytes, inside: bytes) -> bytes:
    return form.replace(b"KIND", kind).replace(b"NUMBER", number).replace(b"INSIDE", inside)


def _beside(payload: bytes, member: bytes, *, first: bool) -> bytes:
    return b"{" + member + b"," + payload[1:] if first else payload[:-1] + b"," + member + b"}"


def _is_told_the_same(payloads: Sequence[bytes], profile: str = "vllm") -> bool:
    by_frame = [b"data: " + payload + b"\n\n" for payload in payloads]
    wanted = decoded([b"".join(by_frame)], profile)
    return outcome([b"".join(by_frame)], profile) == wanted == outcome(by_frame, profile)


@pytest.mark.slow  # half a minute of a core, all kinds in all forms
@pytest.mark.parametrize("form", _FORMS, ids=range(len(_FORMS)))
@pytest.mark.parametrize("kind", [*_ITEMS, b"mapped"], ids=bytes.decode)
def test_an_odd_event_among_ordinary_ones_is_told_the_same(kind: bytes, form: bytes) -> None:
    item = _ITEMS.get(kind, _MAPPED)
    kind = b"response.function_call_arguments.delta" if kind == b"mapped" else kind
    ordinary = [_filled(form, kind, b"%d" % number, b"a") for number in range(7, 19)]
    odd = [_filled(form, kind, b"11", inside) for inside in _ODD]
    odd += [_filled(form, kind, number.replace(b"%d", b"11"), b"b") for number in _NUMBERS]
    odd += [_beside(ordinary[4], member, first=first) for member in _BESIDE for first in (True, False)]
    odd += [ordinary[4] + b" ", b" " + ordinary[4], ordinary[4].replace(b",", b", "), ordinary[4][:-1], *_OTHERS]
    odd += [
        ordinary[4] + b"\ndata: " + ordinary[5],
        ordinary[4].replace(b",", b",\ndata:", 1),
        ordinary[4] + b"\ndata:",
    ]
    begun = [_ADDED % (0, item)]
    for each in odd:
        assert _is_told_the_same([*begun, *ordinary[:4], each, *ordinary[5:], _END]), each
        assert _is_told_the_same([*begun, ordinary[0], each, each, *ordinary[5:]]), each


@pytest.mark.parametrize("form", _FORMS, ids=range(len(_FORMS)))
@pytest.mark.parametrize("kind", [*_ITEMS, b"mapped"], ids=bytes.decode)
def test_events_that_are_all_odd_in_one_way_are_told_the_same(kind: bytes, form: bytes) -> None:
    item = _ITEMS.get(kind, _MAPPED)
    kind = b"response.function_call_arguments.delta" if kind == b"mapped" else kind
    said = [b"a", b"a", b"b", b"c", b"a", b"{}", b'{\\"input\\":\\"x', b'y\\"}', b"a"]
    for member in _BESIDE:
        for first in (True, False):
            odd = [_filled(form, kind, b"%d" % number, text) for number, text in enumerate(said, 7)]
            odd = [_beside(each, member, first=first) for each in odd]
            assert _is_told_the_same([_ADDED % (0, item), *odd, _END]), member
    for number in _NUMBERS:
        odd = [_filled(form, kind, number.replace(b"%d", b"%d" % at), text) for at, text in enumerate(said, 7)]
        assert _is_told_the_same([_ADDED % (0, item), *odd, _END]), number


def _said(kind: bytes, item: bytes, *deltas: bytes) -> list[bytes]:
    form = b'{"type":"response.KIND.delta","output_index":%b,"item_id":"x%b","delta":"INSIDE"}' % (item, item)
    return [_filled(form, kind, b"", delta) for delta in deltas]


def test_what_waits_for_a_call_to_be_whole_opens_in_time() -> None:
    call, text = b'{"type":"function_call","id":"x0","name":"f","call_id":"1"}', b'{"type":"message","id":"x1"}'
    begun = [_ADDED % (0, call), _ADDED % (1, text)]
    pieces = [b"{", b'\\"a\\"', b":", b"1", b"}", b" ", b" "]
    payloads = [*begun, *_said(b"output_text", b"1", b"a", b"b"), *_said(b"function_call_arguments", b"0", *pieces)]
    assert _is_told_the_same([*payloads, *_said(b"output_text", b"1", b"c", b"d", b"e"), _END])


def test_a_delta_that_says_nothing_opens_no_part_for_those_that_follow() -> None:
    other = b'{"type":"response.output_text.delta","item_id":"x0","content_index":1,"delta":"%b"}'
    payloads = [_ADDED % (0, b'{"type":"message","id":"x0"}'), *_said(b"output_text", b"0", b"a", b"b")]
    assert _is_told_the_same([*payloads, *(other % text for text in (b"", b"c", b"d")), _END])


def test_what_was_said_after_a_delta_that_says_nothing_is_kept_when_the_answer_is_steered() -> None:
    part = b'{"type":"response.content_part.added","item_id":"x0","part":{"type":"output_text","text":""}}'
    payloads = [_ADDED % (0, b'{"type":"message","id":"x0"}'), part, *_said(b"output_text", b"0", b"", b"a", b"b")]
    translator = ResponsesTranslator(BRIEFS["vllm"])
    translator.feed(b"".join(b"data: " + payload + b"\n\n" for payload in payloads))
    translator.interrupt()
    assert b'"text":"ab"' in translator.result().output


@st.composite
def _streams(draw: st.DrawFn) -> bytes:
    """Runs of deltas, each in one form, now and then an odd one or another event; numbers count, mostly."""
    payloads = [_ADDED % (0, draw(st.sampled_from([*_ITEMS.values(), _MAPPED])))]
    number = draw(st.integers(0, 12))
    for _ in range(draw(st.integers(1, 5))):
        form, kind = draw(st.sampled_from(_FORMS)), draw(st.sampled_from([*_ITEMS]))
        beside = draw(st.sampled_from([b"", b"", b"", *_BESIDE]))
        insides = st.sampled_from([b"a", b" b", "é".encode(), b"\\n", *([b"{}"] * 2), *_ODD])
        for inside in draw(st.lists(insides, max_size=6)):
            payload = _filled(form, kind, b"%d" % number, inside)
            payloads.append(_beside(payload, beside, first=False) if beside else payload)
            number += draw(st.sampled_from([1, 1, 1, 1, 0, 90]))
        payloads += draw(st.lists(st.sampled_from(_OTHERS), max_size=1))
    payloads += draw(st.sampled_from([[], [_END]]))
    return b"".join(b"data: " + payload + b"\n\n" for payload in payloads)


@given(_streams(), st.data(), st.sampled_from(["vllm", "llamacpp", "generic"]))
@settings(deadline=None, max_examples=150)
def test_undecoded_or_decoded_is_the_same(stream: bytes, data: st.DataObject, profile: str) -> None:
    reads = data.draw(st.sampled_from([[stream], frames(stream)]) | cuts(stream))
    assert outcome(reads, profile) == decoded(reads, profile)
