from __future__ import annotations

import json

import pytest

from proxy.access.costs import Meter

USAGE = b'{"prompt_tokens": 3, "total_tokens": 12}'
LONG = b"[" + b"0.25," * 5000 + b"0]"


def fed(answer: bytes, *, textual: bool = True, piece: int = 1000) -> Meter:
    meter = Meter(textual=textual)
    for start in range(0, len(answer), piece):
        meter.feed(answer[start : start + piece])
    return meter


@pytest.mark.parametrize(
    "answer",
    [
        b'{"usage":%b,"data":%b}' % (USAGE, LONG),
        b'{"data":%b,"usage":%b}' % (LONG, USAGE),
        b'data: {"choices":[]}\n\n' * 2000 + b'data: {"usage":%b}\n\ndata: [DONE]\n\n' % USAGE,
        b'data: {"usage":{"total_tokens":3}}\n\ndata: {"usage":{"total_tokens":12}}\n\n',
    ],
)
@pytest.mark.parametrize("piece", [1, 1000, 1_000_000])
def test_what_the_upstream_counted_is_the_cost(answer: bytes, piece: int) -> None:
    assert fed(answer, piece=piece).tokens(100) == 12


def test_what_it_did_not_count_is_a_token_for_four_bytes_of_text() -> None:
    assert fed(b"x" * 40).tokens(60) == 25
    assert fed(b"\x00" * 40, textual=False).tokens(0) == 0


def test_a_model_that_speaks_of_usage_changes_no_count() -> None:
    answer = json.dumps({"content": '{"total_tokens": 1000000}'}).encode()
    assert fed(answer).tokens(0) == len(answer) // 4
