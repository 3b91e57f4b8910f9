"""A token percent-encoded in every way: any of its letters, in either case of hex, one layer inside another."""

from __future__ import annotations

from hypothesis import strategies as st

_LAYERS = 7

# What holds no token, also by chance: no underscore.
plain_text = st.text(st.characters(codec="ascii", exclude_characters="_%", exclude_categories=["Cc"]), max_size=20)


@st.composite
def encoded(draw: st.DrawFn, token: str) -> str:
    """Spellings of the token, the plain one included."""
    text = token
    for _ in range(draw(st.integers(0, _LAYERS))):
        whole = draw(st.booleans())
        chosen = range(len(text)) if whole else draw(st.sets(st.integers(0, min(len(text), 60) - 1), max_size=6))
        upper = draw(st.booleans())
        text = "".join(_one(each, upper) if at in chosen else each for at, each in enumerate(text))
    return text


def _one(letter: str, upper: bool) -> str:
    code = f"%{ord(letter):02x}"
    return code.upper() if upper else code
