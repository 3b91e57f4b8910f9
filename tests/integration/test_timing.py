"""Where a turn's time went, over real sockets before an upstream whose times are known."""

from __future__ import annotations

import asyncio
import io
import json
import re
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import structlog
from aiohttp import web

from proxy.telemetry.observer import TurnRecord
from proxy.telemetry.recent import BY_HTTP
from proxy.tools.simulate import Options
from tests.house import House, open_house
from tests.integration.test_operations import get, scrape, value
from tests.wire_client import function, tool_output, user

TTFT_S, TOKENS, RATE = 0.1, 11, 100
UPSTREAM_S = TTFT_S + (TOKENS - 1) / RATE  # no answer takes less
KNOWN = Options(ttft_s=TTFT_S, tokens_per_s=RATE)
TOOL_S = 0.05


def total_s(record: TurnRecord) -> float:
    """A turn's wall time."""
    assert record.ended_s is not None
    return record.ended_s - record.received_s


async def last(house: House, count: int = 1) -> TurnRecord:
    """The latest turn's record, once so many have ended."""
    await house.watcher.wait_for(lambda: len(house.watcher.turns) >= count)
    return house.watcher.turns[-1]


@pytest.mark.parametrize("transport", ["websocket", "http"])
async def test_the_parts_of_a_turn_are_its_wall_time_and_the_upstreams_is_what_it_took(
    transport: str, dialect: str
) -> None:
    async with open_house(dialect, options=KNOWN) as house:
        if transport == "websocket":
            async with house.connect() as client:
                await client.turn(f"[[say {TOKENS}]]")
        else:
            async with house.post({"input": f"[[say {TOKENS}]]", "stream": True}) as response:
                await response.read()
        record = await last(house)
    stages = record.stages()
    assert sum(stages) == pytest.approx(total_s(record), rel=0.01)
    assert stages.upstream >= UPSTREAM_S
    assert min(stages.parse, stages.queue, stages.chain, stages.prepare, stages.translate, stages.send) > 0


async def test_only_a_new_connection_takes_time(house: House) -> None:
    async with house.connect() as client:
        await client.works()  # on the connection that the question for models opened
        for lane in ("a", "b"):
            await client.create("[[stall 1]]", stream_id=lane)
        await house.upstream.wait_for(lambda upstream: len(upstream.requests) == 3)
    await last(house, 3)
    assert [turn.stages().connect > 0 for turn in house.watcher.turns].count(True) == 1
    assert house.watcher.turns[0].connected_s is None


@pytest.mark.parametrize("how", ["request", "leaving", "leaving by http"])
async def test_the_time_of_a_cancelled_turn_is_the_upstreams(how: str, dialect: str) -> None:
    async with open_house(dialect, options=Options(ttft_s=TTFT_S)) as house:
        if how == "leaving by http":
            async with house.post({"input": "[[stall 2]]", "stream": True}) as response:
                await response.content.readuntil(b"event: response.output_text.delta")
                response.close()
        else:
            async with house.connect() as client:
                await client.create([user("[[stall 2]]")])
                await client.until("response.output_text.delta")
                if how == "request":
                    await client.send({"type": "response.cancel"})
                    await client.until_ended()
        record = await last(house)
    assert record.outcome == "cancelled"
    stages = record.stages()
    assert sum(stages) == pytest.approx(total_s(record), rel=0.01)
    assert stages.upstream >= TTFT_S
    assert stages.store == stages.send == 0


@pytest.mark.parametrize("transport", ["websocket", "http"])
@pytest.mark.parametrize(
    ("script", "outcome", "least_s"), [("[[drop 3]]", "failed", TTFT_S), ("[[fail 500]]", "refused", 0.0)]
)
async def test_the_time_of_a_failed_turn_is_the_upstreams(
    script: str, outcome: str, least_s: float, transport: str, dialect: str
) -> None:
    async with open_house(dialect, options=Options(ttft_s=TTFT_S)) as house:
        if transport == "websocket":
            async with house.connect() as client:
                await client.turn([user(script)])
        else:
            async with house.post({"input": script, "stream": True}) as response:
                await response.read()
        record = await last(house)
    assert record.outcome == outcome
    stages = record.stages()
    assert sum(stages) == pytest.approx(total_s(record), rel=0.01)
    assert stages.upstream > least_s
    assert stages.store == stages.send == 0


LITTLE = 65_536
MANY = 10_000  # tokens: more than `LITTLE` here, there and in Loopline can hold as events


@pytest.fixture
def _small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a server accepts sends little ahead of its client."""
    start = web.TCPSite.start

    async def started(site: web.TCPSite) -> None:
        await start(site)
        server = site._server
        assert isinstance(server, asyncio.Server)
        for each in server.sockets:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LITTLE)

    monkeypatch.setattr(web.TCPSite, "start", started)


@pytest.mark.usefixtures("_small_buffers")
@pytest.mark.parametrize("transport", ["websocket", "http"])
async def test_the_time_of_a_client_that_does_not_read_is_the_clients(transport: str, dialect: str) -> None:
    async with open_house(dialect, {"limits.outbox_bytes": LITTLE}) as house:
        reads = _by_websocket if transport == "websocket" else _by_http
        async with reads(house, f"[[say {MANY}]]") as read:
            record = await _stalled(house)
            while (so_far := record.stages(house.server.services.clock())).stall < TOOL_S:
                await asyncio.sleep(0.01)
            assert record.ended_s is None, "that it waits is seen before it ends"
            await read()
        assert record is await last(house)
    stages = record.stages()
    assert record.outcome == "completed"
    assert stages.stall >= so_far.stall
    assert sum(stages) == pytest.approx(total_s(record), rel=0.01)
    assert record.loop(stages).client is None, "no turn went before"


async def _stalled(house: House) -> TurnRecord:
    """The one turn, once it waits for its client."""
    async with asyncio.timeout(20):
        while True:
            for session in (*(each.record.id for each in house.server.sockets.sessions), BY_HTTP):
                for record in house.server.recent.running(session):
                    if record.part() == "stall":
                        return record
            await asyncio.sleep(0.01)


def _narrow(house: House) -> socket.socket:
    """A connection whose receive buffer is small."""
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, LITTLE)
    raw.connect(("127.0.0.1", house.server.port))
    raw.setblocking(False)
    return raw


@asynccontextmanager
async def _by_websocket(house: House, words: str) -> AsyncIterator[Callable[[], Awaitable[object]]]:
    """A turn over a WebSocket of which nothing is read until that is called which is given."""
    async with house.connect(max_queue=1, sock=_narrow(house)) as client:
        await client.create(words)
        yield client.until_ended


@asynccontextmanager
async def _by_http(house: House, words: str) -> AsyncIterator[Callable[[], Awaitable[object]]]:
    """The same by HTTP."""
    reader, writer = await asyncio.open_connection(sock=_narrow(house))
    body = json.dumps({"model": "simulated", "input": words, "stream": True})
    writer.write(
        f"POST /v1/responses HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer test\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
    )
    yield reader.read
    writer.close()
    await writer.wait_closed()


async def test_the_rounds_of_a_loop_are_its_wall_time(dialect: str) -> None:
    async with open_house(dialect, options=Options(ttft_s=0.02)) as house:
        async with house.connect() as client:
            recorded = await client.turn([user("[[loop 3 get_weather]]")], tools=[function()])
            for _ in range(3):
                await asyncio.sleep(TOOL_S)
                output = tool_output(recorded.calls[0]["call_id"], "sun")
                recorded = await client.turn([output], previous_response_id=recorded.id, tools=[function()])
            assert recorded.text == "Done."
        await last(house, 4)
        samples = await scrape(house)
    first, *rest = house.watcher.turns
    assert first.previous_end_s is None
    assert [turn.answers_calls for turn in rest] == [True] * 3
    rounds = [turn.loop(turn.stages()) for turn in rest]
    assert all(each.client is not None and each.client >= TOOL_S for each in rounds)
    assert rest[-1].ended_s is not None
    assert first.ended_s is not None
    spent_s = sum(part for each in rounds for part in each if part is not None)
    assert spent_s == pytest.approx(rest[-1].ended_s - first.ended_s, rel=0.01)
    stage = "loopline_loop_stage_seconds"
    assert value(samples, f"{stage}_count", stage="client") == 3
    assert value(samples, f"{stage}_sum", stage="client") >= 3 * TOOL_S
    assert value(samples, f"{stage}_count", stage="idle") == 0


async def test_a_turn_that_waits_on_its_lane_is_queued(house: House) -> None:
    async with house.connect() as client:
        await client.create([user("[[stall 1]]")])
        await client.until("response.output_text.delta")
        await client.create("[[say 1]]")
        await asyncio.sleep(TOOL_S)
        await client.send({"type": "response.cancel"})
        await client.until_ended()
        await client.collect()
        record = await last(house, 2)
    assert record.stages().queue > TOOL_S / 2
    assert sum(record.stages()) == pytest.approx(total_s(record), rel=0.01)
    loop = record.loop(record.stages())
    assert loop.client == 0
    assert record.previous_end_s is not None
    assert record.ended_s is not None
    assert loop.proxy + loop.upstream == pytest.approx(record.ended_s - record.previous_end_s, rel=0.01)


# --- The same numbers elsewhere --------------------------------------------------------------------------------------


def server_timing(header: str) -> dict[str, float]:
    """Milliseconds by name."""
    return {name: float(ms) for name, ms in re.findall(r"(\w+);dur=([\d.]+)", header)}


async def test_a_whole_answer_tells_every_part(dialect: str) -> None:
    async with open_house(dialect, options=KNOWN) as house:
        async with house.post({"input": f"[[say {TOKENS}]]"}, headers={"x-request-id": "mine"}) as response:
            document = await response.json()
        record = await last(house)
    told = server_timing(response.headers["Server-Timing"])
    stages = {name: took_s for name, took_s in record.stages()._asdict().items() if took_s}
    assert told == pytest.approx({name: took_s * 1000 for name, took_s in stages.items()} | {
        "total": total_s(record) * 1000
    }, abs=0.001)  # fmt: skip
    assert response.headers["x-loopline-response-id"] == document["id"] == record.response
    assert response.headers["x-request-id"] == record.request_id == "mine"
    ours = float(response.headers["x-loopline-overhead-ms"])
    assert ours == pytest.approx(told["total"] - told["upstream"], abs=0.01)


async def test_the_head_of_a_stream_tells_what_is_known_by_then(dialect: str) -> None:
    async with open_house(dialect, options=KNOWN) as house:
        async with house.post({"input": f"[[say {TOKENS}]]", "stream": True}) as response:
            await response.read()
        record = await last(house)
    told = server_timing(response.headers["Server-Timing"])
    assert {"parse", "chain", "prepare", "translate"} <= told.keys()
    assert not {"store", "send", "total"} & told.keys()
    assert told["upstream"] < record.stages().upstream * 1000
    assert response.headers["x-loopline-response-id"] == record.response


async def test_a_failure_tells_its_times_too(house: House) -> None:
    async with house.post({"input": "[[fail 500]]"}) as response:
        assert response.status == 502
    assert "upstream" in server_timing(response.headers["Server-Timing"])
    assert response.headers["x-loopline-response-id"] == (await last(house)).response


async def test_log_event_and_metric_have_the_same_numbers(dialect: str, log: io.BytesIO) -> None:
    asked = {"x-responsesapi-include-timing-metrics": "true"}
    async with open_house(dialect, options=KNOWN) as house:
        async with house.connect(headers=asked) as client:
            await client.create(f"[[say {TOKENS}]]")
            while (event := await client.event())["type"] != "responsesapi.websocket_timing":
                pass
            await client.until_ended()
        record = await last(house)
        samples = await scrape(house)
    structlog.get_config()["logger_factory"].flush()
    [line] = [json.loads(each) for each in log.getvalue().splitlines() if b'"turn"' in each]
    stages = record.stages()
    assert line["response"] == event["response_id"] == record.response
    for part, field in (("parse", "parse_s"), ("chain", "chain_s"), ("upstream", "upstream_s"), ("store", "store_s")):
        took_s = getattr(stages, part)
        assert line[field] == pytest.approx(took_s, abs=1e-6)
        assert event["parts_ms"][part] == pytest.approx(took_s * 1000, abs=0.001)
        assert value(samples, "loopline_turn_part_seconds_sum", part=part) == pytest.approx(took_s)
    assert line["total_s"] == pytest.approx(value(samples, "loopline_turn_duration_seconds_sum"), abs=1e-6)


# --- What else is counted --------------------------------------------------------------------------------------------


async def test_forks_steers_warm_ups_and_lanes_are_counted(house: House) -> None:
    async with house.connect() as client:
        await client.create(None, generate=False)
        warm = await client.collect()
        first = await client.says("one", previous_response_id=warm.id)
        await client.says("two", previous_response_id=first.id)
        await client.says("three", previous_response_id=first.id)
        await client.create("[[stall 1]]")
        running = await client.until("response.output_text.delta")
        steer = {"type": "response.steer", "previous_response_id": running.events[0]["response"]["id"]}
        await client.send({**steer, "input": [user("[[say 1]]")]})
        await client.until_ended()
        await client.until_ended()
        samples = await scrape(house)
    assert value(samples, "loopline_lane_open") == 1
    for what, count in (("forks", 1), ("steers", 1), ("warm_ups", 1)):
        assert value(samples, f"loopline_turn_{what}_total") == count, what
    assert value(samples, "loopline_cache_hits_total", cache="catalog") > 0
    assert value(samples, "loopline_cache_misses_total", cache="catalog") == 1
    assert value(samples, "loopline_cache_bytes", cache="store") > 0
    assert value(samples, "loopline_memory_used_bytes") > 0


async def test_limits_are_counted_by_their_setting() -> None:
    settings = {"limits.tools": 1, "limits.input_items": 1, "limits.queued_turns": 1, "limits.connections": 1}
    async with open_house("chat", settings) as house:
        async with house.connect() as client:
            await client.turn("hello", tools=[function(), function("other")])
            async with house.post({"input": [user("a"), user("b")]}) as response:
                assert response.status == 400
            async with house.http.get(f"{house.url}/responses", headers=UPGRADE) as response:
                assert response.status == 503
            for _ in range(3):
                await client.create("[[stall 0]]")
            await client.until("error")
        await house.empty()
        samples = await scrape(house)
    for limit, count in (("tools", 1), ("input_items", 1), ("queued_turns", 1), ("connections", 1)):
        assert value(samples, "loopline_limit_hits_total", limit=f"limits.{limit}") == count, limit


UPGRADE = {
    "Authorization": "Bearer test",
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


async def test_readiness_tells_of_upstreams_and_fails_for_them_only_when_asked(unused_tcp_port: int) -> None:
    settings = {"endpoints[0].url": f"http://127.0.0.1:{unused_tcp_port}/v1"}
    async with open_house("chat", settings) as house:
        status, document = await get(house, "/readyz")
        assert (status, document["endpoints"][0]["health"]) == (200, "unknown")
        assert (await get(house, "/readyz?upstream=1"))[0] == 200
        async with house.post({"input": "hello"}) as response:
            assert response.status == 502
        status, document = await get(house, "/readyz")
        [endpoint] = document["endpoints"]
        assert (status, document["status"]) == (200, "ready")
        assert endpoint == {"name": "default", "health": "down", "error": "upstream_unreachable", "turns": 0}
        assert await get(house, "/readyz?upstream=1") == (503, {**document, "status": "upstream_down"})
        async with house.http.get(f"{house.root}/readyz", headers={"Host": "a-stranger.example"}) as response:
            assert await response.json() == {"status": "ready"}


@pytest.mark.slow
async def test_thousands_of_names_over_sockets_make_no_series() -> None:
    options = Options(any_model=False)
    async with open_house("chat", {"models.default": ""}, options) as house:

        async def some(number: int) -> None:
            async with house.connect(f"token-{number}") as client:
                for _ in range(8):
                    for _ in range(25):
                        await client.create("x", model=f"model-{secrets.token_hex(4)}")
                    for _ in range(25):
                        assert (await client.event())["type"] == "error"
            async with house.http.post(f"{house.url}/path-{secrets.token_hex(4)}", data=b"x") as response:
                await response.read()

        await some(0)
        await house.empty()
        before = await scrape(house)
        async with asyncio.TaskGroup() as group:
            for number in range(1, 10):
                group.create_task(some(number))
        await house.empty()
        after = await scrape(house)
    assert value(after, "loopline_turn_errors_total", kind="model_not_found") == 2_000
    assert after.keys() == before.keys()
    assert not any("-" in text for _, labels in after for label, text in labels if label != "le")
