"""Items of a conversation: the fields we act on, the raw bytes beside them.

An item keeps the bytes the client or the upstream sent, unknown members included, so that nothing is lost on its way
to a Responses upstream or back to the client.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from proxy.errors import Kind, LooplineError
from proxy.wire.codec import NULL, SMALL_BYTES, Raw, decode, decode_array, decode_members, encode

# Calls that a client answers, by the type of the item that answers them.
CALL_OF_OUTPUT: Mapping[str, str] = {
    "function_call_output": "function_call",
    "custom_tool_call_output": "custom_tool_call",
    "local_shell_call_output": "local_shell_call",
    "shell_call_output": "shell_call",
    "apply_patch_call_output": "apply_patch_call",
    "computer_call_output": "computer_call",
    "tool_search_output": "tool_search_call",
}
CALLS = frozenset(CALL_OF_OUTPUT.values())
_PAIRED = CALLS | CALL_OF_OUTPUT.keys()
# Kinds that a server may also run itself: then call and output have no id that somebody could answer.
_MAY_BE_SERVERS = frozenset({"tool_search_call", "tool_search_output"})


# Parts of one member of an item: of a message's content, of an output. Clients send one, or some pictures.
MAX_PARTS = 10_000


class _Head(msgspec.Struct):
    type: str | None = None
    role: str | None = None
    call_id: str | None = None
    id: str | None = None
    status: str | None = None
    execution: Raw = NULL  # undecoded: what it is in items that nobody here has heard of is their own affair


_HEAD = msgspec.json.Decoder(_Head)
_MEMBERS = msgspec.json.Decoder(dict[str, Raw])


class _Named(msgspec.Struct):
    id: str | None = None


_NAMED = msgspec.json.Decoder(_Named)


class Item(msgspec.Struct, frozen=True, gc=False):
    """One item. `kind` is its type, `message` where a role stands without one.

    A Struct, since a long history has tens of thousands, which no collection looks at.

    `raw` is a JSON object that always has a `type`: llama.cpp rejects messages without, clients leave it out.
    `call_id` pairs a call of the client's with its output; None for one that a server has answered itself.
    `unfinished` marks a call that was cut off and that nobody has answered.
    """

    kind: str
    raw: bytes
    role: str | None = None
    call_id: str | None = None
    unfinished: bool = False


def parse_item(raw: bytes | Raw, param: str = "input") -> Item:
    """Read what we act on. Raises `LooplineError` (invalid_request) naming `param`."""
    if len(memoryview(raw)) > SMALL_BYTES:
        _check_large(raw, param)  # of a smaller one members and parts are few enough for whoever reads them all
    head = decode(_HEAD, raw, f"'{param}'", param)
    if head.type is not None:
        # bytes(): a Raw is a slice that would keep the whole frame alive as long as the conversation.
        kind, kept = head.type, bytes(raw)
    elif head.role is not None:
        kind, kept = "message", _typed(raw, "message", param)
    elif head.id is not None and decode(_MEMBERS, raw, f"'{param}'", param).keys() <= {"id", "type"}:
        kind, kept = "item_reference", _typed(raw, "item_reference", param)
    else:
        raise LooplineError(
            Kind.INVALID_REQUEST, f"'{param}' has neither a 'type' nor a 'role': it is no item.", param=param
        )
    # The local shell tool names its call by `id` on the output (openai-python, LocalShellCallOutput).
    call_id = head.call_id or (head.id if kind == "local_shell_call_output" else None)
    if kind in _MAY_BE_SERVERS and bytes(head.execution) == b'"server"':
        call_id = None
    return Item(kind, kept, head.role, call_id, head.status == "incomplete")


def _check_large(raw: bytes | Raw, param: str) -> None:
    for name, value in decode_members(raw, f"'{param}'", param).items():
        if bytes(memoryview(value)[:1]) == b"[":
            count = len(decode_array(value, f"'{param}.{name}'", param))
            if count > MAX_PARTS:
                message = f"'{param}.{name}' holds {count} parts, more than the {MAX_PARTS} that an item may have."
                raise LooplineError(Kind.INVALID_REQUEST, message, param=param)


def item_id(item: Item) -> str | None:
    """The id that stands in an item, if one does."""
    return decode(_NAMED, item.raw, "The item").id


def _typed(raw: bytes | Raw, kind: str, param: str) -> bytes:
    members = decode(_MEMBERS, raw, f"'{param}'", param)
    if "type" in members:  # it is null
        return encode({**members, "type": kind})
    return b'{"type":"%b",' % kind.encode() + bytes(raw)[1:]


def user_message(text: Raw) -> Item:
    """The item that a string input stands for. `text` is its JSON string."""
    return Item("message", b'{"type":"message","role":"user","content":' + bytes(text) + b"}", "user")


def revive_cut_calls(items: tuple[Item, ...], output: Iterable[Item]) -> tuple[Item, ...]:
    """The delta, in which a call that was cut off counts as made where the client has answered it all the same.

    Codex runs a call when its item is done, whole or not, and sends what came of it. `output` is the parent's: a cut
    call of it is put before its output.
    """
    answered = {item.call_id for item in items if item.kind in CALL_OF_OUTPUT and item.call_id}
    if not answered:
        return items
    cut = {item.call_id: item for item in output if item.unfinished and item.call_id in answered}
    made: list[Item] = []
    for item in items:
        if item.kind in CALLS and item.call_id in answered:
            cut.pop(item.call_id, None)  # the client sends it itself, with whatever status
            item = replace(item, unfinished=False) if item.unfinished else item
        elif item.kind in CALL_OF_OUTPUT and item.call_id in cut:
            made.append(replace(cut.pop(item.call_id), unfinished=False))
        made.append(item)
    return tuple(made)


def pair_calls(open_calls: frozenset[str], items: Iterable[Item]) -> frozenset[str]:
    """The calls still unanswered after `items`, given those unanswered before.

    Raises `LooplineError` (unpaired_call, param `input`) for an output that answers no open call. Looks at the delta
    alone, so that its cost does not grow with the conversation.
    """
    paired = [item for item in items if item.kind in _PAIRED and not _is_servers(item)]
    if not paired:
        return open_calls  # the same set: nodes share it, however long it is
    waiting = dict.fromkeys(open_calls)
    for item in paired:
        if item.kind in CALLS and item.call_id and not item.unfinished:
            waiting[item.call_id] = None
        elif item.kind in CALL_OF_OUTPUT:
            if item.call_id is None or item.call_id not in waiting:
                name = CALL_OF_OUTPUT[item.kind].replace("_", " ")
                raise LooplineError(
                    Kind.UNPAIRED_CALL,
                    f"No tool call found for {name} output with call_id {item.call_id}.",
                    param="input",
                )
            del waiting[item.call_id]
    return frozenset(waiting)


def _is_servers(item: Item) -> bool:
    return item.call_id is None and item.kind in _MAY_BE_SERVERS


def calls_after(open_calls: frozenset[str], output: Iterable[Item]) -> frozenset[str]:
    """The calls open after an answer: those it made and did not answer itself, as upstreams with own tools do."""
    answered = {item.call_id for item in output if item.kind in CALL_OF_OUTPUT and item.call_id}
    made = {item.call_id for item in output if item.kind in CALLS and item.call_id and not item.unfinished}
    return (open_calls | made) - answered if made or answered else open_calls


def require_answers(open_calls: frozenset[str]) -> None:
    """Raises `LooplineError` (unpaired_call) unless every call was answered before the model is asked again."""
    for call_id in sorted(open_calls):
        raise LooplineError(Kind.UNPAIRED_CALL, f"No tool output found for function call {call_id}.", param="input")


def string(text: str) -> bytes:
    """A JSON string."""
    return encode(text)
