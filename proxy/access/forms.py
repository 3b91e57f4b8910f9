"""The model in a multipart form, found while the form passes: it must come early, once, and be one that is allowed."""

from __future__ import annotations

import re
from collections.abc import Callable

from proxy.errors import Kind, LooplineError

_BOUNDARY = re.compile(
    r"\s*multipart/form-data\s*;\s*boundary=(?:\"([0-9A-Za-z'()+_,./:=? -]{1,70})\"|([0-9A-Za-z'+_.-]{1,70}))\s*", re.I
)
_DISPOSITION = re.compile(rb'form-data;\s*name="([^"\\\r\n]*)"(?:;\s*filename="[^"\r\n]*")?(?:;\s*filename\*=[^\s;]+)?')
_NAMES = frozenset({b"content-disposition", b"content-type", b"content-transfer-encoding", b"content-length"})
_MAX_HEAD_BYTES = 8 * 1024
_MAX_NAME_BYTES = 1024


def boundary_of(content_type: str) -> bytes:
    """The boundary of a form. Raises `LooplineError` (unsupported_media) if there is not exactly one."""
    found = _BOUNDARY.fullmatch(content_type)
    if found is None:
        raise LooplineError(
            Kind.UNSUPPORTED_MEDIA,
            "With a key of this server the Content-Type must be application/json, or multipart/form-data with one "
            "boundary.",
        )
    return (found[1] or found[2]).encode()


class FormModel:
    """Reads a form as it passes. `feed` each piece before it is sent; what it raises must end the request.

    `check` is told the model's name, as soon as it is known, and raises where it may not be used. Stricter than
    servers are: a form that two of them could read in two ways is refused.
    """

    def __init__(self, boundary: bytes, check: Callable[[str], None]) -> None:
        self._mark = b"--" + boundary
        self._check = check
        self._held = b"\r\n"  # the first boundary has none before it
        self._in_head = False
        self._in_model = False
        self._ended = False
        self.found = False

    def feed(self, data: bytes) -> None:
        """Raises `LooplineError` (invalid_request, missing_parameter, or what `check` raises)."""
        self._held += data
        while not self._ended and (self._head() if self._in_head else self._body()):
            pass
        if self._ended:
            self._held = b""

    def _body(self) -> bool:
        """Look for the end of a part's content; whether there may be more to read."""
        at = self._held.find(self._mark)
        if at < 0:
            if self._in_model:
                self._bound(self._held, _MAX_NAME_BYTES, "its model is too long")
            else:
                self._held = self._held[-len(self._mark) - 1 :]  # a mark and the line end before it may be cut
            return False
        after = at + len(self._mark)
        if len(self._held) < after + 2:
            return False
        if at < 2 or self._held[at - 2 : at] != b"\r\n":
            raise _refused("its boundary stands inside a line")
        if self._in_model:
            self._name(self._held[: at - 2])
        following = self._held[after : after + 2]
        if following not in (b"\r\n", b"--"):
            raise _refused("something follows its boundary")
        self._ended = following == b"--"
        self._in_head = not self._ended
        self._held = self._held[after + 2 :]
        return True

    def _head(self) -> bool:
        head, end, rest = self._held.partition(b"\r\n\r\n")
        if not end:
            self._bound(self._held, _MAX_HEAD_BYTES, "the head of a part is too long")
            return False
        self._bound(head, _MAX_HEAD_BYTES, "the head of a part is too long")
        name = _name_in(head)
        if name == b"model":
            if self.found:
                raise _refused("it names two models")
            self.found = self._in_model = True
        self._in_head = False
        self._held = rest
        return True

    def _name(self, value: bytes) -> None:
        self._bound(value, _MAX_NAME_BYTES, "its model is too long")
        self._in_model = False
        try:
            self._check(value.decode())
        except UnicodeDecodeError:
            raise _refused("its model is not UTF-8") from None

    @staticmethod
    def _bound(held: bytes, limit: int, why: str) -> None:
        if len(held) > limit:
            raise _refused(why)

    @property
    def model_known(self) -> bool:
        """Has the model been read and checked?"""
        return self.found and not self._in_model

    @property
    def ended(self) -> bool:
        """Has the last boundary passed?"""
        return self._ended


def _name_in(head: bytes) -> bytes:
    """The name of a part by its head."""
    name: bytes | None = None
    for line in head.split(b"\r\n"):
        key, colon, value = line.partition(b":")
        if not colon or key.lower() not in _NAMES or b"\n" in line or b"\r" in line:
            raise _refused("a part has headers that no form has")
        if key.lower() == b"content-disposition":
            found = _DISPOSITION.fullmatch(value.strip())
            if found is None or name is not None:
                raise _refused("a part has no plain name")
            name = found[1]
    if name is None:
        raise _refused("a part has no name")
    return name.strip().lower()


def _refused(why: str) -> LooplineError:
    return LooplineError(Kind.INVALID_REQUEST, f"The form is refused: {why}.", param="model")
