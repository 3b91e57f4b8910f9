"""Write every page as JSON for Grafana, and the tables of docs/dashboards.md: `make dashboards`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dashboards import agent_loop, caches, sessions, upstreams
from dashboards.kit import Page, document
from proxy.tools import markdown

ROOT = Path(__file__).parents[1]
PAGES = (agent_loop.page, upstreams.page, caches.page, sessions.page)

_DOCUMENT = "docs/dashboards.md"


def pages() -> tuple[Page, ...]:
    """Every page there is."""
    return tuple(page() for page in PAGES)


def files() -> Mapping[str, str]:
    """The text of every file by its path in the repository."""
    written = {f"dashboards/{page.name}.json": document(page) for page in pages()}
    text = (ROOT / _DOCUMENT).read_text(encoding="utf-8")
    tables = "\n".join(_table(page) for page in pages())
    return {**written, _DOCUMENT: markdown.rewritten(text, {"panels": tables})}


def _table(page: Page) -> str:
    about = f"### {page.title}\n\n{page.description} (`dashboards/{page.name}.json`)\n\n"
    return about + markdown.table(
        ("panel", "what it shows"), ((panel.title, panel.description) for panel in page.panels())
    )


def main() -> None:
    """Write the files."""
    for path, text in files().items():
        (ROOT / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
