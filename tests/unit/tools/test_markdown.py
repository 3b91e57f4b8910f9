"""Tables for the documents, and the marks between which they stand."""

from __future__ import annotations

import pytest

from proxy.tools.markdown import rewritten, table


def test_a_table_has_a_line_for_each_row_and_keeps_bars_in_cells() -> None:
    assert table(("", "b"), [("1", "x | y"), ("2", "")]) == "|  | b |\n| --- | --- |\n| 1 | x \\| y |\n| 2 |  |\n"


def test_only_what_is_between_the_marks_changes() -> None:
    text = "a\n<!-- one -->\nold\n<!-- end -->\nb\n<!-- two: x -->\n<!-- end -->\nc\n"
    made = rewritten(text, {"one": r"new \1" + "\n", "two: x": "more\n"})
    assert made == ("a\n<!-- one -->\n" + r"new \1" + "\n<!-- end -->\nb\n<!-- two: x -->\nmore\n<!-- end -->\nc\n")
    assert rewritten(made, {"one": "old\n", "two: x": ""}) == text


@pytest.mark.parametrize("text", ["", "<!-- one -->\n", "<!-- end -->\n<!-- one -->\n"])
def test_marks_that_are_not_there_are_told(text: str) -> None:
    with pytest.raises(ValueError, match="<!-- one -->"):
        rewritten(text, {"one": ""})
