"""The processes that the bench starts: its upstream, and Loopline as an operator runs it. Each is stopped by its id."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from proxy.tools.child import Child, Log, StartFailed

from .turns import BenchError

_START_S = 30.0
_STOP_S = 5.0
_POLL_S = 0.02
Found = Callable[[str], Awaitable[str]]  # from what a process has written to its URL; empty while there is none


class Running(NamedTuple):
    """A server that listens: its base URL and its process."""

    url: str
    pid: int


class Endpoint(NamedTuple):
    """What Loopline is put in front of. `key_env` names the environment variable with the key, if there is one."""

    url: str
    dialect: str
    model: str
    key_env: str = ""
    faithful: bool = False


@asynccontextmanager
async def own_upstream(folder: Path) -> AsyncIterator[Running]:
    """The bench's upstream in a process of its own. Raises BenchError."""
    command = (sys.executable, "-m", "proxy.tools.bench.upstream")
    async with process("upstream", command, folder, {}, printed("")) as running:
        yield running


@asynccontextmanager
async def loopline(
    folder: Path, endpoint: Endpoint, name: str = "loopline", more: Mapping[str, str] | None = None
) -> AsyncIterator[Running]:
    """`loopline serve` on a free port of loopback: metrics, a log line for every turn, limits and every check.

    `more` are environment variables with other settings. Those of the user do not count, so that runs can be compared.
    Raises BenchError.
    """
    arguments = ("--port", "0", "--upstream", endpoint.url, "--dialect", endpoint.dialect, "--log-format", "json")
    keyed = ("--api-key-env", endpoint.key_env) if endpoint.key_env else ()
    environment = {
        "LOOPLINE_STATE_FOLDER": str(folder / "state"),
        "LOOPLINE_MODELS_DEFAULT": endpoint.model,
        "LOOPLINE_ENDPOINT_FAITHFUL": str(endpoint.faithful).lower(),
        # The first SIGTERM drains; nothing that runs then is of interest.
        "LOOPLINE_SERVER_DRAIN_GRACE_S": "1",
        **{key: os.environ[key] for key in (endpoint.key_env, f"{endpoint.key_env}_FILE") if key in os.environ},
        **(more or {}),
    }
    command = (sys.executable, "-m", "proxy", "serve", *arguments, *keyed)
    async with process(name, command, folder, environment, printed("loopline ")) as running:
        yield running


@asynccontextmanager
async def process(
    name: str,
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    found: Found,
    within_s: float = _START_S,
) -> AsyncIterator[Running]:
    """A process that is stopped at the end; `found` tells its base URL once it listens. Raises BenchError."""
    log = Log(folder / name, f"{name}.log")
    ours = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))} if command[0] == sys.executable else {}
    try:
        child = await Child.spawn(command, log, {**ours, "PYTHONUNBUFFERED": "1", **environment})
    except StartFailed as error:
        raise BenchError(str(error)) from error
    try:
        yield Running(await _url(child, log, name, found, within_s), child.pid)
    finally:
        await asyncio.shield(child.stop(_STOP_S))


async def _url(child: Child, log: Log, name: str, found: Found, within_s: float) -> str:
    try:
        async with asyncio.timeout(within_s):
            while child.returncode is None:
                if url := await found(log.path.read_text("utf-8", "replace")):
                    return url
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        raise BenchError(f"{name} did not start within {within_s:g} s:\n{log.tail()}") from None
    raise BenchError(f"{name} ended before it listened:\n{log.tail()}")


def printed(before: str) -> Found:
    """The URL that ends the line which begins with `before`, once it is whole."""

    async def found(text: str) -> str:
        for line in text.splitlines():
            if line.startswith(before) and line.endswith("/v1") and "http" in line:
                return line[line.index("http") :]
        return ""

    return found


def listening(port: int) -> Found:
    """The URL of a port of loopback, once something accepts connections there."""

    async def found(_: str) -> str:
        try:
            connection = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return ""
        connection[1].close()
        return f"http://127.0.0.1:{port}/v1"

    return found


def free_port() -> int:
    """A port of loopback that nobody has at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
