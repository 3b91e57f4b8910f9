"""Tables for the documents, and where they stand in them: between `<!-- NAME -->` and `<!-- end -->`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown, with a newline at its end; a bar in a cell stays one."""
    lines = (head, ["---"] * len(head), *rows)
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def rewritten(text: str, parts: Mapping[str, str]) -> str:
    """The document with each part between the marks of its name. Raises ValueError where it lacks the marks of one."""
    for name, part in parts.items():
        opening, closing = f"<!-- {name} -->\n", "<!-- end -->"
        before, begun, rest = text.partition(opening)
        _, ended, after = rest.partition(closing)
        if not begun or not ended:
            raise ValueError(f"there are no marks <!-- {name} --> … <!-- end -->")
        text = before + opening + part + closing + after
    return text
