"""One run of the server: started, watched until it answers, stopped by its own process id."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import aiohttp

if sys.platform != "win32":  # where `prepare` refuses before anything here runs
    import fcntl

_POLL_S = 0.05
_TAIL_LINES = 15
_TAIL_BYTES = 8192
_LOG_BYTES = 1 << 20
_LOGS_KEPT = 5
# The child needs no more: whatever keys the environment holds are not its business.
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


class StartFailed(Exception):
    """The server did not come up; the text ends with the last lines it wrote."""


class Log:
    """The file a server writes to. It is cut back to its last 8 kB when it has grown to 1 MiB."""

    def __init__(self, folder: Path, name: str) -> None:
        """Make the folder and remove all but the newest logs in it, and those in use. Raises OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        old = sorted(folder.glob("*.log"), key=_age, reverse=True)
        for path in old[_LOGS_KEPT - 1 :]:
            _remove_unused(path)
        self.path = folder / name
        self.path.write_bytes(b"")

    def bound(self) -> None:
        """Keep the file small. The child appends, so that it goes on at the new end."""
        with suppress(OSError):
            if self.path.stat().st_size > _LOG_BYTES:
                self.path.write_bytes(self._last_bytes())

    def tail(self) -> str:
        """The last lines."""
        lines = self._last_bytes().decode("utf-8", "replace").splitlines()
        return "\n".join(line[:300] for line in lines[-_TAIL_LINES:])

    def _last_bytes(self) -> bytes:
        with suppress(OSError), self.path.open("rb") as file:
            file.seek(max(0, self.path.stat().st_size - _TAIL_BYTES))
            return file.read()
        return b""


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # another process removed it
        return 0.0


def _remove_unused(path: Path) -> None:
    """Remove a log, unless a server that runs has it."""
    with suppress(OSError), path.open("ab") as file:  # locked, or removed by another process
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()


class Child:
    """A running server process. Made by `spawn`; whoever has it calls `stop`, or has seen `wait` return."""

    def __init__(self, process: asyncio.subprocess.Process, log: Log) -> None:
        self._process = process
        self._log = log

    @classmethod
    async def spawn(cls, command: Sequence[str], log: Log, environment: Mapping[str, str] | None = None) -> Child:
        """Start a command, with `environment` beside the little that it inherits; its standard input ends with us.

        Raises StartFailed.
        """
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        try:
            with log.path.open("ab") as output:
                fcntl.flock(output, fcntl.LOCK_SH)  # the child inherits it, and keeps the log from being removed
                process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=output,
                    stderr=output,
                    env={**inherited, **(environment or {})},
                    start_new_session=True,  # the terminal's Ctrl-C is for us; we stop the child after our own turns
                )
        except OSError as error:
            raise StartFailed(f"the server could not be started: {error}") from error
        return cls(process, log)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        return self._process.returncode

    async def wait(self) -> int:
        """Wait until the process has ended."""
        return await self._process.wait()

    async def healthy(self, url: str, within_s: float) -> None:
        """Wait until `url` answers 200. Raises StartFailed when the process ends first or the time is over."""
        timeout = aiohttp.ClientTimeout(total=2)
        try:
            async with asyncio.timeout(within_s), aiohttp.ClientSession(timeout=timeout) as http:
                while self.returncode is None:
                    if await _answers(http, url):
                        return
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise StartFailed(self._told(f"the server did not answer within {within_s:g} s")) from None
        raise StartFailed(self._told(f"the server {ended(self.returncode)} before it answered"))

    def _told(self, what: str) -> str:
        tail = self._log.tail()
        return f"{what} ({self._log.path})" + (f":\n{tail}" if tail else "; it wrote nothing")

    async def stop(self, within_s: float) -> None:
        """End the process, by SIGTERM and after `within_s` by SIGKILL, and wait for its end."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                self._process.terminate()
            try:
                async with asyncio.timeout(within_s):
                    await self.wait()
            except TimeoutError:
                with suppress(ProcessLookupError):
                    self._process.kill()
                await self.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()


async def _answers(http: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with http.get(url) as response:
            return response.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False


def ended(code: int | None) -> str:
    """How a process ended, in words."""
    return f"was ended by signal {-code}" if code is not None and code < 0 else f"ended with code {code}"
