"""Calls that a client runs, and what it answers: items → chat tool calls and tool messages.

The reverse of answer/calls.py: a call has the arguments that its function was given (tools/kinds.py), whatever its item is.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from proxy.translate.chat.messages import Messages, Writer, finished
from proxy.translate.chat.parts import Part, chat_part, chat_parts
from proxy.translate.tools.arguments import json_object
from proxy.translate.tools.kinds import INPUT
from proxy.wire.codec import NULL, Raw, decode, encode, is_null
from proxy.wire.items import Item


class _Call(msgspec.Struct):
    call_id: str
    name: str
    arguments: str = ""
    namespace: str | None = None


class _CustomCall(msgspec.Struct):
    call_id: str
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


class _ShellCall(msgspec.Struct):
    call_id: str
    action: _ShellAction


class _LocalShellCall(msgspec.Struct):
    call_id: str
    action: _LocalShellAction


class _PatchCall(msgspec.Struct):
    call_id: str
    operation: _Operation


class _SearchCall(msgspec.Struct):
    arguments: Raw = NULL


class _ComputerCall(msgspec.Struct):
    call_id: str
    action: Raw = NULL
    actions: Raw = NULL


class _Program(msgspec.Struct):
    call_id: str
    code: str = ""


class _Output(msgspec.Struct):
    call_id: str
    output: str | list[Part] = ""


class _LocalShellOutput(msgspec.Struct):
    id: str = ""
    call_id: str = ""
    output: str = ""


class _Outcome(msgspec.Struct):
    type: str = ""
    exit_code: int | None = None


class _Ran(msgspec.Struct):
    stdout: str = ""
    stderr: str = ""
    outcome: _Outcome | None = None


class _ShellOutput(msgspec.Struct):
    call_id: str
    output: str | list[_Ran] = ""


class _PatchOutput(msgspec.Struct):
    call_id: str
    status: str = "completed"
    output: str | None = None


class _Found(msgspec.Struct):
    type: str = ""
    name: str | None = None
    description: str | None = None
    tools: list[_Found] | None = None


class _SearchOutput(msgspec.Struct):
    tools: list[_Found] = []


class _Screenshot(msgspec.Struct):
    call_id: str
    output: Part


class _ProgramOutput(msgspec.Struct):
    call_id: str
    result: str = ""


_CALL = msgspec.json.Decoder(_Call)
_CUSTOM_CALL = msgspec.json.Decoder(_CustomCall)
_SHELL_CALL = msgspec.json.Decoder(_ShellCall)
_LOCAL_SHELL_CALL = msgspec.json.Decoder(_LocalShellCall)
_PATCH_CALL = msgspec.json.Decoder(_PatchCall)
_SEARCH_CALL = msgspec.json.Decoder(_SearchCall)
_COMPUTER_CALL = msgspec.json.Decoder(_ComputerCall)
_PROGRAM = msgspec.json.Decoder(_Program)
_OUTPUT = msgspec.json.Decoder(_Output)
_LOCAL_SHELL_OUTPUT = msgspec.json.Decoder(_LocalShellOutput)
_SHELL_OUTPUT = msgspec.json.Decoder(_ShellOutput)
_PATCH_OUTPUT = msgspec.json.Decoder(_PatchOutput)
_SEARCH_OUTPUT = msgspec.json.Decoder(_SearchOutput)
_SCREENSHOT = msgspec.json.Decoder(_Screenshot)
_PROGRAM_OUTPUT = msgspec.json.Decoder(_ProgramOutput)


def _write_function(messages: Messages, item: Item, param: str) -> None:
    call = decode(_CALL, item.raw, f"'{param}'", param)
    name = messages.tools.name_of("function", call.name, call.namespace)
    messages.call(call.call_id, name, json_object(call.arguments))


def _write_custom(messages: Messages, item: Item, param: str) -> None:
    call = decode(_CUSTOM_CALL, item.raw, f"'{param}'", param)
    name = messages.tools.name_of("custom", call.name, call.namespace)
    messages.call(call.call_id, name, _json({INPUT: call.input}))


def _write_shell(messages: Messages, item: Item, param: str) -> None:
    call = decode(_SHELL_CALL, item.raw, f"'{param}'", param)
    messages.call(call.call_id, messages.tools.name_of("shell", "shell"), _json(call.action))


def _write_local_shell(messages: Messages, item: Item, param: str) -> None:
    call = decode(_LOCAL_SHELL_CALL, item.raw, f"'{param}'", param)
    call.action.env = call.action.env or None
    messages.call(call.call_id, messages.tools.name_of("local_shell", "local_shell"), _json(call.action))


def _write_patch(messages: Messages, item: Item, param: str) -> None:
    call = decode(_PATCH_CALL, item.raw, f"'{param}'", param)
    messages.call(call.call_id, messages.tools.name_of("apply_patch", "apply_patch"), _json(call.operation))


def _write_search(messages: Messages, item: Item, param: str) -> None:
    call = decode(_SEARCH_CALL, item.raw, f"'{param}'", param)
    arguments = "{}" if is_null(call.arguments) else bytes(call.arguments).decode()
    if item.call_id is None:
        messages.search = arguments  # its server's own: it has no id that could be answered
    else:
        messages.call(item.call_id, messages.tools.name_of("tool_search", "tool_search"), arguments)


def _write_computer(messages: Messages, item: Item, param: str) -> None:
    call = decode(_COMPUTER_CALL, item.raw, f"'{param}'", param)
    given = {name: getattr(call, name) for name in ("action", "actions") if not is_null(getattr(call, name))}
    messages.call(call.call_id, messages.tools.name_of("computer", "computer"), _json(given))


def _write_program(messages: Messages, item: Item, param: str) -> None:
    call = decode(_PROGRAM, item.raw, f"'{param}'", param)
    messages.call(call.call_id, messages.tools.name_of("program", "program"), _json({"code": call.code}))


def _write_output(messages: Messages, item: Item, param: str) -> None:
    given = decode(_OUTPUT, item.raw, f"'{param}'", param)
    output = given.output
    messages.output(given.call_id, output if isinstance(output, str) else chat_parts(output, param))


def _write_local_shell_output(messages: Messages, item: Item, param: str) -> None:
    given = decode(_LOCAL_SHELL_OUTPUT, item.raw, f"'{param}'", param)
    messages.output(given.call_id or given.id, given.output)


def _write_shell_output(messages: Messages, item: Item, param: str) -> None:
    given = decode(_SHELL_OUTPUT, item.raw, f"'{param}'", param)
    output = given.output
    messages.output(given.call_id, output if isinstance(output, str) else "\n\n".join(map(_ran, output)))


def _ran(command: _Ran) -> str:
    """What one command gave, readable: an exit code alone says least, so it comes last."""
    said = [f"{name}:\n{text}" for name, text in (("stdout", command.stdout), ("stderr", command.stderr)) if text]
    outcome = command.outcome
    if outcome is not None:
        ended = f"exit code: {outcome.exit_code}" if outcome.exit_code is not None else f"outcome: {outcome.type}"
        said.append(ended)
    return "\n".join(said)


def _write_patch_output(messages: Messages, item: Item, param: str) -> None:
    given = decode(_PATCH_OUTPUT, item.raw, f"'{param}'", param)
    messages.output(given.call_id, f"{given.status}\n{given.output}" if given.output else given.status)


def _write_search_output(messages: Messages, item: Item, param: str) -> None:
    given = decode(_SEARCH_OUTPUT, item.raw, f"'{param}'", param)
    lines = [line for tool in given.tools for line in _found(messages, tool, None)]
    text = "Tools found:\n" + "\n".join(lines) if lines else "No tools found."
    if item.call_id is not None:
        messages.output(item.call_id, text)
        return
    arguments, messages.search = messages.search or "{}", None
    messages.hosted(item, None, messages.tools.name_of("tool_search", "tool_search"), arguments, text)


def _found(messages: Messages, tool: _Found, namespace: str | None) -> list[str]:
    """A line for each tool, by the name that the model is to call it by."""
    if tool.tools is not None:
        return [line for each in tool.tools for line in _found(messages, each, tool.name)]
    name = messages.tools.name_of(tool.type, tool.name or tool.type, namespace)
    return [f"- {name}: {tool.description}" if tool.description else f"- {name}"]


def _write_screenshot(messages: Messages, item: Item, param: str) -> None:
    given = decode(_SCREENSHOT, item.raw, f"'{param}'", param)
    messages.output(given.call_id, [chat_part(given.output, param)])


def _write_program_output(messages: Messages, item: Item, param: str) -> None:
    given = decode(_PROGRAM_OUTPUT, item.raw, f"'{param}'", param)
    messages.output(given.call_id, given.result)


def _json(value: object) -> str:
    return encode(value).decode()


_CALLS: Mapping[str, Writer] = {
    "function_call": _write_function,
    "custom_tool_call": _write_custom,
    "shell_call": _write_shell,
    "local_shell_call": _write_local_shell,
    "apply_patch_call": _write_patch,
    "tool_search_call": _write_search,
    "computer_call": _write_computer,
    "program": _write_program,
}
CALL_WRITERS: Mapping[str, Writer] = {
    **{kind: finished(write) for kind, write in _CALLS.items()},
    "function_call_output": _write_output,
    "custom_tool_call_output": _write_output,
    "shell_call_output": _write_shell_output,
    "local_shell_call_output": _write_local_shell_output,
    "apply_patch_call_output": _write_patch_output,
    "tool_search_output": _write_search_output,
    "computer_call_output": _write_screenshot,
    "program_output": _write_program_output,
}
