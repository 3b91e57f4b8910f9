"""The tables of docs/upstreams.md that say what becomes of each feature on each kind of server.

A cell is read off the golden corpus: the case of its row, translated for the profile of its column. `make docs`
writes them; a test compares.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from proxy.models.profile import profiles
from proxy.tools import markdown
from tests.golden import corpus

Json = dict[str, Any]
REFUSED, LEFT_OUT, AS_IT_IS = "refused", "left out, said", "as it is"


class Row(NamedTuple):
    """A feature, the case that shows it, and how a request is read."""

    feature: str
    case: str
    fate: Callable[[Json], str]


def _messages(made: Json, role: str) -> list[Json]:
    body = made["body"]
    return [each for each in body.get("messages", body.get("input", [])) if each.get("role") == role]


def _text(made: Json) -> str:
    return json.dumps(made["body"], ensure_ascii=False)


def _tool(kind: str) -> Callable[[Json], str]:
    def fate(made: Json) -> str:
        tools = made["body"].get("tools", [])
        if any(tool["type"] == kind for tool in tools) and kind != "function":
            return AS_IT_IS
        if f"tool {kind}" in made.get("left_out", ()):
            return LEFT_OUT
        return "function" if tools else "–"

    return fate


def _function(made: Json) -> str:
    (tool,) = made["body"]["tools"]
    strict = tool.get("function", tool).get("strict")
    return "yes, with strict" if strict else "yes, without strict"


def _member(*names: str) -> Callable[[Json], str]:
    """By which of these names a setting is sent."""

    def fate(made: Json) -> str:
        sent = [name for name in names if _has(made["body"], name)]
        ignored = [name for name in sent if _IGNORED.get(name) in made.get("left_out", ())]
        if ignored:
            return f"`{sent[0]}`, ignored, said"
        return f"`{sent[0]}`" if sent else (LEFT_OUT if made.get("left_out") else "–")

    return fate


# Member → how it is said that a server takes it and does not obey.
_IGNORED = {
    "parallel_tool_calls": "field parallel_tool_calls",
    "response_format": "field text.format",
    "text.format": "field text.format",
    "text.verbosity": "field text.verbosity",
    "top_logprobs": "field top_logprobs",
}


def _has(body: Json, path: str) -> bool:
    where: Any = body
    for name in path.split("."):
        if not isinstance(where, dict) or name not in where:
            return False
        where = where[name]
    return True


def _value(path: str) -> Callable[[Json], str]:
    def fate(made: Json) -> str:
        where: Any = made["body"]
        for name in path.split("."):
            where = where.get(name, {})
        return f"`{where}`" if where else (LEFT_OUT if made.get("left_out") else "–")

    return fate


def _choice(made: Json) -> str:
    choice = made["body"].get("tool_choice")
    if isinstance(choice, dict):
        return "by name"
    return f"`{choice}`, it alone" if len(made["body"]["tools"]) == 1 else f"`{choice}`"


def _allowed(made: Json) -> str:
    choice = made["body"].get("tool_choice")
    return "as it is" if isinstance(choice, dict) else f"{len(made['body']['tools'])} of 3 offered"


def _image_in_output(made: Json) -> str:
    tools = [*_messages(made, "tool"), *(i for i in made["body"].get("input", ()) if "output" in i)]
    if "data:image" in json.dumps(tools):
        return "in the output"
    return "in a user message" if "data:image" in json.dumps(_messages(made, "user")) else LEFT_OUT


def _role(made: Json) -> str:
    return "`developer`" if _messages(made, "developer") else "`system`" if _messages(made, "system") else "`user`"


def _late(made: Json) -> str:
    message = next(each for each in _sequence(made) if "Mode: plan." in json.dumps(each))
    return f"`{message['role']}`, in place"


def _sequence(made: Json) -> list[Json]:
    body = made["body"]
    found: list[Json] = body.get("messages", body.get("input", []))
    return found


def _leading(made: Json) -> str:
    roles = [each["role"] for each in _sequence(made) if each.get("role") in ("system", "developer")]
    return "one system message" if len(roles) == 1 else "as they are"


def _reasoning(made: Json) -> str:
    for each in _sequence(made):
        for name in ("reasoning_content", "reasoning"):
            if isinstance(each.get(name), str):
                return f"`{name}`"
        if each.get("type") == "reasoning":
            return "sealed" if "encrypted_content" in each else "as text"
    return LEFT_OUT


def _kept(token: str) -> Callable[[Json], str]:
    return lambda made: "carried" if token in _text(made) else LEFT_OUT


def _effort(made: Json) -> str:
    return _either(made, "reasoning_effort", "reasoning.effort")


ROWS = (
    Row("Functions", "tools-function-strict", _function),
    Row("`parallel_tool_calls`", "tools-function-strict", _member("parallel_tool_calls")),
    Row("Custom tools", "tools-custom-text", _tool("custom")),
    Row("Custom tools with a grammar", "tools-custom-lark", _tool("custom")),
    Row("Namespaces", "tools-namespace", _tool("namespace")),
    Row("`tool_search`, run by the client", "tools-tool-search-client", _tool("tool_search")),
    Row("`additional_tools`", "tools-additional", _kept("Weather of a city.")),
    Row("`shell`", "tools-shell", _tool("shell")),
    Row("`local_shell`", "tools-local-shell", _tool("local_shell")),
    Row("`apply_patch`", "tools-apply-patch", _tool("apply_patch")),
    Row("Hosted tools", "tools-hosted-beside-functions", _tool("web_search")),
    Row("A hosted tool demanded", "choice-hosted", lambda made: AS_IT_IS),
    Row("A function demanded", "choice-function", _choice),
    Row("`allowed_tools`", "choice-allowed", _allowed),
    Row("Longest answer", "fields-sampling", _member("max_tokens", "max_completion_tokens", "max_output_tokens")),
    Row("Effort `xhigh`", "fields-efforts", _effort),
    Row("Effort `minimal`", "fields-effort-minimal", _effort),
    Row("Verbosity", "fields-verbosity", _member("verbosity", "text.verbosity")),
    Row("JSON schema", "fields-json-schema", _member("response_format", "text.format")),
    Row("Log-probabilities", "fields-logprobs", _member("top_logprobs")),
    Row("Unknown settings", "fields-unknown", _member("brand_new")),
    Row("Instructions and developer messages", "fields-instructions-and-developer", _leading),
    Row("A developer message in the middle", "items-late-developer", _late),
    Row("Images", "items-image-url", _kept("data:image")),
    Row("Files with their data", "items-file", _kept("data:application/pdf")),
    Row("Images in tool outputs", "items-image-in-output", _image_in_output),
    Row("Raw reasoning, sent back", "items-reasoning-raw", _reasoning),
    Row("Reasoning sealed here, sent back", "items-reasoning-sealed", _reasoning),
    Row("Reasoning that another server encrypted", "items-reasoning-foreign", _reasoning),
    Row("What hosted tools did earlier", "items-hosted-calls", _kept("print(1)")),
    Row("Compaction items", "items-compaction", _kept("gAAAAABopaque")),
    Row("Items of unknown types", "items-unknown", _kept("acme:telemetry")),
)


def _either(made: Json, *paths: str) -> str:
    found = next((path for path in paths if _has(made["body"], path)), None)
    return _value(found)(made) if found else LEFT_OUT


@cache
def _requested(case: str) -> Mapping[str, Mapping[str, Json]]:
    path = corpus.HERE / "requests" / f"{case}.json"
    return corpus.all_requested(corpus.create_of(json.loads(path.read_text())))


def cell(row: Row, dialect: str, profile: str) -> str:
    """What becomes of a feature."""
    made = _requested(row.case)[dialect][profile]
    return REFUSED if "error" in made else row.fate(made)


def table(dialect: str) -> str:
    """One dialect's table, in Markdown; profiles that are alike share a column."""
    columns: dict[tuple[str, ...], list[str]] = {}
    for name in _requested(ROWS[0].case)[dialect]:
        columns.setdefault(tuple(cell(row, dialect, name) for row in ROWS), []).append(name)
    heads = [", ".join(sorted(names)) for names in columns.values()]
    rows = (
        (f"[{row.feature}](../tests/golden/requests/{row.case}.json)", *(column[at] for column in columns))
        for at, row in enumerate(ROWS)
    )
    return markdown.table(("", *heads), rows)


def tables() -> str:
    """Both tables under their headings."""
    usual = {name: profile.dialect for name, profile in profiles().items()}
    made = []
    for dialect, title in (("chat", "Chat Completions"), ("responses", "Responses")):
        chosen = ", ".join(name for name, its in usual.items() if its == dialect and name != "simulated")
        made.append(f"### {title}\n\nWhat `auto` chooses for {chosen}.\n\n{table(dialect)}")
    return "\n".join(made)


def rewritten(text: str) -> str:
    """The document with its tables as they are now."""
    return markdown.rewritten(text, {"features": tables()})


if __name__ == "__main__":
    document = Path(sys.argv[1])
    document.write_text(rewritten(document.read_text()))
