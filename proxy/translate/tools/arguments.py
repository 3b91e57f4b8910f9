"""Earlier calls as calls of the functions that their tools were told to the model as.

The reverse of answer/calls.py: a call has the arguments that its function was given (tools/kinds.py), whatever its item
is. Source: API reference, Responses, input items; openai-python 3.57, types/responses/response_input_item_param.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from proxy.errors import Kind, LooplineError
from proxy.translate.tools.kinds import INPUT
from proxy.translate.tools.listed import Tools
from proxy.wire.codec import NULL, Raw, decode, encode, is_null

# Call → the kind of tool it calls.
TOOL_OF_CALL: Mapping[str, str] = {
    "function_call": "function",
    "custom_tool_call": "custom",
    "shell_call": "shell",
    "local_shell_call": "local_shell",
    "apply_patch_call": "apply_patch",
    "tool_search_call": "tool_search",
    "computer_call": "computer",
    "program": "program",
}

Id = str | None


class Call(NamedTuple):
    """An earlier call: its id, the upstream name of its tool, its arguments (the text of a JSON object).

    `call_id` is None for a search of its server's own, which nobody can answer.
    """

    call_id: str | None
    name: str
    arguments: str


def read_call(kind: str, raw: bytes, param: str, tools: Tools) -> Call:
    """A call whose item is of `kind` (of `TOOL_OF_CALL`). Raises `LooplineError` (invalid_request) naming `param`."""
    return _READERS[kind](raw, param, tools)


def required(call_id: Id, param: str) -> str:
    """The id of an item that has to have one. Raises `LooplineError` (invalid_request)."""
    if not call_id:
        raise LooplineError(
            Kind.INVALID_REQUEST,
            f"'{param}' lacks 'call_id', which says what call it is of; send the one that the call had.",
            param=param,
        )
    return call_id


def json_object(arguments: str) -> str:
    """A model's arguments as the JSON object that templates parse: what is none is put into one, whole."""
    try:
        if isinstance(msgspec.json.decode(arguments), dict):
            return arguments
    except (msgspec.DecodeError, RecursionError):
        pass
    return _json({"arguments": arguments}) if arguments.strip() else "{}"


class _FunctionCall(msgspec.Struct, kw_only=True):
    call_id: Id = None
    name: str
    arguments: str = ""
    namespace: str | None = None


class _CustomCall(msgspec.Struct, kw_only=True):
    call_id: Id = None
    name: str
    input: str = ""
    namespace: str | None = None


class _ShellAction(msgspec.Struct, omit_defaults=True):
    commands: list[str]
    timeout_ms: int | None = None
    max_output_length: int | None = None


class _LocalShellAction(msgspec.Struct, omit_defaults=True):
    command: list[str]
    working_directory: str | None = None
    timeout_ms: int | None = None
    env: dict[str, str] | None = None
    user: str | None = None


class _Operation(msgspec.Struct, omit_defaults=True):
    type: str
    path: str
    diff: str | None = None


class _ShellCall(msgspec.Struct, kw_only=True):
    call_id: Id = None
    action: _ShellAction


class _LocalShellCall(msgspec.Struct, kw_only=True):
    call_id: Id = None
    action: _LocalShellAction


class _PatchCall(msgspec.Struct, kw_only=True):
    call_id: Id = None
    operation: _Operation


class _SearchCall(msgspec.Struct):
    call_id: str | None = None
    execution: str | None = None
    arguments: Raw = NULL


class _ComputerCall(msgspec.Struct):
    call_id: Id = None
    action: Raw = NULL
    actions: Raw = NULL


class _Program(msgspec.Struct):
    call_id: Id = None
    code: str = ""


_FUNCTION_CALL = msgspec.json.Decoder(_FunctionCall)
_CUSTOM_CALL = msgspec.json.Decoder(_CustomCall)
_SHELL_CALL = msgspec.json.Decoder(_ShellCall)
_LOCAL_SHELL_CALL = msgspec.json.Decoder(_LocalShellCall)
_PATCH_CALL = msgspec.json.Decoder(_PatchCall)
_SEARCH_CALL = msgspec.json.Decoder(_SearchCall)
_COMPUTER_CALL = msgspec.json.Decoder(_ComputerCall)
_PROGRAM = msgspec.json.Decoder(_Program)
_TEXT = msgspec.json.Decoder(str)


def _function(raw: bytes, param: str, tools: Tools) -> Call:
    call = decode(_FUNCTION_CALL, raw, f"'{param}'", param)
    return Call(
        required(call.call_id, param), tools.name_of("function", call.name, call.namespace), json_object(call.arguments)
    )


def _custom(raw: bytes, param: str, tools: Tools) -> Call:
    call = decode(_CUSTOM_CALL, raw, f"'{param}'", param)
    return Call(
        required(call.call_id, param), tools.name_of("custom", call.name, call.namespace), _json({INPUT: call.input})
    )


def _shell(raw: bytes, param: str, tools: Tools) -> Call:
    call = decode(_SHELL_CALL, raw, f"'{param}'", param)
    return Call(required(call.call_id, param), tools.name_of("shell", "shell"), _json(call.action))


def _local_shell(raw: bytes, param: str, tools: Tools) -> Call:
    call = decode(_LOCAL_SHELL_CALL, raw, f"'{param}'", param)
    call.action.env = call.action.env or None
    return Call(required(call.call_id, param), tools.name_of("local_shell", "local_shell"), _json(call.action))


def _patch(raw: bytes, param: str, tools: Tools) -> Call:
    call = decode(_PATCH_CALL, raw, f"'{param}'", param)
    return Call(required(call.call_id, param), tools.name_of("apply_patch", "apply_patch"), _json(call.operation))


def _search(raw: bytes, param: str, tools: Tools) -> Call:
    call = decode(_SEARCH_CALL, raw, f"'{param}'", param)
    text = "{}" if is_null(call.arguments) else bytes(call.arguments).decode()
    if text.startswith('"'):
        text = decode(_TEXT, call.arguments, f"'{param}.arguments'", param)
    call_id = None if call.execution == "server" else call.call_id
    return Call(call_id, tools.name_of("tool_search", "tool_search"), json_object(text))


def _computer(raw: bytes, param: str, tools: Tools) -> Call:
    call = decode(_COMPUTER_CALL, raw, f"'{param}'", param)
    given = {name: getattr(call, name) for name in ("action", "actions") if not is_null(getattr(call, name))}
    return Call(required(call.call_id, param), tools.name_of("computer", "computer"), _json(given))


def _program(raw: bytes, param: str, tools: Tools) -> Call:
    call = decode(_PROGRAM, raw, f"'{param}'", param)
    return Call(required(call.call_id, param), tools.name_of("program", "program"), _json({"code": call.code}))


def _json(value: object) -> str:
    return encode(value).decode()


_READERS: Mapping[str, Callable[[bytes, str, Tools], Call]] = {
    "function_call": _function,
    "custom_tool_call": _custom,
    "shell_call": _shell,
    "local_shell_call": _local_shell,
    "apply_patch_call": _patch,
    "tool_search_call": _search,
    "computer_call": _computer,
    "program": _program,
}
