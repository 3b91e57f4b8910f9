"""What hypothesis draws: the same in every run, other examples where one searches, and never by the clock."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_SHOW = """
import hypothesis, tests.conftest
for settings in (hypothesis.settings.default, hypothesis.settings.get_profile("search")):
    print(settings.derandomize, settings.deadline)
"""


@pytest.mark.parametrize("ci", ["", "true"])
def test_examples_are_the_same_but_where_one_searches_in_ci_too(ci: str) -> None:
    around = {name: value for name, value in os.environ.items() if name not in ("CI", "GITHUB_ACTIONS", "TF_BUILD")}
    shown = subprocess.run(
        [sys.executable, "-c", _SHOW],
        env={**around, **({"CI": ci} if ci else {})},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.split("\n") == ["True None", "False None", ""]
