"""A model's call of a function as the item that the client knows: one writer for each kind of item.

A model without custom tools calls a function of one string, and the item has the string itself; a shell call comes as
JSON, and the item has its members. Which kind a call is of, `Called` says (tools/listed.py). Source: API reference,
Responses, output items and streaming events; openai-python 3.57, types/responses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

from proxy.errors import Kind, LooplineError
from proxy.translate.answer.raw_input import RawInput
from proxy.translate.answer.slips import local_shell_action, patch_operation, shell_action
from proxy.translate.tools.listed import Called
from proxy.wire.codec import encode

COMPLETED, INCOMPLETE, IN_PROGRESS = b"completed", b"incomplete", b"in_progress"


class Ended(NamedTuple):
    """A call that has ended: its item, and the rest of its `done` event.

    For a kind that has no such event, `added` is the item as it is announced.
    """

    item: bytes
    done: bytes
    added: bytes = b""


class CallWriter(Protocol):
    """Writes one call as its kind of item.

    `kind` is the item's type, `prefix` what its id starts with. `streams` is the start of its events' names, as in
    `response.function_call_arguments`; empty for an item that is told whole, once its arguments are.
    """

    kind: str
    prefix: bytes
    streams: bytes

    def added(self, item_id: bytes, call_id: str) -> bytes:
        """The item when it is announced."""
        ...

    def delta(self, arguments: str) -> str:
        """What a piece of arguments adds to what is streamed; may be empty."""
        ...

    def rest(self) -> str:
        """What is still to be streamed after the last piece."""
        ...

    def ended(self, item_id: bytes, call_id: str, arguments: str, status: bytes) -> Ended | None:
        """The call after all of its `arguments`; None for a cut one that nobody could use.

        Raises `LooplineError` (upstream_garbled) for arguments that make no such item.
        """
        ...


class FunctionCall:
    """`function_call`: the arguments as they come."""

    kind, prefix, streams = "function_call", b"fc", b"response.function_call_arguments"

    def __init__(self, called: Called) -> None:
        named = b'"name":%b' % encode(called.name)
        self._named = named if called.namespace is None else b'%b,"namespace":%b' % (named, encode(called.namespace))
        self._done = b"%b," % named

    def added(self, item_id: bytes, call_id: str) -> bytes:
        return self._item(item_id, call_id, b'""', IN_PROGRESS)

    def delta(self, arguments: str) -> str:
        return arguments

    def rest(self) -> str:
        return ""

    def ended(self, item_id: bytes, call_id: str, arguments: str, status: bytes) -> Ended | None:
        encoded = encode(arguments)
        return Ended(self._item(item_id, call_id, encoded, status), b'%b"arguments":%b' % (self._done, encoded))

    def _item(self, item_id: bytes, call_id: str, arguments: bytes, status: bytes) -> bytes:
        return b'{"type":"function_call","id":"%b","call_id":%b,%b,"arguments":%b,"status":"%b"}' % (
            item_id,
            encode(call_id),
            self._named,
            arguments,
            status,
        )


class CustomCall:
    """`custom_tool_call`: the one string inside the arguments, streamed as it comes."""

    kind, prefix, streams = "custom_tool_call", b"ctc", b"response.custom_tool_call_input"

    def __init__(self, called: Called) -> None:
        named = b'"name":%b' % encode(called.name)
        self._named = named if called.namespace is None else b'%b,"namespace":%b' % (named, encode(called.namespace))
        self._input = RawInput()

    def added(self, item_id: bytes, call_id: str) -> bytes:
        return self._item(item_id, call_id, b'""', IN_PROGRESS)

    def delta(self, arguments: str) -> str:
        return self._input.feed(arguments)

    def rest(self) -> str:
        return self._input.end()

    def ended(self, item_id: bytes, call_id: str, arguments: str, status: bytes) -> Ended | None:
        encoded = encode(self._input.said)
        return Ended(self._item(item_id, call_id, encoded, status), b'"input":%b' % encoded)

    def _item(self, item_id: bytes, call_id: str, text: bytes, status: bytes) -> bytes:
        return b'{"type":"custom_tool_call","id":"%b","call_id":%b,%b,"input":%b,"status":"%b"}' % (
            item_id,
            encode(call_id),
            self._named,
            text,
            status,
        )


def _shell(arguments: str) -> dict[str, Any]:
    return {"action": shell_action(arguments), "environment": None}


def _local_shell(arguments: str) -> dict[str, Any]:
    return {"action": local_shell_action(arguments)}


def _apply_patch(arguments: str) -> dict[str, Any]:
    return {"operation": patch_operation(arguments)}


def _tool_search(arguments: str) -> dict[str, Any]:
    return {"arguments": msgspec.json.decode(arguments or "{}"), "execution": "client"}


_STATUS = b',"status":"%b"}'


class WholeCall:
    """An item whose members are made of the whole arguments: shell, patch, tool search."""

    streams = b""

    def __init__(self, called: Called) -> None:
        self.kind, self.prefix, self._read = _WHOLE[called.kind]

    def added(self, item_id: bytes, call_id: str) -> bytes:
        return b""

    def delta(self, arguments: str) -> str:
        return ""

    def rest(self) -> str:
        return ""

    def ended(self, item_id: bytes, call_id: str, arguments: str, status: bytes) -> Ended | None:
        if status != COMPLETED:
            return None
        try:
            members = self._read(arguments)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise LooplineError(
                Kind.UPSTREAM_GARBLED, f"The model made a {self.kind} with arguments that do not fit: {error}."
            ) from error
        item = encode({"type": self.kind, "id": item_id.decode(), "call_id": call_id, **members})[:-1]
        return Ended(item + _STATUS % COMPLETED, b"", item + _STATUS % IN_PROGRESS)


_WHOLE: Mapping[str, tuple[str, bytes, Callable[[str], dict[str, Any]]]] = {
    "shell": ("shell_call", b"sh", _shell),
    "local_shell": ("local_shell_call", b"lsh", _local_shell),
    "apply_patch": ("apply_patch_call", b"apc", _apply_patch),
    "tool_search": ("tool_search_call", b"tsc", _tool_search),
}


def call_writer(name: str, calls: Mapping[str, Called]) -> CallWriter:
    """The writer for a call of the function that is named so upstream; an unknown one is a function of that name."""
    called = calls.get(name)
    if called is None:
        return FunctionCall(Called("function", name))
    if called.kind == "custom":
        return CustomCall(called)
    return WholeCall(called) if called.kind in _WHOLE else FunctionCall(called)
