"""Many sockets, each in the middle of an answer: what `make scale` runs after the idle ones.

    python -m tests.soak.streams SOCKETS

Every socket asks for an answer that the upstream spreads over some seconds, so that all of them stream at once; each
must get all of it. Told: memory a socket, CPU an event, how many streamed at the same time. Exit status 1 where an
answer did not come whole.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import aiohttp

from tests.program import Program, loopline, served
from tests.soak.gauges import cpu_s, sample
from tests.wire_client import open_socket, user

_TOKENS, _TOKENS_PER_S, _SPREAD_S = 50, 10, 2
_AT_ONCE = 64  # sockets that open at the same time


async def _stream(url: str, opening: asyncio.Semaphore, ready: asyncio.Barrier) -> int:
    """How many tokens came."""
    async with opening:
        socket = open_socket(url, open_timeout=60)
        client = await socket.__aenter__()
    try:
        await ready.wait()
        await asyncio.sleep(_SPREAD_S * random.random())  # they come as clients do, not in one millisecond
        await client.create([user(f"[[say {_TOKENS}]]")], store=False)
        tokens, kind = 0, b""
        async with asyncio.timeout(300):
            while b'"response.completed"' not in kind:
                frame = await client.connection.recv(decode=False)
                kind = bytes(frame[:60])
                tokens += b"output_text.delta" in kind
                if b'"response.failed"' in kind or b'"error"' in kind:
                    raise RuntimeError(re.findall(rb'"error":[^}]*}', bytes(frame)))
        return tokens
    finally:
        await socket.__aexit__(None, None, None)


async def _measured(program: Program, count: int) -> int:
    opening, ready = asyncio.Semaphore(_AT_ONCE), asyncio.Barrier(count + 1)
    async with aiohttp.ClientSession() as http:
        before = await sample(http, program.url, program.pid)
        tasks = [asyncio.create_task(_stream(program.url, opening, ready)) for _ in range(count)]
        await ready.wait()
        quiet, began_s, used_s = await sample(http, program.url, program.pid), time.perf_counter(), cpu_s(program.pid)
        most = quiet
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0.5)
            now = await sample(http, program.url, program.pid)
            most = max(most, now, key=lambda each: each.running)
        took_s, cpu = time.perf_counter() - began_s, cpu_s(program.pid) - used_s
        got = await asyncio.gather(*tasks, return_exceptions=True)
    whole = sum(each == _TOKENS for each in got)
    told = {
        "sockets": count,
        "whole answers": whole,
        "streaming at once": most.running,
        "kB a socket, quiet": round((quiet.rss_mib - before.rss_mib) * 1024 / count, 1),
        "kB a socket, in its stream": round((most.rss_mib - before.rss_mib) * 1024 / count, 1),
        "CPU us a token": round(cpu / (count * _TOKENS) * 1e6, 1),
        "CPU": f"{cpu / took_s:.0%}",
        "seconds": round(took_s, 1),
    }
    print(json.dumps(told, indent=1))
    print(*{repr(each)[:300] for each in got if each != _TOKENS}, sep="\n")
    return int(whole != count)


async def run(count: int) -> int:
    """The exit status."""
    async with loopline("simulate", "--port", "0", "--tokens-per-s", str(_TOKENS_PER_S)) as upstream:
        await upstream.prints("/v1")
        found = re.search(r"http://\S+/v1", upstream.out)
        assert found is not None, upstream.out
        with tempfile.TemporaryDirectory() as folder:
            async with served(found[0], Path(folder), {}) as program:
                return await _measured(program, count)


def main(arguments: Sequence[str]) -> int:
    """Exit status."""
    if len(arguments) != 1:
        print(__doc__)
        return 2
    return asyncio.run(run(int(arguments[0])))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
