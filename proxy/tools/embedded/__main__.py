"""`python -m proxy.tools.embedded`: the embedded upstream alone, for development."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path

from . import CONTEXT_TOKENS, MODEL, SLOTS, Bar, Embedded, Ready, StartFailed, Unavailable, prepare


def main() -> int:
    """Fetch what is missing, serve until SIGINT or SIGTERM. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m proxy.tools.embedded", description=__doc__)
    parser.add_argument("--cache-dir", type=Path, help="where everything is kept (default: ~/.cache/loopline)")
    parser.add_argument("--threads", type=int, help="threads that compute (default: half of the machine's)")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1 (default: a free one)")
    given = parser.parse_args()
    try:
        ready = prepare(given.cache_dir, Bar(sys.stderr))
        asyncio.run(_serve(ready, given.threads, given.port))
    except (Unavailable, StartFailed) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


async def _serve(ready: Ready, threads: int | None, port: int) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with Embedded(ready, threads=threads, port=port, on_event=lambda e: print(e.text, flush=True)) as embedded:
        print(f"{embedded.url}  model {MODEL}, {CONTEXT_TOKENS} tokens of context, {SLOTS} at once", flush=True)
        await stop.wait()


if __name__ == "__main__":
    sys.exit(main())
