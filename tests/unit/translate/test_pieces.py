"""Pieces of a body: whatever their sizes, the bytes are the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.translate.pieces import separated

_SIZES = st.lists(st.sampled_from([1, 10, 20_000]), min_size=1, max_size=200)


@given(_SIZES)
def test_commas_stand_between_the_pieces_and_nothing_else_changes(sizes: list[int]) -> None:
    pieces = [b"%d" % (number % 10) * size for number, size in enumerate(sizes)]
    assert b"".join(separated(pieces)) == b",".join(pieces)


@pytest.mark.parametrize("count", [2, 63, 64, 65, 1000])
def test_small_pieces_become_one_and_long_ones_are_not_copied(count: int) -> None:
    assert len(separated([b"x" * 500] * count)) == 1
    long = b"x" * 40_000
    assert all(piece is long for piece in separated([long] * count)[::2])
