"""What hypothesis draws from: JSON as clients and upstreams might send it, well-formed and not."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

# Surrogates cannot be encoded; they are tested by their escapes.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NUMBERS = st.one_of(st.integers(-(10**25), 10**25), st.floats(allow_nan=False, allow_infinity=False))
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, TEXT)


def json_values(*words: str) -> st.SearchStrategy[Any]:
    """Any JSON value whose strings and members are often one of `words`, so that it comes near to what is meant."""
    names = st.one_of(st.sampled_from(words), TEXT) if words else TEXT
    leaves = st.one_of(SCALARS, names)
    return st.recursive(
        leaves,
        lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(names, inner, max_size=5)),
        max_leaves=8,
    )


def dumped(value: object) -> bytes:
    """JSON as UTF-8, non-ASCII characters unescaped, as most writers have it."""
    return json.dumps(value, ensure_ascii=False).encode()


@st.composite
def cuts(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """`data` cut into reads at any bytes; some reads may be empty."""
    places = sorted(draw(st.lists(st.integers(0, len(data)), max_size=12)))
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]
