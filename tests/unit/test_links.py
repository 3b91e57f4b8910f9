"""Every link of the documents leads somewhere: to a file, to a heading in it, or, in its form, to the outside."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^()\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_PICTURE = re.compile(r'<(?:img|source)\b[^>]*\bsrc(?:set)?="([^"]+)"')
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")


class Link(NamedTuple):
    """A link and the document that has it."""

    document: Path
    target: str

    def __str__(self) -> str:
        return f"{self.document.relative_to(ROOT)}: {self.target}"


def links(document: Path) -> Iterator[Link]:
    """The links of a document, those in code left out."""
    text = _CODE.sub("code", _FENCE.sub("", document.read_text()))
    yield from (Link(document, target) for pattern in (_LINK, _PICTURE) for target in pattern.findall(text))


def anchors(document: Path) -> set[str]:
    """What can stand after # for this document, as GitHub makes it of its headings."""
    made: set[str] = set()
    for heading in re.findall(r"^#{1,6} +(.+?) *#* *$", _FENCE.sub("", document.read_text()), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        stem = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        made.add(next(name for name in (stem, *(f"{stem}-{n}" for n in range(1, 99))) if name not in made))
    return made


LINKS = [link for document in DOCUMENTS for link in links(document)]
INSIDE = [link for link in LINKS if not urlsplit(link.target).scheme]
OUTSIDE = [link for link in LINKS if urlsplit(link.target).scheme]


def test_there_are_links() -> None:
    assert len(INSIDE) > 60
    assert {link.document.name for link in INSIDE} >= {"README.md", "operations.md", "SECURITY.md"}
    assert {link.target for link in INSIDE} >= {"docs/images/waterfall-dark.png", "images/waterfall-light.png"}


@pytest.mark.parametrize("link", INSIDE, ids=str)
def test_a_link_to_a_file_leads_to_one_and_to_its_heading(link: Link) -> None:
    path, _, anchor = link.target.partition("#")
    target = (link.document.parent / path).resolve() if path else link.document
    assert target.is_relative_to(ROOT)
    assert target.exists()
    assert not anchor or anchor in anchors(target)


def test_links_to_the_outside_are_whole() -> None:
    for link in OUTSIDE:
        parts = urlsplit(link.target)
        assert parts.scheme == "https", str(link)
        assert re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)+", parts.netloc), str(link)


@pytest.mark.parametrize("page", [path for path in DOCUMENTS if path.parent != ROOT], ids=lambda path: path.name)
def test_a_page_can_be_found_from_the_index(page: Path) -> None:
    index = ROOT / "docs" / "README.md"
    reached = {(index.parent / link.target.partition("#")[0]).resolve() for link in links(index)}
    assert page == index or page.resolve() in reached


def test_a_heading_is_named_as_it_is_on_the_web(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# What's `new`, now?\n```sh\n# no heading\n```\n## Same\n## Same\n")
    assert anchors(page) == {"whats-new-now", "same", "same-1"}


NAMED = sorted(
    {
        (document.name, path)
        for document in DOCUMENTS
        for path in re.findall(
            r"`((?:proxy|tests|config|docs|dashboards)/[\w./-]*\w/?)(?:::[\w:]+)?`", document.read_text()
        )
        if "NAME" not in path
    }
)


@pytest.mark.parametrize(("document", "path"), NAMED)
def test_a_file_that_is_named_exists(document: str, path: str) -> None:
    assert (ROOT / path).exists(), f"{document} names {path}"
