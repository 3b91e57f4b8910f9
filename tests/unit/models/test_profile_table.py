"""docs/upstreams.md says of the profiles what their files say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from proxy.errors import TABLE
from proxy.models.profile import Chat, Responses, Signs, profiles, read_profile
from proxy.tools.profile_table import main, rewritten, tables

DOCUMENT = Path(__file__).parents[3] / "docs" / "upstreams.md"


def test_the_tables_are_those_of_the_profiles() -> None:
    text = DOCUMENT.read_text()
    assert rewritten(text) == text, "run make docs"


def test_a_table_that_is_out_of_date_is_written_anew(tmp_path: Path) -> None:
    file = tmp_path / "upstreams.md"
    file.write_text(DOCUMENT.read_text().replace("| `vllm` |", "| `somebody` |"))
    main(str(file))
    assert file.read_text() == DOCUMENT.read_text()


def test_a_document_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="profiles: signs"):
        rewritten("# Upstreams")


@pytest.mark.parametrize("name", ["chat", "fields", "efforts", "responses"])
def test_every_profile_has_a_column(name: str) -> None:
    head, *rows = tables()[name].splitlines()
    assert head.split(" | ")[1:] == [f"`{each}`" + ("" if each != [*profiles()][-1] else " |") for each in profiles()]
    assert len({row.count(" | ") for row in rows}) == 1


def test_every_key_is_explained() -> None:
    text = DOCUMENT.read_text()
    for table, struct in (("signs", Signs), ("chat", Chat), ("responses", Responses)):
        [section] = re.findall(rf"\| key in `\[{table}\]` .*?\n\n", text, re.DOTALL)
        named = re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in section.splitlines()[2:] if line))
        assert set(named) == set(struct.__struct_fields__)


def test_the_example_of_a_profile_is_one() -> None:
    [example] = re.findall(r"```toml\n(# my-server.*?)```", DOCUMENT.read_text(), re.DOTALL)
    mine = read_profile(example.encode(), "my-server")
    assert (mine.chat.reasoning, mine.chat.usage, mine.responses.tools) == ("reasoning", False, ("function",))


def test_every_code_in_the_table_of_errors_exists() -> None:
    section = DOCUMENT.read_text().partition("## Errors")[2]
    codes = {(row.code, row.status) for row in TABLE.values()}
    for line in re.findall(r"^\| .* \| `.*$", section, re.MULTILINE):
        _, _, code, status, _, _ = (cell.strip() for cell in line.split("|"))
        assert (code.split("`")[1], int(status)) in codes
