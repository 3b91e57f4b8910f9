"""pi and opencode on a simulated agent: one shell command, with the settings of their pages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.clients.npm import CannotInstall, installed, node
from tests.clients.running import Ran, blocks, placed, run
from tests.house import House, open_house

pytestmark = [pytest.mark.clients, pytest.mark.timeout(500)]

PI, OPENCODE = "1.6.0", "1.18.33"


def script(tool: str) -> str:
    """A prompt upon which the model runs a command with this tool and then says a sentence."""
    call = {"command": "echo hello > out.txt", "description": "writes a file"}
    return f'[[call {tool} {json.dumps(call)}]] [[then]] [[say "All done."]]'


def folders(where: Path) -> tuple[Path, Path]:
    """An empty home and an empty folder to work in."""
    home, work = where / "home", where / "work"
    home.mkdir()
    work.mkdir()
    return home, work


def succeeded(ran: Ran, work: Path) -> None:
    """The command was run and the sentence was shown."""
    assert ran.code == 0, ran.err
    assert (work / "out.txt").read_text() == "hello\n"
    assert "All done." in ran.out


# --- pi --------------------------------------------------------------------------------------------------------------


async def ask_pi(house: House, number: int, where: Path) -> tuple[Ran, Path]:
    """One prompt with the page's settings file `number`."""
    try:
        program = node()
        folder = installed(f"pi-{PI}", f"@earendil-works/pi-coding-agent@{PI}")
    except CannotInstall as reason:
        pytest.skip(str(reason))
    home, work = folders(where)
    settings = home / ".pi" / "agent" / "models.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(placed(blocks("pi.md", "json")[number], house.url))
    cli = folder / "node_modules" / ".bin" / "pi"
    arguments = ("--provider", "loopline", "--model", "smollm2", "--mode", "json", "-p", script("bash"))
    return await run([program, cli, *arguments], work, {"HOME": str(home), "PI_OFFLINE": "1"}), work


async def test_pi_over_websocket_sends_what_is_new(dialect: str, tmp_path: Path) -> None:
    async with open_house(dialect) as house:
        succeeded(*await ask_pi(house, 0, tmp_path))
        await house.empty(5)
        first, second = house.watcher.turns
        assert (first.transport, first.outcome, first.parent) == ("websocket", "completed", "")
        assert (second.transport, second.outcome, second.parent) == ("websocket", "completed", first.response)
        assert second.items_in == 1
        assert len(house.watcher.sessions) == 1


async def test_pi_over_http_sends_everything(dialect: str, tmp_path: Path) -> None:
    async with open_house(dialect) as house:
        succeeded(*await ask_pi(house, 1, tmp_path))
        first, second = house.watcher.turns
        assert [(turn.transport, turn.outcome, turn.parent) for turn in (first, second)] == [
            ("http", "completed", "")
        ] * 2
        assert second.items_in == first.items_in + 2


async def test_pi_takes_http_where_websocket_is_off(tmp_path: Path) -> None:
    async with open_house("chat", {"server.websocket": False}) as house:
        succeeded(*await ask_pi(house, 0, tmp_path))
        assert [(turn.transport, turn.outcome) for turn in house.watcher.turns] == [("http", "completed")] * 2


# --- opencode --------------------------------------------------------------------------------------------------------


async def ask_opencode(house: House, where: Path, *, websocket: bool) -> tuple[Ran, Path]:
    """One prompt with the page's settings; `websocket` is what else its page tells to do for that."""
    try:
        folder = installed(f"opencode-{OPENCODE}", f"opencode-ai@{OPENCODE}")
    except CannotInstall as reason:
        pytest.skip(str(reason))
    builds = [path for path in folder.glob("node_modules/opencode-*/bin/opencode") if "baseline" not in str(path)]
    assert builds, f"no program under {folder}: delete the folder, so that it is fetched again"
    home, work = folders(where)
    settings, credentials = blocks("opencode.md", "json")
    (work / "opencode.json").write_text(placed(settings, house.url))
    env = {"HOME": str(home), "OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}
    if websocket:
        file = home / ".local" / "share" / "opencode" / "auth.json"
        file.parent.mkdir(parents=True)
        file.write_text(credentials)
        env["OPENCODE_EXPERIMENTAL_WEBSOCKETS"] = "1"
    return await run([builds[0], "run", "--format", "json"], work, env, given=script("bash"), timeout_s=200), work


@pytest.mark.parametrize("transport", ["websocket", "http"])
async def test_opencode_sends_everything(transport: str, tmp_path: Path) -> None:
    async with open_house("chat") as house:
        succeeded(*await ask_opencode(house, tmp_path, websocket=transport == "websocket"))
        await house.empty(5)
        mine = [turn for turn in house.watcher.turns if turn.outcome == "completed" and turn.bytes_in > 10_000]
        assert [(turn.transport, turn.parent) for turn in mine] == [(transport, "")] * 2
        assert mine[1].items_in == mine[0].items_in + 2
