"""Work grows no faster than what is sent: four times the input takes about four times as long, never sixteen."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

from proxy.errors import LooplineError
from proxy.wire.client_events import Limits, parse_create
from proxy.wire.codec import decode_object
from proxy.wire.items import pair_calls
from tests.fuzz.harness import CREATES, briefed, translator
from tests.unit.translate.turns import DONE, chunk, sse, tool_call

# Growth of the processor's time for four times the input: 4 where it is linear, 16 where it is quadratic.
MOST = 9.0
_NOISE_S, _TELLING_S = 0.03, 0.004

Sent = tuple[bytes, int]  # what an upstream sends, and the size of the reads; 0: all at once


def _said(*chunks: Any) -> Sent:
    return sse(*chunks, chunk("stop"), DONE), 4096


def _arguments(name: str, *deltas: str) -> Sent:
    return _said(tool_call(0, "c", name, ""), *(tool_call(0, None, None, each) for each in deltas))


def _event(kind: str, **members: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", **members}


def _message(number: int) -> dict[str, Any]:
    part = {"type": "output_text", "text": "x", "annotations": [], "logprobs": []}
    return {"type": "message", "id": f"m{number}", "role": "assistant", "status": "completed", "content": [part]}


def _call(number: int, name: str = "get_weather", arguments: str = "{}") -> dict[str, Any]:
    ids = {"id": f"f{number}", "call_id": f"c{number}"}
    return {"type": "function_call", **ids, "name": name, "arguments": arguments, "status": "completed"}


def _added(item: dict[str, Any]) -> dict[str, Any]:
    empty: dict[str, Any] = {"content": []} if item["type"] == "message" else {"arguments": ""}
    return _event("output_item.added", item={**item, **empty, "status": "in_progress"})


def _completed(*items: dict[str, Any]) -> dict[str, Any]:
    return _event("completed", response={"id": "r", "status": "completed", "output": list(items)})


_HALF = b'{"choices":[{"index":0,"delta":{"content":"\\ud83d"}}]}'
CHAT: Mapping[str, Callable[[int], Sent]] = {
    "a long text": lambda n: _said(*[chunk(content="word ")] * n),
    "one long event": lambda n: (sse(chunk("stop", content="x" * 12 * n), DONE), 16),
    "one long document": lambda n: (
        json.dumps({"choices": [{"message": {"content": "x" * 12 * n}, "finish_reason": "stop"}]}).encode(),
        16,
    ),
    "many short reads": lambda n: (sse(*[chunk(content="x")] * (n // 8), chunk("stop"), DONE), 1),
    "blank lines": lambda n: (b"\n" * 40 * n, 16),
    "carriage returns": lambda n: (b"\r" * 40 * n, 16),
    "comments": lambda n: (b": ping\n\n" * 20 * n, 16),
    "lines without an end": lambda n: (b"data: x\n" * 20 * n, 16),
    "reasoning and text by turns": lambda n: _said(*[chunk(content="x"), chunk(reasoning="y")] * (n // 4)),
    "a call's arguments": lambda n: _arguments("get_weather", '{"a":"', *["x"] * n, '"}'),
    "brackets": lambda n: _arguments("get_weather", '{"a":', *["["] * n),
    "white space before arguments": lambda n: _arguments("get_weather", *[" "] * n),
    "text that waits for a call": lambda n: _said(tool_call(0, "c", "get_weather", "{"), *[chunk(content="x")] * n),
    "a call without a name": lambda n: _said(*[tool_call(0, "c", None, "x")] * n),
    "calls by turns": lambda n: _said(
        *[tool_call(each % 64, f"c{each % 64}", "get_weather", "x") for each in range(n)]
    ),
    "half of a character": lambda n: _said(_HALF, *[chunk(content="x")] * n),
    "custom input": lambda n: _arguments("exec", '{"input":"', *["x"] * n, '"}'),
    "custom input at once": lambda n: _arguments("exec", '{"input":"' + "x\\n" * 8 * n + '"}'),
    "white space before custom input": lambda n: _arguments("exec", *[" "] * n),
    "white space inside custom input": lambda n: _arguments("exec", "{", *[" "] * n),
    "custom input that is no JSON": lambda n: _arguments("exec", *["x"] * n),
    "escapes that are none": lambda n: _arguments("exec", '{"input":"' + "\\uzz" * 8 * n + '"}'),
    "escapes that are none, one by one": lambda n: _arguments("exec", '{"input":"', *["\\uzz"] * n, '"}'),
    "halves in custom input": lambda n: _arguments("exec", '{"input":"' + "\\ud83d" * 4 * n + '"}'),
    "what follows custom input": lambda n: _arguments("exec", '{"input":"x"', *["x"] * n),
    "a shell's arguments": lambda n: _arguments("shell", '{"commands":["', *["x"] * n, '"]}'),
}
RESPONSES: Mapping[str, Callable[[int], Sent]] = {
    "a long text": lambda n: (
        sse(_added(_message(0)), *[_event("output_text.delta", item_id="m0", delta="x")] * n, _completed()),
        4096,
    ),
    "many items": lambda n: (
        sse(*(_event("output_item.done", item=_message(each)) for each in range(n // 4)), _completed()),
        4096,
    ),
    "many items at the end": lambda n: (sse(_completed(*map(_message, range(n // 4)))), 4096),
    "many open items": lambda n: (sse(*(_added(_message(each)) for each in range(n // 4)), _completed()), 4096),
    "open items by turns": lambda n: (
        sse(
            *(_added(_message(each)) for each in range(64)),
            *(_event("output_text.delta", item_id=f"m{each % 64}", delta="x") for each in range(n // 2)),
            _completed(),
        ),
        4096,
    ),
    "deltas of no item": lambda n: (
        sse(*[_event("output_text.delta", item_id="m", delta="x")] * n, _completed()),
        4096,
    ),
    "events that nobody knows": lambda n: (sse(*[_event("x_new", item_id="m")] * n, _completed()), 4096),
    "a call's arguments": lambda n: (
        sse(
            _added(_call(0)),
            *[_event("function_call_arguments.delta", item_id="f0", delta="x")] * n,
            _completed(_call(0, arguments="x" * n)),
        ),
        4096,
    ),
    "custom input": lambda n: (
        sse(
            _added(_call(0, "exec")),
            *[_event("function_call_arguments.delta", item_id="f0", delta=" ")] * n,
            _completed(_call(0, "exec", " " * n)),
        ),
        4096,
    ),
    "calls and their ends by turns": lambda n: (
        sse(*(_event("output_item.done", item=_call(each)) for each in range(n // 8)), _completed()),
        4096,
    ),
}
_HI = {"role": "user", "content": "hi"}
_FUNCTION = {"type": "function", "parameters": {}}


def _functions(count: int) -> list[dict[str, Any]]:
    return [{**_FUNCTION, "name": f"f{each}"} for each in range(count)]


def _namespace(count: int) -> dict[str, Any]:
    return {"type": "namespace", "name": "n", "tools": _functions(count)}


REQUESTS: Mapping[str, Callable[[int], dict[str, Any]]] = {
    "messages": lambda n: {"input": [_HI] * n},
    "calls and outputs": lambda n: {
        "input": [
            item
            for each in range(n // 2)
            for item in (_call(each), {"type": "function_call_output", "call_id": f"c{each}", "output": "x"})
        ]
    },
    "parallel calls": lambda n: {
        "input": [
            *map(_call, range(n // 2)),
            *({"type": "function_call_output", "call_id": f"c{each}", "output": "x"} for each in range(n // 2)),
        ]
    },
    "reasoning": lambda n: {
        "input": [{"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "x"}]}] * n
    },
    "answers": lambda n: {"input": [{"role": "assistant", "content": "x"}] * n},
    "parts": lambda n: {"input": [{"role": "user", "content": [{"type": "input_text", "text": "x"}] * (n // 8)}] * 8},
    "functions in a namespace": lambda n: {"input": "hi", "tools": [_namespace(n)]},
    "functions of one name": lambda n: {
        "input": "hi",
        "tools": [{"type": "namespace", "name": "n", "tools": [{**_FUNCTION, "name": "f"}] * n}],
    },
    "allowed tools": lambda n: {
        "input": "hi",
        "tools": [_namespace(n // 4)],
        "tool_choice": {
            "type": "allowed_tools",
            "mode": "auto",
            "tools": [{"type": "function", "name": f"f{each}", "namespace": "n"} for each in range(n // 4)],
        },
    },
    "tools that items bring": lambda n: {
        "input": [_HI, *({"type": "additional_tools", "tools": [each]} for each in _functions(n // 4))]
    },
    "settings that items change": lambda n: {
        "input": [_HI, *[{"type": "configuration_update", "reasoning": {"effort": "low"}}] * n]
    },
}


def _stream(dialect: str, sent: Sent) -> Callable[[], None]:
    data, size = sent
    profile = "generic" if dialect == "chat" else "vllm"

    def run() -> None:
        made = translator(replace(briefed(CREATES[4], profile), max_event_bytes=1 << 26), dialect)
        step = size or len(data)
        with suppress(LooplineError):
            for at in range(0, len(data), step):
                made.feed(data[at : at + step])
            made.finish()
            made.encode(made.result().items)

    return run


def _request(dialect: str, members: dict[str, Any]) -> Callable[[], None]:
    data = json.dumps(members).encode()

    def run() -> None:
        create = parse_create(decode_object(data), len(data), Limits())
        pair_calls(frozenset(), create.items)
        with suppress(LooplineError):
            translator(briefed(create, "vllm"), dialect).request([])

    return run


def _seconds(run: Callable[[], None]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def _check(make: Callable[[int], Callable[[], None]]) -> None:
    """Small inputs are taken larger until they take long enough to be told from noise; what looks too slow, again."""
    size = 250
    once = _seconds(make(size))
    while once < _TELLING_S and size < 16000:
        size *= 4
        once = _seconds(make(size))
    run = make(4 * size)
    for _ in range(3):
        four = _seconds(run)
        if four <= MOST * once + _NOISE_S:
            return
    raise AssertionError(f"{size} take {once:.3f} s, {4 * size} take {four:.3f} s")


@pytest.mark.parametrize("name", CHAT)
def test_a_chat_stream_takes_time_in_proportion(name: str) -> None:
    _check(lambda size: _stream("chat", CHAT[name](size)))


@pytest.mark.parametrize("name", RESPONSES)
def test_a_responses_stream_takes_time_in_proportion(name: str) -> None:
    _check(lambda size: _stream("responses", RESPONSES[name](size)))


@pytest.mark.parametrize("dialect", ["chat", "responses"])
@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_takes_time_in_proportion(name: str, dialect: str) -> None:
    _check(lambda size: _request(dialect, REQUESTS[name](size)))
