"""The floor before a Responses upstream: its events become frames undecoded. See `relay.py`."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from .relay import Create, Relay, frame, run

_histories: dict[str, tuple[bytes, ...]] = {}


class _Response(msgspec.Struct):
    id: str
    output: list[msgspec.Raw]


class _Completed(msgspec.Struct):
    response: _Response


_COMPLETED = msgspec.json.Decoder(_Completed)


async def _turn(relay: Relay, create: Create, write: Callable[[bytes], None]) -> None:
    history = _histories[create.previous_response_id] if create.previous_response_id else ()
    items = history + tuple(map(bytes, create.input))
    body = b'{"model":"bench","stream":true,"store":false,"input":[' + b",".join(items) + b"]}"
    async for blocks in relay.blocks(body):
        out = []
        for block in blocks:
            payload = block[block.find(b"data: ") + 6 :]
            if payload == b"[DONE]":
                continue
            if block.startswith(b"event: response.completed"):
                response = _COMPLETED.decode(payload).response
                _histories[response.id] = items + tuple(map(bytes, response.output))
            out.append(frame(payload))
        write(b"".join(out))


if __name__ == "__main__":
    run("/responses", _turn)
