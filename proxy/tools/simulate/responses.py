"""The Responses dialect, as OpenAI streams it; pure.

Every event has `type` first and `sequence_number` from 0 without a gap, every snapshot all 31 keys of Open Responses'
ResponseResource, `event:` equals `type`, and `[DONE]` ends the stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .model import Ask, Call, Message, Reply, Spoken, Tool, Usage, image_text
from .stream import Frame, Stream, chunks, encode

_TYPES = {"think": "reasoning", "say": "message", "refuse": "message", "call": "function_call"}
_PREFIXES = {"reasoning": "rs_", "message": "msg_", "function_call": "fc_"}
_JSON_OBJECT = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}


# ---------------------------------------------------------------------------------------------- the request


def normalise(body: Mapping[str, Any], default_model: str) -> Ask:
    """The request without its dialect. `body` has passed `strict_responses.check`."""
    tools = [tool for tool in body.get("tools") or () if tool["type"] == "function"]
    choice = body.get("tool_choice") or "auto"
    return Ask(
        model=body.get("model") or default_model,
        messages=_messages(body),
        tools=tuple(Tool(tool["name"], tool.get("parameters") or {}) for tool in tools),
        tools_text=encode(body["tools"]).decode() if body.get("tools") else "",
        choice="=" + choice["name"] if isinstance(choice, Mapping) else choice,
        schema=_schema((body.get("text") or {}).get("format")),
        max_tokens=body.get("max_output_tokens"),
        parallel=body.get("parallel_tool_calls") is not False,
        stream=bool(body.get("stream")),
        salt=body.get("cache_salt") or "",
    )


def _schema(form: Any) -> Mapping[str, Any] | None:
    if not form or form["type"] == "text":
        return None
    schema: Mapping[str, Any] = _JSON_OBJECT if form["type"] == "json_object" else form["schema"]
    return schema


def _messages(body: Mapping[str, Any]) -> tuple[Message, ...]:
    messages = [Message("system", body["instructions"])] if body.get("instructions") else []
    items = body["input"]
    for item in [{"role": "user", "content": items}] if isinstance(items, str) else items:
        kind = item.get("type") or "message"
        if kind == "message":
            messages.append(Message(item["role"], _text(item["content"])))
        elif kind == "function_call":
            _append_call(messages, Call(item["call_id"], item["name"], item["arguments"]))
        elif kind == "function_call_output":
            messages.append(Message("tool", _text(item["output"]), (), item["call_id"]))
    return tuple(messages)


def _append_call(messages: list[Message], call: Call) -> None:
    """Calls join the assistant message before them, as a chat template renders them."""
    if messages and messages[-1].role == "assistant":
        messages[-1] = messages[-1]._replace(calls=(*messages[-1].calls, call))
    else:
        messages.append(Message("assistant", "", (call,)))


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(map(_part_text, content))


def _part_text(part: Mapping[str, Any]) -> str:
    if part["type"] == "input_image":
        return image_text(part["image_url"])
    text: str = part["refusal" if part["type"] == "refusal" else "text"]
    return text


# ---------------------------------------------------------------------------------------------- the resource


def usage_json(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.prompt + usage.completion,
    }


def resource(reply: Reply, response_id: str) -> dict[str, Any]:
    """The response as it is when it begins."""
    body = reply.body

    def given(key: str, default: Any) -> Any:
        value = body.get(key)
        return default if value is None else value

    return {
        "id": response_id,
        "object": "response",
        "created_at": reply.created,
        "completed_at": None,
        "status": "in_progress",
        "incomplete_details": None,
        "model": reply.ask.model,
        "previous_response_id": None,
        "instructions": body.get("instructions"),
        "output": [],
        "error": None,
        "tools": [_tool(tool) for tool in body.get("tools") or ()],
        "tool_choice": given("tool_choice", "auto"),
        "truncation": given("truncation", "disabled"),
        "parallel_tool_calls": given("parallel_tool_calls", True),
        "text": given("text", {"format": {"type": "text"}}),
        "top_p": given("top_p", 1.0),
        "presence_penalty": given("presence_penalty", 0.0),
        "frequency_penalty": given("frequency_penalty", 0.0),
        "top_logprobs": given("top_logprobs", 0),
        "temperature": given("temperature", 1.0),
        "reasoning": body.get("reasoning"),
        "usage": None,
        "max_output_tokens": body.get("max_output_tokens"),
        "max_tool_calls": body.get("max_tool_calls"),
        "store": given("store", True),
        "background": False,
        "service_tier": given("service_tier", "auto"),
        "metadata": given("metadata", {}),
        "safety_identifier": body.get("safety_identifier"),
        "prompt_cache_key": body.get("prompt_cache_key"),
    }


def _tool(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    if tool["type"] != "function":
        return tool
    return {"description": None, "parameters": None, "strict": None, **tool}


def _finished(snapshot: dict[str, Any], output: list[dict[str, Any]], reply: Reply) -> dict[str, Any]:
    cut = reply.answer.finish == "length"
    return {
        **snapshot,
        "completed_at": None if cut else reply.created,
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "output": output,
        "usage": usage_json(reply.usage),
    }


def _item(part: Spoken, reply: Reply) -> dict[str, Any]:
    """An output item as it is in `response.output_item.added`: every field there, with its zero value."""
    kind = _TYPES[part.kind]
    item: dict[str, Any] = {"type": kind, "id": reply.ids.mint(_PREFIXES[kind]), "status": "in_progress"}
    if kind == "function_call":
        return {**item, "call_id": reply.ids.mint("call_"), "name": part.name, "arguments": ""}
    if kind == "reasoning":
        return {**item, "summary": [], "content": [], "encrypted_content": None}
    return {**item, "role": "assistant", "content": []}


def _content(part: Spoken, text: str) -> dict[str, Any]:
    if part.kind == "think":
        return {"type": "reasoning_text", "text": text}
    if part.kind == "refuse":
        return {"type": "refusal", "refusal": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _completed(item: dict[str, Any], part: Spoken, last: bool, reply: Reply) -> dict[str, Any]:
    """The item as it is in `response.output_item.done`: only the last one can be cut."""
    status = "incomplete" if last and reply.answer.finish == "length" else "completed"
    if part.kind == "call":
        return {**item, "status": status, "arguments": part.text}
    return {**item, "status": status, "content": [_content(part, part.text)]}


def whole(reply: Reply) -> bytes:
    """The body of an answer that is not streamed."""
    snapshot = resource(reply, reply.ids.mint("resp_"))
    parts = reply.answer.parts
    output = [_completed(_item(part, reply), part, part is parts[-1], reply) for part in parts]
    return encode(_finished(snapshot, output, reply))


# ---------------------------------------------------------------------------------------------- the stream


class _Events:
    """Encodes events and numbers them."""

    def __init__(self, first: int = 0) -> None:
        self.next = first

    def make(self, kind: str, fields: Mapping[str, Any]) -> bytes:
        data = encode({"type": kind, **fields, "sequence_number": self.next})
        self.next += 1
        return b"event: %s\ndata: %s\n\n" % (kind.encode(), data)


def stream(reply: Reply) -> Stream:
    """An answer as events; what never changes within an item is encoded once."""
    events = _Events()
    snapshot = resource(reply, reply.ids.mint("resp_"))
    opening = events.make("response.created", {"response": snapshot})
    opening += events.make("response.in_progress", {"response": snapshot})
    frames: list[Frame] = []
    output: list[dict[str, Any]] = []
    tokens = 0
    for index, part in enumerate(reply.answer.parts):
        last = index == len(reply.answer.parts) - 1
        output.append(_part_events(events, frames, part, index, tokens, last, reply))
        tokens += len(part.pieces)
    finished = _finished(snapshot, output, reply)
    closing = events.make(f"response.{finished['status']}", {"response": finished})
    return Stream(opening, frames, closing, lambda sent: _failure(snapshot, sent))


def _failure(snapshot: dict[str, Any], sent: int) -> bytes:
    """OpenAI's order: an `error` event, then `response.failed`."""
    events = _Events(sent)
    problem = {"code": "server_error", "message": "scripted failure"}
    failed = {**snapshot, "status": "failed", "error": problem}
    return events.make("error", {**problem, "param": None}) + events.make("response.failed", {"response": failed})


def _part_events(
    events: _Events, frames: list[Frame], part: Spoken, index: int, tokens: int, last: bool, reply: Reply
) -> dict[str, Any]:
    """Append the events of one output item; returns the finished item."""
    item = _item(part, reply)
    done = _completed(item, part, last, reply)
    where: dict[str, Any] = {"item_id": item["id"], "output_index": index}
    has_content = part.kind != "call"
    frames.append(Frame(events.make("response.output_item.added", {"output_index": index, "item": item})))
    if has_content:
        where["content_index"] = 0
        frames.append(Frame(events.make("response.content_part.added", {**where, "part": _content(part, "")})))
    _delta_events(events, frames, part, where, tokens, reply)
    name, field = _NAMES[part.kind]
    end = {**where, field: part.text, **_EXTRAS.get(part.kind, {})}
    if part.kind == "call":
        end["name"] = part.name
    frames.append(Frame(events.make(f"response.{name}.done", end)))
    if has_content:
        full = {**where, "part": _content(part, part.text)}
        frames.append(Frame(events.make("response.content_part.done", full)))
    frames.append(Frame(events.make("response.output_item.done", {"output_index": index, "item": done})))
    return done


# kind → (event name, field of the whole text in its .done)
_NAMES = {
    "say": ("output_text", "text"),
    "refuse": ("refusal", "refusal"),
    "think": ("reasoning_text", "text"),
    "call": ("function_call_arguments", "arguments"),
}
_EXTRAS: Mapping[str, Mapping[str, Any]] = {"say": {"logprobs": []}}


def _delta_events(
    events: _Events, frames: list[Frame], part: Spoken, where: Mapping[str, Any], tokens: int, reply: Reply
) -> None:
    kind = f"response.{_NAMES[part.kind][0]}.delta"
    fields = encode({"type": kind, **where, **_EXTRAS.get(part.kind, {})})
    start = b"event: %s\ndata: %s" % (kind.encode(), fields[:-1] + b',"delta":')
    boundary = reply.answer.fault.after if reply.answer.fault else None
    number = events.next
    for text, size in chunks(part.pieces, reply.options.tokens_per_chunk, tokens, boundary):
        frames.append(Frame(b'%s%s,"sequence_number":%d}\n\n' % (start, text, number), size))
        number += 1
    events.next = number
