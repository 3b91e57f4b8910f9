"""Fixtures for tests that drive real client programs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import uvloop
from aiohttp import web

from proxy.server.websocket import WebSocketRoute
from tests.clients.codex import Codex, install
from tests.clients.npm import CannotInstall


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The event loop that serves, uvloop's."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="session")
def program() -> Path:
    """The Codex CLI; the tests are skipped where it cannot be had."""
    try:
        return install()
    except CannotInstall as reason:
        pytest.skip(str(reason))


@pytest.fixture
def codex(program: Path, tmp_path: Path) -> Codex:
    """Codex with an empty home and an empty folder to work in."""
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    return Codex(program, home, work)


@pytest.fixture
def upgrades(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The `Upgrade` header of each GET on the responses route, refused or not."""
    seen: list[str] = []
    handle = WebSocketRoute.handle

    async def counted(route: WebSocketRoute, request: web.Request) -> web.StreamResponse:
        seen.append(request.headers.get("Upgrade", ""))
        return await handle(route, request)

    monkeypatch.setattr(WebSocketRoute, "handle", counted)
    return seen
