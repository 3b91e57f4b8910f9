"""Codex's own kinds of tools on a chat upstream: `apply_patch` with its grammar, a namespace, and images."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy.tools.snippets import SNIPPETS
from tests.clients.codex import Codex, Event, Run
from tests.clients.test_codex import DONE, PAGE, chained, shell, succeeded
from tests.house import House, open_house

pytestmark = [pytest.mark.clients, pytest.mark.timeout(120)]

# The model that Codex gives its patch tool to; an alias makes it one that the upstream has.
PATCHING = "gpt-5.5"
ALIASED = {"models.default": "", "models.aliases": {PATCHING: "simulated"}}
PATCH = """*** Begin Patch
*** Update File: code.py
@@
-x = "a\\b" # ä
+x = 'two'
*** Add File: sub/new.py
+y = 3
*** End Patch
"""
BEFORE = 'x = "a\\b" # ä\n'
AFTER = "x = 'two'\n"
# Two by two pixels.
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000002000000020802000000fdd49a73"
    "0000001149444154789c63f8cfc000440c60f23f001bf203fdf3e74bb10000000049454e44ae426082"
)


def patch(text: str) -> str:
    """The directive that calls the patch tool as a chat model does: a function of one string."""
    return f"[[call apply_patch {json.dumps({'input': text})}]]"


def saved(codex: Codex) -> Iterator[Event]:
    """The items of the conversation as Codex keeps them."""
    for path in sorted((codex.home / "sessions").rglob("*.jsonl")):
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            if entry["type"] == "response_item":
                yield entry["payload"]


def saved_calls(codex: Codex, kind: str) -> list[Event]:
    """Those of one type."""
    return [item for item in saved(codex) if item["type"] == kind]


def changes(run: Run) -> set[tuple[str, str]]:
    """The files that the user is told of, and how they changed."""
    made = [change for item in run.items if item["type"] == "file_change" for change in item["changes"]]
    return {(Path(change["path"]).name, change["kind"]) for change in made}


def results(house: House, number: int = -1) -> list[tuple[str, Any]]:
    """The tool messages in an upstream request: the function that they answer, and their text."""
    messages = house.asked(number)
    names = {call["id"]: call["function"]["name"] for each in messages for call in each.get("tool_calls") or ()}
    return [(names[each["tool_call_id"]], each["content"]) for each in messages if each["role"] == "tool"]


def edited(codex: Codex, run: Run, house: House) -> None:
    """The patch and then the command did their work, and both results came to the model."""
    succeeded(run)
    assert codex.read("code.py") == AFTER
    assert codex.read("sub/new.py") == "y = 3\n"
    assert changes(run) == {("code.py", "update"), ("new.py", "add")}
    assert [command["exit_code"] for command in run.commands] == [0]
    (call,) = saved_calls(codex, "custom_tool_call")
    assert (call["name"], call["input"]) == ("apply_patch", PATCH)
    patched, ran = results(house)
    assert patched[0] == "apply_patch"
    assert "code.py" in patched[1]
    assert ran[0] == "exec_command"
    assert "two" in ran[1]


@pytest.mark.parametrize("transport", ["websocket", "http", "fallback"])
async def test_a_file_edit_with_the_patch_tool_and_a_command(transport: str, codex: Codex) -> None:
    """By WebSocket, by HTTP, and by HTTP because WebSocket is refused."""
    (codex.work / "code.py").write_text(BEFORE)
    script = patch(PATCH) + " [[then]] " + shell("cat code.py") + DONE
    async with open_house("chat", {**ALIASED, "server.websocket": transport != "fallback"}) as house:
        codex.configure(house.url, model=PATCHING, websocket=transport != "http")
        run = await codex.exec(script)
        await house.empty()
        edited(codex, run, house)
        turns = house.watcher.turns
        assert {turn.upstream_model for turn in turns} == {"simulated"}
        if transport == "websocket":
            chained(turns)
            assert [turn.items_in for turn in turns[-2:]] == [1, 1], "only the result of each call is new"
        else:
            assert {(turn.transport, turn.outcome, turn.parent) for turn in turns} == {("http", "completed", "")}
        # What Codex sends back is what the model had said.
        said = [call for each in house.asked() for call in each.get("tool_calls") or ()]
        assert json.loads(said[0]["function"]["arguments"]) == {"input": PATCH}


async def test_the_models_own_grammar_reaches_it_as_words(codex: Codex) -> None:
    async with open_house("chat", ALIASED) as house:
        codex.configure(house.url, model=PATCHING)
        succeeded(await codex.exec('[[say "All done."]]'))
        functions = [tool["function"] for tool in house.upstream.requests[-1].body["tools"]]
        (tool,) = [each for each in functions if each["name"] == "apply_patch"]
        assert tool["parameters"]["required"] == ["input"]
        assert "*** Begin Patch" in tool["description"]
        assert {"tool", "web_search"} <= {word for left in house.watcher.turns[-1].left_out for word in left}


async def test_a_patch_that_does_not_apply_is_told_to_the_model(codex: Codex) -> None:
    (codex.work / "code.py").write_text("z = 0\n")
    async with open_house("chat", ALIASED) as house:
        codex.configure(house.url, model=PATCHING)
        run = await codex.exec(patch(PATCH) + DONE)
        succeeded(run)
        assert codex.read("code.py") == "z = 0\n"
        ((name, text),) = results(house)
        assert name == "apply_patch"
        assert "verification failed" in text


async def test_two_patches_and_a_command_in_one_answer(codex: Codex) -> None:
    files = [f"*** Begin Patch\n*** Add File: {name}.txt\n+{name}\n*** End Patch\n" for name in "ab"]
    script = patch(files[0]) + shell("echo c > c.txt") + patch(files[1]) + DONE
    async with open_house("chat", ALIASED) as house:
        codex.configure(house.url, model=PATCHING)
        succeeded(await codex.exec(script))
        assert [codex.read(f"{name}.txt") for name in "abc"] == ["a\n", "b\n", "c\n"]
        chained(house.watcher.turns)
        assert sorted(name for name, _ in results(house)) == ["apply_patch", "apply_patch", "exec_command"]


async def test_the_conversation_of_a_patch_is_resumed(codex: Codex) -> None:
    """A new process sends it all: the call as the custom call that it was, and the model sees its own function."""
    (codex.work / "code.py").write_text(BEFORE)
    async with open_house("chat", ALIASED) as house:
        codex.configure(house.url, model=PATCHING)
        first = await codex.exec(patch(PATCH) + DONE)
        await house.empty()
        succeeded(await codex.exec('[[say "All done."]]', "resume", first.thread))
        ((name, _),) = results(house)
        assert name == "apply_patch"
        said = [call for each in house.asked() for call in each.get("tool_calls") or ()]
        assert [json.loads(call["function"]["arguments"]) for call in said] == [{"input": PATCH}]


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed: the page's command needs it")
async def test_the_patch_tool_for_a_model_of_ones_own(codex: Codex) -> None:
    """With the page's command: Codex's entry of gpt-5.5 under the model's own name."""
    (command,) = re.findall(r"^codex debug models .*$", PAGE.read_text(), re.MULTILINE)
    catalog = codex.home / "models.json"
    command = command.replace("codex debug", f"{shlex.quote(str(codex.program))} debug", 1)
    command = command.replace("~/.codex/models.json", shlex.quote(str(catalog))).replace("smollm2", "simulated")
    environment = {"PATH": os.environ["PATH"], "HOME": str(codex.home), "CODEX_HOME": str(codex.home)}
    subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], check=True, env=environment)
    (codex.work / "code.py").write_text(BEFORE)
    async with open_house("chat") as house:
        setting = f"model_catalog_json = {json.dumps(str(catalog))}\n"
        codex.write_config(setting + SNIPPETS["codex"].fill(house.url, "simulated"))
        run = await codex.exec(patch(PATCH) + " [[then]] " + shell("cat code.py") + DONE)
        edited(codex, run, house)
        chained(house.watcher.turns)
        assert not [notice for notice in run.notices if "metadata" in notice]


# --- A namespace -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("websocket", [True, False], ids=["websocket", "http"])
async def test_a_call_in_a_namespace_finds_its_tool(websocket: bool, codex: Codex) -> None:
    """Codex answers a call with the wrong namespace with "unsupported call"."""
    script = '[[call multi_agent_v1__close_agent {"target": "agent-1"}]]' + DONE
    async with open_house("chat") as house:
        codex.configure(house.url, websocket=websocket)
        succeeded(await codex.exec(script))
        ((name, text),) = results(house)
        assert name == "multi_agent_v1__close_agent"
        assert text.startswith("invalid agent id agent-1")
        calls = saved_calls(codex, "function_call")
        assert [(call["namespace"], call["name"]) for call in calls] == [("multi_agent_v1", "close_agent")]


# --- An image --------------------------------------------------------------------------------------------------------


async def test_an_image_that_a_tool_shows_is_an_image(codex: Codex) -> None:
    (codex.work / "dot.png").write_bytes(PNG)
    async with open_house("chat", ALIASED) as house:
        codex.configure(house.url, model=PATCHING)
        succeeded(await codex.exec('[[call view_image {"path": "dot.png"}]]' + DONE))
        parts = [part for each in house.asked() if isinstance(each["content"], list) for part in each["content"]]
        (image,) = [part for part in parts if part["type"] == "image_url"]
        assert image["image_url"]["url"].startswith("data:image/png;base64,")
        assert "base64" not in "".join(house.said())
