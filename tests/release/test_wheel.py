"""What is released: built from a clean copy, installed into a new environment, and serving a turn from there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy import __version__

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.dist, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("built")
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def loopline(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of the wheel, in an environment that has nothing else."""
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, with_pip=True)
    (wheel,) = built.glob("*.whl")
    subprocess.run([home / "bin" / "pip", "install", "--quiet", wheel], check=True, capture_output=True)
    return home / "bin" / "loopline"


def test_sdist_and_wheel_have_the_version_of_the_code(built: Path) -> None:
    assert {path.name for path in built.iterdir()} == {
        f"loopline-{__version__}.tar.gz",
        f"loopline-{__version__}-py3-none-any.whl",
    }


def test_the_installed_program_says_its_version(loopline: Path) -> None:
    said = subprocess.run([loopline, "version"], check=True, capture_output=True, text=True, cwd=loopline.parent).stdout
    assert __version__ in said


@pytest.fixture
def served(loopline: Path, tmp_path: Path) -> Iterator[str]:
    """The address of the installed program, before the simulated upstream."""
    command = [str(loopline), "serve", "--simulate", "--port", "0"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield next(found[0] for line in process.stdout if (found := re.search(r"http://127\.0\.0\.1:\d+", line)))
        finally:
            process.terminate()
            process.wait(30)


def test_the_installed_program_serves_a_turn(served: str) -> None:
    body = json.dumps({"model": "simulated", "input": "hello"}).encode()
    request = urllib.request.Request(f"{served}/v1/responses", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert json.load(answer)["status"] == "completed"
