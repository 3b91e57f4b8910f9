"""`make bench-peers`: the scenes of `loopline bench` on other gateways, on the floors and on Loopline, and a table.

    python -m tests.bench.peers [--quick] [--only NAME,NAME] [--json FILE] docs/benchmarks.md

The servers of one dialect run at the same time over one upstream and are played in turn, in several rounds, so that
they are compared within one moment; quiet ones cost nothing. Peers are installed into environments of their own under
build/bench; one that cannot be installed or started here is named with the reason, and the run goes on. The table is
written between two markers of the document, plots into the folder `images` beside it.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import uvloop

from proxy.tools.bench import answers
from proxy.tools.bench.command import machine, more_files, now, until_told
from proxy.tools.bench.contestants import DELTAS, Contestant
from proxy.tools.bench.document import to_json
from proxy.tools.bench.drawings import colours, drawings
from proxy.tools.bench.meter import Meter
from proxy.tools.bench.options import Options
from proxy.tools.bench.plan import MB, Plan, quick
from proxy.tools.bench.progress import Progress, shown
from proxy.tools.bench.rows import Report
from proxy.tools.bench.running import play, warm_up
from proxy.tools.bench.servers import Endpoint, free_port, listening, loopline, own_upstream, process
from proxy.tools.bench.turns import BenchError, Fields
from tests.bench.summary import between, markdown

ROOT = Path(__file__).parents[2]
# As many turns as one round of `loopline bench` has, or more, in several rounds.
PLAN = Plan(
    chain_repeats=1,
    deep_bytes=(MB // 100, MB, 4 * MB, 16 * MB),
    deep_turns=10,
    rate_streams=(1, 10, 40, 80, 120, 160),
    rate_s=1.5,
    rounds={"chain": 5, "deep": 5, "stream": 5, "many": 5, "rates": 2},
)
BUILD = ROOT / "build" / "bench"
SCENES = ("idle", "chain", "deep", "stream", "many", "rates")
_KEY = "sk-bench"
_START_S = 180.0  # an import of a large program on a busy machine
# Exact versions. LiteLLM must never be unpinned: 1.82.7, 1.82.8 and 1.107.0 on the package index were malicious.
AGENTIC = ("agentic-api==0.9.0",)
# Its extra `proxy` asks for a distribution of the same version that not every index has; these are what serving needs.
LITELLM = (
    "litellm==1.110.2", "apscheduler<4", "backoff<3", "cryptography<51", "expression", "fastapi-sso<1", "fastapi<1",
    "gunicorn<24", "httpx2<3", "inquirerpy<1", "mcp<3", "orjson<4", "polars<2", "pyjwt<3", "pynacl<2",
    "python-multipart<1", "pyyaml<7", "restrictedpython<9", "rich<14", "rq<3", "semver<4", "soundfile<1",
    "starlette<2", "tomlkit<1", "uvicorn<1", "uvloop<1", "websockets<16",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Server:
    """A server to measure: what it is, and how its command line is made from a folder, a port and the upstream's URL.

    `requirements` are installed into an environment named `environment`; the command gets its `bin`. Loopline has no
    command: it is started as an operator starts it. One that `is_slow` (tens of milliseconds a turn) gets fewer turns.
    """

    name: str
    dialect: str
    command: Callable[[Path, Path, int, str], Sequence[str]] | None = None
    environment: str = ""
    requirements: Sequence[str] = ()
    is_slow: bool = False


def _floor(dialect: str) -> Callable[[Path, Path, int, str], Sequence[str]]:
    return lambda _bin, _folder, port, upstream: (
        sys.executable, "-m", f"tests.bench.floors.{dialect}", str(port), upstream,
    )  # fmt: skip


def _agentic(binaries: Path, folder: Path, port: int, upstream: str) -> Sequence[str]:
    return (
        str(binaries / "agentic-server"), "--llm-api-base", upstream.removesuffix("/v1"),
        "--gateway-host", "127.0.0.1", "--gateway-port", str(port), "--db-url", f"sqlite:///{folder}/agentic.db",
    )  # fmt: skip


def _litellm(*, bridge: bool) -> Callable[[Path, Path, int, str], Sequence[str]]:
    """Its WebSocket: before an upstream without one it keeps the conversation itself and asks by HTTP."""

    def command(binaries: Path, folder: Path, port: int, upstream: str) -> Sequence[str]:
        config = folder / "litellm.yaml"
        config.write_text(
            f"model_list:\n  - model_name: {answers.MODEL}\n    litellm_params:\n"
            f"      model: hosted_vllm/{answers.MODEL}\n      api_base: {upstream}\n      api_key: none\n"
            f"      use_chat_completions_api: {str(bridge).lower()}\n"
            f"general_settings:\n  master_key: {_KEY}\n"
        )
        start = "from litellm import run_server; run_server()"
        return (
            str(binaries / "python"), "-c", start, "--config", str(config), "--host", "127.0.0.1", "--port", str(port),
            "--telemetry", "False",
        )  # fmt: skip

    return command


SERVERS: Sequence[Server] = (
    Server("bare relay, chat", "chat", _floor("chat")),
    Server("Loopline, chat", "chat"),
    Server("LiteLLM 1.110.2, chat bridge", "chat", _litellm(bridge=True), "litellm", LITELLM, is_slow=True),
    Server("bare relay, responses", "responses", _floor("responses")),
    Server("Loopline, responses", "responses"),
    Server("agentic-api 0.9.0", "responses", _agentic, "agentic-api", AGENTIC),
    Server("LiteLLM 1.110.2, responses", "responses", _litellm(bridge=False), "litellm", LITELLM, is_slow=True),
)


def install(server: Server) -> Path:
    """The `bin` of the server's environment, made on first use. Raises BenchError where that fails."""
    home = BUILD / server.environment
    binaries, stamp = home / "bin", home / ".installed"
    wanted = "\n".join(server.requirements)
    if not server.requirements or (stamp.exists() and stamp.read_text() == wanted):
        return binaries
    print(f"Installing {server.requirements[0]} into {home.relative_to(ROOT)}.", file=sys.stderr, flush=True)
    for command in (
        (sys.executable, "-m", "venv", str(home)),
        (str(binaries / "pip"), "--disable-pip-version-check", "--quiet", "install", *server.requirements),
    ):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            raise BenchError(f"{server.requirements[0]} cannot be installed: {done.stderr.strip().splitlines()[-1]}")
    stamp.write_text(wanted)
    return binaries


def fewer(plan: Plan) -> Plan:
    """What a slow server gets done in minutes. Per turn, event and socket its figures mean the same."""
    once = tuple((tokens, min(turns, 5 if tokens < 1000 else 1)) for tokens, turns in plan.batched)
    return replace(
        plan,
        rounds={},
        deep_bytes=tuple(size for size in plan.deep_bytes if size <= 4 * MB),
        deep_turns=min(5, plan.deep_turns),
        depths=tuple(depth for depth in plan.depths if depth < 1000),
        batched=once,
        one_a_write=once,
        session_turns=min(2, plan.session_turns),
        idle_sockets=min(100, plan.idle_sockets),
    )


@asynccontextmanager
async def started(server: Server, upstream: str, folder: Path) -> AsyncIterator[Contestant]:
    """A server that runs. Raises BenchError where it does not start."""
    own = folder / server.name.replace(" ", "-")
    own.mkdir()
    if server.command is None:
        start = loopline(own, Endpoint(upstream, server.dialect, answers.MODEL, faithful=True))
    else:
        port = free_port()
        command = server.command(install(server), own, port, upstream)
        start = process("server", command, own, {"HOME": str(own)}, listening(port), _START_S)
    async with start as running:
        yield Contestant(server.name, running.url, DELTAS, Meter((running.pid,)), Fields(answers.MODEL), _KEY)


async def measure(
    servers: Sequence[Server], upstream: str, folder: Path, plan: Plan, scenes: Sequence[str], to: _To
) -> None:
    """Start servers, run the scenes on them in turn, stop them. One that does not start or answer is noted."""
    async with AsyncExitStack() as stack:
        players: list[tuple[Contestant, Plan]] = []
        for server in servers:
            own = fewer(plan) if server.is_slow else plan
            to.progress.begin(f"start · {server.name}")
            try:
                who = await stack.enter_async_context(started(server, upstream, folder))
                await warm_up(who, own)
            except BenchError as error:
                to.report.notes.append(f"{server.name} was not measured: {' '.join(str(error).split())[:300]}")
            else:
                to.report.contestants.append(who.name)
                players.append((who, own))
        for scene in scenes:
            await play(scene, players, to.report, to.progress)


@dataclass(frozen=True, slots=True)
class _To:
    """Where results and progress go."""

    report: Report
    progress: Progress


async def _run(servers: Sequence[Server], plan: Plan, scenes: Sequence[str], folder: Path, to: _To) -> None:
    async with own_upstream(folder) as upstream:
        for dialect in dict.fromkeys(server.dialect for server in servers):
            group = [server for server in servers if server.dialect == dialect]
            await measure(group, upstream.url, folder, plan, scenes, to)


def pictures(report: Report) -> Iterator[tuple[str, str]]:
    """Files for the document: CPU of a turn against depth and history, with their names."""
    slow = {server.name for server in SERVERS if server.is_slow}  # beside them the others would be one line
    shown = replace(report, contestants=[name for name in report.contestants if name not in slow])
    rows = [row for row in report.rows if row.scene == "deep" and row.contestant in shown.contestants]
    for drawing in drawings("deep", rows, colours(shown)):
        if drawing.name.endswith("-cpu"):
            yield f"bench-{drawing.name}.svg", drawing.plot.picture(f"{drawing.caption}, {report.started}")


def _chosen(names: str) -> Iterator[Server]:
    wanted = [name.strip().lower() for name in names.split(",")]
    yield from (server for server in SERVERS if any(name in server.name.lower() for name in wanted))


def main() -> int:
    """Measure, and write the table. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.peers", description=__doc__)
    parser.add_argument("document", type=Path, help="the document with the two markers; - prints the table")
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes; nothing to quote")
    parser.add_argument("--only", default="", help="servers whose names hold one of these words")
    parser.add_argument("--scenes", default=",".join(SCENES), help=f"of {', '.join(SCENES)}")
    parser.add_argument("--json", type=Path, default=BUILD / "peers.json", help="where every number goes")
    given = parser.parse_args()
    options = Options(scenes=tuple(given.scenes.split(",")), quick=given.quick)
    plan = quick(PLAN) if given.quick else PLAN
    servers = list(_chosen(given.only))
    report = Report(now(), machine(), {"command": "make bench-peers", "run": shlex.join(sys.argv[1:])})
    BUILD.mkdir(parents=True, exist_ok=True)
    more_files()
    plans = [fewer(plan) if server.is_slow else plan for server in servers]
    turns = sum(each.turns(scene) for each in plans for scene in options.scenes)
    with tempfile.TemporaryDirectory(prefix="loopline-peers-") as folder, shown(turns) as progress:
        try:
            work = _run(servers, plan, options.scenes, Path(folder), _To(report, progress))
            uvloop.run(until_told(work))
        except KeyboardInterrupt:
            report.interrupted = True
    given.json.write_text(to_json(report))
    table = markdown(report)
    if str(given.document) == "-" or report.interrupted:
        print(table)
    else:
        given.document.write_text(between(given.document.read_text(), table))
        for name, picture in pictures(report):
            (given.document.parent / "images" / name).write_text(picture)
    return 130 if report.interrupted else 0


if __name__ == "__main__":
    sys.exit(main())
