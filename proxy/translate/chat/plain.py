"""The ordinary chunk of a stream: one string, and around it the same bytes every time.

What it says goes to the client undecoded (`translate/alike.py`). A chunk of any other form is decoded.
"""

from __future__ import annotations

from proxy.translate.alike import Alike
from proxy.translate.chat.chunks import Choice, Chunk
from proxy.wire.codec import encode, is_null

# Member of a delta → what it says. `reasoning` stands beside `reasoning_content` on some servers, saying the same.
_MEMBERS = (("content", "text"), ("reasoning_content", "reasoning"), ("reasoning", "reasoning"))


class PlainChunks(Alike):
    """Takes ordinary chunks apart. `kind` is what their string is: `text` or `reasoning`."""

    __slots__ = ("kind",)

    def __init__(self) -> None:
        super().__init__()
        self.kind = ""

    def learn(self, payload: bytes, chunk: Chunk) -> None:
        """Note what stands around the string of a chunk that is ordinary."""
        if not chunk.choices or len(chunk.choices) != 1:
            return
        said = _only_string(chunk.choices[0])
        if said is None or not is_null(chunk.usage) or not is_null(chunk.error):
            return
        member, kind, text = said
        if self.learn_from(payload, b'"%b"' % member.encode(), encode(text)):
            self.kind = kind


def _only_string(choice: Choice) -> tuple[str, str, str] | None:
    """The member, the kind and the text of a choice that says nothing but one string."""
    delta = choice.delta
    if delta is None or choice.message is not None or choice.index or choice.finish_reason or delta.annotations:
        return None
    if delta.refusal or delta.tool_calls or delta.function_call:
        return None
    said = [(member, kind, text) for member, kind in _MEMBERS if (text := getattr(delta, member))]
    if len(said) != 1 or not isinstance(said[0][2], str):
        return None
    return said[0]
