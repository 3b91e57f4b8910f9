"""Request targets that may be passed on: those that every server reads the same way."""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

from proxy.errors import Kind, LooplineError

# What one server reads otherwise than another: parents, empty segments (also by a parameter alone), backslashes,
# control characters.
_AMBIGUOUS = re.compile(r"\.\.|%2e|//|\\|[\x00-\x1f\x7f]|/\.(?:/|;|$)|/;", re.IGNORECASE)
_PLAIN = re.compile(r"[\x21-\x7e]+")
_MAX_LAYERS = 4


def check_target(method: str, target: str) -> None:
    """Refuse targets that are not a plain path with a query, however often it is percent-encoded.

    `target` is as it stood in the request line. The query may hold anything but a raw backslash or `#`. Raises
    `LooplineError` (invalid_request).
    """
    if method == "CONNECT" or not target.startswith("/"):
        raise _refused("name it by its path alone, as in /v1/models")
    if not _PLAIN.fullmatch(target) or set(target) & set("\\#"):
        raise _refused("backslashes, '#' and characters beyond ASCII must be percent-encoded")
    path = target.partition("?")[0]
    for _ in range(_MAX_LAYERS):
        if _AMBIGUOUS.search(path):
            raise _refused("its path holds '..', '//', '%2e', a backslash or a control character")
        if "%" not in path:
            return
        decoded = _decoded(path)
        if decoded == path:
            return
        path = decoded
    raise _refused("its path is percent-encoded too many times")


def plain_path(target: str) -> str:
    """The path of a checked target, decoded, in lower case and without parameters: for comparing, not for sending."""
    path = target.partition("?")[0]
    for _ in range(_MAX_LAYERS):
        path = _decoded(path)
    return "/".join(segment.partition(";")[0] for segment in path.lower().split("/"))


def _decoded(path: str) -> str:
    return unquote_to_bytes(path.encode("latin-1")).decode("latin-1")


def _refused(why: str) -> LooplineError:
    return LooplineError(Kind.INVALID_REQUEST, f"The request's target is refused: {why}.")
