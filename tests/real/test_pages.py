"""The pages, as a newcomer follows them: each block is run as it stands, but for the address, on the built-in model."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.clients.test_pages import in_node
from tests.program import ROOT, Program, environment, loopline

pytestmark = [pytest.mark.real, pytest.mark.timeout(180), pytest.mark.asyncio(loop_scope="module")]

DOCS = ROOT / "docs"
CLIENTS = ("openai-python.md", "openai-agents.md", "websockets.md", "curl.md")
# Not the Vercel AI SDK's first: over WebSocket it waits for ever for an answer that was cut (its page says so).
ON_NODE = (("openai-node.md", 0), ("openai-node.md", 1), ("vercel-ai-sdk.md", 1))
START = (DOCS / "getting-started.md").read_text()
ADDRESS = "127.0.0.1:8780"
DELTA = re.compile(r'"type":"response\.output_text\.delta".*"delta":"[^"]')


def blocks(page: str, language: str) -> list[str]:
    """The page's blocks in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def of_clients(language: str) -> list[tuple[str, str]]:
    """(page, block) of all client pages."""
    return [(page, block) for page in CLIENTS for block in blocks((DOCS / "clients" / page).read_text(), language)]


def ids(pages: list[tuple[str, str]]) -> list[str]:
    """Names for tests."""
    return [f"{page}-{number}" for number, (page, _) in enumerate(pages)]


PYTHON, SHELL = of_clients("python"), [each for each in of_clients("sh") if "curl" in each[1]]


async def test_no_page_has_lost_its_blocks() -> None:
    assert [page for page, _ in PYTHON + SHELL] == [
        *("openai-python.md", "openai-python.md", "openai-python.md"),
        *("openai-agents.md", "websockets.md", "curl.md"),
    ]


async def run(*command: str, given: str = "", cwd: Path = ROOT, env: Mapping[str, str] | None = None) -> str:
    """What a command prints; it must end with 0 and write nothing to stderr."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=cwd,
        env=environment(dict(env or {"UPSTREAM_KEY": "k"})),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(90):
            out, err = await process.communicate(given.encode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, err.decode()
    assert "Traceback" not in err.decode()
    return out.decode()


def here(block: str, program: Program) -> str:
    """The block with the program's address."""
    assert ADDRESS in block
    return block.replace(ADDRESS, program.url.removeprefix("http://").removesuffix("/v1"))


@pytest.mark.parametrize(("page", "block"), PYTHON, ids=ids(PYTHON))
async def test_python(page: str, block: str, program: Program) -> None:
    assert (await run(sys.executable, "-c", here(block, program))).strip(), page


@pytest.mark.parametrize(("page", "block"), PYTHON, ids=ids(PYTHON))
async def test_python_pasted_at_the_prompt(page: str, block: str, program: Program) -> None:
    said = await run(sys.executable, "-i", "-q", given=here(block, program) + "\n")
    assert said.strip(), page


@pytest.mark.parametrize(("page", "number"), ON_NODE, ids=[f"{page}-{number}" for page, number in ON_NODE])
async def test_javascript(page: str, number: int, program: Program, tmp_path: Path) -> None:
    ran = await in_node(here(blocks((DOCS / "clients" / page).read_text(), "js")[number], program), page, tmp_path)
    assert ran.code == 0, ran.err
    assert ran.out.strip()


@pytest.mark.parametrize(("page", "block"), SHELL, ids=ids(SHELL))
async def test_shell(page: str, block: str, program: Program) -> None:
    assert DELTA.search(await run("sh", "-c", here(block, program))), page


async def test_getting_started_shows_what_is_printed(program: Program) -> None:
    (shown,) = blocks(START, "text")
    expected = re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", shown)
    assert re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", program.out).startswith(expected)


async def test_getting_started_streams_a_word(program: Program) -> None:
    (curl,) = [block for block in blocks(START, "sh") if block.startswith("curl")]
    assert DELTA.search(await run("sh", "-c", here(curl, program)))


async def test_getting_started_has_settings_that_are_right(tmp_path: Path) -> None:
    (settings,) = blocks(START, "toml")
    (tmp_path / "loopline.toml").write_text(settings)
    (commands,) = [block for block in blocks(START, "sh") if "check-config" in block]
    key, *lines = commands.splitlines()
    assert key.startswith("export UPSTREAM_KEY=")  # the file names it, and without it there is nothing to check
    exported = {"UPSTREAM_KEY": key.partition("=")[2].split()[0]}
    check, serve = (line.removeprefix(".venv/bin/loopline ").split() for line in lines)
    said = await run(str(Path(sys.executable).with_name("loopline")), *check, cwd=tmp_path, env=exported)
    assert 'default = "qwen3-8b"' in said
    assert 'aliases = { "gpt-*" = "qwen3-32b" }' in said
    serve[-1] = str(tmp_path / serve[-1])
    async with loopline(*serve, "--port", "0", env=exported) as running:
        await running.prints("  upstream http://127.0.0.1:8000/v1")
        await running.prints("  it ")


async def test_the_demonstration_that_the_pages_name() -> None:
    command = ".venv/bin/loopline demo"
    assert f"```sh\n{command}\n```" in START
    assert f"`{command}`" in (ROOT / "README.md").read_text()
    said = await run(str(Path(sys.executable).with_name("loopline")), "demo")
    with_numbers = (DOCS / "demo.md").read_text().split("```\n")
    shown = next(block for block in with_numbers if block.startswith("Simulated link"))
    assert said.splitlines()[:3] == shown.splitlines()[:3]
    bytes_up = re.search(r"^bytes sent up .*$", shown, re.MULTILINE)
    assert bytes_up is not None
    assert bytes_up[0] in said
    assert bytes_up[0] in (ROOT / "README.md").read_text()
