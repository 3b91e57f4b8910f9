"""`/status`, a page for whoever runs this, and `/status.json`, what it shows.

Neither holds anything of a conversation: names and ids as the log has them, times, counts, sizes.
"""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from heapq import nlargest
from importlib.resources import files

import msgspec
from aiohttp import web

from proxy.access.budget import Budget
from proxy.errors import Kind, LooplineError
from proxy.server import status_document as d
from proxy.server.door import JSON
from proxy.session.session import Session
from proxy.session.state import State
from proxy.telemetry.caches import Cache
from proxy.telemetry.observer import Stages, TurnRecord, loop_of
from proxy.telemetry.recent import BY_HTTP, TURNS, Ended, Kept, Recent
from proxy.wire.codec import encode

MOST_SESSIONS = 200
_MOST_NAME = 200
_NOW_S, _MINUTE_S = 5, 59
_ASK = {"WWW-Authenticate": 'Basic realm="Loopline status", charset="UTF-8"'}


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the numbers come from. `totals` and `endpoints` give the members of `Totals` and of each `Endpoint`.

    `lag` are the latest delays of the event loop; `clock` is monotonic seconds, `wall` seconds since 1970.
    """

    version: str
    clock: Callable[[], float]
    wall: Callable[[], float]
    recent: Recent
    sessions: Callable[[], Collection[Session]]
    totals: Callable[[], Mapping[str, object]]
    endpoints: Callable[[], Sequence[Mapping[str, object]]]
    caches: Mapping[str, Cache]
    budget: Budget
    lag: Callable[[], Sequence[float]]


class StatusRoute:
    """`check` raises `LooplineError` for a request that must not see it without a key; with `key`, that is asked for
    instead: `Authorization: Bearer`, or Basic with the key as password, which browsers ask for by themselves.
    """

    def __init__(self, sources: Sources, check: Callable[[web.Request], None], key: str | None = None) -> None:
        self._sources = sources
        self._started_s = sources.clock()
        self._check = check
        self._key = key
        self._page, policy = _page()
        self._headers = {
            "Content-Security-Policy": policy,
            "Cross-Origin-Resource-Policy": "same-origin",
        }

    def routes(self) -> list[web.RouteDef]:
        """The page and its data."""
        return [web.get("/status", self.handle_page), web.get("/status.json", self.handle_data)]

    async def handle_page(self, request: web.Request) -> web.Response:
        """The page. Raises `LooplineError` (forbidden, unauthorized)."""
        self._admit(request)
        return web.Response(body=self._page, content_type="text/html", charset="utf-8", headers=self._headers)

    async def handle_data(self, request: web.Request) -> web.Response:
        """What is known now, with the turns of the session in the query's `session`. Raises as `handle_page`."""
        self._admit(request)
        document = self.document(request.query.get("session", ""))
        return web.Response(body=encode(document), content_type=JSON, headers=self._headers)

    def document(self, session: str = "") -> d.Document:
        """What is known now; `session` is chosen, or nothing."""
        sources, now = self._sources, self._sources.clock()
        lag = sources.lag()
        listed = list(self._sessions(now))
        return d.Document(
            schema=d.SCHEMA,
            time_s=sources.wall(),
            process=d.Process(sources.version, now - self._started_s, lag[-1] if lag else 0.0, max(lag, default=0.0)),
            throughput=d.Throughput(
                d.Rates(*sources.recent.rates(now, _NOW_S)),
                d.Rates(*sources.recent.rates(now, _MINUTE_S)),
                sources.recent.by_second(now),
            ),
            totals=msgspec.convert(sources.totals(), d.Totals),
            caches=[_cache(name, cache) for name, cache in sources.caches.items()],
            memory=d.Memory(sources.budget.used, sources.budget.limit),
            endpoints=[msgspec.convert(each, d.Endpoint) for each in sources.endpoints()],
            sessions_listed=len(listed),
            sessions=listed,
            chosen=self._chosen(session, now),
        )

    def _sessions(self, now: float) -> Iterator[d.Session]:
        """Those that live, newest first; as far as there is room the turns by HTTP and those that ended lately."""
        live = nlargest(MOST_SESSIONS, self._sources.sessions(), key=lambda each: each.record.opened_s)
        yield from (_live(session, now) for session in live)
        recent, room = self._sources.recent, MOST_SESSIONS - len(live)
        kept, running = recent.turns(BY_HTTP), recent.running(BY_HTTP)
        if room and (kept or running):
            oldest_s = kept[0].began_s if kept else running[0].received_s
            yield d.Session(BY_HTTP, "", now - oldest_s, False, len(kept), 0, len(running), 0)
            room -= 1
        yield from (_over(ended, now) for ended in recent.ended()[:room])

    def _chosen(self, session: str, now: float) -> d.Chosen | None:
        if not session:
            return None
        recent = self._sources.recent
        running = [_running(record, now) for record in recent.running(session)[-TURNS:]]
        turns = [_turn(turn, now) for turn in recent.turns(session)]
        live = next((each for each in self._sources.sessions() if each.record.id == session), None)
        if live is None:
            return d.Chosen(session, [], running, turns) if running or turns else None
        lanes = [
            d.Lane(number, lane.state.value, len(lane.queue)) for number, lane in enumerate(live.lanes_used, start=1)
        ]
        return d.Chosen(session, lanes, running, turns)

    def _admit(self, request: web.Request) -> None:
        if self._key is None:
            self._check(request)
        elif not hmac.compare_digest(_given(request.headers.get("Authorization", "")), self._key.encode()):
            raise LooplineError(
                Kind.UNAUTHORIZED,
                "The status page needs its key (server.status_key_file): as 'Authorization: Bearer …', or as the "
                "password that a browser asks for, with any user name.",
                headers=_ASK,
            )


def _given(authorization: str) -> bytes:
    """The key in the header; nothing where there is none that can be read."""
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip().encode(errors="surrogateescape")
    if scheme.lower() != "basic":
        return b""
    try:
        return b64decode(value.strip(), validate=True).partition(b":")[2]
    except ValueError:
        return b""


def _live(session: Session, now: float) -> d.Session:
    lanes = session.lanes_used
    return d.Session(
        id=session.record.id,
        client=session.record.client,
        age_s=now - session.record.opened_s,
        ended=False,
        turns=session.record.turns,
        lanes=len(lanes),
        running=sum(lane.state is State.BUSY for lane in lanes),
        waiting=sum(len(lane.queue) for lane in lanes),
    )


def _over(ended: Ended, now: float) -> d.Session:
    return d.Session(ended.id, ended.client, now - ended.opened_s, True, ended.turns, 0, 0, 0)


def _cache(name: str, cache: Cache) -> d.Cache:
    counts = cache.counts
    return d.Cache(name, counts.hits, counts.misses, counts.full + counts.old, cache.used_bytes(), len(cache))


def _turn(turn: Kept, now: float) -> d.Turn:
    took_s = sum(turn.stages)
    loop = loop_of(turn.stages, turn.began_s, turn.previous_end_s)
    return d.Turn(
        response=turn.response,
        model=_shown(turn.model),
        endpoint=turn.endpoint,
        outcome=turn.outcome,
        error=turn.error,
        ended_ago_s=now - turn.began_s - took_s,
        client_s=loop.client,
        tools=turn.answers_calls,
        proxy_s=loop.proxy,
        upstream_s=loop.upstream,
        first_token_s=_since(turn.began_s, turn.first_output_s),
        parts_s=dict(zip(Stages._fields, turn.stages, strict=True)),
        tokens_in=turn.tokens_in,
        tokens_cached=turn.tokens_cached,
        tokens_out=turn.tokens_out,
        bytes_in=turn.bytes_in,
        bytes_out=turn.bytes_out,
        bytes_history=turn.bytes_history,
    )


def _running(record: TurnRecord, now: float) -> d.Running:
    stages = record.stages(now)
    loop = record.loop(stages)
    return d.Running(
        response=record.response,
        model=_shown(record.model),
        endpoint=record.endpoint,
        began_ago_s=now - record.received_s,
        part=record.part(),
        client_s=loop.client,
        tools=record.answers_calls,
        proxy_s=loop.proxy,
        upstream_s=loop.upstream,
        first_token_s=_since(record.received_s, record.first_output_s),
        parts_s=stages._asdict(),
        bytes_in=record.bytes_in,
        bytes_history=record.bytes_history,
    )


def _shown(model: str) -> str:
    """A name that may be a client's word."""
    return model[:_MOST_NAME].encode(errors="replace").decode()


def _since(began_s: float, moment_s: float | None) -> float | None:
    return None if moment_s is None else moment_s - began_s


def _page() -> tuple[bytes, str]:
    """The page in one piece, and a policy that lets a browser run what is in it and nothing else."""
    folder = files("proxy.server") / "pages"
    style, script = (folder.joinpath(name).read_text(encoding="utf-8") for name in ("status.css", "status.js"))
    page = folder.joinpath("status.html").read_text(encoding="utf-8")
    page = page.replace("/* status.css */", style).replace("/* status.js */", script)
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash(script)}",
            f"style-src {_hash(style)}",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
        )
    )
    return page.encode(), policy


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
