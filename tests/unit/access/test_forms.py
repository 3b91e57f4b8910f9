"""A form's model is found while the form passes, wherever it is cut; forms that can be read in two ways are refused."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.access.forms import FormModel, boundary_of
from proxy.errors import Kind, LooplineError


def part(head: bytes, content: bytes) -> bytes:
    return b"--bound\r\n" + head + b"\r\n\r\n" + content + b"\r\n"


def named(name: bytes, content: bytes) -> bytes:
    return part(b'Content-Disposition: form-data; name="%b"' % name, content)


MODEL = named(b"model", b"whisper-1")
FILE = part(
    b'Content-Disposition: form-data; name="file"; filename="a.wav"\r\nContent-Type: audio/wav', bytes(range(256)) * 3
)
AS = b"Content-Disposition: form-data; name="
LAST = b"--bound--\r\n"


class Seen:
    """Reads a form and keeps the models that it was asked about."""

    def __init__(self) -> None:
        self.models: list[str] = []
        self.form = FormModel(b"bound", self.models.append)

    def feed_by(self, piece_bytes: int, body: bytes) -> None:
        for start in range(0, len(body), piece_bytes):
            self.form.feed(body[start : start + piece_bytes])


@given(st.lists(st.integers(0, 1100), max_size=6), st.permutations([MODEL, FILE, named(b"language", b"en")]))
def test_the_model_is_found_however_the_form_is_cut(cuts: list[int], parts: list[bytes]) -> None:
    body, seen = b"".join(parts) + LAST, Seen()
    edges = [0, *sorted(cuts), len(body)]
    for start, end in pairwise(edges):
        seen.form.feed(body[start:end])
    assert seen.models == ["whisper-1"]
    assert seen.form.model_known
    assert seen.form.ended


def test_the_model_is_known_before_the_file_has_come() -> None:
    seen = Seen()
    seen.form.feed(MODEL + FILE[:100])
    assert seen.form.model_known
    assert not seen.form.ended


def test_a_large_file_is_not_kept() -> None:
    seen = Seen()
    seen.form.feed(MODEL + FILE[:200])
    for _ in range(100):
        seen.form.feed(b"x" * 65536)
    assert len(seen.form._held) < 100


@pytest.mark.parametrize(
    "body",
    [
        MODEL + MODEL + LAST,
        MODEL + named(b"Model", b"other") + LAST,
        MODEL + named(b" model ", b"other") + LAST,
        MODEL + part(b"Content-Disposition: form-data; name=model", b"other") + LAST,
        MODEL + part(b"Content-Disposition: form-data; name=\"a\"; name=\"model\"", b"other") + LAST,
        MODEL + part(AS + b"\"a\"\r\n" + AS + b"\"model\"", b"")
        + LAST,
        MODEL + part(b"Content-Disposition: form-data; name*=utf-8''model", b"other") + LAST,
        MODEL + part(b"Content-Disposition: form-data; name=\"mo\\\"del\"", b"other") + LAST,
        MODEL + part(b"Content-Disposition: form-data;\r\n name=\"model\"", b"other") + LAST,
        MODEL + part(AS + b"\"a\"\n" + AS + b"\"model\"", b"x")
        + LAST,
        MODEL + part(b"X-Odd: 1", b"other") + LAST,
        MODEL + named(b"a", b"x\n--bound\nContent-Disposition: form-data; name=\"model\"\n\nother") + LAST,
        MODEL + named(b"a", b"x--bound") + LAST,
        MODEL + b"--boundary\r\n" + LAST,
        named(b"model", b"m" * 5000) + LAST,
        named(b"model", b"\xff") + LAST,
        part(b"Content-Disposition: form-data; name=\"a\"\r\nContent-Type: " + b"a" * 9000, b"") + LAST,
        # Before the first boundary and behind the last.
        b"\r\n" + MODEL + LAST,
        b"preamble\r\n" + MODEL + LAST,
        b"\x1f\x8b\x08" + MODEL + LAST,
        b"{\"model\":\"other\"}\r\n" + MODEL + LAST,
        b"-" + MODEL + LAST,
        b"--boun" + MODEL + LAST,
        MODEL + LAST + MODEL + LAST,
        MODEL + LAST + b"\r\n",
        MODEL + LAST.strip() + b"x\r\n",
        MODEL + LAST.strip() + b"\n",
        # Boundaries that another reader takes.
        MODEL + named(b"a", b"x\r\n--\"bound\"\r\n" + AS + b"\"model\"\r\n\r\nother") + LAST,
        MODEL + named(b"a", b"x\r\n--BOUND\r\n" + AS + b"\"model\"\r\n\r\nother") + LAST,
        MODEL + b"--bound \r\n" + AS + b"\"a\"\r\n\r\n\r\n" + LAST,
        named(b"a", b"")[:-2] + LAST,
        # Names that another reader takes for the model's.
        MODEL + named(b"model[]", b"other") + LAST,
        MODEL + named(b"model[0]", b"other") + LAST,
        MODEL + named(b"Model.x", b"other") + LAST,
        MODEL + named(b"model\0x", b"other") + LAST,
        MODEL + named(b"mod%65l", b"other") + LAST,
        named(b"Model", b"whisper-1") + LAST,
        named(b" model", b"whisper-1") + LAST,
        # A model that is a file, or in another coding.
        part(AS + b"\"model\"; filename=\"a\"", b"whisper-1") + LAST,
        part(AS + b"\"model\"; filename*=utf-8''a", b"whisper-1") + LAST,
        part(AS + b"\"model\"\r\nContent-Type: text/plain; charset=utf-7", b"whisper-1") + LAST,
        part(AS + b"\"model\"\r\nContent-Type: application/json", b"whisper-1") + LAST,
        part(AS + b"\"model\"\r\nContent-Transfer-Encoding: base64", b"whisper-1") + LAST,
        # Parts that hold others, or end elsewhere.
        MODEL + part(AS + b"\"a\"\r\nContent-Type: multipart/mixed; boundary=inner", b"--inner") + LAST,
        MODEL + part(AS + b"\"a\"\r\nContent-Transfer-Encoding: quoted-printable", b"=0D=0A") + LAST,
        MODEL + part(AS + b"\"a\"\r\nContent-Length: 2", b"abc") + LAST,
        MODEL + part(AS + b"\"a\"\r\nContent-Length: +3", b"abc") + LAST,
        MODEL + part(AS + b"\"a\"\r\nContent-Type: a/b\r\nContent-Type: c/d", b"abc") + LAST,
        MODEL + part(AS + b"\"a\"; filename=\"x\\\"", b"abc") + LAST,
    ],
)  # fmt: skip
@pytest.mark.parametrize("piece_bytes", [1, 7, 1 << 20])
def test_forms_that_are_refused(piece_bytes: int, body: bytes) -> None:
    seen = Seen()
    with pytest.raises(LooplineError) as caught:
        seen.feed_by(piece_bytes, body)
    assert caught.value.kind is Kind.INVALID_REQUEST
    assert seen.models in ([], ["whisper-1"])


@pytest.mark.parametrize(
    "body",
    [
        MODEL + LAST.strip(),
        part(AS + b'"model"\r\nContent-Type: text/plain; charset=UTF-8\r\nContent-Length: 9', b"whisper-1") + LAST,
        part(AS + b'"model"\r\nContent-Transfer-Encoding: 8bit', b"whisper-1") + LAST,
        MODEL + named(b"image[]", b"x") + named(b"model_version", b"x") + named("größe".encode(), b"x") + LAST,
        MODEL + part(AS + b'"file"; filename="C:\\a.wav"; filename*=utf-8\'\'a', b"-" * 500 + b"--boun\r\n--") + LAST,
        MODEL + part(AS + b'"file"; filename="a"\r\nContent-Length: 70000', b"\r\n" * 35_000) + LAST,
        MODEL + part(AS + b'"file"; filename="a"\r\nContent-Length: 0', b"") + LAST,
    ],
)
@pytest.mark.parametrize("piece_bytes", [1, 7, 1 << 20])
def test_forms_that_clients_send(piece_bytes: int, body: bytes) -> None:
    seen = Seen()
    seen.feed_by(piece_bytes, body)
    assert seen.form.ended
    assert seen.models == ["whisper-1"]


def test_what_the_check_raises_ends_the_form() -> None:
    def refuse(name: str) -> None:
        raise LooplineError(Kind.MODEL_NOT_FOUND, name)

    with pytest.raises(LooplineError, match="whisper-1"):
        FormModel(b"bound", refuse).feed(MODEL + FILE)


@pytest.mark.parametrize(
    ("content_type", "boundary"),
    [
        ("multipart/form-data; boundary=abc-1", b"abc-1"),
        ('Multipart/Form-Data;boundary="a.b_c"', b"a.b_c"),
        ("multipart/form-data; boundary=----WebKitFormBoundaryAbC123", b"----WebKitFormBoundaryAbC123"),
    ],
)
def test_boundaries(content_type: str, boundary: bytes) -> None:
    assert boundary_of(content_type) == boundary


@pytest.mark.parametrize(
    "content_type",
    ["", "text/plain", "multipart/form-data", "multipart/mixed; boundary=a", "multipart/form-data; boundary=a; b=c",
     "multipart/form-data; charset=x; boundary=a", "multipart/form-data; boundary=",
     "multipart/form-data; boundary=a b", 'multipart/form-data; boundary="a b"', "multipart/form-data; boundary='a'",
     'multipart/form-data; boundary="a\\b"', "multipart/form-data; boundary=a=b", "multipart/form-data; boundary=a,b",
     "multipart/form-data; boundary*=utf-8''a", "multipart/form-data; boundary=" + "a" * 71],
)  # fmt: skip
def test_content_types_that_are_no_form(content_type: str) -> None:
    with pytest.raises(LooplineError) as caught:
        boundary_of(content_type)
    assert caught.value.kind is Kind.UNSUPPORTED_MEDIA
