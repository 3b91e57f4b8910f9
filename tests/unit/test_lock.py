"""The image's lock names all that Loopline needs, in versions that it takes, each with hashes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
LOCK = (ROOT / "config" / "requirements.lock").read_text()
PINS = {canonicalize_name(name): version for name, version in re.findall(r"^([\w.-]+)==(\S+)", LOCK, re.MULTILINE)}
NEEDS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]


@pytest.mark.parametrize("need", NEEDS)
def test_the_lock_has_every_dependency_in_a_version_that_is_taken(need: str) -> None:
    requirement = Requirement(need)
    pinned = PINS.get(canonicalize_name(requirement.name))
    assert pinned is not None, "run `make lock`"
    assert requirement.specifier.contains(pinned), "run `make lock`"


def test_every_pin_has_hashes() -> None:
    for entry in re.split(r"^(?=[\w.-]+==)", LOCK, flags=re.MULTILINE)[1:]:
        assert "--hash=sha256:" in entry


def test_the_image_installs_by_hash() -> None:
    steps = (ROOT / "Dockerfile").read_text()
    assert "\nCOPY config/requirements.lock ./config/requirements.lock\n" in steps
    assert "--require-hashes -r config/requirements.lock" in steps
