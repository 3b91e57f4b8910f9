"""Brings up what is measured, and runs every scene on every contestant, one at a time."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import aiohttp
import msgspec

from . import answers
from .contestants import DELTAS, RESEND, Contestant
from .meter import Meter
from .options import Options, Other
from .plan import Plan
from .progress import Progress
from .rows import Report, Row, merged
from .scenes import OURS, RUNS, WAYS
from .servers import Endpoint, Running, loopline, own_upstream
from .turns import BenchError, Fields, prompt

LOOPLINE, DIRECT = "Loopline", "HTTP, full resend"
_KEY = "bench"  # what clients send to servers that nobody named a key for
_ASK_S = 10.0


@asynccontextmanager
async def ground(options: Options, folder: Path) -> AsyncIterator[Sequence[Contestant]]:
    """Everything that is measured, started and answering. Raises BenchError."""
    async with AsyncExitStack() as stack:
        if options.target is not None:
            yield await _targeted(options, options.target)
            return
        key = _upstream_key(options)
        url = options.upstream or (await stack.enter_async_context(own_upstream(folder))).url
        fields = await _fields(options, url, key)
        contestants: list[Contestant] = []
        for dialect in options.dialects:
            name = f"{LOOPLINE}, {dialect}" if len(options.dialects) > 1 else LOOPLINE
            front = Endpoint(url, dialect, fields.model, options.api_key_env, faithful=options.own_upstream)
            running = await stack.enter_async_context(loopline(folder, front, f"loopline-{dialect}"))
            restart = partial(again, folder, front)
            contestants.append(
                Contestant(
                    name, running.url, DELTAS, Meter((running.pid,)), fields, _KEY, upstream=url, restart=restart
                )
            )
        contestants += _others(options.versus, fields)
        contestants.append(Contestant(DIRECT, url, RESEND, Meter(), fields, key, _direct_dialect(options)))
        yield contestants


@asynccontextmanager
async def again(
    folder: Path, front: Endpoint, upstream: str, more: Mapping[str, str] | None = None
) -> AsyncIterator[Running]:
    """The same Loopline once more, in front of what leads to the same upstream."""
    async with loopline(folder, front._replace(url=upstream), "loopline-again", more) as running:
        yield running


async def _targeted(options: Options, target: Other) -> list[Contestant]:
    key = _upstream_key(options)
    fields = await _fields(options, target.url, key)
    running = Contestant(target.name, target.url, DELTAS, _meter(target), fields, key)
    resend = Contestant(DIRECT, target.url, RESEND, Meter(), fields, key)
    return [running, *_others(options.versus, fields), resend]


def _others(versus: Sequence[Other], fields: Fields) -> list[Contestant]:
    return [Contestant(other.name, other.url, DELTAS, _meter(other), fields, _KEY) for other in versus]


def _meter(other: Other) -> Meter:
    return Meter((other.pid,)) if other.pid else Meter()


def _direct_dialect(options: Options) -> str:
    """The bench's own upstream takes what clients send; of another, Chat Completions is the safer guess."""
    return "responses" if options.own_upstream or options.dialects == ("responses",) else "chat"


def _upstream_key(options: Options) -> str:
    if not options.api_key_env:
        return _KEY
    if options.api_key_env not in os.environ:
        raise BenchError(f"--api-key-env: there is no environment variable {options.api_key_env}")
    return os.environ[options.api_key_env]


async def _fields(options: Options, url: str, key: str) -> Fields:
    if options.own_upstream:
        return Fields(options.model or answers.MODEL)
    return Fields(await _model(options.model, url, key), options.sized().answer_tokens)


async def _model(wanted: str, url: str, key: str) -> str:
    """The model to ask for: the one that was named, which must be there, or the first."""
    timeout = aiohttp.ClientTimeout(total=_ASK_S)
    try:
        async with (
            aiohttp.ClientSession(trust_env=False, timeout=timeout) as http,
            http.get(f"{url}/models", headers={"Authorization": f"Bearer {key}"}) as response,
        ):
            body, status = await response.read(), response.status
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise BenchError(f"{url} does not answer: {error or 'no answer within 10 s'}") from error
    if status in (401, 403):
        raise BenchError(f"{url}/models was answered with {status}: name the variable with its key by --api-key-env")
    try:
        names = [str(model["id"]) for model in msgspec.json.decode(body)["data"]]
    except (msgspec.DecodeError, KeyError, TypeError):
        names = []
    if not names:
        if wanted:
            return wanted
        raise BenchError(f"{url}/models was answered with {status} and names no model: name one by --model")
    if wanted and wanted not in names:
        raise BenchError(f"{url} has no model {wanted!r}; it has {', '.join(names[:8])}")
    return wanted or names[0]


async def run(options: Options, folder: Path, report: Report, progress: Progress) -> None:
    """Run the scenes; rows are added to the report as they are measured. Raises BenchError before the first row."""
    plan = options.sized()
    async with ground(options, folder) as contestants:
        report.contestants += [who.name for who in contestants]
        for who in contestants:
            progress.begin(f"warm-up · {who.name}")
            await warm_up(who, plan)
        for scene in options.played:
            players = [(who, plan) for who in contestants if takes_part(scene, who)]
            await play(scene, players, report, progress)


async def warm_up(who: Contestant, plan: Plan) -> None:
    """Nobody pays for the first use of anything; and what cannot work is said before the first scene."""
    wanted = answers.Wanted() if plan.own_upstream else None
    try:
        async with who.lane() as lane:
            for _ in range(plan.warm_up):
                await lane.turn([prompt("Say that you are ready.", wanted)])
    except BenchError as error:
        raise BenchError(f"{who.name}: {error}") from error


async def play(scene: str, players: Sequence[tuple[Contestant, Plan]], report: Report, progress: Progress) -> None:
    """One scene on each contestant in turn, in as many rounds as its plan has; every second one backwards.

    So contestants are compared within one moment, and what drifts is as much with one as with the other. Who fails
    plays no further round, and a row says so; the run goes on.
    """
    measured: dict[tuple[str, str], list[Row]] = {}
    failed: dict[str, Row] = {}
    try:
        for number in range(max((plan.rounds.get(scene, 1) for _, plan in players), default=0)):
            for who, plan in players if number % 2 == 0 else reversed(players):
                if who.name in failed or number >= plan.rounds.get(scene, 1):
                    continue
                progress.begin(f"{scene} · {who.name}")
                try:
                    async for row in RUNS[scene](who, plan, progress.step):
                        measured.setdefault((who.name, row.case), []).append(row)
                except BenchError as error:
                    failed[who.name] = Row(scene, "", who.name, failure=str(error))
    finally:  # after Ctrl-C, too, what was measured is told
        for who, _ in players:
            report.rows += [merged(rows) for (name, _), rows in measured.items() if name == who.name]
            report.rows += [failed[who.name]] if who.name in failed else []


def takes_part(scene: str, who: Contestant) -> bool:
    """Is the scene something for this contestant?"""
    return who.way in WAYS[scene] and (scene not in OURS or who.restart is not None)


def turns(options: Options) -> int:
    """How many turns a run has, for its progress bar."""
    plan = options.sized()
    ways = [DELTAS] * (len(options.versus) + (1 if options.target else len(options.dialects))) + [RESEND]
    return sum(plan.turns(scene) for scene in options.played for way in ways if way in WAYS[scene])
