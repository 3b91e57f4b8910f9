"""W3C Trace Context: what `traceparent` and `tracestate` say, if they say it rightly. Pure.

Source: W3C Trace Context, 3.2 (traceparent) and 3.3 (tracestate).
"""

from __future__ import annotations

import re

# Of an unknown version the first four fields count, and what follows them begins with a dash.
_PARENT = re.compile(
    r"(?P<version>(?!ff)[0-9a-f]{2})-(?P<trace>(?!0{32})[0-9a-f]{32})-(?P<span>(?!0{16})[0-9a-f]{16})"
    r"-(?P<flags>[0-9a-f]{2})(?P<more>-[\x20-\x7e]*)?"
)
_MEMBER = re.compile(
    r"([a-z0-9][a-z0-9_*/@-]{0,255})=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)
_MAX_CHARS = 512
_MAX_MEMBERS = 32


def read_traceparent(text: str) -> str:
    """A `traceparent` as version 00 writes it, with no flag but `sampled`; empty for one that is not valid."""
    match = _PARENT.fullmatch(text.strip(" \t")) if len(text) <= _MAX_CHARS else None
    if match is None or (match["version"] == "00" and match["more"]):
        return ""
    return f"00-{match['trace']}-{match['span']}-{int(match['flags'], 16) & 1:02x}"


def read_tracestate(text: str) -> str:
    """A `tracestate`; empty for one that is not valid, or is longer than others are asked to pass on."""
    if len(text) > _MAX_CHARS:
        return ""
    members = [member for part in text.split(",") if (member := part.strip(" \t"))]
    matches = [_MEMBER.fullmatch(member) for member in members]
    keys = {match[1] for match in matches if match is not None}
    return ",".join(members) if len(keys) == len(members) <= _MAX_MEMBERS else ""


def trace_of(traceparent: str) -> str:
    """The trace's id, 32 hex digits, of a `traceparent` that was read here."""
    return traceparent[3:35]


def is_sampled(traceparent: str) -> bool:
    """Does whoever began the trace keep it? Of a `traceparent` that was read here."""
    return traceparent.endswith("1")
