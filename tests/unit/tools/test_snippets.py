"""What the screen shows to paste is what the pages show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from proxy.tools.snippets import SNIPPETS, Snippet, banner

PAGES = Path(__file__).resolve().parents[3] / "docs" / "clients"
URL, MODEL = "http://127.0.0.1:8780/v1", "smollm2"


@pytest.mark.parametrize("snippet", SNIPPETS.values(), ids=list(SNIPPETS))
def test_the_page_shows_the_snippet(snippet: Snippet) -> None:
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", (PAGES / snippet.page).read_text(), re.MULTILINE | re.DOTALL)
    assert (snippet.language, snippet.fill(URL, MODEL)) in blocks


def test_the_screen_shows_all_of_them_filled_in() -> None:
    shown = banner("http://127.0.0.1:1/v1", "tiny")
    assert "{url}" not in shown
    assert "{model}" not in shown
    assert "{" not in "".join(line for line in shown.splitlines() if line.startswith("#"))
    for snippet in SNIPPETS.values():
        assert snippet.headed("http://127.0.0.1:1/v1", "tiny") in shown


def test_where_clients_need_a_key_each_block_has_a_place_for_it() -> None:
    for name, snippet in SNIPPETS.items():
        shown = snippet.headed("http://127.0.0.1:1/v1", "tiny", "CLIENT_KEY")
        assert "CLIENT_KEY" in shown, name
        assert "none" not in shown, name
