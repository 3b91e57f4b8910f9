"""Answers are the same however they are cut, and what follows them is nobody's."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import Kind
from proxy.upstream.answers import MAX_HEADERS, Answers, Headers
from tests.odd_answers import ODD, Made

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
# Compressed bodies are inflated elsewhere.
PLAIN = {name: odd for name, odd in ODD.items() if b"Content-Encoding" not in odd[0]}
LARGEST_READ = 256 * 1024
SHORT = {name: odd for name, odd in PLAIN.items() if len(odd[0]) < 1000}


def read(cuts: list[bytes], answers: Answers | None = None, *, end: bool = True) -> Made:
    """What an answer is that comes in these pieces."""
    answers = answers or Answers()
    answers.begin()
    for cut in cuts:
        answers.feed(cut)
        if answers.garbled is not None:
            break
    if end:
        answers.end()
    body = b"".join(answers.parts)
    answers.parts.clear()
    if answers.complete:
        return Made(answers.status, body)
    return Made(answers.status, body, Kind.UPSTREAM_CLOSED if answers.garbled is None else Kind.UPSTREAM_GARBLED)


@pytest.mark.parametrize("name", PLAIN)
def test_whole(name: str) -> None:
    data, made = PLAIN[name]
    assert read([data[at : at + LARGEST_READ] for at in range(0, len(data), LARGEST_READ)]) == made


@pytest.mark.parametrize("name", SHORT)
def test_byte_by_byte(name: str) -> None:
    data, made = SHORT[name]
    assert read([data[at : at + 1] for at in range(len(data))]) == made


@pytest.mark.parametrize("name", SHORT)
def test_split_at_every_byte(name: str) -> None:
    data, made = SHORT[name]
    for at in range(len(data)):
        assert read([data[:at], data[at:]]) == made, at


@pytest.mark.parametrize("name", PLAIN)
def test_in_reads_of_a_usual_size(name: str) -> None:
    data, made = PLAIN[name]
    assert read([data[at : at + 4096] for at in range(0, len(data), 4096)]) == made


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=8), st.lists(st.integers(0, 400), max_size=12))
def test_chunks_and_reads_may_end_anywhere(chunks: list[bytes], cuts: list[int]) -> None:
    coded = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    data = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + coded + b"0\r\n\r\n"
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    answers = Answers()
    pieces = [data[start:stop] for start, stop in pairwise(places) if start < stop]
    assert read(pieces, answers, end=False) == Made(200, b"".join(chunks))
    assert answers.keep


@given(st.binary(max_size=300))
def test_no_bytes_break_it(data: bytes) -> None:
    for start in (b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"):
        whole = read([start + data])
        assert read([start, *(data[at : at + 1] for at in range(len(data)))]) == whole


KEEPS = {"length", "chunks", "a space after a chunk's size", "trailers", "204", "100", "103", "102 five times"}
ENDS = {"until the end", "1.0 until the end", "1.0 with a length", "closing", "a transfer coding alone"}


@pytest.mark.parametrize("name", sorted(KEEPS))
def test_another_answer_follows_on_the_same_connection(name: str) -> None:
    answers = Answers()
    for _ in range(3):
        assert read([ODD[name][0]], answers, end=False) == ODD[name][1]
        assert answers.keep
        assert answers.complete


@pytest.mark.parametrize("name", sorted(ENDS))
def test_no_other_answer_follows(name: str) -> None:
    answers = Answers()
    read([ODD[name][0]], answers, end=False)
    assert not (answers.complete and answers.keep)


@pytest.mark.parametrize("name", ["another answer behind it", "garbage behind it"])
def test_what_follows_unasked_ends_the_use_of_the_connection(name: str) -> None:
    data, made = ODD[name]
    answers = Answers()
    assert read([data], answers, end=False) == made
    assert not answers.keep


def test_what_comes_while_nothing_was_asked_ends_the_use_too() -> None:
    answers = Answers()
    read([OK], answers, end=False)
    assert answers.keep
    answers.feed(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
    assert not answers.keep
    assert not answers.parts


def test_headers_of_one_answer_are_not_those_of_the_next() -> None:
    answers = Answers()
    read(
        [b"HTTP/1.1 200 OK\r\nX-One: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Trailer: t\r\n\r\n"],
        answers,
        end=False,
    )
    first = answers.raw_headers
    read([OK], answers, end=False)
    assert [name for name, _ in first] == [b"X-One", b"Transfer-Encoding"]
    assert answers.raw_headers == [(b"Content-Length", b"2")]


def test_an_answer_to_head_has_no_body() -> None:
    answers = Answers()
    answers.begin(bodiless=True)
    answers.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n")
    assert answers.complete
    assert answers.garbled is None


def test_the_number_of_headers_is_bounded() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n"
    assert read([head + b"X: y\r\n" * (MAX_HEADERS - 1) + b"\r\n"]).kind is None
    assert read([head + b"X: y\r\n" * MAX_HEADERS + b"\r\n"]).kind is Kind.UPSTREAM_GARBLED


def test_a_reason_for_the_log_quotes_nothing_of_the_answer() -> None:
    for data, made in PLAIN.values():
        answers = Answers()
        if read([data.replace(b"nonsense", b"SECRET")], answers).kind is Kind.UPSTREAM_GARBLED:
            assert answers.garbled, made
            assert "SECRET" not in answers.garbled


@pytest.mark.parametrize(
    ("header", "coding"), [(b"GZIP", "gzip"), (b"identity", ""), (b" gzip , br", "gzip , br"), (b"", "")]
)
def test_the_coding(header: bytes, coding: str) -> None:
    answers = Answers()
    read([b"HTTP/1.1 204 OK\r\nX: y\r\nContent-ENCODING: " + header + b"\r\n\r\n"], answers)
    assert answers.coding() == coding


def test_headers_are_matched_without_regard_to_case() -> None:
    headers = Headers([(b"Retry-After", b"2 "), (b"RETRY-AFTER", b"3"), (b"X", b"\xe9")])
    assert headers["retry-AFTER"] == "2"
    assert headers.get("nothing") is None
    assert list(headers) == ["retry-after", "x"]
    assert headers["x"].encode("utf-8", "surrogateescape") == b"\xe9"
    assert len(headers) == 2
