"""Fuzzing for as long as you like, led by coverage: what `make fuzz` runs.

    python -m tests.fuzz.run fuzz SECONDS             look for findings, so long in requests, then in streams
    python -m tests.fuzz.run request|stream FILE...   try what a file holds

The first needs atheris (`pip install -e '.[fuzz]'`, Linux) and keeps what it finds in build/fuzz/, the second needs
nothing. Exit status 0 without a finding, 1 with one, 130 after Ctrl-C.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from types import FrameType

FOUND = Path(__file__).parents[2] / "build" / "fuzz"
# Processor time that one input may take: a thousand times what a usual one does, so that a busy machine is no finding.
_LONGEST_S = 10.0
_STATUS_OF_CTRL_C = 130
NAMES = ("request", "stream")


def main(arguments: Sequence[str]) -> int:
    """Exit status."""
    match arguments:
        case ["fuzz", seconds]:
            return _fuzz_all(int(seconds))
        case ["worker", name, seconds] if name in NAMES:
            return _fuzz(name, int(seconds))
        case [name, *files] if name in NAMES and files:
            return _try(name, list(map(Path, files)))
    print(__doc__)
    return 2


def _harness(name: str) -> Callable[[bytes], None]:
    from tests.fuzz import harness

    found: Mapping[str, Callable[[bytes], None]] = {"request": harness.one_request, "stream": harness.one_stream}
    return found[name]


def _try(name: str, files: Sequence[Path]) -> int:
    run = _harness(name)
    findings = 0
    for file in files:
        try:
            with _Watchdog():
                run(file.read_bytes())
            print(f"{file}: nothing wrong")
        except Exception:  # whatever it is, it is a finding
            traceback.print_exc()
            print(f"{file}: a finding")
            findings += 1
    return 1 if findings else 0


class _Watchdog:
    """Raises TimeoutError in what takes too much of the processor's time."""

    def __enter__(self) -> None:
        signal.signal(signal.SIGPROF, self._too_long)
        signal.setitimer(signal.ITIMER_PROF, _LONGEST_S)

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)

    def _too_long(self, number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"more than {_LONGEST_S:g} s of work for one input")


# --- looking for findings ---


def _fuzz_all(seconds: int) -> int:
    worst = 0
    for name in NAMES:
        status = _watch(name, seconds)
        if status == _STATUS_OF_CTRL_C:
            return status
        worst = max(worst, status)
    return worst


def _watch(name: str, seconds: int) -> int:
    """Run a worker: libFuzzer ends its process by itself, and would take the parent's tidiness with it."""
    folder = FOUND / name
    folder.mkdir(parents=True, exist_ok=True)
    before = {path.name for path in folder.glob("finding-*")}
    print(f"Fuzzing {name}s for {seconds} s; findings go to {folder}.", flush=True)
    command = [sys.executable, "-m", __spec__.name if __spec__ else "tests.fuzz.run", "worker", name, str(seconds)]
    worker = subprocess.Popen(command)
    try:
        status = worker.wait()
    except KeyboardInterrupt:
        worker.wait()
        status = _STATUS_OF_CTRL_C
    new = sorted(path for path in folder.glob("finding-*") if path.name not in before)
    for path in new:
        print(f"Finding. To reproduce: python -m tests.fuzz.run {name} {os.path.relpath(path)}", flush=True)
    if new:
        return 1
    if status == _STATUS_OF_CTRL_C:
        print("Stopped; nothing found so far.", flush=True)
        return _STATUS_OF_CTRL_C
    print(f"No finding in {name}s." if status == 0 else f"The fuzzer ended with status {status}.", flush=True)
    return status


def _fuzz(name: str, seconds: int) -> int:
    try:
        import atheris
    except ImportError:
        print("This needs atheris: pip install -e '.[fuzz]'")
        return 2
    with atheris.instrument_imports(include=["proxy"]):
        run = _harness(name)
    from tests.fuzz import seeds

    corpus = FOUND / f"corpus-{name}"
    _plant(name, corpus)
    folder = FOUND / name

    def one(data: bytes) -> None:
        try:
            with _Watchdog():
                run(data)
        except Exception:
            _keep(data, folder)
            raise

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        """Half of the time what goes wrong with JSON and streams, half of the time libFuzzer's own."""
        random = Random(seed)
        if random.random() < 0.5:
            return bytes(atheris.Mutate(data, max_size))
        head, rest, others = _taken_apart(name, data, random)
        return (head + seeds.mutated(rest, others, random))[:max_size]

    options = [f"-max_total_time={seconds}", f"-max_len={seeds.LONGEST}", "-timeout=60", "-print_final_stats=1"]
    options += [f"-artifact_prefix={folder}/libfuzzer-", "-rss_limit_mb=2048"]
    signal.signal(signal.SIGINT, lambda *_: os._exit(_STATUS_OF_CTRL_C))
    atheris.Setup([sys.argv[0], *options, str(corpus)], one, custom_mutator=mutate)
    atheris.Fuzz()
    return 0


def _taken_apart(name: str, data: bytes, random: Random) -> tuple[bytes, bytes, Sequence[bytes]]:
    """The bytes that choose, the bytes to change, and what a part may be taken from."""
    from tests.fuzz import harness, seeds

    if name == "request":
        return b"", data, seeds.requests()
    head, rest = data[: harness.HEAD_BYTES], data[harness.HEAD_BYTES :]
    dialect = harness.StreamInput.of(data).dialect
    return (seeds.heads(dialect, random) if random.random() < 0.3 else head), rest, seeds.answers()[dialect]


def _plant(name: str, corpus: Path) -> None:
    """What was captured, as the first inputs; what earlier runs found worth keeping stays."""
    from tests.fuzz import seeds

    corpus.mkdir(parents=True, exist_ok=True)
    random = Random(0)
    planted: list[bytes] = list(seeds.requests())
    if name == "stream":
        planted = [seeds.heads(dialect, random) + sent for dialect, all_ in seeds.answers().items() for sent in all_]
    for data in planted:
        (corpus / hashlib.sha1(data, usedforsecurity=False).hexdigest()).write_bytes(data)


def _keep(data: bytes, folder: Path) -> None:
    path = folder / f"finding-{hashlib.sha1(data, usedforsecurity=False).hexdigest()[:12]}"
    path.write_bytes(data)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
