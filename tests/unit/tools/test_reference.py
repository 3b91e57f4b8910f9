"""docs/settings.md and docs/errors.md say what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from proxy.errors import TABLE, Kind
from proxy.settings import CATALOG, ENV_NAMES
from proxy.tools.reference import PAGES, errors_page, main, settings_page
from proxy.tools.remedies import REMEDIES

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_what_the_code_says(name: str) -> None:
    assert (DOCS / name).read_text() == PAGES[name](), "run make docs"


def test_the_pages_are_written(tmp_path: Path) -> None:
    main(str(tmp_path))
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        name: page() for name, page in PAGES.items()
    }


def test_every_setting_is_there_with_its_names() -> None:
    page = settings_page()
    for setting in CATALOG.values():
        section = page.split(f"\n## {setting.section}\n")[1].split("\n## ")[0]
        assert len(re.findall(rf"^\| `{setting.name}` \|", section, re.MULTILINE)) == 1
    for name in ENV_NAMES:
        assert f"`{name}`" in page


def test_every_kind_of_failure_has_words_and_one_line() -> None:
    assert set(REMEDIES) == set(Kind)
    page = errors_page()
    for kind in Kind:
        (line,) = re.findall(rf"^\| `{kind.value}` \|.*$", page, re.MULTILINE)
        cells = [cell.strip() for cell in line.split(" | ")]
        assert cells[1].partition(",")[0] == str(TABLE[kind].status)
        assert all(cells)


def test_settings_that_the_words_name_exist() -> None:
    named = re.findall(r"`((?:server|limits|access|store|upstream|models|endpoints|passthrough)\.\w+)`", errors_page())
    assert len(named) > 20
    for key in named:
        assert key.replace("endpoints.", "endpoints[0].") in CATALOG, key
