"""Steering: user input that changes what a running response does. Pure: reads the wish, writes the events.

The running response stops at what it has said, and a successor goes on from there with the new input; where it has
begun to call a tool it completes, and the input goes with the outputs that the client sends next. Source: API
reference, `response.steer`; protocol.md 1.11.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace

from proxy.conversation.chain import Node
from proxy.errors import LooplineError
from proxy.wire.client_events import Create, Limits, parse_input
from proxy.wire.codec import Raw, encode, is_null
from proxy.wire.items import CALL_OF_OUTPUT, CALLS, Item

_MEMBERS = frozenset({"type", "previous_response_id", "input"})
_PARTS = frozenset({"input_text", "input_image", "input_file"})
_OUTPUT_OF_CALL = {call: output for output, call in CALL_OF_OUTPUT.items()}


class _Part(msgspec.Struct):
    type: str = ""


class _Message(msgspec.Struct):
    role: str = ""
    content: str | list[_Part] | None = None


class _Call(msgspec.Struct):
    call_id: str = ""
    name: str | None = None


_STRING = msgspec.json.Decoder(str)
_MESSAGE = msgspec.json.Decoder(_Message)
_CALL = msgspec.json.Decoder(_Call)


class SteerError(Exception):
    """A steer that cannot be taken: `code` of protocol.md 1.11 and a message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Steer:
    """One accepted or refused submission. `raw_input` is what is given back when it cannot be committed."""

    id: str
    target: str
    items: tuple[Item, ...]
    raw_input: Raw
    size: int


def named(members: Mapping[str, Raw], member: str) -> str:
    """The response that a member names, or an empty string."""
    try:
        return _STRING.decode(members[member])
    except (KeyError, msgspec.DecodeError):
        return ""


def read_steer(members: Mapping[str, Raw], size: int, limits: Limits) -> Steer:
    """A `response.steer`, checked. Raises `SteerError` (invalid_input)."""
    unknown = sorted(members.keys() - _MEMBERS)
    if unknown:
        raise SteerError("invalid_input", f"response.steer takes no '{unknown[0][:100]}'.")
    target = named(members, "previous_response_id")
    if not target:
        raise SteerError("invalid_input", "'previous_response_id' must be the id of a response.")
    raw = members.get("input")
    if raw is None or is_null(raw):
        raise SteerError("invalid_input", "response.steer needs 'input'.")
    try:
        items = parse_input(raw, limits)
    except LooplineError as error:
        raise SteerError("invalid_input", error.message) from error
    if not items:
        raise SteerError("invalid_input", "'input' must not be empty.")
    for index, item in enumerate(items):
        if not _is_user_message(item):
            raise SteerError(
                "invalid_input",
                f"'input[{index}]' must be a message of the user, of text, images and files; nothing else can steer.",
            )
    # bytes(): a Raw is a slice that would keep the whole message alive.
    return Steer("steer_" + secrets.token_hex(16), target, items, Raw(bytes(raw)), size)


def _is_user_message(item: Item) -> bool:
    if item.kind != "message":
        return False
    try:
        message = _MESSAGE.decode(item.raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    content = message.content
    is_content = isinstance(content, str) or (bool(content) and all(part.type in _PARTS for part in content or ()))
    return message.role == "user" and is_content


def successor(create: Create, steered: Node, steers: Sequence[Steer]) -> Create:
    """The create that goes on from a steered response: its settings, the new input."""
    own = {**create.own, "previous_response_id": Raw(encode(steered.id))}
    values = {**create.own_values, "previous_response_id": steered.id}
    return Create(create.terms, own, values, joined(steers), sum(steer.size for steer in steers))


def joined(steers: Iterable[Steer]) -> tuple[Item, ...]:
    """The input of several steers, in the order they came."""
    return tuple(item for steer in steers for item in steer.items)


def with_owed(create: Create, steers: Sequence[Steer]) -> Create:
    """A create that answers the calls a steer waited for, with the steers' input.

    The outputs stay in front of it: engines want nothing between a call and its output.
    """
    outputs = 0
    while outputs < len(create.items) and create.items[outputs].kind in CALL_OF_OUTPUT:
        outputs += 1
    items = create.items[:outputs] + joined(steers) + create.items[outputs:]
    return replace(create, items=items)


def accepted_event(steer: Steer) -> bytes:
    """The server owns the input."""
    return encode({"type": "response.steer.accepted", "sequence_number": 0, "steer": _reference(steer)})


def pending_event(steer: Steer, node: Node) -> bytes:
    """The input waits for the outputs of the response's calls."""
    stubs = [_stub(item) for item in node.output if item.kind in CALLS and item.call_id in node.open_calls]
    return encode(
        {
            "type": "response.steer.pending",
            "sequence_number": 1,
            "reason": "waiting_for_required_input",
            "required_input": stubs,
            "steer": _reference(steer),
        }
    )


def failed_event(members: Mapping[str, Raw], error: SteerError, steer_id: str | None = None) -> bytes:
    """The input is given back."""
    target, given = named(members, "previous_response_id"), members.get("input", "")
    steer: dict[str, Any] = {"previous_response_id": target, "input": given}
    if steer_id is not None:
        steer["id"] = steer_id
    body = {"type": "invalid_request_error", "code": error.code, "message": str(error)}
    return encode({"type": "response.steer.failed", "sequence_number": 0, "error": body, "steer": steer})


def given_back(steer: Steer, error: SteerError) -> bytes:
    """An accepted steer that could not be committed after all."""
    members = {"previous_response_id": Raw(encode(steer.target)), "input": steer.raw_input}
    return failed_event(members, error, steer.id)


def _reference(steer: Steer) -> dict[str, str]:
    return {"id": steer.id, "previous_response_id": steer.target}


def _stub(item: Item) -> dict[str, str]:
    call = _CALL.decode(item.raw)
    stub = {"type": _OUTPUT_OF_CALL[item.kind], "call_id": call.call_id}
    if item.kind == "function_call":
        stub["name"] = call.name or ""
    return stub
