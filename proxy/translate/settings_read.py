"""What both dialects read of a create's settings alike."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from proxy.errors import Kind, LooplineError
from proxy.wire.codec import Raw, decode
from proxy.wire.items import Item

# The value of `include` whose loss a client notices.
LOGPROBS = "message.output_text.logprobs"


class Nested(msgspec.Struct):
    """The settings that have members of their own, undecoded."""

    reasoning: dict[str, Raw] | None = None
    text: dict[str, Raw] | None = None


_NESTED = msgspec.json.Decoder(Nested)


def updates(lasting: Sequence[Item]) -> list[Nested]:
    """What `configuration_update` items change, the latest last. Raises `LooplineError` (invalid_request)."""
    return [decode(_NESTED, item.raw, "'input'", "input") for item in lasting if item.kind == "configuration_update"]


def template_refusal() -> LooplineError:
    """The refusal of a stored prompt."""
    return LooplineError(
        Kind.UNSUPPORTED_PARAMETER,
        "'prompt' names a template that only its own server has; send its text as 'instructions'.",
        param="prompt",
    )
