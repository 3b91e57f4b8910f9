"""The embedded upstream's supervision, with a fake llama.cpp: crashes, restarts, failed starts, the end."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from proxy.tools.embedded import Embedded, Event, Ready, StartFailed, Timing

FAKE_SERVER = """\
import http.server, os, pathlib, signal, sys, threading
options = dict(word[2:].split("=", 1) for word in sys.argv[1:])
base = pathlib.Path(options["model"]).parent
(base / "argv").write_text("\\n".join(sys.argv[1:]))
(base / "env").write_text("\\n".join(os.environ))
mode = (base / "mode").read_text()
def watch():
    while os.read(0, 100):
        pass
    os._exit(0)
threading.Thread(target=watch, daemon=True).start()
if mode == "dies":
    print("cannot load the model\\nfor a reason", flush=True)
    sys.exit(3)
if mode == "deaf":
    threading.Event().wait()
if mode == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/crash":
            os._exit(7)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(options["port"])), Handler).serve_forever()
"""
QUICK = Timing(start_s=10, stop_s=0.3, backoff_s=0.01, most_backoff_s=0.05, restarts=2, settled_s=60)


class Server:
    """A fake llama.cpp and the events it caused."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events: list[Event] = []
        self.runner = folder / "server.py"
        self.runner.write_text(FAKE_SERVER)
        self.mode("ok")
        self.ready = Ready(Path(sys.executable), folder / "model", folder / "template", folder / "logs")

    def mode(self, word: str) -> None:
        (self.folder / "mode").write_text(word)

    def embedded(self, timing: Timing = QUICK, **k: int) -> Embedded:
        return Embedded(self.ready, on_event=self.events.append, timing=timing, runner=self.runner, **k)

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]

    async def until(self, kind: str) -> None:
        async with asyncio.timeout(20):
            while kind not in self.kinds:
                await asyncio.sleep(0.01)


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def _get(embedded: Embedded, path: str) -> int | None:
    async with aiohttp.ClientSession() as http:
        try:
            async with http.get(f"http://127.0.0.1:{embedded.port}{path}") as response:
                return response.status
        except aiohttp.ClientError:
            return None


async def test_it_answers_and_is_stopped_by_its_pid(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    async with server.embedded(threads=1) as embedded:
        pid = embedded.pid
        assert pid is not None
        assert embedded.url == f"http://127.0.0.1:{embedded.port}/v1"
        assert await _get(embedded, "/health") == 200
        assert os.getpgid(pid) == pid
    assert not _is_alive(pid)
    assert embedded.pid is None
    assert [(event.kind, event.pid) for event in server.events] == [("started", pid), ("stopped", pid)]
    given = (server.folder / "argv").read_text().split("\n")
    assert {"--alias=smollm2", "--context-tokens=2048", "--slots=4", "--threads=1"} <= set(given)
    assert "OPENAI_API_KEY" not in (server.folder / "env").read_text()
    await embedded.aclose()


async def test_a_crash_is_followed_by_a_restart_on_the_same_port(server: Server) -> None:
    async with server.embedded() as embedded:
        url, pid = embedded.url, embedded.pid
        assert await _get(embedded, "/crash") is None
        await server.until("restarted")
        assert embedded.url == url
        assert embedded.pid not in (None, pid)
        assert await _get(embedded, "/health") == 200
        assert server.events[1] == Event("crashed", "llama.cpp ended with code 7", pid)
        assert embedded.pid is not None
        os.kill(embedded.pid, signal.SIGKILL)
        async with asyncio.timeout(20):
            while server.kinds.count("restarted") < 2:
                await asyncio.sleep(0.01)
        assert "ended by signal 9" in server.events[3].text
    assert server.kinds == ["started", "crashed", "restarted", "crashed", "restarted", "stopped"]


async def test_it_gives_up_after_too_many_failures_in_a_row(server: Server) -> None:
    async with server.embedded() as embedded:
        server.mode("dies")
        await _get(embedded, "/crash")
        await server.until("gave_up")
        assert embedded.gave_up
        assert embedded.pid is None
    assert server.kinds == ["started", "crashed", "crashed", "crashed", "gave_up"]
    assert "for a reason" in server.events[2].text
    assert "failed 3 times in a row" in server.events[-1].text


async def test_one_that_ran_for_long_is_forgiven_its_earlier_crashes(server: Server) -> None:
    async with server.embedded(replace(QUICK, restarts=1, settled_s=0)) as embedded:
        for count in range(1, 4):
            await _get(embedded, "/crash")
            async with asyncio.timeout(20):
                while server.kinds.count("restarted") < count:
                    await asyncio.sleep(0.01)
    assert "gave_up" not in server.kinds


async def test_a_failed_start_shows_the_end_of_the_log(server: Server) -> None:
    server.mode("dies")
    with pytest.raises(StartFailed) as caught:
        await server.embedded().start()
    assert "ended with code 3 before it answered" in str(caught.value)
    assert str(caught.value).endswith("cannot load the model\nfor a reason")
    assert server.events == []


async def test_a_server_that_never_answers_is_stopped(server: Server) -> None:
    server.mode("deaf")
    embedded = server.embedded(replace(QUICK, start_s=0.5))
    with pytest.raises(StartFailed, match=r"did not answer within 0\.5 s .*it wrote nothing"):
        await embedded.start()
    assert embedded.pid is None
    assert not _running(server)


async def test_a_cancelled_start_leaves_no_process(server: Server) -> None:
    server.mode("deaf")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await server.embedded().start()
    assert not _running(server)


async def test_closing_during_a_restart_leaves_no_process(server: Server) -> None:
    async with server.embedded() as embedded:
        server.mode("deaf")
        await _get(embedded, "/crash")
        async with asyncio.timeout(20):
            while not _running(server):
                await asyncio.sleep(0.01)
    assert not _running(server)


async def test_one_that_ignores_sigterm_is_killed(server: Server) -> None:
    server.mode("stubborn")
    async with server.embedded() as embedded:
        pid = embedded.pid
        began = time.monotonic()
    assert pid is not None
    assert not _is_alive(pid)
    assert time.monotonic() - began >= QUICK.stop_s


async def test_a_port_in_use_is_named(server: Server) -> None:
    async with server.embedded() as first:
        with pytest.raises(StartFailed, match=f"port {first.port} of 127.0.0.1 is taken"):
            await server.embedded(port=first.port).start()
        assert await _get(first, "/health") == 200


@pytest.mark.parametrize("what", ["python", "logs"])
async def test_what_cannot_be_run_or_written_is_a_failed_start(server: Server, what: str) -> None:
    (server.folder / "logs").write_text("a file") if what == "logs" else None
    if what == "python":
        server.ready = replace(server.ready, python=Path("/nonexistent/python"))
    with pytest.raises(StartFailed, match="could not be started" if what == "python" else "no log can be written"):
        await server.embedded().start()


async def test_a_defect_of_the_callback_is_not_lost(server: Server) -> None:
    called = asyncio.Event()

    def fails(event: Event) -> None:
        if event.kind == "crashed":
            called.set()
            raise ValueError("the callback's own")

    embedded = Embedded(server.ready, on_event=fails, timing=QUICK, runner=server.runner)
    await embedded.start()
    await _get(embedded, "/crash")
    await called.wait()
    with pytest.raises(ValueError, match="the callback's own"):
        await embedded.aclose()


def test_the_server_ends_when_its_parent_is_killed(server: Server) -> None:
    program = f"""
        import asyncio, pathlib
        from proxy.tools.embedded import Embedded, Ready
        async def main():
            folder = pathlib.Path({str(server.folder)!r})
            ready = Ready(pathlib.Path({sys.executable!r}), folder / "model", folder / "template", folder / "logs")
            async with Embedded(ready, runner=folder / "server.py") as embedded:
                print(embedded.pid, flush=True)
                await asyncio.sleep(60)
        asyncio.run(main())
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    root = Path(__file__).parents[3]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
    deadline = time.monotonic() + 10
    while _executes(pid) and time.monotonic() < deadline:
        threading.Event().wait(0.02)
    assert not _executes(pid)


def _executes(pid: int) -> bool:
    """Whether the process still runs: an orphan that has ended may wait a while for init to fetch it."""
    done = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return bool(done.stdout.strip()) and not done.stdout.strip().startswith("Z")


def _running(server: Server) -> bool:
    """Whether any process runs the fake server of this test."""
    done = subprocess.run(["ps", "-ww", "-eo", "stat=,args="], capture_output=True, text=True, check=True)
    return any(str(server.runner) in text and not text.startswith("Z") for text in done.stdout.splitlines())
