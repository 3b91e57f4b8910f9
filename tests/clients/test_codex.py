"""The Codex CLI on a simulated agent: tools, files, several turns, by WebSocket and by HTTP."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from proxy.telemetry.observer import TurnRecord
from proxy.tools.snippets import SNIPPETS
from tests.clients.app_server import app_server
from tests.clients.codex import Codex, Run
from tests.house import House, open_house

pytestmark = [pytest.mark.clients, pytest.mark.timeout(120)]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "clients" / "codex.md"
DONE = '[[then]] [[say "All done."]]'
WRITE = '[[call exec_command {"cmd": "echo hello > out.txt"}]] ' + DONE


def shell(command: str) -> str:
    """The directive that calls Codex's shell tool."""
    return f"[[call exec_command {json.dumps({'cmd': command})}]]"


def succeeded(run: Run) -> None:
    """The turn ended well for the user, without a retry that he would see."""
    assert run.code == 0, (run.failure, run.stderr)
    assert run.messages == ["All done."]
    assert not [notice for notice in run.notices if "Reconnecting" in notice or "Falling back" in notice]


def chained(turns: list[TurnRecord]) -> None:
    """A warm-up without an upstream call, then deltas, each on the response before it, all on one socket."""
    assert [turn.transport for turn in turns] == ["websocket"] * len(turns)
    assert [turn.outcome for turn in turns] == ["completed"] * len(turns)
    assert [turn.warm_up for turn in turns] == [True] + [False] * (len(turns) - 1)
    assert turns[0].attempts == 0
    assert turns[0].parent == ""
    assert [turn.parent for turn in turns[1:]] == [turn.response for turn in turns[:-1]]
    assert len({turn.session for turn in turns}) == 1


async def test_a_shell_command_over_websocket(dialect: str, codex: Codex, upgrades: list[str]) -> None:
    async with open_house(dialect) as house:
        codex.configure(house.url)
        run = await codex.exec(WRITE)
        await house.empty()
        succeeded(run)
        assert codex.read("out.txt") == "hello\n"
        assert [command["exit_code"] for command in run.commands] == [0]
        chained(house.watcher.turns)
        assert len(house.watcher.turns) == 3
        assert upgrades == ["websocket"]
        assert len(house.upstream.requests) == 2
        assert house.watcher.turns[-1].items_in == 1, "the result of the call is all that is new"
        assert house.watcher.sessions[0].errors == 0


async def test_its_conversation_reaches_the_upstream_whole(dialect: str, codex: Codex) -> None:
    """What the warm-up brought, and each delta, is in the last request, once and in order."""
    async with open_house(dialect) as house:
        codex.configure(house.url)
        await codex.exec(shell("echo marked-output") + DONE)
        first, last = house.said(0), house.said(1)
        assert last[: len(first)] == first
        assert len(first) == len(set(first)), "something was sent twice"
        assert shell("echo marked-output") + DONE in first
        call, output = last[len(first) :]
        assert json.loads(call) == {"cmd": "echo marked-output"}
        assert "marked-output" in output


async def test_the_tokens_that_codex_counts_are_the_upstreams(dialect: str, codex: Codex) -> None:
    async with open_house(dialect) as house:
        codex.configure(house.url)
        run = await codex.exec(WRITE)
        turns = house.watcher.turns
        assert run.usage["input_tokens"] == sum(turn.tokens_in for turn in turns) > 0
        assert run.usage["output_tokens"] == sum(turn.tokens_out for turn in turns) > 0
        assert run.usage["cached_input_tokens"] == sum(turn.tokens_cached for turn in turns) > 0


async def test_parallel_calls(dialect: str, codex: Codex) -> None:
    async with open_house(dialect) as house:
        codex.configure(house.url)
        run = await codex.exec(shell("echo a > a.txt") + shell("echo b > b.txt") + DONE)
        succeeded(run)
        assert (codex.read("a.txt"), codex.read("b.txt")) == ("a\n", "b\n")
        chained(house.watcher.turns)
        assert house.watcher.turns[-1].items_in == 2, "both results come in one create"


async def test_a_long_loop_stays_a_chain_of_deltas(codex: Codex) -> None:
    async with open_house("chat") as house:
        codex.configure(house.url)
        calls = " [[then]] ".join(shell(f"echo {number} >> out.txt") for number in range(12))
        succeeded(await codex.exec(calls + DONE))
        assert codex.read("out.txt").split() == [str(number) for number in range(12)]
        chained(house.watcher.turns)
        deltas = house.watcher.turns[2:]
        assert len(deltas) == 12
        assert {turn.items_in for turn in deltas} == {1}
        assert max(turn.bytes_in for turn in deltas) < 1.05 * min(turn.bytes_in for turn in deltas)


async def test_a_file_edit_through_the_shell(dialect: str, codex: Codex) -> None:
    (codex.work / "code.py").write_text("x = 1\n")
    patch = "*** Begin Patch\n*** Update File: code.py\n@@\n-x = 1\n+x = 2\n*** Add File: new.py\n+y = 3\n*** End Patch"
    async with open_house(dialect) as house:
        codex.configure(house.url)
        run = await codex.exec(shell(f"apply_patch <<'EOF'\n{patch}\nEOF\n") + DONE)
        succeeded(run)
        changes = [change for item in run.items if item["type"] == "file_change" for change in item["changes"]]
        assert {(Path(change["path"]).name, change["kind"]) for change in changes} == {
            ("code.py", "update"),
            ("new.py", "add"),
        }
        assert codex.read("code.py") == "x = 2\n"
        assert codex.read("new.py") == "y = 3\n"


# --- HTTP ------------------------------------------------------------------------------------------------------------


def over_http(house: House) -> None:
    """Each request by POST, with everything said so far."""
    turns = house.watcher.turns
    assert [(turn.transport, turn.outcome, turn.parent) for turn in turns] == [("http", "completed", "")] * 2
    assert turns[1].items_in == turns[0].items_in + 2


async def test_over_http(dialect: str, codex: Codex, upgrades: list[str]) -> None:
    async with open_house(dialect) as house:
        codex.configure(house.url, websocket=False)
        succeeded(await codex.exec(WRITE))
        assert codex.read("out.txt") == "hello\n"
        over_http(house)
        assert upgrades == []


async def test_a_websocket_that_is_switched_off_costs_one_attempt(codex: Codex, upgrades: list[str]) -> None:
    async with open_house("chat", {"server.websocket": False}) as house:
        codex.configure(house.url)
        succeeded(await codex.exec(WRITE))
        assert codex.read("out.txt") == "hello\n"
        over_http(house)
        assert upgrades == ["websocket"]
        assert house.watcher.sessions == []


# --- Several turns ---------------------------------------------------------------------------------------------------


async def test_user_turns_of_one_process_share_a_socket(dialect: str, codex: Codex, upgrades: list[str]) -> None:
    async with open_house(dialect) as house:
        codex.configure(house.url)
        async with app_server(codex) as server:
            assert (await server.ask(WRITE)).messages == ["All done."]
            assert (await server.ask('[[say "Second."]]')).messages == ["Second."]
            assert (await server.ask('[[say "Third."]]')).messages == ["Third."]
        chained(house.watcher.turns)
        assert [turn.items_in for turn in house.watcher.turns[2:]] == [1, 1, 1], "more than the delta was sent"
        assert upgrades == ["websocket"]
        assert house.said()[-4:] == ["All done.", '[[say "Second."]]', "Second.", '[[say "Third."]]']


async def test_an_interrupted_turn_stops_the_upstream_and_the_next_one_works(dialect: str, codex: Codex) -> None:
    async with open_house(dialect) as house:
        codex.configure(house.url)
        async with app_server(codex) as server:
            await server.ask('[[say "First."]]')
            await server.begin("[[stall 3]]")
            await house.upstream.wait_for(lambda u: u.requests[-1].tokens_sent == 3)
            await server.interrupt()
            assert (await server.end()).status == "interrupted"
            await house.aborted()
            after = await server.ask('[[say "Back again."]]')
            assert (after.status, after.messages) == ("completed", ["Back again."])
        assert [turn.outcome for turn in house.watcher.turns] == ["completed", "completed", "cancelled", "completed"]
        assert "First." in house.said()


async def test_a_compacted_thread_goes_on_from_its_summary(dialect: str, codex: Codex) -> None:
    async with open_house(dialect) as house:
        codex.configure(house.url)
        async with app_server(codex) as server:
            assert (await server.ask('[[say "Long talk."]]')).status == "completed"
            assert (await server.compact()).status == "completed"
            assert (await server.ask('[[say "Second."]]')).messages == ["Second."]
        assert [turn.outcome for turn in house.watcher.turns] == ["completed"] * 4
        summarised, went_on = house.said(-2), house.said(-1)
        assert "Long talk." in summarised
        assert "Long talk." not in went_on
        assert any("simulated answer" in text for text in went_on), "the summary was lost"


async def test_resume_goes_on_with_the_thread(dialect: str, codex: Codex) -> None:
    async with open_house(dialect) as house:
        codex.configure(house.url)
        first = await codex.exec(shell("echo marked-output") + DONE)
        await house.empty()
        before = len(house.watcher.turns)
        second = await codex.exec('[[say "All done."]]', "resume", first.thread)
        succeeded(second)
        assert second.thread == first.thread
        chained(house.watcher.turns[before:])
        said = house.said()
        assert any("marked-output" in text for text in said)
        assert said[-2:] == ["All done.", '[[say "All done."]]']


# --- The page --------------------------------------------------------------------------------------------------------


async def test_the_pages_configuration_works_as_it_is_written(codex: Codex) -> None:
    block = re.findall(r"^```toml\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)[0]
    written = ("http://127.0.0.1:8780/v1", "smollm2")
    assert block == SNIPPETS["codex"].fill(*written)
    async with open_house("chat", {"models.aliases": {"smollm2": "simulated"}}) as house:
        codex.write_config(block.replace(written[0], house.url))
        succeeded(await codex.exec(WRITE))
        assert codex.read("out.txt") == "hello\n"
        chained(house.watcher.turns)
        assert {turn.model for turn in house.watcher.turns} == {"smollm2"}
