"""The feature tables of docs/upstreams.md are read off the corpus."""

from __future__ import annotations

from tests.golden import corpus, features

DOCUMENT = corpus.HERE.parents[1] / "docs" / "upstreams.md"


def test_the_tables_are_what_the_corpus_shows() -> None:
    text = DOCUMENT.read_text()
    assert features.rewritten(text) == text, "run `make docs` and read the diff"


def test_every_row_has_its_case_and_no_two_rows_say_the_same() -> None:
    names = {path.stem for path in corpus.cases("requests")}
    assert {row.case for row in features.ROWS} <= names
    assert len({row.feature for row in features.ROWS}) == len(features.ROWS)
