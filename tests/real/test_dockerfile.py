"""The image's own steps, run outside a container: what it installs starts, and refuses to be open to strangers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "Dockerfile"

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


def test_the_linter_finds_nothing() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    found = subprocess.run([linter, DOCKERFILE], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The build stage, in a folder: its COPY and RUN lines with other paths → the venv that it makes."""
    source, target = tmp_path_factory.mktemp("src"), tmp_path_factory.mktemp("opt") / "loopline"
    build = DOCKERFILE.read_text().split("\nFROM ")[1]
    for line in re.findall(r"^COPY (.+)$", build, re.MULTILINE):
        *names, to = line.split()
        for name in names:
            _copy(ROOT / name, source / to / ("" if to.endswith(name) else name))
    (command,) = re.findall(r"^RUN (.+)$", build, re.MULTILINE)
    command = command.replace("/opt/loopline", str(target)).replace("python -m", f"{sys.executable} -m", 1)
    subprocess.run(["sh", "-c", command], cwd=source, check=True, capture_output=True)
    return target


def test_what_the_image_installs_runs(installed: Path) -> None:
    said = subprocess.run([installed / "bin" / "loopline", "version"], capture_output=True, text=True, check=True)
    assert said.stdout.startswith("loopline ")


def test_the_image_refuses_to_serve_strangers_and_says_how(installed: Path) -> None:
    settings = dict(re.findall(r"\b(LOOPLINE_\w+)=(\S+)", DOCKERFILE.read_text().split("\nENV ")[1]))
    assert settings["LOOPLINE_HOST"] == "0.0.0.0"
    said = subprocess.run(
        [installed / "bin" / "loopline", "serve"],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 2
    assert "--insecure" in said.stderr
    assert "client keys" in said.stderr


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
