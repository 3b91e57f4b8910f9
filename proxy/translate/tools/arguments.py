"""Earlier calls and their outputs, as calls of the functions that their tools were told to the model as.

The reverse of answer/calls.py: what the client knows as a custom, shell or patch call is a function call upstream, and what
the client answered is that function's output. Source: API reference, Responses, input items; openai-python 3.57,
types/responses/response_input_item_param.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from proxy.translate.tools.kinds import INPUT
from proxy.translate.tools.listed import Tools
from proxy.wire.codec import NULL, Raw, decode, encode, is_null

# Call → the kind of tool it calls. The same for what answers it.
TOOL_OF_CALL: Mapping[str, str] = {
    "function_call": "function",
    "custom_tool_call": "custom",
    "shell_call": "shell",
    "local_shell_call": "local_shell",
    "apply_patch_call": "apply_patch",
    "tool_search_call": "tool_search",
}
TOOL_OF_OUTPUT: Mapping[str, str] = {
    "function_call_output": "function",
    "custom_tool_call_output": "custom",
    "shell_call_output": "shell",
    "local_shell_call_output": "local_shell",
    "apply_patch_call_output": "apply_patch",
    "tool_search_output": "tool_search",
}


def json_object(arguments: str) -> str:
    """A model's arguments as the JSON object that templates parse: what is none is put into one, whole."""
    try:
        if isinstance(msgspec.json.decode(arguments), dict):
            return arguments
    except (msgspec.DecodeError, RecursionError):
        pass
    return encode({"arguments": arguments}).decode() if arguments.strip() else "{}"


class _Call(msgspec.Struct, gc=False):
    call_id: str | None = None
    id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: Raw = NULL
    input: str = ""
    action: dict[str, Raw] | None = None
    operation: dict[str, Raw] | None = None


class _Outcome(msgspec.Struct, gc=False):
    type: str = "exit"
    exit_code: int | None = None


class _Ran(msgspec.Struct, gc=False):
    outcome: _Outcome | None = None
    stdout: str | None = None
    stderr: str | None = None


class _Found(msgspec.Struct, gc=False):
    type: str = ""
    name: str | None = None
    description: str | None = None
    tools: list[_Found] | None = None


class _Output(msgspec.Struct, gc=False):
    call_id: str | None = None
    id: str | None = None
    output: Raw = NULL
    status: str | None = None
    tools: list[_Found] | None = None


_CALL = msgspec.json.Decoder(_Call)
_OUTPUT = msgspec.json.Decoder(_Output)
_SAID = msgspec.json.Decoder(str | list[Raw])
_TEXT = msgspec.json.Decoder(str)
_RAN: msgspec.json.Decoder[list[_Ran]] = msgspec.json.Decoder(list[_Ran])


class Call(NamedTuple):
    """An earlier call: its id (None: nobody can answer it), the upstream name of its tool, its arguments' text."""

    call_id: str | None
    name: str
    arguments: str


class Output(NamedTuple):
    """What answers a call: a text, or parts undecoded."""

    call_id: str | None
    output: str | list[Raw]


def read_call(kind: str, raw: bytes, param: str, tools: Tools) -> Call:
    """A call whose item is of `kind` (of `TOOL_OF_CALL`). Raises `LooplineError` (invalid_request) naming `param`."""
    call = decode(_CALL, raw, f"'{param}'", param)
    tool = TOOL_OF_CALL[kind]
    name = tools.name_of(tool, call.name or tool, call.namespace)
    # A local shell's call is named by its item's id where it has no call id.
    return Call(call.call_id or (call.id if kind == "local_shell_call" else None), name, _ARGUMENTS[kind](call, param))


def read_output(kind: str, raw: bytes, param: str, tools: Tools) -> Output:
    """What answers a call, of `kind` (of `TOOL_OF_OUTPUT`). Raises `LooplineError` (invalid_request)."""
    output = decode(_OUTPUT, raw, f"'{param}'", param)
    call_id = output.call_id or (output.id if kind == "local_shell_call_output" else None)
    return Output(call_id, _OUTPUTS[kind](output, param, tools))


def _function(call: _Call, param: str) -> str:
    return "" if is_null(call.arguments) else decode(_TEXT, call.arguments, f"'{param}.arguments'", param)


def _custom(call: _Call, param: str) -> str:
    return _text({INPUT: call.input})


def _members_of(member: str, names: tuple[str, ...]) -> Callable[[_Call, str], str]:
    def arguments(call: _Call, param: str) -> str:
        members: dict[str, Raw] = getattr(call, member) or {}
        return _text({name: members[name] for name in names if name in members and not is_null(members[name])})

    return arguments


def _tool_search(call: _Call, param: str) -> str:
    if bytes(call.arguments)[:1] == b'"':
        return decode(_TEXT, call.arguments, f"'{param}.arguments'", param)
    return "{}" if is_null(call.arguments) else bytes(call.arguments).decode()


def _text(value: Any) -> str:
    return encode(value).decode()


# The members are those that tools/kinds.py declares.
_ARGUMENTS: Mapping[str, Callable[[_Call, str], str]] = {
    "function_call": _function,
    "custom_tool_call": _custom,
    "shell_call": _members_of("action", ("commands", "timeout_ms", "max_output_length")),
    "local_shell_call": _members_of("action", ("command", "working_directory", "timeout_ms", "env")),
    "apply_patch_call": _members_of("operation", ("type", "path", "diff")),
    "tool_search_call": _tool_search,
}


def _said(output: _Output, param: str, tools: Tools) -> str | list[Raw]:
    return "" if is_null(output.output) else decode(_SAID, output.output, f"'{param}.output'", f"{param}.output")


def _patched(output: _Output, param: str, tools: Tools) -> str | list[Raw]:
    said = _said(output, param, tools)
    return f"{output.status or 'completed'}\n{said}".strip() if isinstance(said, str) else said


def _ran(output: _Output, param: str, tools: Tools) -> str | list[Raw]:
    if bytes(output.output)[:1] != b"[":
        return _said(output, param, tools)
    runs = decode(_RAN, output.output, f"'{param}.output'", f"{param}.output")
    return "\n\n".join(_one_run(run) for run in runs)


def _one_run(ran: _Ran) -> str:
    """What one command gave, readable: an exit code alone says least, so it comes last."""
    said = [f"{name}:\n{text}" for name, text in (("stdout", ran.stdout), ("stderr", ran.stderr)) if text]
    if ran.outcome is not None:
        code = ran.outcome.exit_code
        said.append(f"exit code: {code}" if code is not None else f"outcome: {ran.outcome.type}")
    return "\n".join(said)


def _found(output: _Output, param: str, tools: Tools) -> str:
    lines = [line for tool in output.tools or () for line in _lines(tool, tools, None)]
    return "Tools found:\n" + "\n".join(lines) if lines else "No tools found."


def _lines(tool: _Found, tools: Tools, namespace: str | None) -> list[str]:
    """A line for each tool, by the name that the model is to call it by."""
    if tool.tools is not None:
        return [line for each in tool.tools for line in _lines(each, tools, tool.name)]
    name = tools.name_of(tool.type, tool.name or tool.type, namespace)
    return [f"- {name}: {tool.description}" if tool.description else f"- {name}"]


_OUTPUTS: Mapping[str, Callable[[_Output, str, Tools], str | list[Raw]]] = {
    "function_call_output": _said,
    "custom_tool_call_output": _said,
    "shell_call_output": _ran,
    "local_shell_call_output": _said,
    "apply_patch_call_output": _patched,
    "tool_search_output": _found,
}
