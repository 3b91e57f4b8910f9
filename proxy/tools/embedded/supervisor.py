"""Keeps the server running: on one port, restarted when it crashes, stopped with us."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from proxy.tools.child import Child, Log, StartFailed, ended

from .install import Ready
from .recipe import CONTEXT_TOKENS, MODEL, SLOTS

RUNNER = Path(__file__).with_name("runner.py")
_PORT_ATTEMPTS = 3  # a free port may be taken by another program before the server binds it
_LOG_CHECK_S = 30.0


@dataclass(frozen=True, slots=True)
class Timing:
    """Limits of the supervision, in seconds.

    `restarts`: failures in a row before it gives up; one that ran for `settled_s` counts as the first again.
    """

    start_s: float = 120.0  # a cold disk and a busy machine; 1 to 3 s is usual
    stop_s: float = 3.0
    backoff_s: float = 0.25  # doubled for each failure in a row
    most_backoff_s: float = 5.0
    restarts: int = 5
    settled_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Event:
    """What happened to the server. `text` is for a person; `pid` is of the process meant, None for `gave_up`."""

    kind: Literal["started", "crashed", "restarted", "gave_up", "stopped"]
    text: str
    pid: int | None = None


class Embedded:
    """A supervised llama.cpp server on 127.0.0.1.

        async with Embedded(prepare(), on_event=print) as embedded:
            embedded.url  # "http://127.0.0.1:PORT/v1", the same after a restart

    Entering waits until it answers and raises StartFailed, leaving no process. `on_event` is called on the event loop
    and must neither block nor raise. `threads` computes an answer (default: half of the machine's), twice as many, as
    far as there are, read a prompt. `port` 0 takes a free one.
    """

    def __init__(
        self,
        ready: Ready,
        *,
        on_event: Callable[[Event], None] = lambda event: None,
        threads: int | None = None,
        port: int = 0,
        timing: Timing = Timing(),
        runner: Path = RUNNER,
    ) -> None:
        cores = os.cpu_count() or 1
        self._threads = threads or max(1, cores // 2)
        self._batch_threads = max(self._threads, min(cores, 2 * self._threads))
        self._ready = ready
        self._on_event = on_event
        self._timing = timing
        self._runner = runner
        self._wanted_port = port
        self._port = 0
        self._child: Child | None = None
        self._log: Log | None = None
        self._watching: asyncio.Task[None] | None = None
        self._gave_up = False

    @property
    def url(self) -> str:
        """The base URL of its OpenAI-like API. Valid once started."""
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def port(self) -> int:
        return self._port

    @property
    def pid(self) -> int | None:
        """The process that answers; None between a crash and its restart, and when stopped."""
        return self._child.pid if self._child and self._child.returncode is None else None

    @property
    def gave_up(self) -> bool:
        """Whether it crashed too often: nothing answers any more, until it is made anew."""
        return self._gave_up

    @property
    def log(self) -> Path | None:
        """The file with what the server wrote; None before the start."""
        return self._log.path if self._log else None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def start(self) -> None:
        """Start the server and wait until it answers. Raises StartFailed. Afterwards `aclose` is due."""
        self._child = await self._first()
        self._tell("started", f"llama.cpp answers on {self.url}", self._child)
        self._watching = asyncio.create_task(self._watch(self._child), name="embedded-watch")

    async def aclose(self) -> None:
        """Stop the server and wait for its end. May be called twice."""
        watching, self._watching = self._watching, None
        try:
            if watching is not None:
                watching.cancel()  # a restart that is under way stops its own child
                await asyncio.wait([watching])
        finally:
            await self._stop()
        if watching is not None and not watching.cancelled():
            watching.result()  # a defect of `on_event` shows here

    async def _stop(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            was_running = child.returncode is None
            await child.stop(self._timing.stop_s)
            if was_running:
                self._tell("stopped", "llama.cpp was stopped", child)

    async def _first(self) -> Child:
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            self._port = self._wanted_port or _free_port()
            try:
                self._log = Log(self._ready.logs, f"llama-{self._port}.log")
            except OSError as error:
                raise StartFailed(f"no log can be written: {error}") from error
            try:
                return await self._launch(self._log)
            except StartFailed:
                if self._wanted_port or attempt == _PORT_ATTEMPTS or _is_free(self._port):
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def _launch(self, log: Log) -> Child:
        """One start. Leaves no process behind when it fails or is cancelled."""
        if not _is_free(self._port):  # else the stranger there would pass for our server
            raise StartFailed(f"port {self._port} of 127.0.0.1 is taken by another program")
        async with AsyncExitStack() as stack:
            child = await Child.spawn(self._command(), log)
            stack.push_async_callback(child.stop, self._timing.stop_s)
            await child.healthy(f"http://127.0.0.1:{self._port}/health", self._timing.start_s)
            stack.pop_all()
        return child

    def _command(self) -> list[str]:
        options = {
            "model": self._ready.model,
            "template": self._ready.template,
            "alias": MODEL,
            "port": self._port,
            "context-tokens": CONTEXT_TOKENS,
            "slots": SLOTS,
            "threads": self._threads,
            "batch-threads": self._batch_threads,
        }
        # -I: no PYTHONPATH, and this package's folder does not shadow modules of the other environment.
        return [str(self._ready.python), "-I", str(self._runner), *(f"--{k}={v}" for k, v in options.items())]

    async def _watch(self, child: Child) -> None:
        """Restart the server whenever it ends, until it has failed too often."""
        log = self._log
        assert log is not None
        failures = 0
        while True:
            began_s = time.monotonic()
            code = await self._end_of(child, log)
            failures = 1 if time.monotonic() - began_s >= self._timing.settled_s else failures + 1
            self._tell("crashed", f"llama.cpp {ended(code)}", child)
            await child.stop(0)  # only closes the pipe
            next_child, failures = await self._restart(log, failures)
            if next_child is None:
                self._gave_up = True
                self._on_event(Event("gave_up", f"llama.cpp failed {failures} times in a row; see {log.path}"))
                return
            self._child = child = next_child
            self._tell("restarted", f"llama.cpp answers again on {self.url}", child)

    async def _restart(self, log: Log, failures: int) -> tuple[Child | None, int]:
        """Start it again, waiting longer each time; None after too many failures in a row."""
        while failures <= self._timing.restarts:
            await asyncio.sleep(min(self._timing.backoff_s * 2 ** (failures - 1), self._timing.most_backoff_s))
            try:
                return await self._launch(log), failures
            except StartFailed as error:
                failures += 1
                self._on_event(Event("crashed", str(error)))
        return None, failures

    async def _end_of(self, child: Child, log: Log) -> int:
        """Wait until the process ends, looking at its log's size now and then."""
        while True:
            try:
                async with asyncio.timeout(_LOG_CHECK_S):
                    return await child.wait()
            except TimeoutError:
                log.bound()

    def _tell(self, kind: Literal["started", "crashed", "restarted", "stopped"], text: str, child: Child) -> None:
        self._on_event(Event(kind, text, child.pid))


def _free_port() -> int:
    """A loopback port that nobody has at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _is_free(port: int) -> bool:
    """Whether a server could bind this loopback port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: TIME_WAIT is no obstacle
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
