"""Write every page as JSON for Grafana beside this file: `python -m dashboards.build` (`make dashboards`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dashboards import agent_loop, caches, sessions, upstreams
from dashboards.kit import Page, document

FOLDER = Path(__file__).parent
PAGES = (agent_loop.page, upstreams.page, caches.page, sessions.page)


def pages() -> tuple[Page, ...]:
    """Every page there is."""
    return tuple(page() for page in PAGES)


def files() -> Mapping[str, str]:
    """The text of every file by its name."""
    return {f"{page.name}.json": document(page) for page in pages()}


def main() -> None:
    """Write the files."""
    for name, text in files().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
