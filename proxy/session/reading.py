"""Reading an upstream's answer to its end, where the end itself may fail to come."""

from __future__ import annotations

import asyncio

from proxy.errors import LooplineError
from proxy.http_client import HttpResponse
from proxy.translate.base import Translator

# How long the end of an answer may lag behind its last word before the connection is given up.
TAIL_S = 1.0


async def read_next(response: HttpResponse, translator: Translator) -> bytes:
    """What comes next; empty at the end.

    Once the model has stopped, only usage and `[DONE]` may follow: an upstream that fails then, or never ends, has
    answered all the same.
    """
    if not translator.whole:
        return await response.read()
    try:
        if response.is_ready:
            return await response.read()
        async with asyncio.timeout(TAIL_S):
            return await response.read()
    except (LooplineError, TimeoutError):
        return b""


async def read_tail(response: HttpResponse) -> None:
    """Read to the end what follows the last event, so that the connection can serve again."""
    try:
        while response.is_ready:  # without a timer: for most answers the end came with the last event
            if not await response.read():
                return
        async with asyncio.timeout(TAIL_S):
            while await response.read():
                pass
    except (LooplineError, TimeoutError):
        pass  # the answer was whole; only the connection is lost
