"""The kinds of tools that a client runs itself, each as a function that a model can call.

Source: API reference, Responses, tools; openai-python 3.57, types/responses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from proxy.wire.codec import NULL, Raw, decode, encode, is_null

INPUT = "input"  # the one argument of a custom tool


class Spec(msgspec.Struct):
    """The members of a tool that are acted on."""

    type: str
    name: str | None = None
    description: Raw = NULL
    parameters: Raw = NULL
    strict: Raw = NULL
    format: Raw = NULL
    environment: Raw = NULL
    tools: list[Raw] | None = None
    execution: str | None = None
    defer_loading: bool | None = None


class _Format(msgspec.Struct):
    type: str = "text"
    syntax: str = ""
    definition: str = ""


class _Skill(msgspec.Struct):
    name: str = ""
    description: str = ""
    path: str = ""


class _Environment(msgspec.Struct):
    type: str = "local"
    skills: Raw = NULL


_FORMAT = msgspec.json.Decoder(_Format)
_ENVIRONMENT = msgspec.json.Decoder(_Environment)
_SKILLS = msgspec.json.Decoder(list[_Skill])
_TEXT = msgspec.json.Decoder(str)

Described = tuple[bytes, bytes]


class Maker(NamedTuple):
    """How a kind becomes a function: `describe` gives its members and its `strict`, None where it cannot be one.

    It raises `LooplineError` (invalid_request).
    """

    describe: Callable[[Spec, str], Described | None]
    is_named: bool = False


def _members(**members: Any) -> bytes:
    return b"".join(b",%b:%b" % (encode(name), encode(value)) for name, value in members.items())


def _function(spec: Spec, param: str) -> Described:
    # Absent stays absent: `strict: null` makes some engines compile a grammar, some reject it.
    given = {name: getattr(spec, name) for name in ("description", "parameters") if not is_null(getattr(spec, name))}
    return _members(**given), b"" if is_null(spec.strict) else b',"strict":' + bytes(spec.strict)


def _custom(spec: Spec, param: str) -> Described:
    wanted = _Format() if is_null(spec.format) else decode(_FORMAT, spec.format, f"'{param}.format'", f"{param}.format")
    text = _text(spec.description, f"{param}.description")
    argument = {"type": "string", "description": "The tool's whole input, as it is: no quotes or JSON around it."}
    if wanted.type == "grammar":
        text += f"\n\nThe input must follow this {wanted.syntax} grammar:\n{wanted.definition}"
    if wanted.syntax == "regex":
        argument["pattern"] = wanted.definition
    return _members(description=text.strip(), parameters=_object({INPUT: argument}, [INPUT])), b',"strict":true'


def _shell(spec: Spec, param: str) -> Described | None:
    described = "Runs shell commands on the user's machine, one after another, and gives their output."
    if not is_null(spec.environment):
        where = decode(_ENVIRONMENT, spec.environment, f"'{param}.environment'", f"{param}.environment")
        if where.type != "local":
            return None  # a container of another server's
        described += _skills(where, f"{param}.environment.skills")
    properties = {
        "commands": {"type": "array", "items": {"type": "string"}, "description": "Command lines to run."},
        "timeout_ms": {"type": "integer", "description": "Longest time for each command, in milliseconds."},
        "max_output_length": {"type": "integer", "description": "Most characters of output to return."},
    }
    return _members(description=described, parameters=_object(properties, ["commands"])), b""


def _skills(where: _Environment, param: str) -> str:
    """Skills are folders of the user's with instructions in them: a model has to know where they are."""
    skills = [] if is_null(where.skills) else decode(_SKILLS, where.skills, f"'{param}'", param)
    lines = [f"- {skill.name} ({skill.path}/SKILL.md): {skill.description}" for skill in skills]
    return "\n\nSkills, to be read before they are used:\n" + "\n".join(lines) if lines else ""


def _local_shell(spec: Spec, param: str) -> Described:
    described = "Runs one command on the user's machine, without a shell around it, and gives its output."
    properties = {
        "command": {"type": "array", "items": {"type": "string"}, "description": "The program and its arguments."},
        "working_directory": {"type": "string", "description": "Folder to run it in."},
        "timeout_ms": {"type": "integer", "description": "Longest time to run, in milliseconds."},
        "env": {"type": "object", "additionalProperties": {"type": "string"}, "description": "Environment to add."},
    }
    return _members(description=described, parameters=_object(properties, ["command"])), b""


def _apply_patch(spec: Spec, param: str) -> Described:
    described = (
        "Creates, changes or deletes one file. `diff` is a V4A diff: for a new file every line starts with +; for a "
        "change, sections start with @@ and lines with a space (kept), - (removed) or + (added)."
    )
    properties = {
        "type": {"type": "string", "enum": ["create_file", "update_file", "delete_file"]},
        "path": {"type": "string", "description": "The file, relative to the working folder."},
        "diff": {"type": "string", "description": "The diff; left out to delete."},
    }
    return _members(description=described, parameters=_object(properties, ["type", "path"])), b""


_ANY_QUERY = {"query": {"type": "string", "description": "What the tool should be able to do."}}


def _tool_search(spec: Spec, param: str) -> Described | None:
    if spec.execution != "client":
        return None  # every tool that it could find is offered
    described = spec.description if not is_null(spec.description) else "Finds further tools by what they do."
    parameters = spec.parameters if not is_null(spec.parameters) else _object(_ANY_QUERY, ["query"])
    return _members(description=described, parameters=parameters), b""


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _text(raw: Raw, param: str) -> str:
    return "" if is_null(raw) else decode(_TEXT, raw, f"'{param}'", param)


FUNCTION_MAKERS: Mapping[str, Maker] = {
    "function": Maker(_function, is_named=True),
    "custom": Maker(_custom, is_named=True),
    "shell": Maker(_shell),
    "local_shell": Maker(_local_shell),
    "apply_patch": Maker(_apply_patch),
    "tool_search": Maker(_tool_search),
}
# Kinds that need no function, since what they are for is done here.
NEEDLESS = frozenset({"tool_search", "namespace"})
