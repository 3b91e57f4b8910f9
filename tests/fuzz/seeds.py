"""Real requests and streams to start from, and what goes wrong with them: `mutated`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random

from proxy.models.profile import profiles
from tests.fuzz.harness import CREATES, head_of

CAPTURED = Path(__file__).parents[1] / "golden" / "captured"
_SSE_END = b"\n\n"
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_VALUE = re.compile(rb'(?<=[:,\[])(?:null|true|false|-?\d+(?:\.\d+)?|"(?:[^"\\]|\\.)*"|\{\}|\[\])')
# In place of a number, of a value, anywhere.
_NUMBERS = (b"0", b"-1", b"1", b"2", b"1023", b"1e400", b"0.5", b"2147483648", b"99999999999999999999", b"null", b'"0"')
_VALUES = (
    b"null", b'""', b"[]", b"{}", b"[{}]", b"true", b"0", b'"\\ud800"', b'"\\udc00"', b'"\\ud83d\\ude00"', b'"\\u0000"',
    b'"\xe2\x80\xa8"', b'"stop"', b'"length"', b'"function_call"', b'"custom_tool_call"', b'"message"', b'"reasoning"',
    b'"input_text"', b'"exec"', b'"shell"', b'"local_shell"', b'"apply_patch"', b'"tool_search"', b'"files__read"',
    b'"notes__write"', b'"get_weather"', b'"{\\"input\\":\\"a\\\\u"', b'"\\"}"', b'"{\\"commands\\":[\\"ls\\"]}"',
)  # fmt: skip
_PIECES = (
    b"data: ", b"\n\n", b"\n", b"\r\n", b"\r", b"data: [DONE]\n\n", b": ping\n\n", b"data:\n\n", b"data: null\n\n",
    b"{", b"}", b"[", b"]", b'"', b"\\", b",", b"\xff", b"\xef\xbb\xbf", b"\0", b"[" * 3000, b"event: error\n",
    b'data: {"error":{"message":"no","code":400}}\n\n',
    b'data: {"choices":[{"index":0,"delta":{"content":"\\ud83d"}}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{"reasoning_content":"hm"}}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"name":"exec"}}]}}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}\n\n',
    b'data: {"type":"response.output_item.added","item":{"type":"message","id":"m9","content":[]}}\n\n',
    b'data: {"type":"response.output_text.delta","item_id":"m9","delta":"x"}\n\n',
    b'data: {"type":"response.incomplete","response":{"id":"r","status":"incomplete"}}\n\n',
)  # fmt: skip
LONGEST = 1 << 16

Mutation = Callable[[bytes, Random], bytes]


@cache
def requests() -> Sequence[bytes]:
    """Captured requests, the smallest first."""
    return sorted((path.read_bytes() for path in CAPTURED.glob("requests/*.json")), key=len)


@cache
def answers() -> Mapping[str, Sequence[bytes]]:
    """Captured streams and whole answers by dialect, the smallest first."""
    found: dict[str, list[bytes]] = {"chat": [], "responses": []}
    for path in sorted(CAPTURED.glob("streams/*")):
        found["responses" if "-responses-" in path.name else "chat"].append(path.read_bytes())
    return {dialect: sorted(streams, key=len) for dialect, streams in found.items()}


def heads(dialect: str, random: Random) -> bytes:
    """The first bytes of an input of `one_stream` for an answer in this dialect."""
    profile = random.choice(list(profiles()))
    steer_after = random.choice((0, 0, 0, random.randrange(32)))
    return head_of(profile, dialect, random.randrange(len(CREATES)), random.choice((0, 1, 7, 64, 255)), steer_after)


def mutated(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """`data` with a few things wrong; `others` are what a part may be taken from."""
    for _ in range(random.randrange(5)):
        mutation = random.choice(_MUTATIONS)
        data = _splice(data, others, random) if mutation is None else mutation(data, random)
    return data[:LONGEST]


def _at(data: bytes, random: Random) -> int:
    return random.randrange(len(data) + 1)


def _cut(data: bytes, random: Random) -> bytes:
    return data[: _at(data, random)]


def _flip(data: bytes, random: Random) -> bytes:
    at = _at(data, random)
    return data[:at] + bytes((random.randrange(256),)) + data[at + 1 :]


def _insert(data: bytes, random: Random) -> bytes:
    at = _at(data, random)
    return data[:at] + random.choice(_PIECES) + data[at:]


def _remove(data: bytes, random: Random) -> bytes:
    at = _at(data, random)
    return data[:at] + data[at + random.randrange(1, 20) :]


def _replaced(pattern: re.Pattern[bytes], values: Sequence[bytes]) -> Mutation:
    def mutation(data: bytes, random: Random) -> bytes:
        at = _at(data, random)
        found = pattern.search(data, at) or pattern.search(data)
        return data if found is None else data[: found.start()] + random.choice(values) + data[found.end() :]

    return mutation


def _on_events(change: Callable[[list[bytes], Random], None]) -> Mutation:
    """A mutation of whole events; of lines, where there are no events."""

    def mutation(data: bytes, random: Random) -> bytes:
        end = _SSE_END if _SSE_END in data else b"," if data[:1] == b"{" else b"\n"
        events = data.split(end)
        change(events, random)
        return end.join(events)

    return mutation


def _drop(events: list[bytes], random: Random) -> None:
    del events[random.randrange(len(events))]


def _duplicate(events: list[bytes], random: Random) -> None:
    at = random.randrange(len(events))
    events[at:at] = [events[at]] * random.choice((1, 1, 3, 40))


def _swap(events: list[bytes], random: Random) -> None:
    one, other = random.randrange(len(events)), random.randrange(len(events))
    events[one], events[other] = events[other], events[one]


def _shuffle(events: list[bytes], random: Random) -> None:
    at = random.randrange(len(events))
    some = events[at : at + 6]
    random.shuffle(some)
    events[at : at + 6] = some


def _splice(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """Events of another answer among those of this one."""
    end = _SSE_END if _SSE_END in data else b","
    events, more = data.split(end), random.choice(others).split(end)
    at, start = random.randrange(len(events)), random.randrange(len(more))
    events[at:at] = more[start : start + random.choice((1, 2, 8))]
    return end.join(events)


_MUTATIONS: Sequence[Mutation | None] = (
    _cut,
    _flip,
    _insert,
    _remove,
    _replaced(_NUMBER, _NUMBERS),
    _replaced(_VALUE, _VALUES),
    _replaced(_VALUE, _VALUES),
    _replaced(_STRING, _VALUES),
    _on_events(_drop),
    _on_events(_duplicate),
    _on_events(_swap),
    _on_events(_shuffle),
    None,  # a splice, which needs other answers
)
