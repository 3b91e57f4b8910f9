"""`loopline keys`: make, list and revoke client keys."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from proxy.access.key_file import change_keys, read_keys
from proxy.access.keys import BadKey, Key, KeyLimits, make_key, parse_span
from proxy.settings import BadSetting, load

Command = TypeVar("Command", bound=Callable[..., Any])
_FAILED = 1
_LIMITS = {
    "connections": "WebSockets.",
    "turns": "Turns that run at once.",
    "requests_per_minute": "Turns a minute.",
    "tokens_per_minute": "Tokens a minute, in and out.",
    "lanes": "Distinct stream_id values of one socket.",
    "history_bytes": "Largest conversation.",
    "frame_bytes": "Largest message or HTTP body.",
    "tools": "Tools in one request.",
    "background_turns": "Background responses that run at once.",
}


def _options(command: Command) -> Command:
    file = click.option(
        "--file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="File of the keys. [default: access.keys_file of the settings]",
    )
    config = click.option(
        "--config", type=click.Path(path_type=Path), metavar="FILE", help="Settings file (TOML). [env: LOOPLINE_CONFIG]"
    )
    return file(config(command))


def _limit_options(command: Command) -> Command:
    for name, text in reversed(_LIMITS.items()):
        flag = f"--{name.replace('_', '-')}"
        command = click.option(flag, type=click.IntRange(min=1), metavar="N", help=f"{text} [default: the settings]")(
            command
        )
    return command


@click.group(short_help="Make, list and revoke client keys.")
def keys() -> None:
    """Make, list and revoke client keys.

    A server that has access.keys_file serves nobody without one. It hears of a change within a second; a revoked key
    stops at its next message.

    \b
    Examples:
      loopline keys create --file keys.jsonl --name alice --models 'gpt-*,qwen-3'
      LOOPLINE_ACCESS_KEYS_FILE=keys.jsonl loopline serve --host 0.0.0.0
      loopline keys revoke --file keys.jsonl alice
    """


@keys.command(short_help="Make a key; its token is shown once.")
@_options
@click.option("--name", required=True, help="What the key is called here: 1 to 64 letters, digits, _ . @ or -.")
@click.option("--tenant", default="", help="Keys of one tenant share conversations. [default: a tenant of its own]")
@click.option("--models", default="", help="Models that it may use, with commas; * and ? match. [default: all]")
@click.option("--expires", default="", metavar="TIME", help="When it ends, such as 12h, 90d, 6w, 1y. [default: never]")
@_limit_options
@click.pass_context
def create(
    ctx: click.Context,
    /,
    file: Path | None,
    config: Path | None,
    name: str,
    tenant: str,
    models: str,
    expires: str,
    **limits: int | None,
) -> None:
    """Make a key. Its token is shown once and kept nowhere; the file has its hash.

    \b
    Examples:
      loopline keys create --file keys.jsonl --name alice --expires 90d
      loopline keys create --name ci --tenant team --requests-per-minute 60
    """

    def added(known: list[Key]) -> list[Key]:
        if any(key.name == name for key in known):
            raise BadKey(f"there is a key called {name} already; revoke it first, or choose another name")
        return [*known, key]

    with _explained(ctx):
        key, token = make_key(
            name,
            datetime.now(UTC).replace(microsecond=0),
            secrets.token_bytes,
            tenant=tenant,
            models=[each.strip() for each in models.split(",")] if models else (),
            expires=parse_span(expires) if expires else None,
            limits=KeyLimits(**{each: limit for each, limit in limits.items() if limit}),
        )
        change_keys(_file(file, config), added)
    click.echo(f"{key.id} ({key.name}). Its token is shown this once:", err=True)
    click.echo(token)


@keys.command("list", short_help="List the keys.")
@_options
@click.pass_context
def list_keys(ctx: click.Context, /, file: Path | None, config: Path | None) -> None:
    """List the keys: id, name, tenant, models, when it ends, its own limits."""
    with _explained(ctx):
        known = read_keys(_file(file, config))
    now = datetime.now(UTC)
    for key in known:
        ends = "never" if key.expires_at is None else key.expires_at.isoformat(timespec="minutes")
        limits = [f"{each}={getattr(key.limits, each)}" for each in _LIMITS if getattr(key.limits, each)]
        parts = [
            key.id,
            key.name,
            f"tenant={key.tenant or '(own)'}",
            f"models={','.join(key.models) or '*'}",
            f"expires={ends}{' (over)' if key.expired(now.timestamp()) else ''}",
            *limits,
        ]
        click.echo("  ".join(parts))


@keys.command(short_help="Revoke a key.")
@_options
@click.argument("name_or_id")
@click.pass_context
def revoke(ctx: click.Context, /, file: Path | None, config: Path | None, name_or_id: str) -> None:
    """Take a key out of the file. Servers that read it refuse the key from its next message on."""

    def left(known: list[Key]) -> list[Key]:
        kept = [key for key in known if name_or_id not in (key.id, key.name)]
        if len(kept) == len(known):
            raise BadKey(f"there is no key {name_or_id[:64]!r}; loopline keys list shows those there are")
        return kept

    with _explained(ctx):
        change_keys(_file(file, config), left)
    click.echo(f"{name_or_id} is revoked.")


def _file(file: Path | None, config: Path | None) -> Path:
    if file is not None:
        return file.expanduser()
    named = load(config, {}, os.environ).access.keys_file
    if not named:
        raise BadSetting("access.keys_file is not set: name the file of the keys with --file")
    return Path(named).expanduser()


@contextmanager
def _explained(ctx: click.Context) -> Iterator[None]:
    try:
        yield
    except BadKey as error:
        click.echo(f"loopline: {error}", err=True)
        ctx.exit(_FAILED)
    except OSError as error:
        click.echo(f"loopline: {error.filename or 'the file of keys'}: {error.strerror or error}", err=True)
        ctx.exit(_FAILED)
