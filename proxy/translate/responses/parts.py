"""Parts of messages and outputs in the forms that Responses servers take which are not OpenAI's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from proxy.translate.left_out import LeftOut
from proxy.wire.codec import NULL, Raw, is_null

Part = Mapping[str, Any]
PARTS = msgspec.json.Decoder(list[dict[str, Raw]])
_INPUT_TEXT, _OUTPUT_TEXT, _REFUSAL, _INPUT_IMAGE = b'"input_text"', b'"output_text"', b'"refusal"', b'"input_image"'
_TEXTS = frozenset({_OUTPUT_TEXT, b'"text"'})
IMAGE = _INPUT_IMAGE


def said(parts: Sequence[Mapping[str, Raw]] | None) -> str:
    """The texts of all parts."""
    return "".join(text for part in parts or () if (text := _text(part)) is not None)


def one_text(parts: Sequence[Mapping[str, Raw]], left_out: list[LeftOut]) -> Sequence[Part]:
    """What an assistant said as one part: of several, some servers read the first alone, and few know a refusal.

    No part where nothing was said. What is no text is added to `left_out`.
    """
    if len(parts) == 1 and _kind(parts[0]) == _OUTPUT_TEXT and _text(parts[0]):
        return parts
    for part in parts:
        if _text(part) is None:
            left_out.append(LeftOut("part", _kind(part).decode().strip('"')))
    text = said(parts)
    return [{"type": "output_text", "text": text, "annotations": []}] if text else []


def annotated(parts: Sequence[Part]) -> Sequence[Part]:
    """The same, with `annotations` in every text; the same object where they are there."""
    if not any(map(_lacks_annotations, parts)):
        return parts
    return [{**part, "annotations": []} if _lacks_annotations(part) else part for part in parts]


def detailed(parts: Sequence[Part]) -> Sequence[Part]:
    """The same, with `detail` in every image; the same object where it is there."""
    if not any(map(_lacks_detail, parts)):
        return parts
    return [{**part, "detail": "auto"} if _lacks_detail(part) else part for part in parts]


def as_input(parts: Sequence[Part]) -> Sequence[Part]:
    """The same, for an output: its texts are input to a model; the same object where they are."""
    if not any(_kind(part) in _TEXTS for part in parts):
        return parts
    return [{"type": "input_text", "text": part.get("text", "")} if _kind(part) in _TEXTS else part for part in parts]


def _kind(part: Part) -> bytes:
    return bytes(part["type"]) if isinstance(part.get("type"), Raw) else b"null"


def _text(part: Mapping[str, Raw]) -> str | None:
    text = part.get("refusal" if _kind(part) == _REFUSAL else "text", NULL)
    return msgspec.json.decode(text, type=str) if bytes(memoryview(text)[:1]) == b'"' else None


def _lacks_annotations(part: Part) -> bool:
    return _kind(part) == _OUTPUT_TEXT and is_null(part.get("annotations", NULL))


def _lacks_detail(part: Part) -> bool:
    return _kind(part) == _INPUT_IMAGE and is_null(part.get("detail", NULL))
