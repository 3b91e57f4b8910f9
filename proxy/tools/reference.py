"""docs/settings.md and docs/errors.md from the code: `python -m proxy.tools.reference docs`. `make docs` calls it.

A test compares. What every kind of failure means, and what helps, is said here and nowhere else; the rest is read off
`proxy.settings` and `proxy.errors`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from proxy.errors import TABLE, Kind, Retry, Source
from proxy.server.door import STATUS_BY_HTTP
from proxy.settings import CATALOG, Setting
from proxy.settings.text import default_of
from proxy.tools import markdown
from proxy.tools.remedies import REMEDIES

_SECTIONS = {
    "server": "Where clients connect, and for how long.",
    "endpoints": "The upstream, one table `[[endpoints]]`. Environment names say `ENDPOINT`.",
}
_SETTINGS = """\
# Settings

Every setting, generated from `proxy/settings/model.py` by `make docs`. The same as a file to edit:
[config/loopline.example.toml](../config/loopline.example.toml).

Flags win over environment variables, those over the file (`--config`, or `LOOPLINE_CONFIG`), and it over the defaults.
An empty environment variable counts as not set; lists and tables in one are written as JSON. A name that is no setting
is an error, also in the environment. `loopline check-config` prints what is in effect and where each value is from; it
shows no secret. Settings are read at the start; what is read again while Loopline runs is in
[operations](operations.md#what-is-read-again).
"""
_ERRORS = """\
# Errors

Every failure that Loopline reports, generated from `proxy/errors.py` by `make docs`.

`kind` is the label in the log (`error=`) and in metrics. `type` and `code` are `error.type` and `error.code` of an HTTP
answer, and the members of an `error` event or of `response.failed`; a code of an upstream that clients may know is
kept, so it can stand in place of the one below. `close` is the code with which a WebSocket is closed after the event;
without one the socket goes on. Where a time to wait is known, it is `Retry-After`, and in an event `headers`.

Before a turn has begun a failure is an HTTP status, or an `error` event with `status`; after `response.created` it is
`response.failed` alone. What `later` means: the same request can succeed, so clients may try again by themselves.
[How the words of an upstream are read](upstreams.md#errors).
"""
_WHOSE: Mapping[Source, tuple[str, str]] = {
    Source.CLIENT: ("The request", "What the client sent is at fault, or what it asked of the upstream."),
    Source.UPSTREAM: ("The upstream", "The inference server behind Loopline failed, or could not be asked."),
    Source.PROXY: ("Loopline", "Loopline itself ends or refuses the work; nothing is wrong with the request."),
}


def settings_page() -> str:
    """docs/settings.md."""
    return "\n".join([_SETTINGS, *_tables()])


def _tables() -> Iterator[str]:
    for section in dict.fromkeys(setting.section for setting in CATALOG.values()):
        mine = [setting for setting in CATALOG.values() if setting.section == section]
        yield f"## {section}\n"
        if section in _SECTIONS:
            yield f"{_SECTIONS[section]}\n"
        yield markdown.table(("setting", "default", "what it is", "allowed", "flag, environment"), map(_row, mine))


def _row(setting: Setting) -> tuple[str, ...]:
    names = (f"`{name}`" for name in ((setting.flag,) if setting.flag else ()) + setting.env)
    return f"`{setting.name}`", f"`{default_of(setting)}`", setting.description, setting.allowed, " ".join(names)


def errors_page() -> str:
    """docs/errors.md."""
    parts = [_ERRORS]
    for source, (title, text) in _WHOSE.items():
        rows = (_failure(kind) for kind in Kind if TABLE[kind].source is source)
        head = ("kind", "status", "type", "code", "close", "again?", "what it means", "what to do")
        parts.append(f"## {title}\n\n{text}\n\n{markdown.table(head, rows)}")
    return "\n".join(parts)


def _failure(kind: Kind) -> tuple[str, ...]:
    row, said = TABLE[kind], REMEDIES[kind]
    code = f"`{row.code}`" if row.code else "–"
    again = "later" if row.retry is Retry.LATER else "no"
    by_http = f", by HTTP {STATUS_BY_HTTP[kind]}" if kind in STATUS_BY_HTTP else ""
    return (
        *(f"`{kind.value}`", f"{row.status}{by_http}", f"`{row.type}`", code, str(row.close or "–"), again),
        *(said.means, said.remedy),
    )


PAGES: Mapping[str, Callable[[], str]] = {"settings.md": settings_page, "errors.md": errors_page}


def main(folder: str) -> None:
    """Write the pages into the folder."""
    for name, page in PAGES.items():
        (Path(folder) / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
