"""How far a compressed WebSocket message may grow for what was sent of it.

aiohttp inflates in the event loop and knows one bound, that of a message's size: a quarter of a megabyte of zeros would
hold up every other client for the time that 128 MiB take. Text of agents shrinks to a fifth or a tenth.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from aiohttp import WSCloseCode
from aiohttp._websocket.models import WebSocketError
from aiohttp._websocket.reader import WebSocketReader
from aiohttp.compression_utils import ZLibDecompressor

if TYPE_CHECKING:
    from aiohttp.compression_utils import Buffer

FREE_BYTES = 1024 * 1024
TIMES = 32


class _Bounded(ZLibDecompressor):
    """aiohttp's, told what it was given."""

    def decompress_sync(self, data: Buffer, max_length: int = 0) -> bytes:
        allowed = FREE_BYTES + TIMES * len(data)
        if max_length and max_length <= allowed:
            return super().decompress_sync(data, max_length)
        inflated = super().decompress_sync(data, allowed + 1)
        if len(inflated) > allowed:
            del inflated  # or the error's traceback would keep it as long as the socket's remains
            raise WebSocketError(WSCloseCode.MESSAGE_TOO_BIG, f"The message inflates to more than {TIMES} times itself")
        return inflated


def bound_inflation() -> None:
    """From now on, for every socket of this process. The reader takes its decompressor from its module's names."""
    setattr(sys.modules[WebSocketReader.__module__], "ZLibDecompressor", _Bounded)  # noqa: B010
