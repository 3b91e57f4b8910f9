"""The command line: it parses, calls, and turns a bad setting into one line on stderr and exit code 2."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import click

from proxy import __version__
from proxy.settings import CATALOG, CONFIG_ENV, FLAGS, BadSetting, Setting, effective, load, read

Command = TypeVar("Command", bound=Callable[..., Any])
BAD_SETTING, FAILED = 2, 1
# Commands with a module of their own, which imports more than the others need.
_LATE = {"bench": "proxy.tools.bench.cli", "demo": "proxy.tools.demo.cli", "keys": "proxy.keys_cli"}


class _Loopline(click.Group):
    """A group whose commands may raise `BadSetting`, and which loads some of them only when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *_LATE])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _LATE:
            return super().get_command(ctx, cmd_name)
        command: click.Command = getattr(import_module(_LATE[cmd_name]), cmd_name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BadSetting as error:
            click.echo(f"loopline: {error}", err=True)
            ctx.exit(BAD_SETTING)


@click.group(cls=_Loopline, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="loopline %(version)s")
def main() -> None:
    """A stateful WebSocket front for LLM inference servers.

    Agents speak the OpenAI Responses API to it, over WebSocket or HTTP, and send only what is new in each turn; it
    speaks Chat Completions or Responses to the server behind it.

    \b
    Examples:
      loopline serve --embedded
      loopline serve --upstream http://127.0.0.1:8000/v1
      loopline demo
      loopline bench --quick
      loopline check-config --config loopline.toml
      loopline keys create --file keys.jsonl --name alice
      loopline rotate-key
      loopline simulate --port 8000
    """


def _setting_option(setting: Setting) -> Callable[[Command], Command]:
    """The option of one setting. It has no default: only what was typed counts as a flag."""
    is_flag = setting.field.annotation is bool
    default = "" if is_flag or setting.field.default == "" else f"default: {setting.field.default}; "
    return click.option(
        setting.flag or "",
        default=None,
        is_flag=is_flag,
        metavar=None if is_flag else _metavar(setting),
        help=f"{setting.description} [{default}env: {setting.env[0]}]",
    )


def _metavar(setting: Setting) -> str:
    return f"[{'|'.join(setting.choices)}]" if setting.choices else setting.name.rpartition("_")[2].upper()


_config_option = click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help=f"Settings file (TOML). [env: {CONFIG_ENV}]",
)


def _setting_options(command: Command) -> Command:
    """`--config` and the option of every setting that has one."""
    for key in reversed(tuple(FLAGS)):
        command = _setting_option(CATALOG[key])(command)
    return _config_option(command)


def _given(flags: dict[str, Any]) -> dict[str, object]:
    """The flags that were typed, by the key of their setting."""
    names = {flag.lstrip("-").replace("-", "_"): key for key, flag in FLAGS.items()}
    return {names[name]: value for name, value in flags.items() if value is not None}


@main.command(short_help="Serve clients.")
@_setting_options
@click.option("--embedded", is_flag=True, help="Bring up a small real model and serve in front of it.")
@click.option("--simulate", is_flag=True, help="Bring up the simulated inference server and serve in front of it.")
@click.pass_context
def serve(ctx: click.Context, /, config: Path | None, embedded: bool, simulate: bool, **flags: Any) -> None:
    """Serve clients until SIGTERM or SIGINT.

    With --embedded the upstream is llama.cpp with SmolLM2-135M-Instruct, fetched on first use (about 130 MB, kept
    under ~/.cache/loopline); with --simulate it is a scripted server. Otherwise it is the endpoint of the settings.

    Flags win over environment variables, those over the settings file. config/loopline.example.toml lists every
    setting.

    \b
    Examples:
      loopline serve --upstream http://127.0.0.1:8000/v1 --dialect chat
      OPENAI_API_KEY=… loopline serve --upstream https://api.openai.com/v1 --api-key-env OPENAI_API_KEY
      loopline serve --config loopline.toml --port 9000 --log-format json
    """
    if embedded and simulate:
        raise click.UsageError("--embedded and --simulate exclude each other")
    if (embedded or simulate) and flags.get("upstream"):
        raise click.UsageError("--upstream names a server of yours: leave out --embedded and --simulate")
    settings = load(config, _given(flags), os.environ)
    from proxy.tools.first_run import Behind  # late: the other commands need none of it
    from proxy.tools.first_run import serve as serve_until_told

    behind = Behind.EMBEDDED if embedded else Behind.SIMULATED if simulate else Behind.CONFIGURED
    ctx.exit(serve_until_told(settings, behind))


@main.command("check-config", short_help="Print the settings in effect, or what is wrong.")
@_setting_options
def check_config(config: Path | None, **flags: Any) -> None:
    """Print the settings in effect as TOML and exit with 0, or say what is wrong and exit with 2.

    A setting that is not at its default says where it is from. What may be secret is shown as (hidden). The profile,
    keys and secrets are read too: those that the settings name, and those that are in the state folder already.

    \b
    Examples:
      loopline check-config --config loopline.toml
      LOOPLINE_PORT=9000 loopline check-config
    """
    from proxy import state_folder  # late: the other commands need none of it
    from proxy.models.chosen import chosen_profiles
    from proxy.wiring import load_keys

    loaded = read(config, _given(flags), os.environ)
    chosen_profiles(loaded.settings)
    load_keys(loaded.settings)
    state_folder.check(loaded.settings, os.environ)
    click.echo(effective(loaded), nl=False)


@main.command("rotate-key", short_help="Put a new key for sealing reasoning in front.")
@_config_option
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    metavar="N",
    help="Keys in the file afterwards, the new one included; the oldest leave.",
)
@click.pass_context
def rotate_key(ctx: click.Context, /, config: Path | None, keep: int) -> None:
    """Make a new key that seals reasoning, and keep the last ones to open what they sealed.

    The file is the one of reasoning.keys_env (with _FILE) or reasoning.keys_file, else sealing-keys in state.folder.
    It is replaced in one step. Servers read it when they start, so restart each that uses it. What a key sealed that
    is no longer in the file cannot be opened: clients then go on without that reasoning.

    \b
    Examples:
      loopline rotate-key
      loopline rotate-key --config loopline.toml --keep 2
    """
    from proxy import state_folder  # late: the other commands need none of it

    settings = load(config, {}, os.environ)
    try:
        done = state_folder.rotate(settings, os.environ, keep)
    except (OSError, RuntimeError) as error:
        reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else error
        click.echo(f"loopline: cannot replace the sealing keys: {reason}", err=True)
        ctx.exit(FAILED)
    click.echo(f"{done.path}: key {done.sealing} seals from the next start on.")
    if done.opening:
        click.echo(f"Still open what they sealed: {', '.join(done.opening)}.")
    if done.dropped:
        click.echo(f"Gone, with what they sealed: {', '.join(done.dropped)}.")
    click.echo("Next: restart loopline serve, every replica that reads this file.")


@main.command()
def version() -> None:
    """Print the version."""
    click.echo(f"loopline {__version__}")


@main.command(short_help="Run a simulated inference server.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), required=True, help="Port to listen on; 0 takes any free port.")
@click.option("--ttft-s", default=0.0, show_default=True, help="Seconds to the first token of an answer.")
@click.option("--tokens-per-s", default=0.0, show_default=True, help="Tokens a second; 0 is as fast as possible.")
@click.option(
    "--prefill-tokens-per-s", default=0.0, show_default=True, help="Prompt tokens read a second; 0 reads them at once."
)
@click.option("--tokens-per-chunk", default=1, show_default=True, help="Tokens in one streamed chunk.")
@click.option("--chunks-per-write", default=1, show_default=True, help="Chunks in one write to the socket.")
@click.option("--context-tokens", default=128_000, show_default=True, help="Context window of the model.")
@click.option("--model", default="simulated", show_default=True, help="Name of the model.")
@click.option("--api-key", default="", help="Key that requests must carry; without it any request is served.")
@click.option("--strict-fields", is_flag=True, help="Refuse request fields that a strict server does not know.")
@click.pass_context
def simulate(ctx: click.Context, /, host: str, port: int, **options: Any) -> None:
    """Run a simulated inference server, to try Loopline or a client without a model.

    It speaks Chat Completions and Responses, at the pace you ask for.

    \b
    Examples:
      loopline simulate --port 8000
      loopline simulate --port 8000 --ttft-s 0.3 --tokens-per-s 60
    """
    from proxy.tools import simulate as tool  # late: the other commands need none of it

    try:
        chosen = tool.Options(**options)
    except ValueError as error:
        raise click.UsageError(str(error), ctx) from None
    try:
        tool.run(host, port, chosen)
    except OSError as error:
        click.echo(f"loopline: cannot listen on {host}:{port}: {error.strerror or error}", err=True)
        ctx.exit(FAILED)
