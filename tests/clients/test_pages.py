"""Each block of the client pages in Python and JavaScript, on a simulated agent that calls the tool it is given."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.clients.npm import CannotInstall, installed, node
from tests.clients.running import Ran, blocks, placed, run
from tests.house import open_house

pytestmark = [pytest.mark.clients, pytest.mark.timeout(400)]

CALL = "[[call get_time {}]] [[then]] [[say 3]]"
PLAIN = "[[say 3]]"
PACKAGES = {
    "openai-node.md": ("openai-node-7.59.0", "openai@7.59.0", "ws@8.23.0"),
    "vercel-ai-sdk.md": (
        "vercel-ai-sdk-7.0.173",
        *("ai@7.0.173", "@ai-sdk/openai@4.0.118", "@vercel/ai-sdk-openai-websocket-fetch@1.0.0", "zod@4.6.7"),
    ),
}


class Block(NamedTuple):
    """The block `number` of a page; how its turns come, and what each but the first one sends."""

    page: str
    number: int
    transport: str
    calls: bool
    by_id: bool = False

    @property
    def language(self) -> str:
        return "js" if self.page in PACKAGES else "python"


BLOCKS = (
    Block("openai-python.md", 0, "websocket", calls=False),
    Block("openai-python.md", 1, "websocket", calls=True, by_id=True),
    Block("openai-python.md", 2, "http", calls=False),
    Block("openai-agents.md", 0, "websocket", calls=False),
    Block("websockets.md", 0, "websocket", calls=False),
    Block("openai-node.md", 0, "websocket", calls=True, by_id=True),
    Block("openai-node.md", 1, "http", calls=False),
    Block("vercel-ai-sdk.md", 0, "websocket", calls=True),
    Block("vercel-ai-sdk.md", 1, "http", calls=False),
)


@pytest.mark.parametrize("page", sorted({block.page for block in BLOCKS}))
def test_every_block_of_a_page_is_run(page: str) -> None:
    mine = [block for block in BLOCKS if block.page == page]
    assert [block.number for block in mine] == list(range(len(blocks(page, mine[0].language))))


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block.page}-{block.number}")
async def test_a_block_as_it_stands(block: Block, dialect: str, tmp_path: Path) -> None:
    async with open_house(dialect) as house:
        text = placed(blocks(block.page, block.language)[block.number], house.url, CALL if block.calls else PLAIN)
        ran = await (in_node(text, block.page, tmp_path) if block.language == "js" else in_python(text, tmp_path))
        assert ran.code == 0, ran.err
        assert len(ran.out.split()) == 3, "the three tokens of the answer"
        await house.empty(5)
        turns = house.watcher.turns
        assert [(turn.transport, turn.outcome) for turn in turns] == [(block.transport, "completed")] * len(turns)
        assert len(turns) == (2 if block.calls else 1)
        if block.calls:
            assert turns[1].parent == (turns[0].response if block.by_id else "")
            assert turns[1].items_in == (1 if block.by_id else 3)
            assert "12:00" in house.said()
        if block.transport == "websocket":
            assert len(house.watcher.sessions) == 1


@pytest.mark.parametrize("prompt", ["[[fail 400 broken-on-purpose]]", "[[say 3]] [[error 3]]"])
@pytest.mark.parametrize("block", [block for block in BLOCKS if block.by_id], ids=lambda block: block.page)
async def test_a_loop_that_fails_ends_and_says_why(block: Block, prompt: str, tmp_path: Path) -> None:
    """Before the answer has begun (an `error` event) and within it (`response.failed`)."""
    async with open_house("chat") as house:
        text = placed(blocks(block.page, block.language)[block.number], house.url, prompt)
        ran = await (in_node(text, block.page, tmp_path) if block.language == "js" else in_python(text, tmp_path))
        assert ran.code == 1
        await house.empty(5)
        (turn,) = house.watcher.turns
        assert turn.outcome in ("refused", "failed")
        assert "Error: " in ran.err
        assert "the socket was closed" not in ran.err


async def in_python(text: str, folder: Path) -> Ran:
    """Run it with this Python."""
    return await run([sys.executable, "-c", text], folder, {})


async def in_node(text: str, page: str, folder: Path) -> Ran:
    """Run it with Node.js and the page's packages."""
    try:
        program, packages = node(), installed(*PACKAGES[page])
    except CannotInstall as reason:
        pytest.skip(str(reason))
    (folder / "node_modules").symlink_to(packages / "node_modules")
    (folder / "block.mjs").write_text(text)
    return await run([program, "block.mjs"], folder, {})
