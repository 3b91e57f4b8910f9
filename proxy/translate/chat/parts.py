"""Parts of a message's or an output's content, as Chat Completions has them.

Images, files and sound stay what they are: as text they would cost a hundred times their tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from proxy.errors import Kind, LooplineError

ChatPart = dict[str, Any]


class Audio(msgspec.Struct):
    data: str
    format: str


class Part(msgspec.Struct):
    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None
    detail: str | None = None
    file_data: str | None = None
    file_url: str | None = None
    filename: str | None = None
    file_id: str | None = None
    input_audio: Audio | None = None


Content = str | list[Part] | None

# `original` is `high` without a bound on its size; the nearest that servers know.
_DETAILS: Mapping[str | None, str] = {"auto": "auto", "low": "low", "high": "high", "original": "high"}


def _text(part: Part) -> ChatPart | None:
    return None if part.text is None else {"type": "text", "text": part.text}


def _refusal(part: Part) -> ChatPart | None:
    return {"type": "text", "text": part.refusal or ""}


def _image(part: Part) -> ChatPart | None:
    if part.image_url is None:
        return None
    image = {"url": part.image_url}
    if part.detail in _DETAILS:
        image["detail"] = _DETAILS[part.detail]
    return {"type": "image_url", "image_url": image}


def _file(part: Part) -> ChatPart | None:
    if part.file_data is None:
        return None
    file = {"file_data": part.file_data}
    if part.filename is not None:
        file["filename"] = part.filename
    return {"type": "file", "file": file}


def _audio(part: Part) -> ChatPart | None:
    audio = part.input_audio
    return (
        None if audio is None else {"type": "input_audio", "input_audio": {"data": audio.data, "format": audio.format}}
    )


# Type → its writer, and the member that it needs.
_PARTS: Mapping[str, tuple[Callable[[Part], ChatPart | None], str]] = {
    "input_text": (_text, "text"),
    "output_text": (_text, "text"),
    "text": (_text, "text"),
    "refusal": (_refusal, "refusal"),
    "input_image": (_image, "image_url"),
    "computer_screenshot": (_image, "image_url"),
    "input_file": (_file, "file_data"),
    "input_audio": (_audio, "input_audio"),
}
# What a part of a message can be beside text.
_NOUNS: Mapping[str, str] = {"image_url": "image", "file": "file", "input_audio": "sound"}


def chat_part(part: Part, param: str) -> ChatPart:
    """One part. Raises `LooplineError` (invalid_request, `param`) for one that cannot be carried."""
    write, needed = _PARTS.get(part.type, (None, ""))
    if write is None:
        raise LooplineError(
            Kind.INVALID_REQUEST,
            f"'{param}' holds a part of type '{part.type}', which a Chat Completions upstream cannot take; "
            f"known are {', '.join(_PARTS)}.",
            param=param,
        )
    written = write(part)
    if written is None:
        raise LooplineError(Kind.INVALID_REQUEST, _lacking(part, needed, param), param=param)
    return written


def _lacking(part: Part, needed: str, param: str) -> str:
    given = next((name for name in ("file_id", "file_url") if getattr(part, name) is not None), None)
    if given is None:
        return f"'{param}' holds a part of type '{part.type}' without '{needed}'."
    return (
        f"'{param}' holds a part of type '{part.type}' by '{given}' ({getattr(part, given)[:200]}), which nothing here "
        f"can fetch; send its data as '{needed}'."
    )


def chat_parts(parts: Iterable[Part], param: str) -> list[ChatPart]:
    """All of them. Raises `LooplineError` as `chat_part` does."""
    return [chat_part(part, param) for part in parts]


def user_content(content: Content, param: str) -> str | list[ChatPart]:
    """What a user said. Plain text is what every template can render; a list is for what needs one."""
    if content is None or isinstance(content, str):
        return content or ""
    parts = chat_parts(content, param)
    if len(parts) == 1 and parts[0]["type"] == "text":
        return str(parts[0]["text"])
    return parts or ""


def texts_and_media(content: str | Sequence[ChatPart]) -> tuple[list[str], list[ChatPart]]:
    """The texts of a content, and what else is in it."""
    if isinstance(content, str):
        return [content], []
    texts = [part["text"] for part in content if part["type"] == "text"]
    return texts, [part for part in content if part["type"] != "text"]


def announced(media: Sequence[ChatPart]) -> str:
    """What an output says in whose place only images or files follow."""
    nouns = dict.fromkeys(_NOUNS[part["type"]] for part in media)
    return f"The {' and '.join(nouns)} of this output: see the next message."
