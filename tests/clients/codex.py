"""The Codex CLI as a program: installed once, run in a home of its own, what it prints read as JSON."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proxy.tools.snippets import SNIPPETS
from tests.clients.npm import installed

VERSION = "0.171.0"
TIMEOUT_S = 90.0
_LINE_BYTES = 2**24
# Given by flag and not in the file, so that config.toml holds what a user pastes and nothing else.
_OVERRIDES = {
    "analytics.enabled": "false",
    "check_for_update_on_startup": "false",
    "approval_policy": '"never"',
    "sandbox_mode": '"danger-full-access"',
}
Event = dict[str, Any]


def install() -> Path:
    """The program: from the cache, else by npm. Raises CannotInstall where there is no npm."""
    folder = installed(f"codex-{VERSION}", f"@openai/codex@{VERSION}")
    programs = [path for path in folder.glob("node_modules/@openai/codex-*/vendor/*/bin/codex") if path.is_file()]
    assert programs, f"no program under {folder}: delete the folder, so that it is fetched again"
    return programs[0]


@dataclass(slots=True)
class Run:
    """One `codex exec`: its exit code and its events."""

    code: int | None
    stderr: str
    events: list[Event] = field(default_factory=list)

    @property
    def thread(self) -> str:
        """The thread's id, for `resume`."""
        return str(next(event["thread_id"] for event in self.events if event["type"] == "thread.started"))

    @property
    def items(self) -> list[Event]:
        """The finished items, in order."""
        return [event["item"] for event in self.events if event["type"] == "item.completed"]

    @property
    def messages(self) -> list[str]:
        """What the model said."""
        return [item["text"] for item in self.items if item["type"] == "agent_message"]

    @property
    def commands(self) -> list[Event]:
        """The shell commands that were run."""
        return [item for item in self.items if item["type"] == "command_execution"]

    @property
    def usage(self) -> Event:
        """The tokens of the whole turn."""
        usage: Event = next(event["usage"] for event in self.events if event["type"] == "turn.completed")
        return usage

    @property
    def failure(self) -> str:
        """What the user is told of a turn that failed; empty where it did not."""
        return "".join(event["error"]["message"] for event in self.events if event["type"] == "turn.failed")

    @property
    def notices(self) -> list[str]:
        """What else the user is told: retries, warnings."""
        said = [event["message"] for event in self.events if event["type"] == "error"]
        return said + [item["message"] for item in self.items if item["type"] == "error"]


@dataclass(frozen=True, slots=True)
class Codex:
    """The program with a home and a folder to work in."""

    program: Path
    home: Path
    work: Path

    def configure(self, url: str, *, websocket: bool = True, model: str = "simulated", more: str = "") -> None:
        """Write config.toml as users are told to; `more` is further lines about the provider."""
        text = SNIPPETS["codex"].fill(url, model)
        if not websocket:
            text = text.replace("supports_websockets = true", "supports_websockets = false")
        self.write_config(text + more)

    def write_config(self, text: str) -> None:
        """Write config.toml."""
        (self.home / "config.toml").write_text(text)

    def read(self, name: str) -> str:
        """A file in the folder that it works in."""
        return (self.work / name).read_text()

    async def exec(self, prompt: str, *resume: str) -> Run:
        """One turn of one process. `resume` is `"resume", thread` to go on with one."""
        async with self.started("exec", "--json", "--skip-git-repo-check", *resume, prompt, stdin=False) as process:
            out, err = await process.communicate()
        events = [json.loads(line) for line in out.splitlines() if line.startswith(b"{")]
        return Run(process.returncode, err.decode(errors="replace"), events)

    @asynccontextmanager
    async def started(self, command: str, *arguments: str, stdin: bool) -> AsyncIterator[asyncio.subprocess.Process]:
        """The process; killed with what it started if it is still there at the end, or after `TIMEOUT_S`."""
        flags = [part for name, value in _OVERRIDES.items() for part in ("-c", f"{name}={value}")]
        process = await asyncio.create_subprocess_exec(
            self.program,
            command,
            *flags,
            *arguments,
            cwd=self.work,
            env=self._environment(),
            stdin=asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_LINE_BYTES,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(TIMEOUT_S):
                yield process
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                await process.communicate()

    def _environment(self) -> Mapping[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "CODEX_HOME": str(self.home),
            "AGENT_KEY": "none",
        }
