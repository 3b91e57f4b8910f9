"""Settings as TOML: the example file (every setting at its default) and what is in effect (with its origins)."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping

from proxy.settings.catalog import CATALOG, CONFIG_ENV, Setting
from proxy.settings.reading import Loaded

_INTRO = f"""\
Loopline: every setting at its default. Generated from the code by `make config`.

Flags win over environment variables, those over this file (--config or ${CONFIG_ENV}), and it over the defaults.
An empty environment variable counts as not set; lists and tables in one are written as JSON."""
_UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def example() -> str:
    """The example settings file: every setting commented out at its default, with its description and names."""
    blocks = [_comment(_INTRO)]
    for setting in CATALOG.values():
        names = " · ".join((*([setting.flag] if setting.flag else []), *setting.env))
        values = f" ({' | '.join(setting.choices)})" if len(setting.choices) > 1 else ""
        head = _header(setting)
        text = f"{_comment(setting.description + values)}\n{_comment(names)}\n# {_line(setting, setting.field.default)}"
        blocks.append(f"{head}\n\n{text}" if head else text)
    return "\n\n".join(blocks) + "\n"


def effective(loaded: Loaded) -> str:
    """The settings in effect; each that is not from the defaults says where it is from. Secrets are hidden."""
    return "\n".join(_effective_lines(loaded)).lstrip("\n") + "\n"


def _effective_lines(loaded: Loaded) -> Iterator[str]:
    for setting in CATALOG.values():
        if head := _header(setting):
            yield f"\n{head}"
        section = "endpoint" if setting.section == "endpoints" else setting.section
        value = _hidden(setting, getattr(getattr(loaded.settings, section), setting.name))
        origin = loaded.origins.get(setting.key)
        yield _line(setting, value) + (f"  # {origin}" if origin else "")


def _hidden(setting: Setting, value: object) -> object:
    if not setting.hides(value):
        return value
    return dict.fromkeys(value, "(hidden)") if isinstance(value, Mapping) else "(hidden)"


def default_of(setting: Setting) -> str:
    """The setting's default as TOML; a number of bytes is read out in a comment."""
    return _toml(setting.field.default) + _size(setting, setting.field.default)


def _header(setting: Setting) -> str:
    """The table's header, before the first setting of a table."""
    first = next(other for other in CATALOG.values() if other.section == setting.section)
    header = "[[endpoints]]" if setting.section == "endpoints" else f"[{setting.section}]"
    return header if setting is first else ""


def _comment(text: str) -> str:
    lines = [part for line in text.split("\n") for part in (textwrap.wrap(line, 110) or [""])]
    return "\n".join(f"# {line}".rstrip() for line in lines)


def _line(setting: Setting, value: object) -> str:
    return f"{setting.name} = {_toml(value)}{_size(setting, value)}"


def _size(setting: Setting, value: object) -> str:
    """A comment that reads a number of bytes out."""
    if not (setting.name.endswith("_bytes") and isinstance(value, int)):
        return ""
    unit = next(((size, name) for size, name in _UNITS if value % size == 0), None)
    return f"  # {value // unit[0]} {unit[1]}" if unit else ""


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_toml(key)} = {_toml(item)}" for key, item in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    # JSON's strings are TOML's basic strings, except that TOML also wants DEL escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
