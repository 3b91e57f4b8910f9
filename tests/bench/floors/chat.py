"""The floor before a Chat Completions upstream: items become messages, chunks become events. See `relay.py`."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import msgspec

from .relay import Create, Relay, frame, run

_MODEL = b"bench"
_encode = msgspec.json.Encoder().encode
_numbers = itertools.count(1)
_histories: dict[str, tuple[bytes, ...]] = {}


class _Part(msgspec.Struct):
    text: str = ""


class _Message(msgspec.Struct):
    role: str
    content: list[_Part] | str


class _Delta(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta


class _Chunk(msgspec.Struct):
    choices: list[_Choice]
    usage: msgspec.Raw = msgspec.Raw(b"null")


_MESSAGE, _CHUNK = msgspec.json.Decoder(_Message), msgspec.json.Decoder(_Chunk)


def _translated(item: msgspec.Raw) -> bytes:
    message = _MESSAGE.decode(item)
    parts = message.content
    text = parts if isinstance(parts, str) else "".join([part.text for part in parts])
    return _encode({"role": message.role, "content": text})


class _Events:
    """Writes the events of one answer."""

    def __init__(self) -> None:
        number = b"%024d" % next(_numbers)
        self.response, self._message = b"resp_" + number, b"msg_" + number
        place = b'"item_id":"' + self._message + b'","output_index":0,"content_index":0,'
        self._delta = (
            b'{"type":"response.output_text.delta",' + place + b'"logprobs":[],"sequence_number":%d,"delta":%s}'
        )
        self._place = place
        self._sequence = 4

    def first(self) -> list[bytes]:
        begun = self._whole(b"in_progress", b"[]", b"null")
        return [
            frame(b'{"type":"response.created","sequence_number":0,"response":' + begun + b"}"),
            frame(b'{"type":"response.in_progress","sequence_number":1,"response":' + begun + b"}"),
            frame(
                b'{"type":"response.output_item.added","sequence_number":2,"output_index":0,"item":'
                + self._item(b"in_progress", b"")
                + b"}"
            ),
            frame(
                b'{"type":"response.content_part.added","sequence_number":3,'
                + self._place
                + b'"part":{"type":"output_text","text":"","annotations":[],"logprobs":[]}}'
            ),
        ]

    def delta(self, text: str) -> bytes:
        event = self._delta % (self._sequence, _encode(text))
        self._sequence += 1
        return frame(event)

    def last(self, text: bytes, usage: bytes) -> list[bytes]:
        part = b'{"type":"output_text","text":' + text + b',"annotations":[],"logprobs":[]}'
        item = self._item(b"completed", part)
        done = self._whole(b"completed", b"[" + item + b"]", usage)
        at = self._sequence
        return [
            frame(
                b'{"type":"response.output_text.done","sequence_number":%d,%s"text":%s,"logprobs":[]}'
                % (at, self._place, text)
            ),
            frame(
                b'{"type":"response.output_item.done","sequence_number":%d,"output_index":0,"item":%s}' % (at + 1, item)
            ),
            frame(b'{"type":"response.completed","sequence_number":%d,"response":%s}' % (at + 2, done)),
        ]

    def _item(self, status: bytes, content: bytes) -> bytes:
        return b'{"id":"%s","type":"message","status":"%s","role":"assistant","content":[%s]}' % (
            self._message, status, content,
        )  # fmt: skip

    def _whole(self, status: bytes, output: bytes, usage: bytes) -> bytes:
        return b'{"id":"%s","object":"response","created_at":1,"status":"%s","model":"%s","output":%s,"usage":%s}' % (
            self.response, status, _MODEL, output, usage,
        )  # fmt: skip


async def _turn(relay: Relay, create: Create, write: Callable[[bytes], None]) -> None:
    history = _histories[create.previous_response_id] if create.previous_response_id else ()
    messages = history + tuple(map(_translated, create.input))
    body = b'{"model":"%s","stream":true,"stream_options":{"include_usage":true},"messages":[%s]}' % (
        _MODEL, b",".join(messages),
    )  # fmt: skip
    events = _Events()
    out, texts, usage = events.first(), [], b"null"
    async for blocks in relay.blocks(body):
        for block in blocks:
            if block == b"data: [DONE]":
                continue
            chunk = _CHUNK.decode(block[6:])
            if not chunk.choices:
                usage = bytes(chunk.usage)
            elif text := chunk.choices[0].delta.content:
                out.append(events.delta(text))
                texts.append(text)
        write(b"".join(out))
        out = []
    text_json = _encode("".join(texts))
    _histories[events.response.decode()] = (*messages, b'{"role":"assistant","content":' + text_json + b"}")
    write(b"".join(events.last(text_json, usage)))


if __name__ == "__main__":
    run("/chat/completions", _turn)
