"""What `make bench` runs: every function of the hot path, timed and told as a table."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.bench.pieces import PIECES
from tests.bench.reference import reference


@pytest.mark.benchmark(timer=time.thread_time, min_time=0.002, max_time=0.2)
@pytest.mark.parametrize("name", ["reference", *PIECES])
def test_piece(name: str, benchmark: Any) -> None:
    timed = reference if name == "reference" else PIECES[name]()
    timed()  # what is made once is made
    benchmark(timed)
