"""The built-in profiles as Markdown tables, for docs/upstreams.md: `python -m proxy.tools.profile_table FILE`.

Rewrites what stands between the two marks of each table in the file; `make docs` calls it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from proxy.models.profile import EVERYTHING, Chat, Profile, Responses, profiles
from proxy.tools import markdown

# The longer members of a table, which have a table of their own.
_OWN = frozenset({"fields", "efforts"})


def tables() -> Mapping[str, str]:
    """Every table by the name in its marks, each with a newline at its end."""
    known = profiles().values()
    return {
        "signs": markdown.table(
            ("profile", "server", "`auto` asks", "host", "`owned_by`", "answers", "counts tokens by"),
            map(_signs, known),
        ),
        "chat": _knobs(Chat, lambda profile: profile.chat),
        "fields": _carried(lambda profile: profile.chat.fields),
        "efforts": _carried(lambda profile: profile.chat.efforts),
        "responses": _knobs(Responses, lambda profile: profile.responses, fields=True),
    }


def rewritten(text: str) -> str:
    """The document with its tables as they are now. Raises ValueError where it lacks the marks of one."""
    return markdown.rewritten(text, {f"profiles: {name}": table for name, table in tables().items()})


def _signs(profile: Profile) -> Sequence[str]:
    signs = profile.signs
    answers = (f"`{path}` with `{text}`" for path, text in signs.answers.items())
    shown = [", ".join(f"`{each}`" for each in listed) for listed in (signs.hosts, signs.owners)]
    counts = f"`{profile.counting}`" if profile.counting else ""
    return (f"`{profile.name}`", profile.title, profile.dialect, *shown, ", ".join(answers), counts)


def _knobs(table: type[Chat] | type[Responses], of: Callable[[Profile], object], *, fields: bool = False) -> str:
    rows = (
        (f"`{knob}`", *(_shown(getattr(of(profile), knob)) for profile in profiles().values()))
        for knob in table.__struct_fields__
        if fields or knob not in _OWN
    )
    return markdown.table(("", *(f"`{name}`" for name in profiles())), rows)


def _carried(of: Callable[[Profile], Mapping[str, str]]) -> str:
    given = list(dict.fromkeys(key for profile in profiles().values() for key in of(profile)))
    rows = (
        (f"`{key}`", *(_shown(of(profile).get(key, "")) for profile in profiles().values()))
        for key in sorted(given, key=lambda key: _ORDER.index(key) if key in _ORDER else len(_ORDER))
    )
    return markdown.table(("", *(f"`{name}`" for name in profiles())), rows)


_ORDER = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return "all" if value == (EVERYTHING,) else " ".join(f"`{each}`" for each in value) or "–"
    return f"`{value}`" if value else "–"


def main(path: str) -> None:
    """Rewrite the tables of the file."""
    file = Path(path)
    file.write_text(rewritten(file.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
