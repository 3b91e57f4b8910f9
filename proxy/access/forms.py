"""The model in a multipart form, found while the form passes: it must come early, once, and be one that is allowed."""

from __future__ import annotations

import re
from collections.abc import Callable

from proxy.errors import Kind, LooplineError

# Letters that nobody unquotes, unescapes, splits at or trims: RFC 2046 has more.
_BOUNDARY = re.compile(
    r"\s*multipart/form-data\s*;\s*boundary=(?:\"([0-9A-Za-z_.-]{1,70})\"|([0-9A-Za-z_.-]{1,70}))\s*", re.I
)
_DISPOSITION = re.compile(
    rb'form-data;\s*name="([^"\\%\x00-\x1f\x7f]*)"(;\s*filename="(?:[^"\\\x00-\x1f\x7f]|\\[^"\x00-\x1f\x7f])*")?'
    rb"(;\s*filename\*=[^\s;]+)?"
)
_NAMES = frozenset({b"content-disposition", b"content-type", b"content-transfer-encoding", b"content-length"})
# A part that its reader decodes once more is another one; one that has parts itself may name a model in them.
_AS_IT_IS = frozenset({b"7bit", b"8bit", b"binary"})
_PLAIN_TEXT = re.compile(rb'text/plain(?:;\s*charset="?(?:utf-8|us-ascii)"?)?', re.I)
_MODEL = b"model"
_MAX_HEAD_BYTES = 8 * 1024
_MAX_NAME_BYTES = 1024


def boundary_of(content_type: str) -> bytes:
    """The boundary of a form. Raises `LooplineError` (unsupported_media) if there is not exactly one."""
    found = _BOUNDARY.fullmatch(content_type)
    if found is None:
        raise LooplineError(
            Kind.UNSUPPORTED_MEDIA,
            "With a key of this server the Content-Type must be application/json (in UTF-8), or multipart/form-data "
            "with one boundary of letters, digits, '-', '_' and '.'.",
        )
    return (found[1] or found[2]).encode()


class FormModel:
    """Reads a form as it passes. `feed` each piece before it is sent; what it raises must end the request.

    `check` is told the model's name, as soon as it is known, and raises where it may not be used. Stricter than
    servers are: a form that two of them could read in two ways is refused.
    """

    def __init__(self, boundary: bytes, check: Callable[[str], None]) -> None:
        self._mark = b"--" + boundary
        # As they find it who take the boundary with its quotes, or in small letters.
        self._marks = re.compile(rb'--"?(?i:%b)' % re.escape(boundary))
        self._check = check
        self._held = b""
        self._content_bytes = 0
        self._content_length: int | None = None
        self._read: Callable[[], bool] = self._first
        self._in_model = False
        self._ended = False
        self.found = False

    def feed(self, data: bytes) -> None:
        """Raises `LooplineError` (invalid_request, missing_parameter, or what `check` raises)."""
        self._held += data
        while self._read():
            pass

    def _first(self) -> bool:
        """The first boundary is where the form begins; whether there may be more to read, as of all of these."""
        if len(self._held) < len(self._mark) and self._mark.startswith(self._held):
            return False
        if not self._held.startswith(self._mark):
            raise _refused("something stands before its first boundary")
        self._held = b"\r\n" + self._held  # which is the one that has no line before it
        self._read = self._content
        return True

    def _content(self) -> bool:
        """Look for the end of a part's content."""
        found = self._marks.search(self._held)
        if found is None:
            if self._in_model:
                self._bound(self._held, _MAX_NAME_BYTES, "its model is too long")
            else:  # a mark with its quote and the line end before it may be cut
                self._keep(-len(self._mark) - 2)
            return False
        at, after = found.span()
        if len(self._held) < after + 2:
            return False
        if at < 2 or self._held[at - 2 : after] != b"\r\n" + self._mark:
            raise _refused("its boundary stands inside a line, or in other letters")
        self._content_bytes += at - 2
        if self._content_length not in (None, self._content_bytes):
            raise _refused("a part has another length than its Content-Length")
        if self._in_model:
            self._name(self._held[: at - 2])
        following = self._held[after : after + 2]
        if following not in (b"\r\n", b"--"):
            raise _refused("something follows its boundary")
        self._ended = following == b"--"
        self._read = self._epilogue if self._ended else self._head
        self._held = self._held[after + 2 :]
        return True

    def _keep(self, start: int) -> None:
        kept = self._held[start:]
        self._content_bytes += len(self._held) - len(kept)
        self._held = kept

    def _head(self) -> bool:
        head, end, rest = self._held.partition(b"\r\n\r\n")
        self._bound(head, _MAX_HEAD_BYTES, "the head of a part is too long")
        if not end:
            return False
        part = _Part(head)
        if part.is_model:
            if self.found:
                raise _refused("it names two models")
            self.found = self._in_model = True
        self._content_length, self._content_bytes = part.length, 0
        self._read = self._content
        self._held = rest
        return True

    def _epilogue(self) -> bool:
        """Some read on behind the last boundary, and `--x--y` as one that is not the last."""
        if not b"\r\n".startswith(self._held):
            raise _refused("something follows its last boundary")
        return False

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


class _Part:
    """What the head of a part says. Raises `LooplineError` (invalid_request)."""

    def __init__(self, head: bytes) -> None:
        headers: dict[bytes, bytes] = {}
        for line in head.split(b"\r\n"):
            name, colon, value = line.partition(b":")
            name = name.lower()
            if not colon or name not in _NAMES or name in headers or b"\n" in line or b"\r" in line:
                raise _refused("a part has headers that no form has, or one twice")
            headers[name] = value.strip(b" \t")
        found = _DISPOSITION.fullmatch(headers.get(b"content-disposition", b""))
        if found is None:
            raise _refused("a part has no plain name")
        kind = headers.get(b"content-type", b"text/plain")
        if headers.get(b"content-transfer-encoding", b"binary").lower() not in _AS_IT_IS:
            raise _refused("a part is encoded (Content-Transfer-Encoding)")
        if kind.lower().startswith((b"multipart/", b"message/")):
            raise _refused("a part has parts itself")
        self.is_model = found[1] == _MODEL
        if self.is_model and (found[2] or found[3] or not _PLAIN_TEXT.fullmatch(kind)):
            raise _refused("its model is not a plain field")
        if not self.is_model and _read_loosely(found[1]) == _MODEL:
            raise _refused("a part has almost the name 'model'")
        self.length = self._length(headers.get(b"content-length"))

    @staticmethod
    def _length(said: bytes | None) -> int | None:
        if said is None:
            return None
        if not said.isdigit() or len(said) > 15:
            raise _refused("a part has a Content-Length that is none")
        return int(said)


def _read_loosely(name: bytes) -> bytes:
    """A name as the most lenient readers take it: in small letters, trimmed, `model[x]` and `model.x` as `model`."""
    return re.split(rb"[\[.]", name.strip().lower(), maxsplit=1)[0].strip()


def _refused(why: str) -> LooplineError:
    return LooplineError(Kind.INVALID_REQUEST, f"The form is refused: {why}.", param="model")
