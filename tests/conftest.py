"""Fixtures for tests over real sockets: everything starts on free ports of loopback and is stopped again."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Iterator

import hypothesis
import pytest
import structlog
from hypothesis.internal.conjecture import providers

from proxy.telemetry.logging import configure
from tests.house import DIALECTS, House, open_house
from tests.wire_client import WireClient

# Drawn examples are the same in every run: a commit is judged by what it changed. `make search` draws others, in CI
# too, where hypothesis would not by itself. No example has a deadline: the machine may be busy.
hypothesis.settings.register_profile("same", derandomize=True, deadline=None)
hypothesis.settings.register_profile("search", derandomize=False, print_blob=True, deadline=None)
hypothesis.settings.load_profile("same")


@pytest.hookimpl(trylast=True)
def pytest_configure() -> None:
    """Hypothesis also draws constants of the modules that happen to be loaded, which depend on what ran before."""
    if hypothesis.settings.get_current_profile_name() == "same" and hasattr(providers, "_get_local_constants"):
        providers._get_local_constants = lambda: providers._local_constants


@pytest.fixture(scope="session", autouse=True)
def _state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Servers of the tests, child processes included, keep their secrets away from the home of whoever runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(autouse=True)
def _log_as_it_was() -> Iterator[None]:
    """A command run inside a test configures the log of the whole process."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.BytesIO]:
    """What is logged as JSON, at the most talkative level; a thread writes it: flush before you read."""
    stream = io.BytesIO()
    text = io.TextIOWrapper(stream, write_through=True)  # closes the stream once nobody holds it
    monkeypatch.setattr("sys.stderr", text)
    configure("json", "debug")
    yield stream
    text.detach()


@pytest.fixture(params=DIALECTS)
def dialect(request: pytest.FixtureRequest) -> str:
    """Each dialect of an upstream."""
    name: str = request.param
    return name


@pytest.fixture
async def house(dialect: str) -> AsyncIterator[House]:
    """A server before a simulated upstream, with default settings."""
    async with open_house(dialect) as opened:
        yield opened


@pytest.fixture
async def client(house: House) -> AsyncIterator[WireClient]:
    """One socket to it."""
    async with house.connect() as opened:
        yield opened
