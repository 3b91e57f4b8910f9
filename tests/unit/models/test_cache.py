from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from proxy.errors import Kind, LooplineError
from proxy.http_client import HttpRequest
from proxy.models import cache
from proxy.models.cache import CatalogCache
from proxy.models.catalog import questions
from proxy.models.profile import profiles, read_profile
from proxy.upstream.endpoint import Endpoint

VLLM = b'{"data":[{"id":"m","owned_by":"vllm"}]}'
PLAIN = b'{"data":[{"id":"m"}]}'
PROPS = b'{"default_generation_settings":{},"total_slots":1}'
QUESTIONS = [path.rpartition("/")[2] for path in questions()]


class Answer:
    """An `HttpResponse` of one read."""

    attempts = 1
    is_ready = False
    headers: Mapping[str, str] = {}

    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self._body = body

    async def read(self) -> bytes:
        body, self._body = self._body, b""
        return body


class Upstream:
    """An `HttpClient` that answers from a table and remembers what it was asked; `hold` makes it wait."""

    def __init__(self, **answers: bytes | int | LooplineError) -> None:
        self.answers = answers
        self.asked: list[HttpRequest] = []
        self.hold: asyncio.Event | None = None

    @property
    def paths(self) -> list[str]:
        return [request.url.rpartition("/")[2] for request in self.asked]

    @asynccontextmanager
    async def open(self, request: HttpRequest) -> AsyncIterator[Answer]:
        self.asked.append(request)
        if self.hold is not None:
            await self.hold.wait()
        answer = self.answers.get(self.paths[-1], 404)
        if isinstance(answer, LooplineError):
            raise answer
        yield Answer(answer, b"x") if isinstance(answer, int) else Answer(200, answer)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


DOWN = LooplineError(Kind.UPSTREAM_UNREACHABLE, "down")
SHARED = Endpoint("e", "http://up/v1", key="own")
OPEN = Endpoint("e", "http://up/v1")


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def test_it_is_asked_once_and_again_after_its_time(clock: Clock) -> None:
    upstream = Upstream(models=VLLM)
    cache = CatalogCache(upstream, 300, clock)
    for _ in range(3):
        assert (await cache.get(SHARED, "t", {})).names == frozenset({"m"})
    clock.now += 299
    await cache.get(SHARED, "t", {})
    assert upstream.paths == ["models"]
    clock.now += 2
    await cache.get(SHARED, "t", {})
    assert upstream.paths == ["models", "models"]


async def test_many_at_once_are_one_flight(clock: Clock) -> None:
    upstream = Upstream(models=VLLM)
    upstream.hold = asyncio.Event()
    cache = CatalogCache(upstream, 300, clock)
    asking = [asyncio.create_task(cache.get(SHARED, f"t{n}", {})) for n in range(20)]
    while not upstream.asked:
        await asyncio.sleep(0)
    upstream.hold.set()
    assert len({id(catalog) for catalog in await asyncio.gather(*asking)}) == 1
    assert upstream.paths == ["models"]


async def test_one_that_gives_up_does_not_take_the_others_along(clock: Clock) -> None:
    upstream = Upstream(models=VLLM)
    upstream.hold = asyncio.Event()
    cache = CatalogCache(upstream, 300, clock)
    first, second = (asyncio.create_task(cache.get(SHARED, "t", {})) for _ in range(2))
    while not upstream.asked:
        await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    upstream.hold.set()
    assert (await second).names == frozenset({"m"})


async def test_without_an_own_key_each_tenant_sees_what_its_credential_sees(clock: Clock) -> None:
    upstream = Upstream(models=VLLM)
    cache = CatalogCache(upstream, 300, clock)
    for tenant, credential in (("a", "Bearer a"), ("b", "Bearer b"), ("a", "Bearer a")):
        await cache.get(OPEN, tenant, {"authorization": credential})
    assert [dict(request.headers)["authorization"] for request in upstream.asked] == ["Bearer a", "Bearer b"]


async def test_with_an_own_key_clients_credentials_stay_here(clock: Clock) -> None:
    upstream = Upstream(models=VLLM)
    await CatalogCache(upstream, 300, clock).get(SHARED, "t", {"authorization": "Bearer client"})
    assert dict(upstream.asked[0].headers)["authorization"] == "Bearer own"


async def test_more_is_asked_only_until_the_kind_of_server_is_known(clock: Clock) -> None:
    known, plain = Upstream(models=VLLM), Upstream(models=PLAIN, props=PROPS)
    await CatalogCache(known, 300, clock).get(SHARED, "t", {})
    catalog = await CatalogCache(plain, 300, clock).get(SHARED, "t", {})
    assert known.paths == ["models"]
    assert [request.url for request in plain.asked] == ["http://up/v1/models", "http://up/props"]
    assert (catalog.profile.name, catalog.names) == ("llamacpp", frozenset({"m"}))


@pytest.mark.parametrize("named", ["vllm", "generic", "./mine.toml"])
async def test_where_the_settings_name_the_profile_nothing_more_is_asked(named: str, clock: Clock) -> None:
    upstream = Upstream(models=PLAIN, props=PROPS)
    mine = read_profile(b'title = "Mine"', "mine")
    known = {**profiles(), "./mine.toml": mine}
    catalog = await CatalogCache(upstream, 300, clock, known).get(Endpoint("e", "http://up/v1", profile=named), "t", {})
    assert upstream.paths == ["models"]
    assert catalog.profile == known[named]


@pytest.mark.parametrize("models", [401, PLAIN])
async def test_what_a_server_does_not_know_is_asked_once_in_its_time(models: bytes | int, clock: Clock) -> None:
    upstream = Upstream(models=models)
    cache = CatalogCache(upstream, 300, clock)
    for _ in range(20):
        assert (await cache.get(SHARED, "t", {})).profile.name == "generic"
        clock.now += 6
    assert [path for path in upstream.paths if path != "models"] == QUESTIONS
    clock.now += 300
    await cache.get(SHARED, "t", {})
    assert [path for path in upstream.paths if path != "models"] == QUESTIONS * 2


async def test_what_the_answers_told_stays_while_the_models_cannot_be_had(clock: Clock) -> None:
    upstream = Upstream(models=401, props=PROPS, version=404, **{"openapi.json": 404})
    cache = CatalogCache(upstream, 300, clock)
    for _ in range(3):
        assert (await cache.get(SHARED, "t", {})).profile.name == "llamacpp"
        clock.now += 6
    assert [path for path in upstream.paths if path != "models"].count("props") == 3


async def test_what_the_models_say_wins_over_what_was_told_before(clock: Clock) -> None:
    upstream = Upstream(models=PLAIN)
    cache = CatalogCache(upstream, 300, clock)
    assert (await cache.get(SHARED, "t", {})).profile.name == "generic"
    upstream.answers = {"models": VLLM}
    clock.now += 301
    assert (await cache.get(SHARED, "t", {})).profile.name == "vllm"


@pytest.mark.parametrize("answer", [DOWN, 401, 500, b"nonsense"])
async def test_an_upstream_that_cannot_be_read_serves_any_name(
    answer: bytes | int | LooplineError, clock: Clock
) -> None:
    catalog = await CatalogCache(Upstream(models=answer), 300, clock).get(SHARED, "t", {})
    assert (catalog.names, catalog.dialect) == (None, "chat")


async def test_while_it_is_down_it_is_not_asked_once_a_turn_and_soon_again(clock: Clock) -> None:
    upstream = Upstream(models=DOWN)
    cache = CatalogCache(upstream, 300, clock)
    for _ in range(5):
        await cache.get(SHARED, "t", {})
    assert len(upstream.asked) == 1
    upstream.answers = {"models": VLLM}
    clock.now += 6
    assert (await cache.get(SHARED, "t", {})).names == frozenset({"m"})


async def test_what_was_known_serves_while_it_is_down(clock: Clock) -> None:
    upstream = Upstream(models=VLLM)
    cache = CatalogCache(upstream, 300, clock)
    await cache.get(SHARED, "t", {})
    for answer in (DOWN, 503):
        upstream.answers = {"models": answer}
        clock.now += 400
        assert (await cache.get(SHARED, "t", {})).names == frozenset({"m"})


async def test_a_list_that_came_before_it_went_down_counts(clock: Clock) -> None:
    catalog = await CatalogCache(Upstream(models=PLAIN, version=DOWN), 300, clock).get(SHARED, "t", {})
    assert catalog.names == frozenset({"m"})


@pytest.mark.parametrize("answered", [{}, {"models": 404}])
async def test_a_silent_upstream_holds_a_turn_up_once_for_all_questions_together(
    answered: dict[str, int], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_PATIENCE_S", 0.01)
    upstream = Upstream(**answered)
    upstream.hold = asyncio.Event()  # never set: no question is ever answered
    catalog = await CatalogCache(upstream, 300, clock).get(SHARED, "t", {})
    assert catalog.names is None
    assert upstream.paths == ["models"]


async def test_keys_that_somebody_makes_up_do_not_fill_the_memory(clock: Clock) -> None:
    entry = b'{"id":"m","owned_by":"vllm","about":"%b"}' % (b"x" * 1_000_000)
    upstream = Upstream(models=b'{"data":[' + entry + b"]}")
    catalogs = CatalogCache(upstream, 300, clock)
    for number in range(100):
        await catalogs.get(OPEN, f"tenant {number}", {})
    assert catalogs._kept.currsize <= cache._MAX_KEPT_BYTES


async def test_what_is_doubted_is_asked_again_but_not_more_often_than_it_may(clock: Clock) -> None:
    upstream = Upstream(models=VLLM)
    cache = CatalogCache(upstream, 300, clock)
    assert not cache.doubt(SHARED, "t")
    await cache.get(SHARED, "t", {})
    assert not cache.doubt(SHARED, "t")
    clock.now += 6
    upstream.answers = {"models": b'{"data":[{"id":"new","owned_by":"vllm"}]}'}
    assert cache.doubt(SHARED, "t")
    assert (await cache.get(SHARED, "t", {})).names == frozenset({"new"})
    for _ in range(10):
        assert not cache.doubt(SHARED, "t")
        await cache.get(SHARED, "t", {})
    assert upstream.paths == ["models", "models"]


async def test_what_is_doubted_while_the_upstream_is_down_counts_on(clock: Clock) -> None:
    upstream = Upstream(models=VLLM)
    cache = CatalogCache(upstream, 300, clock)
    await cache.get(SHARED, "t", {})
    upstream.answers = {"models": DOWN}
    for _ in range(3):
        clock.now += 6
        cache.doubt(SHARED, "t")
        assert (await cache.get(SHARED, "t", {})).names == frozenset({"m"})


async def test_one_tenants_doubt_is_no_other_tenants(clock: Clock) -> None:
    upstream = Upstream(models=VLLM)
    cache = CatalogCache(upstream, 300, clock)
    for tenant in ("a", "b"):
        await cache.get(OPEN, tenant, {})
    clock.now += 6
    assert cache.doubt(OPEN, "a")
    await cache.get(OPEN, "b", {})
    assert len(upstream.asked) == 2


async def test_it_tells_what_it_found_and_holds(clock: Clock) -> None:
    cache = CatalogCache(Upstream(models=VLLM), 300, clock)
    for _ in range(3):
        await cache.get(SHARED, "t", {})
    assert (cache.counts.hits, cache.counts.misses, len(cache)) == (2, 1, 1)
    assert cache.used_bytes() > 1000


async def test_what_turns_use_stays_when_room_is_needed(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    upstream = Upstream(models=VLLM)
    monkeypatch.setattr(cache, "_MAX_KEPT_BYTES", 5_000)  # four of them
    catalogs = CatalogCache(upstream, 300, clock)
    for number in range(20):
        await catalogs.get(OPEN, f"t{number}", {})
        await catalogs.get(OPEN, "busy", {})
    assert len(catalogs) <= 4
    assert len(upstream.asked) == 21  # the busy one once
