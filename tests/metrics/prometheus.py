"""A real Prometheus on loopback, and what it answers."""

from __future__ import annotations

import asyncio
import math
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.program import ROOT, free_port

CONFIG = ROOT / "config"
WHY_NOT = "there is no `{}` on the path (Debian and Ubuntu: apt-get install prometheus)"


class Prometheus:
    """A running one."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self._url = url
        self._http = http

    async def ready(self) -> bool:
        """Whether it answers questions."""
        try:
            async with self._http.get(f"{self._url}/-/ready") as response:
                return response.status == 200
        except aiohttp.ClientConnectionError:
            return False

    async def ask(self, path: str, **parameters: str) -> Any:
        """The data of one of its API's pages. Raises AssertionError with its own words where it refuses."""
        async with self._http.get(f"{self._url}/api/v1/{path}", params=parameters) as response:
            answer = await response.json()
        assert answer["status"] == "success", f"{answer['error']}: {parameters}"
        return answer["data"]

    async def numbers(self, expr: str) -> list[float]:
        """What an expression is now, without what is no number."""
        data = await self.ask("query", query=expr)
        values = [float(series["value"][1]) for series in data["result"]]
        return [value for value in values if not math.isnan(value)]

    async def rules(self) -> list[dict[str, Any]]:
        """Every rule as it was read."""
        return [rule for group in (await self.ask("rules"))["groups"] for rule in group["rules"]]


def _configure(folder: Path, target: str) -> Path:
    """The configuration that is shipped, but for the target and the intervals."""
    text = (CONFIG / "prometheus.yml").read_text()
    for shipped, here in (("127.0.0.1:8780", target), ("_interval: 15s", "_interval: 1s")):
        assert shipped in text
        text = text.replace(shipped, here)
    shutil.copy(CONFIG / "rules.yml", folder)
    config = folder / "prometheus.yml"
    config.write_text(text)
    return config


@asynccontextmanager
async def prometheus(folder: Path, target: str) -> AsyncIterator[Prometheus]:
    """One that scrapes `target`, a host and port, every second and follows the rules that are shipped."""
    address = f"127.0.0.1:{free_port()}"
    with (folder / "prometheus.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            "prometheus",
            f"--config.file={_configure(folder, target)}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={address}",
            "--log.level=warn",
            stdout=log,
            stderr=log,
        )
    try:
        async with aiohttp.ClientSession() as http:
            started = Prometheus(f"http://{address}", http)
            async with asyncio.timeout(20):
                while not await started.ready():
                    assert process.returncode is None, (folder / "prometheus.log").read_text()
                    await asyncio.sleep(0.05)
            yield started
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
