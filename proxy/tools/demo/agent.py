"""The agent of the demonstration: what a coding agent sends with each turn, and what it says in its loop; pure.

Before the simulated upstream the first message scripts the model (see `docs/simulate.md`), so that both runs do the
same. A real model does what it likes: where it calls a tool the call is answered, else the result goes as a user
message, so that the loop has the same length and much the same size with any model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from proxy.tools.simulate.tokens import filler, split
from proxy.wire.codec import encode

from .options import Options

Item = Mapping[str, Any]
TOOL = "shell"

INSTRUCTIONS = """\
You are a coding agent that runs in a terminal on the user's machine. You work in a repository until the task is done,
and you can see nothing of it but what your tools return.

How you work
- Read before you write. Look at the code around a change, at its callers and at its tests before you decide.
- Find the cause. A patch that hides a symptom is worse than none; say so when the cause is out of reach.
- Keep changes small and in the style of the file. Do not rename, reformat or reorder what the task does not touch.
- Never guess the content of a file. Never invent an API: search for its definition and read it.
- After a change run the narrowest test that covers it, then the whole suite. Report failures as they are.
- Do not commit, push, install packages or reach the network unless the user asks for it.

How you use tools
- Prefer `rg` to `grep` and `rg --files` to `find`. Read long files in parts of at most 250 lines.
- Give every command the directory it runs in; do not use `cd`. Quote paths that hold spaces.
- One call at a time when a result decides the next; several at once only if they are independent.
- Output is cut at 10,000 tokens: narrow the command rather than asking for the rest.
- Keep a plan of the steps for anything that takes more than three, and keep it up to date.

How you answer
- Be brief and exact. Name files as path:line. No praise, no apologies, no summaries of what was obvious.
- When the task is done, say what changed and why, what you ran, and what you could not verify.
"""


def _function(name: str, description: str, required: Sequence[str], **properties: Any) -> Item:
    parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {"type": "function", "name": name, "description": description, "strict": False, "parameters": parameters}


def _text(description: str) -> Item:
    return {"type": "string", "description": description}


def _number(description: str) -> Item:
    return {"type": "integer", "description": description}


_STEP = {
    "type": "object",
    "properties": {
        "step": _text("What is done in this step, in five to seven words."),
        "status": {"type": "string", "enum": ["pending", "in_progress", "completed"]},
    },
    "required": ["step", "status"],
    "additionalProperties": False,
}

TOOLS: Sequence[Item] = (
    _function(
        TOOL,
        "Runs a shell command in the repository and returns its exit code and its output, standard error included. The "
        "command runs in a sandbox that may write below the repository and has no network; ask for more only if the "
        "command failed without it.",
        ["command", "workdir"],
        command=_text("The command line, as bash takes it."),
        workdir=_text("The directory that the command runs in, absolute or relative to the repository."),
        timeout_ms=_number("How long the command may run before it is stopped, in milliseconds. Default: 10000."),
        with_escalated_permissions={"type": "boolean", "description": "Whether to run it outside of the sandbox."},
        justification=_text("One sentence for the user: why this command is needed."),
    ),
    _function(
        "read_file",
        "Reads a part of a text file and returns it with line numbers. Lines longer than 500 characters are cut.",
        ["path"],
        path=_text("The file, relative to the repository."),
        offset=_number("The first line to read, counted from 1. Default: 1."),
        limit=_number("How many lines to read at most. Default: 250."),
    ),
    _function(
        "search",
        "Searches the files of the repository for a regular expression and returns the lines that match, with path and "
        "line number, the most recently changed files first. Files that git ignores are left out.",
        ["pattern"],
        pattern=_text("A regular expression in the syntax of Rust's regex crate."),
        glob=_text("Only files that match this glob, for example `src/**/*.py`."),
        context=_number("Lines of context before and after each match. Default: 0."),
        limit=_number("How many matches to return at most. Default: 100."),
    ),
    _function(
        "list_dir",
        "Lists the entries of a directory with their kind and size, depth first.",
        ["path"],
        path=_text("The directory, relative to the repository."),
        depth=_number("How many levels to descend. Default: 2."),
        limit=_number("How many entries to return at most. Default: 200."),
    ),
    _function(
        "apply_patch",
        "Changes files. The patch starts with `*** Begin Patch`, ends with `*** End Patch`, and holds one section a "
        "file: `*** Add File:`, `*** Delete File:` or `*** Update File:`, the last with hunks that start with @@ and "
        "three lines of context before and after each change. Paths are relative, never absolute. Nothing is changed "
        "unless every hunk applies.",
        ["patch"],
        patch=_text("The whole patch."),
    ),
    _function(
        "update_plan",
        "Shows the user the steps of the work and where it stands. At most one step is in progress at a time.",
        ["plan"],
        explanation=_text("Why the plan changed, if it did."),
        plan={"type": "array", "description": "Every step, in order.", "items": _STEP},
    ),
    _function(
        "view_image",
        "Puts an image of the repository in front of the model, for example a screenshot that a test has left.",
        ["path"],
        path=_text("The image, relative to the repository."),
    ),
)


def fields(options: Options, model: str) -> dict[str, Any]:
    """What stands beside the input in every turn of either run: instructions and tools belong to a turn."""
    settings: dict[str, Any] = {"model": model, "instructions": INSTRUCTIONS, "tools": TOOLS, "store": False}
    if options.upstream is not None:
        settings["max_output_tokens"] = options.max_output_tokens
    return settings


class Agent:
    """One conversation of the client: `history` holds every item so far, `called` counts results that answer a call.

    `tag` starts the first message: no run's conversation is a prefix of another's, for the sake of prefix caches.
    """

    def __init__(self, options: Options, tag: str) -> None:
        self._options = options
        self.history: list[Item] = [user(f"[{tag}] {_task(options)}")]
        self.called = 0

    def take(self, output: Sequence[Item]) -> None:
        """Keep the model's answer."""
        self.history += output

    def use_tool(self, number: int) -> list[Item]:
        """The result of tool call `number`, as the items of the next turn; they are kept as well."""
        result = tool_output(number, self._options.tool_output_bytes)
        calls = self._open_calls()
        self.called += bool(calls)
        items: list[Item]
        if calls:
            items = [{"type": "function_call_output", "call_id": call, "output": result} for call in calls]
        else:
            items = [user(f"This is the result of step {number}:\n{result}")]
        self.history += items
        return items

    def _open_calls(self) -> list[str]:
        """Calls of the last answer. One that was cut off in the middle cannot be run or answered."""
        answer: list[str] = []
        for item in reversed(self.history):
            if item.get("type") == "function_call_output" or item.get("role") == "user":
                break
            if item.get("type") == "function_call" and item.get("status") != "incomplete":
                answer.insert(0, item["call_id"])
        return answer


def user(text: str) -> dict[str, Any]:
    """A user's message."""
    return {"type": "message", "role": "user", "content": text}


def _task(options: Options) -> str:
    task = "The session test fails now and then on a slow machine. Find out why, and propose a fix."
    if options.upstream is not None:
        return f"{task} You are shown one result after the other; answer each in a few words."
    return f"{task}\n[[loop {options.turns} {TOOL} {_arguments(options.answer_tokens)}]]"


def _arguments(tokens: int) -> str:
    """A call's arguments, filled up to `tokens` of the simulated tokenizer."""
    call = {"command": "sed -n '1,120p' src/session.py", "workdir": "/repo", "justification": ""}
    bare = len(split(encode(call).decode()))
    call["justification"] = filler(max(0, tokens - bare))
    return encode(call).decode()


def tool_output(number: int, size: int) -> str:
    """`size` bytes of a file that nobody wrote: part `number`."""
    lines, length = [], 0
    for line in count(120 * number + 1):
        text = _LINES[line % len(_LINES)].format(line=line)
        lines.append(f"{line:6}\t{text}\n")
        length += len(lines[-1])
        if length >= size:
            return "".join(lines)[:size]
    raise AssertionError("count() does not end")


_LINES = (
    "    async def step_{line}(self, session: Session) -> None:",
    '        """Wait until step {line} was seen by every reader."""',
    "        deadline_s = self._clock() + self._patience_s",
    "        while not session.has_seen({line}):",
    "            if self._clock() > deadline_s:",
    '                raise TimeoutError("step {line} was not seen in time")',
    "            await self._changed.wait()",
    "        self._seen.append({line})",
    "",
)
