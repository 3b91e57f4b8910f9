"""The command `loopline bench`; `proxy/cli.py` loads it when it is asked for."""

from __future__ import annotations

from pathlib import Path

import click

from .command import main
from .options import DIALECTS, Options, Other
from .plan import IN_ROUNDS, SCENES, Loop, Plan
from .turns import BenchError

_LOOP, _PLAN = Loop(), Plan()
_FILE = click.Path(dir_okay=False, writable=True, path_type=Path)


def _scenes(_: click.Context, __: click.Parameter, value: str) -> tuple[str, ...]:
    chosen = tuple(name.strip() for name in value.split(",") if name.strip())
    for name in chosen:
        if name not in SCENES:
            raise click.BadParameter(f"there is no scene {name!r}: choose from {', '.join(SCENES)}")
    return tuple(name for name in SCENES if name in chosen)


def _kilobytes(_: click.Context, __: click.Parameter, value: str) -> tuple[int, int]:
    start, dots, end = value.partition("..")
    if not (dots and start.isdigit() and end.isdigit()):
        raise click.BadParameter("write two numbers like 200..1000")
    return int(start), int(end)


def _megabytes(_: click.Context, __: click.Parameter, value: str) -> tuple[int, ...]:
    try:
        return tuple(int(float(size) * 1_000_000) for size in value.split(","))
    except ValueError:
        raise click.BadParameter("write sizes in MB like 0.01,1,16") from None


@click.command(short_help="Measure Loopline on this machine, or on your own model.")
@click.option("--scenes", default=",".join(SCENES), callback=_scenes, metavar="A,B", help="What to run. [default: all]")
@click.option("--target", metavar="URL[,PID]", help="A Loopline that runs already, with its /v1.")
@click.option("--upstream", metavar="URL", help="Base URL of your own engine: Loopline is started in front of it.")
@click.option("--model", default="", help="Model; by default the first that the upstream names.")
@click.option(
    "--dialect",
    type=click.Choice([*DIALECTS, "both", "auto"]),
    help="How Loopline speaks to the upstream. [default: chat; auto with --upstream]",
)
@click.option("--api-key-env", default="", help="Environment variable that holds the upstream's API key.")
@click.option("--versus", multiple=True, metavar="NAME=URL[,PID]", help="Another WebSocket Responses server.")
@click.option("--quick", is_flag=True, help="Seconds instead of minutes; too short for figures to quote.")
@click.option(
    "--rounds",
    type=click.IntRange(1, 100),
    default=1,
    show_default=True,
    help="How often each scene but idle, agent-loop and observability is played, contestants in turn.",
)
@click.option("--sockets", default=_PLAN.idle_sockets, show_default=True, help="idle: how many, at most 10,000.")
@click.option(
    "--deep-mb", default="0.01,0.1,1,4", show_default=True, callback=_megabytes, help="deep: sizes of history in MB."
)
@click.option("--rtt-ms", default=_LOOP.rtt_ms, show_default=True, help="agent-loop: round trip of the link.")
@click.option("--up-mbit", default=_LOOP.up_mbit_s, show_default=True, help="agent-loop: upload rate; 0 has no limit.")
@click.option("--down-mbit", default=_LOOP.down_mbit_s, show_default=True, help="agent-loop: download rate.")
@click.option("--tool-calls", default=_LOOP.tool_calls, show_default=True, help="agent-loop: calls in the loop.")
@click.option(
    "--history-kb", default="200..1000", show_default=True, callback=_kilobytes, help="agent-loop: from .. to."
)
@click.option("--json", "json_file", type=_FILE, metavar="FILE", help="Write every number as JSON.")
@click.option("--html", "html_file", type=_FILE, metavar="FILE", help="Write one page with tables and plots.")
@click.option(
    "--svg",
    "svg_folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write each plot as a file into a folder.",
)
@click.pass_context
def bench(
    ctx: click.Context,
    /,
    scenes: tuple[str, ...],
    target: str | None,
    upstream: str | None,
    model: str,
    dialect: str | None,
    api_key_env: str,
    versus: tuple[str, ...],
    quick: bool,
    rounds: int,
    sockets: int,
    deep_mb: tuple[int, ...],
    rtt_ms: float,
    up_mbit: float,
    down_mbit: float,
    tool_calls: int,
    history_kb: tuple[int, int],
    json_file: Path | None,
    html_file: Path | None,
    svg_folder: Path | None,
) -> None:
    """Measure what Loopline costs and what it saves, against full resend by HTTP and against any other server.

    Without options it brings its own upstream, which costs next to nothing, and its own Loopline on a free port of
    loopback; both end with it. With --upstream Loopline runs in front of your own engine, with fewer and shorter
    turns. With --target a Loopline that runs already is measured. CPU and memory are those of the server's process,
    read from the operating system (Linux); of another server they need its PID.

    Figures compare within one run. Ctrl-C prints what was measured so far.

    \b
    Scenes:
      chain       a conversation of 40 turns: does a turn take longer at its end?
      deep        one short turn after a long history, in bytes and in turns
      stream      CPU an event of long answers, many at once and one a write
      many        64 sessions at once
      idle        memory of 1,000 open sockets
      rates       one stream of 4,000 tokens a second, then many of 1,000: time added between tokens
      agent-loop  tool calls over a link: deltas against full resend, by stage
      observability  CPU of metrics, log and traces, against none

    \b
    Examples:
      loopline bench --quick
      loopline bench --scenes chain,agent-loop --rtt-ms 80 --html bench.html
      loopline bench --scenes chain,deep --rounds 5 --svg plots
      loopline bench --upstream http://127.0.0.1:8000/v1
      loopline bench --versus other=http://127.0.0.1:4100/v1,1234 --json bench.json
    """
    chosen = dialect or ("auto" if upstream else "chat")
    loop = {"tool_calls": tool_calls, "history_kb": history_kb, "rtt_ms": rtt_ms}
    try:
        plan = Plan(
            idle_sockets=sockets,
            deep_bytes=deep_mb,
            rounds=dict.fromkeys(IN_ROUNDS, rounds),
            loop=Loop(**loop, up_mbit_s=up_mbit, down_mbit_s=down_mbit),  # type: ignore[arg-type]
        )
        options = Options(
            scenes=scenes,
            target=Other.parse(target, name="Loopline") if target else None,
            upstream=(upstream or "").rstrip("/"),
            model=model,
            dialects=DIALECTS if chosen == "both" else (chosen,),
            api_key_env=api_key_env,
            versus=tuple(map(Other.parse, versus)),
            quick=quick,
            plan=plan,
            json=json_file,
            html=html_file,
            svg=svg_folder,
        )
    except (ValueError, BenchError) as error:
        raise click.UsageError(str(error), ctx) from None
    ctx.exit(main(options))
