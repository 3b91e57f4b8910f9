"""Every directive in the table of docs/simulate.md, as a client of either dialect sees it."""

import json
import re
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proxy.tools.simulate import Simulated
from proxy.tools.simulate.script import DIRECTIVES
from proxy.tools.simulate.tokens import filler
from tests.unit.tools.simulate_client import DIALECTS, ask, http, results, upstream, user

__all__ = ["http", "upstream"]

DOCS = Path(__file__).parents[3] / "docs" / "simulate.md"


def documented() -> list[tuple[str, str]]:
    rows = re.findall(r"^\| `([a-z]+)` \| `(.+?)` \| ", DOCS.read_text(), re.MULTILINE)
    return [(name, example) for name, example in rows if example.startswith("[[")]


PARIS = ("get_weather", '{"city": "Paris"}')
# example → what a client sees of it, in either dialect
EXPECTED: dict[str, dict[str, Any]] = {
    "[[say 20]]": {"text": filler(20), "finish": "stop", "done": True},
    '[[say "exact text"]]': {"text": "exact text", "finish": "stop"},
    "[[think 5]] [[say 3]]": {"thought": filler(5), "text": filler(3), "finish": "stop"},
    '[[think "first this"]] [[say "then that"]]': {"thought": "first this", "text": "then that"},
    '[[call get_weather {"city": "Paris"}]]': {"calls": [PARIS], "finish": "tool_calls", "text": ""},
    '[[call get_weather {"city": "Paris"}]] [[call get_time]]': {"calls": [PARIS, ("get_time", "{}")]},
    '[[call get_weather "{broken"]]': {"calls": [("get_weather", "{broken")]},
    '[[loop 3 get_weather {"city": "Paris"}]]': {"calls": [PARIS], "rounds": 3, "last": "Done."},
    '[[call get_weather]] [[then]] [[call get_time]] [[then]] [[say "Both done."]]': {
        "calls": [("get_weather", "{}")],
        "rounds": 2,
        "last": "Both done.",
    },
    "[[length 5]]": {"text": filler(5), "finish": "length", "done": True},
    "[[refuse]]": {"refusal": "I cannot help with that.", "finish": "stop"},
    "[[fail 500]]": {"status": 500, "type": "InternalServerError"},
    '[[fail 429 "slow down" retry-after=2 code=rate_limit_exceeded once]]': {
        "status": 429,
        "code": "rate_limit_exceeded",
        "retry": 200,
    },
    "[[fail 502 text]]": {"status": 502, "raw": "scripted failure"},
    "[[drop 3]]": {"status": 200, "text": filler(3), "cut": True, "finish": "", "done": False},
    "[[drop 0]]": {"status": 0, "cut": True, "raw": ""},
    "[[say 5]] [[drop 3 once]]": {"text": filler(3), "cut": True, "retry": 200},
    "[[eof 3]]": {"text": filler(3), "cut": False, "finish": "", "done": False},
    "[[garbage 3]]": {"text": filler(20), "finish": "stop", "odd": ['{"id": "broken, \u2026']},
    "[[error 3]]": {"text": filler(3), "finish": "error", "done": True},
    "[[null 3]]": {"text": filler(20), "finish": "stop", "odd": ["null"]},
    "[[say 3]] [[nodone]]": {"text": filler(3), "finish": "stop", "done": False},
    "[[say 3]] [[json]]": {"text": filler(3), "finish": "stop", "done": False},
}


def test_every_directive_is_documented_and_every_example_expected() -> None:
    rows = documented()
    assert {name for name, _ in rows} == set(DIRECTIVES)
    assert {example for _, example in rows} == {*EXPECTED, "[[stall 3]]"}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("example", [example for _, example in documented() if "stall" not in example])
async def test_documented_example(upstream: Simulated, http: aiohttp.ClientSession, dialect: str, example: str) -> None:
    expected = dict(EXPECTED[example])
    got = await ask(http, upstream, dialect, example)
    retry, rounds, last = expected.pop("retry", None), expected.pop("rounds", 0), expected.pop("last", "")
    for key in ("code", "type"):
        if key in expected:
            assert json.loads(got.raw)["error"][key] == expected.pop(key)
    assert {key: getattr(got, key) for key in expected} == expected
    if retry:
        assert (await ask(http, upstream, dialect, example)).status == retry
    history = [user(example)]
    for number in range(rounds):
        assert got.calls
        history += results(dialect, got, "ok", number)
        got = await ask(http, upstream, dialect, history)
    assert got.text == last or not rounds
    assert not any(entry.aborted for entry in upstream.requests)
    assert upstream.open_requests == 0
