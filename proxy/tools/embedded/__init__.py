"""The embedded default upstream: llama.cpp's own server with a small real model, fetched on first use.

    ready = prepare(progress=Bar(sys.stderr))       # blocks; raises Unavailable, and the caller serves something else
    async with Embedded(ready, on_event=...) as e:  # raises StartFailed
        e.url                                       # "http://127.0.0.1:PORT/v1"

    recipe               what is fetched, pinned; the limits of what it gives       pure
    progress             the bar
    cache, fetch         the folder, its lock, its stamps; pip
    install              `prepare`
    child, supervisor    one process; `Embedded`, which keeps one running
    runner.py            the server itself, run by the other environment's Python
    chatml.jinja         its chat template, with tool calls

SmolLM2-135M-Instruct chats; it calls tools only when led to.
"""

from proxy.tools.child import StartFailed

from .cache import default_cache_dir
from .install import Ready, Unavailable, prepare
from .progress import Bar, Progress, Silent
from .recipe import CONTEXT_TOKENS, DEFAULT_MAX_OUTPUT_TOKENS, MODEL, SLOTS
from .supervisor import Embedded, Event, Timing

__all__ = [
    "CONTEXT_TOKENS",
    "DEFAULT_MAX_OUTPUT_TOKENS",
    "MODEL",
    "SLOTS",
    "Bar",
    "Embedded",
    "Event",
    "Progress",
    "Ready",
    "Silent",
    "StartFailed",
    "Timing",
    "Unavailable",
    "default_cache_dir",
    "prepare",
]
