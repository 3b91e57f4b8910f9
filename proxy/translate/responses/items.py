"""Items as a Responses server takes them: untouched where it takes all, else in the forms that it knows.

A call of a tool that was told as a function goes back as a call of that function. Source: openai-python 3.57,
ResponseInputItem; what each server takes says its profile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import xxhash

from proxy.errors import Kind, LooplineError
from proxy.models.profile import EVERYTHING, Responses, takes
from proxy.translate.left_out import LeftOut
from proxy.translate.responses.parts import IMAGE, PARTS, annotated, as_input, detailed, one_text, said
from proxy.translate.tools.arguments import TOOL_OF_CALL, Call, json_object, read_call
from proxy.translate.tools.hosted import HOSTED, read_hosted
from proxy.translate.tools.listed import Tools
from proxy.translate.tools.outputs import TOOL_OF_OUTPUT, Said, read_output
from proxy.wire.codec import NULL, Raw, decode, encode, is_null
from proxy.wire.items import CALLS, Item

# Items whose effect is in the request's own members instead (`Brief.lasting`).
_LASTING = frozenset({"additional_tools", "configuration_update"})
# Items of what another server does and keeps: nothing for one that does not know them.
_FOREIGN = frozenset(
    {
        "mcp_list_tools",
        "mcp_approval_request",
        "mcp_approval_response",
    }
)
# What stands for a whole conversation: without it the answer would be one with lost history.
_NEEDED: Mapping[str, str] = {
    "compaction": "only the server that made it can read it; send the items that it stands for.",
    "compaction_trigger": "it cannot compact a conversation; leave the item out.",
}
_RESHAPED = HOSTED | _LASTING | _FOREIGN | _NEEDED.keys()
# Calls that a server makes in its own words, none of which were made here: some do not fit the types of the API.
_MADE_UPSTREAM = HOSTED | (TOOL_OF_CALL.keys() - {"function_call", "custom_tool_call"})
_CALLED = HOSTED | TOOL_OF_CALL.keys()
_NO_ARGUMENTS = frozenset({"type", "id", "call_id", "status", "name", "namespace"})


class _Reasoning(msgspec.Struct):
    encrypted_content: str | None = None
    content: list[dict[str, Raw]] | None = None
    summary: list[dict[str, Raw]] | None = None


class _Answer(msgspec.Struct):
    id: Raw = NULL
    status: Raw = NULL
    content: Raw = NULL


class _SaidPart(msgspec.Struct, gc=False):
    type: str
    text: str
    annotations: Raw = NULL


class _Said(msgspec.Struct, gc=False):
    content: list[_SaidPart]
    id: Raw = NULL
    status: Raw = NULL


class _Content(msgspec.Struct):
    content: Raw = NULL
    output: Raw = NULL


_REASONING = msgspec.json.Decoder(_Reasoning)
_ANSWER = msgspec.json.Decoder(_Answer)
_SAID = msgspec.json.Decoder(_Said)
_CONTENT = msgspec.json.Decoder(_Content)
_MEMBERS = msgspec.json.Decoder(dict[str, Raw])
_TEXT = msgspec.json.Decoder(str)
_ANYTHING: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


class ItemShaper:
    """Items of one turn for one kind of server. `left_out` collects what it cannot take.

    `open_reasoning` and `is_sealed_here` are the brief's (see base.py).
    """

    def __init__(
        self,
        tools: Tools,
        profile: Responses,
        open_reasoning: Callable[[str], str | None],
        is_sealed_here: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._tools = tools
        self._profile = profile
        self._open_reasoning = open_reasoning
        self._is_sealed_here = is_sealed_here
        self._is_listing = EVERYTHING not in profile.items
        self._is_open = not self._is_listing and EVERYTHING in profile.tools
        self._search = "{}"  # what a server's own search asked for, until its output comes
        self.left_out: list[LeftOut] = []

    def encode(self, items: Sequence[Item], start: int = 0) -> bytes:
        """Items joined by commas. Raises `LooplineError` (invalid_request) naming one that is none.

        `start` is the place of the first in the request.
        """
        shaped = [self._fitted(item, f"input[{index}]") for index, item in enumerate(items, start)]
        return b",".join(filter(None, shaped))

    def encode_kept(self, items: Sequence[Item]) -> bytes:
        """The same for items of earlier turns, which the client cannot mend: what does not fit raises nothing."""
        shaped = [self._kept(item, f"input[{index}]") for index, item in enumerate(items)]
        return b",".join(filter(None, shaped))

    def _kept(self, item: Item, param: str) -> bytes:
        try:
            return self._fitted(item, param)
        except (LooplineError, msgspec.DecodeError):
            if item.kind != "reasoning":
                return item.raw  # the server itself says what is wrong with it, if anything is
        self.left_out.append(LeftOut("item", item.kind))  # a seal of ours may be in it
        return b""

    def _fitted(self, item: Item, param: str) -> bytes:
        if item.role == "user" and item.kind == "message" and not self._profile.needs_detail:
            return item.raw
        try:
            return self._shaped(item, param)
        except LooplineError:
            if item.kind not in _MADE_UPSTREAM:
                raise
        return self._odd_call(item, param)

    def _odd_call(self, item: Item, param: str) -> bytes:
        """A call in words that nobody here knows: what it says stands as its arguments, so that its output fits."""
        members = _members(item.raw, param)
        if item.kind in HOSTED or item.call_id is None:
            self.left_out.append(LeftOut("item", item.kind))
            return b""
        tool = TOOL_OF_CALL[item.kind]
        said = {name: value for name, value in members.items() if name not in _NO_ARGUMENTS}
        return self._made_call(item.call_id, self._tools.name_of(tool, tool), encode(said).decode())

    def _shaped(self, item: Item, param: str) -> bytes:
        if item.unfinished and item.kind in (CALLS if self._is_open else _CALLED):
            self.left_out.append(LeftOut("item", item.kind))
            return b""  # its arguments were cut off: no JSON, no answer, and servers refuse such a history
        if item.kind == "reasoning":
            return self._reasoning(item, param)
        if item.kind == "message":
            return self._message(item, param)
        if item.kind in TOOL_OF_OUTPUT:
            return self._output(item, param)
        if self._is_open:
            return _mended(item, param)
        if item.kind in TOOL_OF_CALL:
            return self._call(item, param)
        if takes(self._profile.items, item.kind) or item.kind not in _RESHAPED:
            return item.raw
        if item.kind in HOSTED:
            return self._hosted(item, param)
        if item.kind in _NEEDED:
            raise LooplineError(
                Kind.INVALID_REQUEST,
                f"'{param}' is an item of type '{item.kind}', which this upstream cannot take: {_NEEDED[item.kind]}",
                param=param,
            )
        if item.kind in _FOREIGN:
            self.left_out.append(LeftOut("item", item.kind))
        return b""

    def _is_taken(self, item: Item, tool: str) -> bool:
        """Does the server take this call or output as it is? Only where the tool was not told as a function."""
        return takes(self._profile.items, item.kind) and takes(self._profile.tools, tool)

    def _call(self, item: Item, param: str) -> bytes:
        tool = TOOL_OF_CALL[item.kind]
        if self._is_taken(item, tool) and tool != "function":
            return item.raw
        call = read_call(item.kind, item.raw, param, self._tools)
        if call.call_id is None:
            self._search = call.arguments
            return b""
        if tool == "function":
            return self._function_call(item, call, param)
        return self._made_call(call.call_id, call.name, call.arguments)

    def _function_call(self, item: Item, call: Call, param: str) -> bytes:
        members = _members(item.raw, param)
        changed: dict[str, Any] = {}
        space = members.pop("namespace", NULL)
        if not is_null(space) or bytes(members.get("name", NULL)) != encode(call.name):
            changed["name"] = call.name
        given = members.get("arguments", NULL)
        if self._is_listing or is_null(given) or bytes(given) == b'""':
            arguments = encode(call.arguments)
            if bytes(given) != arguments:
                changed["arguments"] = Raw(arguments)
        if bytes(members.get("status", NULL)) == b'"incomplete"':
            changed["status"] = "completed"  # it was answered all the same
        stated = self._stated("fc", call.call_id or "", call.name, call.arguments)
        changed |= {each: value for each, value in stated.items() if each not in members}
        return encode({**members, **changed}) if changed else item.raw

    def _made_call(self, call_id: str, name: str, arguments: str) -> bytes:
        made = {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}
        return encode({**made, **self._stated("fc", call_id, name, arguments)})

    def _output(self, item: Item, param: str) -> bytes:
        tool = TOOL_OF_OUTPUT[item.kind]
        if self._is_open or self._is_taken(item, tool) or tool == "function":
            return self._with_parts(item, "output", param)
        output = read_output(item.kind, item.raw, param, self._tools)
        if output.call_id is not None:
            return self._made_output(output.call_id, output.output, param)
        arguments, self._search = self._search, "{}"
        return self._answered(self._tools.name_of(tool, tool), arguments, output.output, param)

    def _made_output(self, call_id: str, output: Said, param: str) -> bytes:
        given: Any = output
        if not isinstance(output, str):
            given = self._parts([decode(_MEMBERS, part, f"'{param}'", param) for part in output], "output")
        return encode({"type": "function_call_output", "call_id": call_id, "output": given})

    def _hosted(self, item: Item, param: str) -> bytes:
        ran = read_hosted(item.kind, item.raw, param, self._tools)
        return self._answered(ran.name, ran.arguments, ran.output, param)

    def _answered(self, name: str, arguments: str, output: Said, param: str) -> bytes:
        """A call that its own server answered, and the answer; the id is the same each time, so that caches hit."""
        call_id = f"call_{_digest(name, arguments, output)}"
        call = self._made_call(call_id, name, arguments)
        return call + b"," + self._made_output(call_id, output, param)

    def _stated(self, prefix: str, *said: str) -> dict[str, Any]:
        """The id and status that some servers want; the same for what says the same, so that their caches hit."""
        if not self._profile.needs_status:
            return {}
        return {"id": f"{prefix}_{_digest(*said)[:16]}", "status": "completed"}

    def _message(self, item: Item, param: str) -> bytes:
        if item.role == "assistant" and (self._is_listing or self._profile.needs_status):
            return self._answer(item, param)
        shaped = self._with_parts(item, "content", param)
        if item.role != "developer" or self._profile.developer == "developer":
            return shaped
        return encode({**_members(shaped, param), "role": self._profile.developer})

    def _answer(self, item: Item, param: str) -> bytes:
        if self._is_said_so(item):
            return item.raw
        answer = decode(_ANSWER, item.raw, f"'{param}'", param)
        if bytes(memoryview(answer.content)[:1]) != b"[":
            is_empty = is_null(answer.content) or bytes(answer.content) == b'""'
            return b"" if is_empty and self._is_listing else item.raw
        given = decode(PARTS, answer.content, f"'{param}.content'", f"{param}.content")
        parts = one_text(given, self.left_out) if self._is_listing else given
        if not parts and self._is_listing:
            return b""  # servers fail over an answer of nothing
        changed: dict[str, Any] = {}
        if is_null(answer.id) or is_null(answer.status):
            stated = self._stated("msg", said(given))
            changed = {name: value for name, value in stated.items() if is_null(getattr(answer, name))}
        parts = annotated(parts) if self._profile.needs_status else parts
        if parts is not given:
            changed["content"] = parts
        return encode({**_members(item.raw, param), **changed}) if changed else item.raw

    def _is_said_so(self, item: Item) -> bool:
        """Is it one text with all that the server wants beside it, as nearly every answer is?"""
        try:
            answer = _SAID.decode(item.raw)
        except (msgspec.DecodeError, RecursionError):
            return False
        if len(answer.content) != 1:
            return False
        part = answer.content[0]
        if part.type != "output_text" or not part.text:
            return False
        return not self._profile.needs_status or NULL not in (part.annotations, answer.id, answer.status)

    def _with_parts(self, item: Item, member: str, param: str) -> bytes:
        """A message or an output with its parts as the server takes them."""
        is_lacking = self._profile.needs_detail and IMAGE in item.raw
        if not is_lacking and not (self._is_listing and member == "output"):
            return item.raw
        content: Raw = getattr(decode(_CONTENT, item.raw, f"'{param}'", param), member)
        if bytes(memoryview(content)[:1]) != b"[":
            return item.raw
        given = decode(PARTS, content, f"'{param}.{member}'", f"{param}.{member}")
        parts = self._parts(given, member)
        return item.raw if parts is given else encode({**_members(item.raw, param), member: parts})

    def _parts(self, parts: Sequence[dict[str, Raw]], member: str) -> Any:
        shaped: Any = as_input(parts) if member == "output" and self._is_listing else parts
        return detailed(shaped) if self._profile.needs_detail else shaped

    def _reasoning(self, item: Item, param: str) -> bytes:
        if b'"encrypted_content"' not in item.raw and self._takes_bare():
            return item.raw
        reasoning = decode(_REASONING, item.raw, f"'{param}'", param)
        sealed = reasoning.encrypted_content
        opened = self._open_reasoning(sealed) if sealed else None
        text = said(reasoning.content)
        if sealed and opened is None and self._is_sealed_here(sealed):
            return self._lost(item, text or said(reasoning.summary), param, has_text=bool(text))
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
        return self._told(item, text or opened or said(reasoning.summary), param, has_text=bool(text))

    def _lost(self, item: Item, text: str, param: str, *, has_text: bool) -> bytes:
        """Reasoning that was sealed for another key or tenant: what else there is of it, never the seal."""
        if not has_text:
            self.left_out.append(LeftOut("reasoning", "encrypted_content"))
        elif not self._profile.bare_reasoning:
            self.left_out.append(LeftOut("reasoning", "text"))
        if not text or not self._profile.bare_reasoning:
            return b""
        return self._told(item, text, param, has_text=has_text)

    def _takes_bare(self) -> bool:
        return self._profile.bare_reasoning and self._profile.sealed_reasoning

    def _told(self, item: Item, text: str, param: str, *, has_text: bool) -> bytes:
        """Reasoning as text alone, what was sealed taken out."""
        if not text:
            self.left_out.append(LeftOut("reasoning", "encrypted_content"))
            return b""
        members = _members(item.raw, param)
        members.pop("encrypted_content", None)
        if not has_text:
            members["content"] = [{"type": "reasoning_text", "text": text}]
        return encode(members)


def _digest(*said: Said) -> str:
    """Of what is said, not of the bytes that say it: a client may send the same with its members in another order."""
    values = decode(_ANYTHING, encode(said), "An item")
    return xxhash.xxh3_128_hexdigest(msgspec.json.encode(values, order="sorted"))


def _mended(item: Item, param: str) -> bytes:
    """An item as it came, but for a call that was cut and answered all the same: servers want JSON of it."""
    if item.kind != "function_call" or b'"incomplete"' not in item.raw:
        return item.raw
    call = _members(item.raw, param)
    if bytes(call.get("status", NULL)) != b'"incomplete"':
        return item.raw
    arguments = decode(_TEXT, call.get("arguments", Raw(b'""')), f"'{param}.arguments'", param)
    return encode({**call, "arguments": json_object(arguments), "status": "completed"})


def _members(raw: bytes, param: str) -> dict[str, Any]:
    members: dict[str, Raw] = decode(_MEMBERS, raw, f"'{param}'", param)
    return {**members}
