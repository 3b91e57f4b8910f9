"""Write every page as JSON for Grafana, and the tables of docs/dashboards.md: `make dashboards`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from dashboards import agent_loop, caches, sessions, upstreams
from dashboards.kit import Page, document

ROOT = Path(__file__).parents[1]
PAGES = (agent_loop.page, upstreams.page, caches.page, sessions.page)

_DOCUMENT = "docs/dashboards.md"
_MARKS = re.compile(r"(<!-- panels -->\n).*?(<!-- end -->)", re.DOTALL)


def pages() -> tuple[Page, ...]:
    """Every page there is."""
    return tuple(page() for page in PAGES)


def files() -> Mapping[str, str]:
    """The text of every file by its path in the repository."""
    written = {f"dashboards/{page.name}.json": document(page) for page in pages()}
    text = (ROOT / _DOCUMENT).read_text(encoding="utf-8")
    tables = "\n".join(_table(page) for page in pages())
    return {**written, _DOCUMENT: _MARKS.sub(lambda found: found[1] + tables + found[2], text)}


def _table(page: Page) -> str:
    about = f"### {page.title}\n\n{page.description} (`dashboards/{page.name}.json`)\n\n"
    return f"{about}| panel | what it shows |\n|---|---|\n" + "".join(
        f"| {panel.title} | {panel.description} |\n" for panel in page.panels()
    )


def main() -> None:
    """Write the files."""
    for path, text in files().items():
        (ROOT / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
