"""The command `loopline demo`; `proxy/cli.py` loads it when it is asked for."""

from __future__ import annotations

from typing import Any

import click

from .command import main
from .options import Options

_DEFAULT = Options()


@click.command(short_help="Show what a WebSocket with deltas saves an agent loop.")
@click.option("--turns", default=_DEFAULT.turns, show_default=True, help="Tool calls in the loop.")
@click.option("--rtt-ms", default=_DEFAULT.rtt_ms, show_default=True, help="Round trip of the link.")
@click.option("--up-mbit-s", default=_DEFAULT.up_mbit_s, show_default=True, help="Upload rate; 0 has no limit.")
@click.option("--down-mbit-s", default=_DEFAULT.down_mbit_s, show_default=True, help="Download rate; 0 has no limit.")
@click.option("--tool-ms", default=_DEFAULT.tool_ms, show_default=True, help="How long the tool takes.")
@click.option("--tool-output-bytes", default=_DEFAULT.tool_output_bytes, show_default=True, help="What it returns.")
@click.option("--ttft-ms", default=_DEFAULT.ttft_ms, show_default=True, help="Simulated time to the first token.")
@click.option("--tokens-per-s", default=_DEFAULT.tokens_per_s, show_default=True, help="Simulated pace.")
@click.option("--answer-tokens", default=_DEFAULT.answer_tokens, show_default=True, help="Simulated answer.")
@click.option("--upstream", metavar="URL", help="Base URL of your own upstream instead of the simulated one.")
@click.option("--model", default="", help="Model; by default the first that the upstream names.")
@click.option("--dialect", type=click.Choice(["auto", "chat", "responses"]), default="auto", show_default=True)
@click.option("--api-key-env", default="", help="Environment variable that holds the upstream's API key.")
@click.option("--max-output-tokens", default=_DEFAULT.max_output_tokens, show_default=True, help="With --upstream.")
@click.option("--json", is_flag=True, help="Print JSON.")
@click.pass_context
def demo(ctx: click.Context, /, **options: Any) -> None:
    """Run one agent loop by HTTP with the full history each turn, then by WebSocket with deltas, and compare.

    Both go through Loopline over a link that is simulated: its round trip and rates are options, and the table says
    what they were. Without --upstream the upstream is simulated too.

    \b
    Examples:
      loopline demo
      loopline demo --turns 50 --tool-output-bytes 8000 --up-mbit-s 5
      loopline demo --upstream http://127.0.0.1:8000/v1
    """
    try:
        chosen = Options(**options)
    except ValueError as error:
        raise click.UsageError(str(error), ctx) from None
    ctx.exit(main(chosen))
