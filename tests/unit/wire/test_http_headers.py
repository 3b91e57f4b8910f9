"""Which headers pass a proxy."""

from __future__ import annotations

from proxy.wire.http_headers import end_to_end, values


def test_headers_of_the_connection_stay_there_and_others_keep_order_case_and_repetitions() -> None:
    headers = [
        (b"X-B", b"1"),
        (b"CONNECTION", b"close, X-Mine"),
        (b"connection", b"x-Other"),
        (b"x-mine", b"2"),
        (b"X-OTHER", b"3"),
        (b"x-b", b"4"),
        (b"Transfer-Encoding", b"chunked"),
        (b"TE", b"trailers"),
        (b"Host", b"h"),
    ]
    assert end_to_end(headers, {b"host"}) == [(b"X-B", b"1"), (b"x-b", b"4")]
    assert values(headers, b"x-b") == [b"1", b"4"]


def test_connection_cannot_take_away_what_frames_the_message() -> None:
    named = [(b"Content-Length", b"3"), (b"Host", b"h"), (b"Content-Type", b"a/b"), (b"Content-Encoding", b"gzip")]
    headers = [(b"Connection", b", ".join(name for name, _ in named)), (b"connection", b"CONTENT-TYPE"), *named]
    assert end_to_end(headers) == named
