"""Arguments of the built-in tools as models write them: what was plainly meant is taken.

A command in one string, a number as text, another word for the same member, a patch in its envelope. What says nothing
plain stays an error: a call made up here would be run. The error is one that a retry may help, since a model asked
again mostly does not slip again, and clients bound their retries.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from proxy.translate.answer.raw_input import read_json

# What makes a command line more than words: it needs a shell to mean what it says.
_NEEDS_SHELL = re.compile(r"[|&;<>()$`\\*?\[\]#~=%!{}\n]")
_OPERATIONS: Mapping[str, str] = {
    **dict.fromkeys(("create", "add", "create_file", "add_file"), "create_file"),
    **dict.fromkeys(("update", "modify", "edit", "update_file", "modify_file", "edit_file"), "update_file"),
    **dict.fromkeys(("delete", "remove", "delete_file", "remove_file"), "delete_file"),
}
_MAX_WHOLE = 2**53  # what every client's JSON library reads exactly
_ENVELOPE = "*** Begin Patch"
_FILE = re.compile(r"^\*\*\* (Add|Update|Delete) File: (.+)$", re.MULTILINE)
_MOVE = re.compile(r"^\*\*\* Move to: ", re.MULTILINE)
_END = re.compile(r"^\*\*\* End Patch\s*\Z", re.MULTILINE)


def shell_action(arguments: str) -> dict[str, Any]:
    """The action of a `shell_call`. Raises ValueError for arguments without commands."""
    read = _members(arguments)
    commands = _first(read, "commands", "command", "cmd")
    if isinstance(commands, str) and not commands.strip():
        raise ValueError("a command is not empty")
    if isinstance(commands, str):
        lines = [commands]
    elif read.get("commands") is not None and isinstance(commands, list):
        lines = [each if isinstance(each, str) else shlex.join(_words(each)) for each in commands]
    else:
        lines = [shlex.join(_words(commands))]
    limits = {name: _whole(read.get(name)) for name in ("timeout_ms", "max_output_length")}
    return {"commands": lines, **limits}


def local_shell_action(arguments: str) -> dict[str, Any]:
    """The action of a `local_shell_call`. Raises ValueError for arguments without a command."""
    read = _members(arguments)
    command = _first(read, "command", "commands", "cmd")
    if isinstance(command, list) and len(command) == 1 and isinstance(command[0], str):
        command = command[0] if read.get("commands") is not None else command
    folder = _first(read, "working_directory", "workdir", "cwd")
    return {
        "type": "exec",
        "command": _split(command) if isinstance(command, str) else _words(command),
        "working_directory": folder if isinstance(folder, str) else None,
        "timeout_ms": _whole(read.get("timeout_ms")),
        "env": _environment(read.get("env")),
    }


def patch_operation(arguments: str) -> dict[str, Any]:
    """The operation of an `apply_patch_call`. Raises ValueError for arguments that name no change of one file."""
    read = _members(arguments) if arguments.lstrip().startswith("{") else {}
    diff = _first(read, "diff", "patch", "input", "content") if read else read_json(arguments) or arguments
    kind = _OPERATIONS.get(str(read.get("type")))
    if isinstance(diff, str) and diff.lstrip().startswith(_ENVELOPE):
        unwrapped = _unwrapped(diff)
        if kind not in (None, unwrapped["type"]):
            raise ValueError("the patch does something else than its type says")
        return unwrapped
    path = _first(read, "path", "file_path", "file", "filename")
    if kind is None or not isinstance(path, str):
        raise ValueError("it needs a path, and a type of create_file, update_file or delete_file")
    if kind == "delete_file":
        return {"type": kind, "path": path}
    if not isinstance(diff, str):
        raise ValueError("it needs a diff but to delete")
    return {"type": kind, "path": path, "diff": diff}


def _unwrapped(patch: str) -> dict[str, Any]:
    """The one change in a patch with an envelope around it."""
    found = list(_FILE.finditer(patch))
    if len(found) != 1 or _MOVE.search(patch):
        raise ValueError("a patch must change one file, and not move it")
    (head,) = found
    kind, path = _OPERATIONS[head.group(1).lower()], head.group(2).strip()
    if kind == "delete_file":
        return {"type": kind, "path": path}
    return {"type": kind, "path": path, "diff": _END.sub("", patch[head.end() :].removeprefix("\n"))}


def _members(arguments: str) -> dict[str, Any]:
    read = read_json(arguments)
    if not isinstance(read, dict):
        raise ValueError("they are no JSON object")
    return read


def _first(read: Mapping[str, Any], *names: str) -> Any:
    return next((read[name] for name in names if read.get(name) is not None), None)


def _words(given: Any) -> list[str]:
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise ValueError("a command is a list of strings")
    return given


def _split(line: str) -> list[str]:
    """A command line as a program and its arguments; through a shell where it is more than words."""
    if not line.strip():
        raise ValueError("a command is not empty")
    if not _NEEDS_SHELL.search(line):
        try:
            return shlex.split(line)
        except ValueError:
            pass  # a quote without its other: the shell says so
    return ["sh", "-c", line]


def _whole(given: Any) -> int | None:
    """A limit as a whole number; one that cannot be read is none."""
    try:
        number = None if isinstance(given, bool) else round(float(given))
    except (TypeError, ValueError, OverflowError):
        return None
    return number if number is not None and abs(number) <= _MAX_WHOLE else None


def _environment(given: Any) -> dict[str, str]:
    if not isinstance(given, dict):
        return {}
    return {name: str(value) for name, value in given.items() if isinstance(value, str | int | float)}
