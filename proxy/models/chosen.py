"""The profiles that the settings name: a built-in one by its name, another by the path of its file."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path

from proxy.errors import LooplineError
from proxy.models.profile import AUTO, SUFFIX, Profile, profiles, read_profile
from proxy.settings import BadSetting, Settings

_KEY = "endpoints[0].profile"


def chosen_profiles(settings: Settings) -> Mapping[str, Profile]:
    """The built-in profiles and the one of the endpoint's file, by what the setting calls them.

    A file's profile has the file's name without `.toml`. Raises `BadSetting`, which names the key, the value and what
    to write instead.
    """
    named = settings.endpoint.profile
    known = profiles()
    if named == AUTO or named in known:
        return known
    if not named.endswith(SUFFIX):
        near = difflib.get_close_matches(named.lower(), [AUTO, *known], n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise BadSetting(f"{_KEY}: {named!r} is not allowed: there is no such profile: {_allowed()}{hint}")
    return {**known, named: _from_file(named)}


def _from_file(named: str) -> Profile:
    try:
        path = Path(named).expanduser()
        return read_profile(path.read_bytes(), path.stem)
    except (OSError, ValueError, RuntimeError) as error:  # a path that no system takes; ~ of nobody
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadSetting(f"{_KEY}: cannot read the profile {named!r}: {reason}: {_allowed()}") from None
    except LooplineError as error:
        remedy = f"correct the file {named}; docs/upstreams.md has its keys"
        raise BadSetting(f"{_KEY}: {error.message.rstrip('.')}: {remedy}") from None


def _allowed() -> str:
    return f"use {AUTO}, one of {', '.join(profiles())}, or the path of a file such as ./my-server{SUFFIX}"
