"""The ordinary chunk of a stream: one string, and around it the same bytes every time.

The first of them is decoded and shows those bytes; where the next ones have them too, what lies between is a JSON
string already, and goes to the client as it is. A chunk of any other form is decoded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

from proxy.translate.chat.chunks import Choice, Chunk
from proxy.wire.codec import encode, is_null

# The inside of a JSON string without control characters and without `\u`, whose halves may be in two chunks.
_PLAIN = re.compile(rb'[^"\\\x00-\x1f]*(?:\\["\\/bfnrt][^"\\\x00-\x1f]*)*').fullmatch
_HARMLESS = re.compile(rb'[^"\\\x00-\x1f]*').fullmatch
# Member of a delta → what it says. `reasoning` stands beside `reasoning_content` on some servers, saying the same.
_MEMBERS = (("content", "text"), ("reasoning_content", "reasoning"), ("reasoning", "reasoning"))
# A server whose chunks are never twice alike is not looked at again and again.
_MOST_LESSONS = 16
# Chunks looked at together: one that is not ordinary has those of its group looked at again.
_TOGETHER = 64


class PlainChunks:
    """Takes ordinary chunks apart. `kind` is what their string is: `text` or `reasoning`."""

    __slots__ = ("_after", "_before", "_lessons", "kind")

    def __init__(self) -> None:
        self.kind = ""
        self._before = self._after = b""
        self._lessons = 0

    def read(self, payloads: Sequence[bytes], start: int) -> list[bytes]:
        """The strings of the ordinary chunks from `start` on, some or all up to the first that is none.

        They are JSON without its quotes."""
        before, after = self._before, self._after
        if not before:
            return []
        first, last = len(before), -len(after)
        texts: list[bytes] = []
        for payload in payloads[start : start + _TOGETHER]:
            if not (payload.startswith(before) and payload.endswith(after)):
                break
            texts.append(payload[first:last])
        # Looked at together: what may need a second look has a backslash or is not ASCII.
        said = b"".join(texts)
        if not said.isascii() or _HARMLESS(said) is None or not all(texts):
            return list(takewhile(_is_whole, texts))
        return texts

    def learn(self, payload: bytes, chunk: Chunk) -> None:
        """Note what stands around the string of a chunk that is ordinary."""
        if self._lessons >= _MOST_LESSONS or not chunk.choices or len(chunk.choices) != 1:
            return
        said = _only_string(chunk.choices[0])
        if said is None or not is_null(chunk.usage) or not is_null(chunk.error):
            return
        member, kind, text = said
        self._lessons += 1
        for colon in (b'":', b'": '):
            key = b'"%b%b' % (member.encode(), colon)
            at = payload.find(key + encode(text))
            # Twice the same member: which of the two was read is not seen from here.
            if at >= 0 and payload.count(b'"%b"' % member.encode()) == 1:
                first = at + len(key) + 1
                self._before, self._after = payload[:first], payload[first + len(encode(text)) - 2 :]
                self.kind = kind
                return

    def forget(self) -> None:
        """What comes next is to be decoded."""
        self._before = b""


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


def _is_whole(text: bytes) -> bool:
    if not text or _PLAIN(text) is None:
        return False
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
