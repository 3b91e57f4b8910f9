"""What the pages in docs/clients/ say to paste, and running it as a program of its own."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PAGES = Path(__file__).resolve().parents[2] / "docs" / "clients"
ADDRESS = "http://127.0.0.1:8780/v1"
GREETING = "Say hello."


def blocks(page: str, language: str) -> list[str]:
    """The page's blocks in a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", (PAGES / page).read_text(), re.MULTILINE | re.DOTALL)


def placed(block: str, url: str, prompt: str | None = None) -> str:
    """The block for the server at `url`, with another prompt, which must not need escaping within double quotes."""
    assert ADDRESS.split("//")[1] in block
    block = block.replace(ADDRESS.split("//")[1], url.split("//")[1])
    if prompt is not None:
        assert GREETING in block
        assert not set(prompt) & set('"\\')
        block = block.replace(GREETING, prompt)
    return block


@dataclass(frozen=True, slots=True)
class Ran:
    """How a program ended and what it printed."""

    code: int | None
    out: str
    err: str


async def run(
    command: Sequence[str | Path], cwd: Path, env: Mapping[str, str], given: str = "", timeout_s: float = 100.0
) -> Ran:
    """Run a program to its end; what it has started is killed with it when it takes longer than `timeout_s`."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=cwd,
        env={"PATH": os.environ["PATH"], **env},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(timeout_s):
            out, err = await process.communicate(given.encode())
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return Ran(process.returncode, out.decode(), err.decode(errors="replace"))
