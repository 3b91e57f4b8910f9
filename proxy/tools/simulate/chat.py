"""The Chat Completions dialect, shaped as vLLM shapes it; pure.

A stream is: a chunk with the role and empty content, chunks with deltas, `finish_reason` in a chunk of its own, a
chunk without choices that holds the usage (only when `stream_options.include_usage` asks for it), `[DONE]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .model import Ask, Call, Message, Reply, Spoken, Tool, Usage, image_text
from .stream import Frame, Stream, chunks, encode


def normalise(body: Mapping[str, Any], default_model: str) -> Ask:
    """The request without its dialect. `body` has passed `strict.check_chat`."""
    tools = body.get("tools") or []
    choice = body.get("tool_choice") or "auto"
    limits = (body.get("max_completion_tokens"), body.get("max_tokens"))
    return Ask(
        model=body.get("model") or default_model,
        messages=tuple(map(_message, body["messages"])),
        tools=tuple(Tool(t["function"]["name"], t["function"].get("parameters") or {}) for t in tools),
        tools_text=encode(tools).decode() if tools else "",
        choice="=" + choice["function"]["name"] if isinstance(choice, Mapping) else choice,
        schema=_schema(body.get("response_format")),
        max_tokens=next((limit for limit in limits if limit is not None), None),
        parallel=body.get("parallel_tool_calls") is not False,
        stream=bool(body.get("stream")),
        include_usage=bool((body.get("stream_options") or {}).get("include_usage")),
        salt=body.get("cache_salt") or "",
    )


def _schema(form: Any) -> Mapping[str, Any] | None:
    if not form or form["type"] == "text":
        return None
    if form["type"] == "json_object":
        return {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
    schema: Mapping[str, Any] = form["json_schema"]["schema"]
    return schema


def _message(message: Mapping[str, Any]) -> Message:
    calls = tuple(
        Call(call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in message.get("tool_calls") or ()
    )
    content = message.get("content")
    wordless = isinstance(content, list) and all(part["type"] == "image_url" for part in content)
    return Message(message["role"], _text(content), calls, message.get("tool_call_id") or "", wordless)


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(_part_text(part) for part in content)


def _part_text(part: Mapping[str, Any]) -> str:
    if part["type"] == "image_url":
        return image_text(part["image_url"]["url"])
    text: str = part[part["type"]]
    return text


def usage_json(usage: Usage) -> dict[str, Any]:
    """Usage as vLLM reports it with --enable-prompt-tokens-details."""
    return {
        "prompt_tokens": usage.prompt,
        "total_tokens": usage.prompt + usage.completion,
        "completion_tokens": usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def whole(reply: Reply) -> bytes:
    """The body of an answer that is not streamed."""
    answer = reply.answer
    message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None, "tool_calls": []}
    for part in answer.parts:
        if part.kind == "call":
            message["tool_calls"].append(
                {
                    "id": reply.ids.mint("chatcmpl-tool-"),
                    "type": "function",
                    "function": {"name": part.name, "arguments": part.text},
                }
            )
        else:
            field = _field(part, reply)
            message[field] = (message.get(field) or "") + part.text
    if not message["tool_calls"] and message["content"] is None and message["refusal"] is None:
        message["content"] = ""
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": answer.finish, "stop_reason": None}
    return encode(
        {
            "id": reply.ids.mint("chatcmpl-"),
            "object": "chat.completion",
            "created": reply.created,
            "model": reply.ask.model,
            "choices": [choice],
            "usage": usage_json(reply.usage),
        }
    )


def _field(part: Spoken, reply: Reply) -> str:
    return {"say": "content", "refuse": "refusal", "think": reply.options.reasoning_field}[part.kind]


def stream(reply: Reply) -> Stream:
    """An answer as events; what never changes within it is encoded once."""
    head = {
        "id": reply.ids.mint("chatcmpl-"),
        "object": "chat.completion.chunk",
        "created": reply.created,
        "model": reply.ask.model,
    }
    start = b"data: " + encode(head)[:-1] + b',"choices":['
    delta = start + b'{"index":0,"delta":'
    more = b',"logprobs":null,"finish_reason":null}]}\n\n'
    frames = [Frame(delta + b'{"role":"assistant","content":""}' + more), *_deltas(reply, delta, more)]
    finish = b'{},"logprobs":null,"finish_reason":' + encode(reply.answer.finish) + b',"stop_reason":null}]}\n\n'
    closing = delta + finish
    if reply.ask.include_usage:
        closing += start + b'],"usage":' + encode(usage_json(reply.usage)) + b"}\n\n"
    return Stream(b"", frames, closing, lambda sent: _FAILURE)


# As vLLM reports a dead worker in the middle of a stream.
_FAILURE = b"data: " + encode(
    {"error": {"message": "scripted failure", "type": "InternalServerError", "param": None, "code": 500}}
) + b"\n\n"  # fmt: skip


def _deltas(reply: Reply, delta: bytes, more: bytes) -> list[Frame]:
    frames: list[Frame] = []
    tokens = calls = 0
    size = reply.options.tokens_per_chunk
    boundary = reply.answer.fault.after if reply.answer.fault else None
    for part in reply.answer.parts:
        if part.kind == "call":
            frames.append(Frame(delta + _call_start(part, calls, reply) + more))
            before = delta + b'{"tool_calls":[{"index":%d,"function":{"arguments":' % calls
            after = b"}}]}" + more
            calls += 1
        else:
            before, after = delta + b"{" + encode(_field(part, reply)) + b":", b"}" + more
        frames.extend([Frame(before + text + after, n) for text, n in chunks(part.pieces, size, tokens, boundary)])
        tokens += len(part.pieces)
    return frames


def _call_start(part: Spoken, index: int, reply: Reply) -> bytes:
    function = {"name": part.name, "arguments": ""}
    call = {"index": index, "id": reply.ids.mint("chatcmpl-tool-"), "type": "function", "function": function}
    return encode({"tool_calls": [call]})
