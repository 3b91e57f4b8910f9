from __future__ import annotations

import pytest
from aiohttp.http_exceptions import BadHttpMessage, BadHttpMethod, InvalidHeader, LineTooLong

from proxy.server.connection import unreadable

SAID = "sk-secret"
ERRORS = {
    "by the parser": (BadHttpMessage(f"Invalid header token:\n\n  b'{SAID}'\n    ^"), 400, "Invalid header token"),
    "in double quotes": (
        BadHttpMessage(f'Invalid header token:\n\n  b"{SAID}"\n    ^'),
        400,
        "Invalid header token",
    ),
    "no host": (BadHttpMessage("Missing 'Host' header in request."), 400, "Missing 'Host' header in request"),
    "two of a header": (BadHttpMessage("Duplicate 'Host' header found."), 400, "Duplicate 'Host' header found"),
    "a header": (InvalidHeader(SAID.encode()), 400, ""),
    "a method": (BadHttpMethod(SAID), 400, ""),
    "a reason that begins with what was sent": (BadHttpMessage(f"{SAID}:\n\n  b'x'"), 400, ""),
    "words that end otherwise": (BadHttpMessage(f"Unknown header {SAID}."), 400, ""),
    "a long line": (LineTooLong(SAID.encode(), 8), 431, None),
    "many headers": (BadHttpMessage("Too many headers received"), 431, None),
    "something else": (ValueError(SAID), 400, ""),
}


@pytest.mark.parametrize("name", ERRORS)
def test_what_is_told_is_the_parsers_and_never_the_clients(name: str) -> None:
    error, wanted, reason = ERRORS[name]
    told, status = unreadable(error)
    assert status == wanted
    assert SAID not in told.message
    if reason is None:
        assert "limits.header_bytes" in told.message
    else:
        assert told.message == f"The request is malformed{': ' if reason else ''}{reason}."
