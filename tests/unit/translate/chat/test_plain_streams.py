"""Whole streams of odd but legal servers: undecoded or decoded, the client gets and the chain keeps the same."""

from __future__ import annotations

import json
from collections.abc import Sequence
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.errors import LooplineError
from proxy.translate.chat.plain import PlainChunks
from proxy.translate.chat.translator import ChatTranslator
from tests.unit.strategies import cuts
from tests.unit.translate.turns import chat, create

# Insides of JSON strings, as servers write them: plain, escaped, halves of a character, what looks like the frame.
_INSIDES = st.sampled_from(
    [
        b"a",
        b" b",
        "é".encode(),
        "😀".encode(),
        b"\\n",
        b'\\"',
        b"\\\\",
        b"\\/",
        b"\\u00e9",
        b"\\ud83d",
        b"\\ude00",
        b"\\ud83d\\ude00",
        b"\xff",
        b"\xe9",
        b"\xf0\x9f",
        b"\x98\x80",
        b"",
        b'\\"}}]}',
        b'"}}]}',
        b'\\"content\\":\\"a',
        b"\t",
        b"\x7f",
        b"\\b",
        b"\\q",
        b'","content":"z',
        b'","reasoning":"z',
        b'"},"finish_reason":"stop',
    ]
)
_MEMBER = st.sampled_from([b"content", b"reasoning_content", b"reasoning", b"refusal", b"cont\\u0065nt"])
_COLON = st.sampled_from([b":", b": "])
_BEFORE = st.sampled_from([b"", b'"role":"assistant",', b'"content":null,', b'"tool_calls":[],', b'"content":"x",'])
_AFTER = st.sampled_from(
    [
        b"",
        b',"content":null',
        b',"reasoning":null',
        b',"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}]',
        b',"annotations":[]',
    ]
)
_CHOICE = st.sampled_from(
    [
        b"",
        b',"finish_reason":null',
        b',"finish_reason":""',
        b',"finish_reason":"stop"',
        b',"index":1',
        b',"logprobs":null',
        b',"message":{"content":"m"}',
        b',"delta":{"content":"q"}',
    ]
)
_REST = st.sampled_from(
    [
        b"",
        b',"usage":null',
        b',"usage":{"prompt_tokens":1,"completion_tokens":2}',
        b',"usage":{"prompt_tokens":1,"completion_tokens":3}',
        b',"error":null',
        b',"choices":[]',
        b',"note":{"content":"a"}',
        b',"id":"other"',
    ]
)
_ID = st.sampled_from([b"1", b"2"])


def _chunk(parts: Sequence[bytes]) -> bytes:
    number, before, member, colon, inside, after, choice, rest = parts
    said = before + b'"' + member + b'"' + colon + b'"' + inside + b'"' + after
    return b'{"id":"' + number + b'","choices":[{"index":0,"delta":{' + said + b"}" + choice + b"}]" + rest + b"}"


@st.composite
def _streams(draw: st.DrawFn) -> bytes:
    """Frames of a few kinds, each used again and again, as servers do."""
    kinds = draw(st.lists(st.tuples(_ID, _BEFORE, _MEMBER, _COLON, _AFTER, _CHOICE, _REST), min_size=1, max_size=3))
    plainest = (b"1", b"", b"content", b":", b"", b"", b"")
    kinds.append(plainest)
    chunks = draw(st.lists(st.tuples(st.sampled_from(kinds), _INSIDES), min_size=1, max_size=12))
    payloads = [_chunk((*kind[:4], inside, *kind[4:])) for kind, inside in chunks]
    return b"".join(b"data: " + payload + b"\n\n" for payload in payloads) + b"data: [DONE]\n\n"


def _outcome(reads: Sequence[bytes], extra: dict[str, object]) -> object:
    translator: ChatTranslator = chat(create(**extra))
    events: list[bytes] = []
    failed = None
    try:
        for read in reads:
            events += translator.feed(read)
        events += translator.finish()
        result = translator.result()
        kept: object = [json.loads(item.raw) for item in result.items], result.tokens, result.upstream_id
    except LooplineError as error:
        failed = error.kind
        events += translator.feed(b"")
        kept = [json.loads(item.raw) for item in translator._answer.items]
    return [json.loads(event.decode()) for event in events], kept, failed


@given(_streams(), st.data(), st.sampled_from([{}, {"top_logprobs": 1, "include": ["message.output_text.logprobs"]}]))
@settings(deadline=None, max_examples=200)
def test_undecoded_or_decoded_is_the_same(stream: bytes, data: st.DataObject, extra: dict[str, object]) -> None:
    reads = data.draw(cuts(stream))
    fast = _outcome(reads, extra)
    with patch.object(PlainChunks, "read", lambda *_: []):
        assert _outcome(reads, extra) == fast


@given(_streams())
@settings(deadline=None, max_examples=200)
def test_an_answer_goes_on_as_it_would_be_read_again(stream: bytes) -> None:
    answered: ChatTranslator = chat(create())
    try:
        answered.feed(stream)
        answered.finish()
    except LooplineError:
        return
    items = answered.result().items
    again: ChatTranslator = chat(create())
    assert answered.encode(items) == again.encode(items)
