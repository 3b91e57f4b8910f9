"""A real model behind Loopline: the built-in llama.cpp, started once for each file of tests."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from proxy.app import Loopline
from proxy.settings import load
from proxy.tools import embedded
from tests.program import READY, Program, loopline


@pytest.fixture(scope="session")
def ready() -> embedded.Ready:
    """The model, installed; without it there is nothing to test."""
    try:
        return embedded.prepare(progress=embedded.Bar(sys.stderr))
    except embedded.Unavailable as error:
        pytest.skip(f"the built-in model cannot be had here: {error}")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def llama(ready: embedded.Ready) -> AsyncIterator[embedded.Embedded]:
    """llama.cpp, running."""
    async with embedded.Embedded(ready) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(llama: embedded.Embedded) -> AsyncIterator[Loopline]:
    """Loopline in front of it, with everything found out by itself."""
    flags = {"server.port": 0, "endpoints[0].url": llama.url, "models.default": embedded.MODEL}
    async with Loopline(load(None, flags, {})) as loopline:
        yield loopline


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def program(ready: embedded.Ready) -> AsyncIterator[Program]:
    """`loopline serve --embedded`, on a port of its own."""
    async with loopline("serve", "--port", "0", "--embedded") as running:
        await running.prints(READY, 60)
        yield running
