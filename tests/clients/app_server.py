"""Several user turns in one Codex process, as its editor extensions have them: `codex app-server` over stdio."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.clients.codex import Codex, Event


@dataclass(slots=True)
class Done:
    """One finished user turn."""

    status: str
    messages: list[str]
    error: str


@dataclass(slots=True)
class AppServer:
    """A running app server with one thread."""

    process: asyncio.subprocess.Process
    thread: str = ""
    turn: str = ""
    _calls: int = 0
    _unread: list[Event] = field(default_factory=list)

    async def ask(self, prompt: str) -> Done:
        """A user turn, whole."""
        await self.begin(prompt)
        return await self.end()

    async def begin(self, prompt: str) -> None:
        """Start a user turn."""
        text = {"type": "text", "text": prompt, "text_elements": []}
        result = await self.call("turn/start", {"threadId": self.thread, "input": [text]})
        self.turn = str(result["turn"]["id"])

    async def interrupt(self) -> None:
        """What the user's Escape does."""
        await self.call("turn/interrupt", {"threadId": self.thread, "turnId": self.turn})

    async def compact(self) -> Done:
        """What the user's `/compact` does, whole."""
        await self.call("thread/compact/start", {"threadId": self.thread})
        return await self.end()

    async def end(self) -> Done:
        """Wait for the end of the turn that runs."""
        messages = []
        while True:
            event = self._unread.pop(0) if self._unread else await self._read()
            params = event.get("params", {})
            if event["method"] == "item/completed" and params["item"]["type"] == "agentMessage":
                messages.append(params["item"]["text"])
            if event["method"] == "turn/completed":
                turn = params["turn"]
                return Done(turn["status"], messages, (turn["error"] or {}).get("message", ""))

    async def call(self, method: str, params: Any) -> Any:
        """A request and its result; notifications that come before it are kept for `end`."""
        self._calls += 1
        self._send({"id": self._calls, "method": method, "params": params})
        while "method" in (answer := await self._read()) or answer["id"] != self._calls:
            self._unread.append(answer)
        assert "result" in answer, answer
        return answer["result"]

    async def start(self, cwd: str) -> None:
        """Shake hands and open the thread."""
        client = {"name": "tests", "title": None, "version": "1"}
        await self.call("initialize", {"clientInfo": client, "capabilities": None})
        self._send({"method": "initialized"})
        self.thread = (await self.call("thread/start", {"cwd": cwd}))["thread"]["id"]

    async def stop(self) -> int:
        """Close its stdin, at which it leaves; its exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        await self.process.communicate()
        return await self.process.wait()

    def _send(self, message: Event) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")

    async def _read(self) -> Event:
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        assert line, "the app server left"
        message = json.loads(line)
        assert isinstance(message, dict)
        return message


@asynccontextmanager
async def app_server(codex: Codex) -> AsyncIterator[AppServer]:
    """One process with one thread."""
    async with codex.started("app-server", stdin=True) as process:
        server = AppServer(process)
        await server.start(str(codex.work))
        yield server
        assert await server.stop() == 0
