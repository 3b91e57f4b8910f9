"""Items as a Responses server takes them: untouched where it takes all, else in the forms that it knows.

A call of a tool that was told as a function goes back as a call of that function. Source: openai-python 3.57,
ResponseInputItem; what each server takes says its profile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import xxhash

from proxy.models.profile import EVERYTHING, Responses, takes
from proxy.translate.left_out import LeftOut
from proxy.translate.tools.arguments import TOOL_OF_CALL, TOOL_OF_OUTPUT, read_call, read_output
from proxy.translate.tools.listed import Tools
from proxy.wire.codec import NULL, Raw, decode, encode, is_null
from proxy.wire.items import Item

# Items whose effect is in the request's own members instead (`Brief.lasting`).
_LASTING = frozenset({"additional_tools", "configuration_update"})
# Items of tools that their own server ran, and of states that it keeps: nothing for one that does not know them.
_FOREIGN = frozenset(
    {
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "computer_call",
        "computer_call_output",
        "mcp_call",
        "mcp_list_tools",
        "mcp_approval_request",
        "mcp_approval_response",
        "compaction",
        "compaction_trigger",
        "program",
        "program_output",
    }
)


class _Reasoning(msgspec.Struct):
    encrypted_content: str | None = None
    content: list[dict[str, Raw]] | None = None
    summary: list[dict[str, Raw]] | None = None


class _Message(msgspec.Struct):
    role: str
    id: Raw = NULL
    status: Raw = NULL
    content: Raw = NULL


_REASONING = msgspec.json.Decoder(_Reasoning)
_MESSAGE = msgspec.json.Decoder(_Message)
_MEMBERS = msgspec.json.Decoder(dict[str, Raw])
_PARTS = msgspec.json.Decoder(list[dict[str, Raw]])


class ItemShaper:
    """Items of one turn for one kind of server. `left_out` collects what it cannot take."""

    def __init__(self, tools: Tools, profile: Responses, open_reasoning: Callable[[str], str | None]) -> None:
        self._tools = tools
        self._profile = profile
        self._open_reasoning = open_reasoning
        self._is_open = EVERYTHING in profile.items and EVERYTHING in profile.tools
        self.left_out: list[LeftOut] = []

    @property
    def is_join(self) -> bool:
        """Do items pass as they are, but for reasoning?"""
        return self._is_open and not self._profile.needs_status and self._profile.developer == "developer"

    def encode(self, items: Sequence[Item]) -> bytes:
        """Items joined by commas. Raises `LooplineError` (invalid_request) naming one that is none."""
        shaped = [self._shaped(item, f"input[{index}]") for index, item in enumerate(items)]
        return b",".join(each for each in shaped if each)

    def _shaped(self, item: Item, param: str) -> bytes:
        if item.kind == "reasoning":
            return self._reasoning(item, param)
        if item.kind == "message":
            return self._message(item, param)
        if self._is_open:
            return item.raw
        if item.kind in TOOL_OF_CALL:
            return self._call(item, param)
        if item.kind in TOOL_OF_OUTPUT:
            return self._output(item, param)
        if item.kind in _LASTING and item.kind not in self._profile.items:
            return b""
        if item.kind in _FOREIGN and not takes(self._profile.items, item.kind):
            self.left_out.append(LeftOut("item", item.kind))
            return b""
        return item.raw

    def _is_taken(self, item: Item, tool: str) -> bool:
        """Does the server take this call or output as it is? Only where the tool was not told as a function."""
        return takes(self._profile.items, item.kind) and takes(self._profile.tools, tool)

    def _call(self, item: Item, param: str) -> bytes:
        tool = TOOL_OF_CALL[item.kind]
        if item.unfinished:
            return b""  # its arguments were cut off: no JSON, no answer, and servers refuse such a history
        if self._is_taken(item, tool) and tool != "function":
            return item.raw
        call = read_call(item.kind, item.raw, param, self._tools)
        if call.call_id is None:
            return self._without_id(item)
        if tool == "function":
            return self._function_call(item, call.name, call.arguments, param)
        made = {"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": call.arguments}
        return encode({**made, **self._stated("fc", item)})

    def _function_call(self, item: Item, name: str, arguments: str, param: str) -> bytes:
        members = _members(item, param)
        changed: dict[str, Any] = {}
        space = members.pop("namespace", NULL)
        if not is_null(space) or bytes(members.get("name", NULL)) != encode(name):
            changed["name"] = name
        if not arguments:
            changed["arguments"] = "{}"
        changed |= {each: value for each, value in self._stated("fc", item).items() if each not in members}
        return encode({**members, **changed}) if changed else item.raw

    def _output(self, item: Item, param: str) -> bytes:
        tool = TOOL_OF_OUTPUT[item.kind]
        if self._is_taken(item, tool) or tool == "function":
            return item.raw
        output = read_output(item.kind, item.raw, param, self._tools)
        if output.call_id is None:
            return self._without_id(item)
        return encode({"type": "function_call_output", "call_id": output.call_id, "output": output.output})

    def _without_id(self, item: Item) -> bytes:
        """A call that its own server answered."""
        self.left_out.append(LeftOut("item", item.kind))
        return b""

    def _stated(self, prefix: str, item: Item) -> dict[str, Any]:
        """The id and status that some servers want; the same each time, so that their caches hit."""
        if not self._profile.needs_status:
            return {}
        return {"id": f"{prefix}_{xxhash.xxh3_64_hexdigest(item.raw)}", "status": "completed"}

    def _message(self, item: Item, param: str) -> bytes:
        is_mapped = item.role == "developer" and self._profile.developer != "developer"
        is_answer = item.role == "assistant" and self._profile.needs_status
        if not is_mapped and not is_answer:
            return item.raw
        changed: dict[str, Any] = {"role": self._profile.developer} if is_mapped else {}
        message = decode(_MESSAGE, item.raw, f"'{param}'", param)
        if is_answer and bytes(memoryview(message.content)[:1]) == b"[":
            stated = self._stated("msg", item)
            changed = {name: value for name, value in stated.items() if is_null(getattr(message, name))}
            parts = decode(_PARTS, message.content, f"'{param}.content'", f"{param}.content")
            if any(_lacks_annotations(part) for part in parts):
                changed["content"] = [_annotated(part) for part in parts]
        if not changed:
            return item.raw
        return encode({**_members(item, param), **changed})

    def _reasoning(self, item: Item, param: str) -> bytes:
        if b'"encrypted_content"' not in item.raw and self._takes_bare():
            return item.raw
        reasoning = decode(_REASONING, item.raw, f"'{param}'", param)
        sealed = reasoning.encrypted_content
        opened = self._open_reasoning(sealed) if sealed else None
        text = _said(reasoning.content)
        if not self._profile.bare_reasoning:
            if opened is None and (sealed or (sealed is not None and not text)):
                return item.raw
            self.left_out.append(LeftOut("reasoning", "text"))
            return b""
        is_foreign = bool(sealed) and opened is None
        if is_foreign and (self._profile.sealed_reasoning or text):
            return item.raw
        if opened is None and (text or self._takes_bare()):
            return item.raw
        return self._told(item, text or opened or _said(reasoning.summary), param, has_text=bool(text))

    def _takes_bare(self) -> bool:
        return self._profile.bare_reasoning and self._profile.sealed_reasoning

    def _told(self, item: Item, text: str, param: str, *, has_text: bool) -> bytes:
        """Reasoning as text alone, what was sealed taken out."""
        if not text:
            self.left_out.append(LeftOut("reasoning", "encrypted"))
            return b""
        members = _members(item, param)
        members.pop("encrypted_content", None)
        if not has_text:
            members["content"] = [{"type": "reasoning_text", "text": text}]
        return encode(members)


def _members(item: Item, param: str) -> dict[str, Any]:
    members: dict[str, Raw] = decode(_MEMBERS, item.raw, f"'{param}'", param)
    return {**members}


def _said(parts: list[dict[str, Raw]] | None) -> str:
    texts = (part["text"] for part in parts or () if bytes(memoryview(part.get("text", NULL))[:1]) == b'"')
    return "".join(msgspec.json.decode(text, type=str) for text in texts)


def _lacks_annotations(part: Mapping[str, Raw]) -> bool:
    return bytes(part.get("type", NULL)) == b'"output_text"' and is_null(part.get("annotations", NULL))


def _annotated(part: Mapping[str, Raw]) -> Mapping[str, Any]:
    return {**part, "annotations": []} if _lacks_annotations(part) else part
