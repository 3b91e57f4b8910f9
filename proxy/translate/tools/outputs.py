"""What answered earlier calls, as outputs of the functions that were called: a text, or parts of the Responses API.

Source: API reference, Responses, input items; openai-python 3.57, types/responses/response_input_item_param.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from proxy.translate.tools.arguments import Id, required
from proxy.translate.tools.listed import Tools
from proxy.wire.codec import NULL, Raw, decode, encode, is_null

# Output → the kind of tool that gave it.
TOOL_OF_OUTPUT: Mapping[str, str] = {
    "function_call_output": "function",
    "custom_tool_call_output": "custom",
    "shell_call_output": "shell",
    "local_shell_call_output": "local_shell",
    "apply_patch_call_output": "apply_patch",
    "tool_search_output": "tool_search",
    "computer_call_output": "computer",
    "program_output": "program",
}
Said = str | list[Raw]


class Output(NamedTuple):
    """What answers a call. `call_id` is None for what a server's own search found."""

    call_id: str | None
    output: Said


def read_output(kind: str, raw: bytes, param: str, tools: Tools) -> Output:
    """What answers a call, of `kind` (of `TOOL_OF_OUTPUT`). Raises `LooplineError` (invalid_request)."""
    return _READERS[kind](raw, param, tools)


class _Output(msgspec.Struct):
    call_id: Id = None
    output: Raw = NULL


class _LocalShellOutput(msgspec.Struct):
    id: Id = None
    call_id: Id = None
    output: str = ""


class _Outcome(msgspec.Struct):
    type: str = ""
    exit_code: int | None = None


class _Ran(msgspec.Struct):
    stdout: str = ""
    stderr: str = ""
    outcome: _Outcome | None = None


class _ShellOutput(msgspec.Struct):
    call_id: Id = None
    output: str | list[_Ran] = ""


class _PatchOutput(msgspec.Struct):
    call_id: Id = None
    status: str = "completed"
    output: str | None = None


class _Found(msgspec.Struct):
    type: str = ""
    name: str | None = None
    description: str | None = None
    tools: list[_Found] | None = None


class _SearchOutput(msgspec.Struct):
    call_id: str | None = None
    execution: str | None = None
    tools: list[_Found] = []


class _Screenshot(msgspec.Struct, kw_only=True):
    call_id: Id = None
    output: dict[str, Raw]


class _ProgramOutput(msgspec.Struct):
    call_id: Id = None
    result: str = ""


_OUTPUT = msgspec.json.Decoder(_Output)
_LOCAL_SHELL_OUTPUT = msgspec.json.Decoder(_LocalShellOutput)
_SHELL_OUTPUT = msgspec.json.Decoder(_ShellOutput)
_PATCH_OUTPUT = msgspec.json.Decoder(_PatchOutput)
_SEARCH_OUTPUT = msgspec.json.Decoder(_SearchOutput)
_SCREENSHOT = msgspec.json.Decoder(_Screenshot)
_PROGRAM_OUTPUT = msgspec.json.Decoder(_ProgramOutput)
_SAID = msgspec.json.Decoder(str | list[Raw])


def _said(raw: bytes, param: str, tools: Tools) -> Output:
    given = decode(_OUTPUT, raw, f"'{param}'", param)
    return Output(
        required(given.call_id, param),
        "" if is_null(given.output) else decode(_SAID, given.output, f"'{param}'", param),
    )


def _local_shell(raw: bytes, param: str, tools: Tools) -> Output:
    given = decode(_LOCAL_SHELL_OUTPUT, raw, f"'{param}'", param)
    return Output(required(given.call_id or given.id, param), given.output)


def _shell(raw: bytes, param: str, tools: Tools) -> Output:
    given = decode(_SHELL_OUTPUT, raw, f"'{param}'", param)
    output = given.output
    return Output(
        required(given.call_id, param), output if isinstance(output, str) else "\n\n".join(map(_one_run, output))
    )


def _one_run(command: _Ran) -> str:
    """What one command gave, readable: an exit code alone says least, so it comes last."""
    said = [f"{name}:\n{text}" for name, text in (("stdout", command.stdout), ("stderr", command.stderr)) if text]
    outcome = command.outcome
    if outcome is not None:
        ended = f"exit code: {outcome.exit_code}" if outcome.exit_code is not None else f"outcome: {outcome.type}"
        said.append(ended)
    return "\n".join(said)


def _patch(raw: bytes, param: str, tools: Tools) -> Output:
    given = decode(_PATCH_OUTPUT, raw, f"'{param}'", param)
    return Output(required(given.call_id, param), f"{given.status}\n{given.output}" if given.output else given.status)


def _search(raw: bytes, param: str, tools: Tools) -> Output:
    given = decode(_SEARCH_OUTPUT, raw, f"'{param}'", param)
    lines = [line for tool in given.tools for line in _found(tool, tools, None)]
    text = "Tools found:\n" + "\n".join(lines) if lines else "No tools found."
    return Output(None if given.execution == "server" else given.call_id, text)


def _found(tool: _Found, tools: Tools, namespace: str | None) -> list[str]:
    """A line for each tool, by the name that the model is to call it by."""
    if tool.tools is not None:
        return [line for each in tool.tools for line in _found(each, tools, tool.name)]
    name = tools.name_of(tool.type, tool.name or tool.type, namespace)
    return [f"- {name}: {tool.description}" if tool.description else f"- {name}"]


def _screenshot(raw: bytes, param: str, tools: Tools) -> Output:
    given = decode(_SCREENSHOT, raw, f"'{param}'", param)
    return Output(required(given.call_id, param), [Raw(encode({**given.output, "type": "input_image"}))])


def _program(raw: bytes, param: str, tools: Tools) -> Output:
    given = decode(_PROGRAM_OUTPUT, raw, f"'{param}'", param)
    return Output(required(given.call_id, param), given.result)


_READERS: Mapping[str, Callable[[bytes, str, Tools], Output]] = {
    "function_call_output": _said,
    "custom_tool_call_output": _said,
    "shell_call_output": _shell,
    "local_shell_call_output": _local_shell,
    "apply_patch_call_output": _patch,
    "tool_search_output": _search,
    "computer_call_output": _screenshot,
    "program_output": _program,
}
