"""Ordinary chunks taken apart undecoded must say what decoding them says."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.translate.chat.chunks import CHUNK
from proxy.translate.chat.plain import PlainChunks


def chunk(delta: object, **more: object) -> bytes:
    """A chunk as vLLM writes it."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
    return json.dumps({"id": "chatcmpl-1", "choices": [choice], **more}, ensure_ascii=False).encode()


def taught(payload: bytes) -> PlainChunks:
    plain = PlainChunks()
    decoded = CHUNK.decode(payload)
    assert decoded is not None
    plain.learn(payload, decoded)
    return plain


def test_a_chunk_like_the_first_is_read_undecoded() -> None:
    plain = taught(chunk({"content": "a"}))
    assert plain.read([chunk({"content": " b"}), chunk({"content": '"c"\n'})], 0) == [b" b", b'\\"c\\"\\n']
    assert plain.kind == "text"


def test_reading_starts_where_it_is_told_and_stops_at_another_form() -> None:
    plain = taught(chunk({"content": "a"}))
    payloads = [chunk({"content": "b"}), chunk({"content": "c"}), chunk({"role": "assistant"}), chunk({"content": "d"})]
    assert plain.read(payloads, 1) == [b"c"]
    assert plain.read(payloads, 2) == []


@pytest.mark.parametrize("member", ["reasoning_content", "reasoning"])
def test_reasoning_is_read_too(member: str) -> None:
    plain = taught(chunk({member: "hm"}))
    assert plain.kind == "reasoning"
    assert plain.read([chunk({member: "so"})], 0) == [b"so"]


@pytest.mark.parametrize(
    "payload",
    [
        chunk({"content": ""}),
        chunk({"content": "a", "refusal": "no"}),
        chunk({"content": "a", "reasoning_content": "b"}),
        chunk({"content": "a", "annotations": [{"type": "url_citation"}]}),
        chunk({"content": "a"}, usage={"prompt_tokens": 1}),
        chunk({"content": "a"}, error={"message": "no"}),
        chunk({"content": "a", "tool_calls": [{"index": 0, "function": {"name": "f"}}]}),
        chunk({"content": ["a"]}),
        chunk({"content": "a"}, note={"content": "a"}),
        b'{"choices":[{"index":1,"delta":{"content":"a"}}]}',
        b'{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}',
        b'{"choices":[{"index":0,"delta":{"content":"a"}},{"index":1,"delta":{}}]}',
        b'{"choices":[{"index":0,"delta":{"\\u0063ontent":"a"}}],"content":"a "}',
    ],
)
def test_a_chunk_that_says_more_teaches_nothing(payload: bytes) -> None:
    assert taught(payload).read([payload], 0) == []


@pytest.mark.parametrize(
    "text",
    [b"", b'a"', b'a","x":"', b"a\\", b"\\ud83d", b"\\u0041", b"\\q", b"a\tb", b"\xff", b"\xed\xa0\x80", b'\\\\"'],
)
def test_what_may_not_be_one_whole_string_is_left_to_the_decoder(text: bytes) -> None:
    plain = taught(b'{"choices":[{"delta":{"content":"a"}}]}')
    assert plain.read([b'{"choices":[{"delta":{"content":"' + text + b'"}}]}'], 0) == []


@given(st.binary(max_size=12) | st.text(max_size=12).map(lambda text: json.dumps(text)[1:-1].encode()))
def test_whatever_is_read_is_what_decoding_gives(text: bytes) -> None:
    plain = taught(b'{"choices":[{"delta":{"content":"a"}}]}')
    payload = b'{"choices":[{"delta":{"content":"' + text + b'"}}]}'
    for read in plain.read([payload], 0):
        decoded = CHUNK.decode(payload)
        assert decoded is not None
        assert decoded.choices is not None
        assert decoded.choices[0].delta is not None
        assert msgspec.json.decode(b'"' + read + b'"') == decoded.choices[0].delta.content


def test_a_server_whose_chunks_never_repeat_is_not_looked_at_for_ever() -> None:
    plain = PlainChunks()
    for number in range(100):
        payload = chunk({"content": "a"}, created=number)
        decoded = CHUNK.decode(payload)
        assert decoded is not None
        plain.learn(payload, decoded)
    assert plain.read([chunk({"content": "b"}, created=99)], 0) == []


def test_nothing_is_read_after_it_was_told_to_forget() -> None:
    plain = taught(chunk({"content": "a"}))
    plain.forget()
    assert plain.read([chunk({"content": "b"})], 0) == []
