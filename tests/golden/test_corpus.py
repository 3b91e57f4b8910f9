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


# What the server itself said otherwise when it was not asked to stream: another sample, or a call as plain text.
SAID_OTHERWISE = {
    "llamacpp-responses-tool-cut-4": ["message"],
    "vllm-chat-reasoning-then-tool": ["reasoning"],
    "vllm-chat-tool-not-strict": ["message"],
    "vllm-chat-tool-required-cut": ["message"],
    "vllm-responses-tool-cut": ["message"],
}


def whole_of(path: Path) -> str | None:
    """The same request's answer in one document, where that was captured too."""
    stream = json.loads(path.read_text())["stream"]
    whole = stream.replace(".sse", ".json") if isinstance(stream, str) else ""
    return whole if whole and (corpus.HERE / whole).exists() else None


@pytest.mark.parametrize("path", [path for path in STREAMS if whole_of(path)], ids=name)
def test_an_answer_that_came_whole_gives_the_items_of_one_that_was_streamed(path: Path) -> None:
    case = json.loads(path.read_text())
    events = corpus.events_of({**case, "stream": whole_of(path)})
    check_turn(events, transport="http")
    assert kinds(events) == SAID_OTHERWISE.get(path.stem, kinds(corpus.events_of(case)))


def kinds(events: list[corpus.Json]) -> list[str]:
    return [item["type"] for item in events[-1]["response"]["output"]]
