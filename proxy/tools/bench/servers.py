"""The processes that the bench starts: its upstream, and Loopline as an operator runs it. Each is stopped by its id."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from proxy.tools.child import Child, Log, StartFailed

from .turns import BenchError

_START_S = 30.0
_STOP_S = 5.0
_POLL_S = 0.02


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
    async with _process("upstream", command, folder, {}, "", "/v1") as running:
        yield running


@asynccontextmanager
async def loopline(folder: Path, endpoint: Endpoint, name: str = "loopline") -> AsyncIterator[Running]:
    """`loopline serve` on a free port of loopback: metrics, a log line for every turn, limits and every check.

    Settings of the user do not count, so that runs can be compared. Raises BenchError.
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
    }
    command = (sys.executable, "-m", "proxy", "serve", *arguments, *keyed)
    async with _process(name, command, folder, environment, "loopline ", "/v1") as running:
        yield running


@asynccontextmanager
async def _process(
    name: str, command: Sequence[str], folder: Path, environment: Mapping[str, str], before: str, after: str
) -> AsyncIterator[Running]:
    """A process that prints a line which begins with `before` and ends with its URL, which ends with `after`."""
    log = Log(folder / name, f"{name}.log")
    paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONUNBUFFERED": "1"}
    try:
        child = await Child.spawn(command, log, {**paths, **environment})
    except StartFailed as error:
        raise BenchError(str(error)) from error
    try:
        yield Running(await _url(child, log, name, before, after), child.pid)
    finally:
        await asyncio.shield(child.stop(_STOP_S))


async def _url(child: Child, log: Log, name: str, before: str, after: str) -> str:
    try:
        async with asyncio.timeout(_START_S):
            while child.returncode is None:
                for line in log.path.read_text("utf-8", "replace").splitlines():
                    if line.startswith(before) and line.endswith(after) and "http" in line:
                        return line[line.index("http") :]
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        raise BenchError(f"{name} did not start within {_START_S:g} s:\n{log.tail()}") from None
    raise BenchError(f"{name} ended before it listened:\n{log.tail()}")
