"""Loopline as a user starts it: a process, what it prints, how it ends."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
READY = "# curl"  # the last of what is printed on start


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's, without settings of Loopline."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LOOPLINE_")}
    return {**kept, "PYTHONUNBUFFERED": "1", **(extra or {})}


class Program:
    """A running `loopline`; `out` and `err` are what it has printed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.out = self.err = ""
        self._more = asyncio.Condition()
        assert process.stdout is not None
        assert process.stderr is not None
        self._readers = [
            asyncio.create_task(self._read(process.stdout, "out")),
            asyncio.create_task(self._read(process.stderr, "err")),
        ]

    async def _read(self, stream: asyncio.StreamReader, name: str) -> None:
        while data := await stream.read(65536):
            async with self._more:
                setattr(self, name, getattr(self, name) + data.decode())
                self._more.notify_all()

    async def prints(self, text: str, timeout_s: float = 20.0) -> None:
        """Wait until it has printed `text`; a process that ends without it fails at once."""
        waiting = asyncio.create_task(self._printed(text))
        try:
            await asyncio.wait({waiting, *self._readers}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            assert text in self.out + self.err, f"no {text!r} in:\n{self.out}{self.err}"
        finally:
            waiting.cancel()

    async def _printed(self, text: str) -> None:
        async with self._more:
            await self._more.wait_for(lambda: text in self.out + self.err)

    async def ended(self, timeout_s: float = 20.0) -> int:
        """Wait for its end; the exit code."""
        async with asyncio.timeout(timeout_s):
            await asyncio.gather(*self._readers)
            return await self._process.wait()

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    @property
    def url(self) -> str:
        """The base URL that it printed for clients."""
        return self._address(r"^loopline \S+ on (http\S+)$")

    @property
    def upstream(self) -> str:
        """The upstream that it printed."""
        return self._address(r"^  upstream (http\S+)$")

    def _address(self, pattern: str) -> str:
        found = re.search(pattern, self.out, re.MULTILINE)
        assert found is not None, self.out
        return found[1]

    async def aclose(self) -> None:
        """Stop it, whatever it is doing."""
        if self._process.returncode is None:
            self._process.terminate()
        try:
            await self.ended(10)
        except TimeoutError:
            self._process.kill()
            await self.ended()
            raise


@asynccontextmanager
async def loopline(*arguments: str, env: Mapping[str, str] | None = None) -> AsyncIterator[Program]:
    """A `loopline` with these arguments, stopped at the end."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "proxy", *arguments),
        cwd=ROOT,
        env=environment(env),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    program = Program(process)
    try:
        yield program
    finally:
        await program.aclose()


@asynccontextmanager
async def served(upstream: str, directory: Path, server: Mapping[str, float]) -> AsyncIterator[Program]:
    """A `loopline serve` before the chat upstream at this URL, with these settings of `[server]`; it listens."""
    lines = "".join(f"{name} = {value}\n" for name, value in {"port": 0, **server}.items())
    config = directory / "loopline.toml"
    config.write_text(
        f'[server]\n{lines}[[endpoints]]\nurl = "{upstream}"\ndialect = "chat"\n'
        '[models]\ndefault = "simulated"\n[log]\nformat = "json"\nlevel = "warning"\n'
    )
    async with loopline("serve", "--config", str(config)) as program:
        await program.prints("upstream")
        yield program


def free_port() -> int:
    """A loopback port that nobody has at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_listening(url: str) -> bool:
    """Whether something accepts connections at the URL's host and port."""
    host, port = url.split("/")[2].rsplit(":", 1)
    with socket.socket() as probe:
        probe.settimeout(2)
        return probe.connect_ex((host, int(port))) == 0
