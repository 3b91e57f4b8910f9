"""Every golden case holds: what servers are sent, and what clients are told, is what was read and kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conformance.schema import check_turn
from tests.golden import corpus

REQUESTS, STREAMS = corpus.cases("requests"), corpus.cases("streams")


def name(path: Path) -> str:
    return path.stem


def test_the_corpus_is_as_large_as_was_promised() -> None:
    assert len(REQUESTS) >= 80
    assert len(STREAMS) >= 40


@pytest.mark.parametrize("path", REQUESTS, ids=name)
def test_every_profile_is_sent_what_was_kept(path: Path) -> None:
    case = json.loads(path.read_text())
    create = corpus.create_of(case)
    assert case["about"]
    assert corpus.all_requested(create) == corpus.read_back(create, case["upstream"])


@pytest.mark.parametrize("path", STREAMS, ids=name)
def test_a_client_is_told_what_was_kept(path: Path) -> None:
    case = json.loads(path.read_text())
    events = corpus.events_of(case)
    check_turn(events, transport="http")
    assert corpus.told(events) == case["told"]


@pytest.mark.parametrize("path", STREAMS, ids=name)
def test_a_stream_read_in_small_pieces_is_the_same(path: Path) -> None:
    case = json.loads(path.read_text())
    assert corpus.events_of(case, 97) == corpus.events_of(case)


@pytest.mark.parametrize("path", STREAMS, ids=name)
def test_an_answer_that_came_whole_gives_the_same_items(path: Path) -> None:
    case = json.loads(path.read_text())
    whole = corpus.HERE / str(case.get("whole"))
    if "whole" not in case:
        return
    events = corpus.events_of({**case, "stream": case["whole"]})
    check_turn(events, transport="http")
    assert whole.exists()
    assert _meaning(events) == _meaning(corpus.events_of(case))


def _meaning(events: list[corpus.Json]) -> list[corpus.Json]:
    """The items of the last event, without what differs from one answer to another."""
    drop = ("id", "call_id", "logprobs")
    return [
        json.loads(json.dumps(item), object_hook=lambda each: {k: v for k, v in each.items() if k not in drop})
        for item in events[-1]["response"]["output"]
    ]
