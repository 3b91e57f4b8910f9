"""The chat dialect against whatever an upstream may send, cut anywhere: events, or a failure with a name."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.errors import LooplineError
from proxy.translate.chat import ChatTranslator
from tests.unit.strategies import TEXT, cuts, dumped, json_values
from tests.unit.translate.turns import DONE, Event, chat, chunk, sse, tool_call

DELTAS = st.one_of(
    st.builds(lambda said: chunk(content=said), TEXT),
    st.just(chunk(reasoning="hm\u2028 é")),
    st.builds(
        tool_call,
        st.sampled_from([0, 1]),
        st.sampled_from([None, "c1", "c2"]),
        st.sampled_from([None, "f"]),
        st.sampled_from([None, '{"a"', ":1}", "{}"]),
    ),
    st.just({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 5}}),
    st.just(b"null"),
)
WORDS = ("choices", "delta", "content", "index", "tool_calls", "function", "name", "arguments", "id", "finish_reason")
MORE_WORDS = ("stop", "usage", "error", "message", "reasoning", "prompt_tokens")
PIECES = st.sampled_from([b"data: ", b"\n\n", b'{"choices":', b"\r", b"[DONE]", b"{", b"\xff"])


def outcome(translator: ChatTranslator, reads: list[bytes]) -> tuple[list[Event], str | None]:
    """Every event, and the kind of failure; nothing else may come out."""
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
    return [json.loads(event) for event in out], kind


@given(st.lists(DELTAS, max_size=8), st.sampled_from(["stop", "length", None]), st.data())
@settings(deadline=None, max_examples=80)
def test_where_the_reads_fall_changes_nothing(deltas: list[Event], finish: str | None, data: st.DataObject) -> None:
    stream = sse(*deltas, *([chunk(finish), DONE] if finish else []))
    whole = outcome(chat(), [stream])
    assert outcome(chat(), data.draw(cuts(stream))) == whole
    assert outcome(chat(), [stream[i : i + 1] for i in range(len(stream))]) == whole


@given(st.lists(json_values(*WORDS, *MORE_WORDS), max_size=4), st.booleans())
@settings(deadline=None, max_examples=80)
def test_any_json_from_an_upstream_gives_events_or_a_named_failure(values: list[Any], stream: bool) -> None:
    reads = [sse(*values, DONE)] if stream else [dumped(value) for value in values]
    outcome(chat(), reads)


@given(st.lists(st.one_of(st.binary(max_size=40), PIECES), max_size=10))
@settings(deadline=None, max_examples=80)
def test_any_bytes_from_an_upstream_give_events_or_a_named_failure(reads: list[bytes]) -> None:
    outcome(chat(), reads)
