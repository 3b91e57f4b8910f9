"""Cases that users of such systems hit: handshake, state, cancellation. Each is a test with its label.

Left out here, with the reason: 4 (a document), 11 and 36 (upstream sockets do not exist yet), 35 (one process), 37 (a
profile's matter: history is always replayed), 63 (checks do not exist yet), 68 (no debug log is kept), 71
(tests/integration/test_upstream_transport.py asks the sockets), 73 (tests/integration/test_timing.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest
import websockets

from proxy.session.services import Services
from proxy.tools.simulate import Options
from tests.house import House, open_house
from tests.wire_client import WireClient, function, tool_output, user

UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}


# --- Handshake and transport -----------------------------------------------------------------------------------------


async def test_case_01_websocket_off_answers_426_and_closes_at_once() -> None:
    async with open_house("chat", {"server.websocket": False}) as house:
        async with house.http.get(f"{house.url}/responses", headers=UPGRADE) as answer:
            assert answer.status == 426
            assert answer.headers["Connection"].lower() == "close"


@pytest.mark.parametrize(
    ("path", "status"), [("/", 404), ("/v1/realtime", 426), ("/v1/models", 200), ("/healthz", 200), ("/nowhere", 404)]
)
async def test_case_02_any_upgrade_gets_an_answer(path: str, status: int, house: House) -> None:
    async with house.http.get(house.root + path, headers=UPGRADE) as answer:
        assert answer.status == status


async def test_case_03_the_beta_header_is_not_needed_and_a_refusal_is_not_403(house: House) -> None:
    async with house.connect(headers={"OpenAI-Beta": "responses_websockets=2026-02-06"}) as client:
        await client.works()
    async with house.connect() as client:
        await client.works()


async def test_case_05_the_model_comes_from_the_frame_and_a_warm_up_may_come_first(client: WireClient) -> None:
    warm = await client.turn([user("hello")], generate=False, store=False)
    assert warm.kinds == ["response.created", "response.in_progress", "response.completed"]
    await client.says("chained", previous_response_id=warm.id, store=False)


@pytest.mark.parametrize(
    "message", [b"{}", "{", '{"type":"response.create","input":1}', '{"type":"response.create","model":"x"}']
)
async def test_case_07_a_bad_frame_is_a_typed_error_and_the_connection_survives(
    message: str | bytes, client: WireClient
) -> None:
    await client.send(message)
    error = await client.answer()
    assert error["type"] == "error"
    assert isinstance(error["status"], int)
    assert error["error"]["message"]
    await client.works()


async def test_case_08_the_server_pings_during_a_turn_as_well_as_when_idle() -> None:
    async with open_house("chat", {"server.ping_interval_s": 0.1}) as house, house.connect() as client:
        pings = _count_pings(client)
        await pings.reached(2)
        await client.create("[[stall 1]]")
        await client.until("response.output_text.delta")
        await pings.reached(4)


async def test_case_09_events_come_early_although_the_upstream_is_silent() -> None:
    async with open_house("chat", {"server.early_events_s": 0.05}) as house, house.connect() as client:
        await client.create("[[stall 0]]")
        recorded = await client.until("response.in_progress")
        assert recorded.kinds == ["response.created", "response.in_progress"]


async def test_case_10_pings_are_answered_while_a_large_message_goes_up(dialect: str) -> None:
    roomy = Options(context_tokens=100_000_000)
    async with (
        open_house(dialect, options=roomy) as house,
        house.connect(ping_interval=0.2, ping_timeout=5) as client,
    ):
        recorded = await client.turn([user("x" * 20_000_000), user('[[say "read"]]')], store=False)
        assert recorded.text == "read"


async def test_case_13_a_history_too_large_is_a_local_error_with_bytes_and_limit() -> None:
    async with open_house("chat", {"limits.history_bytes": 10_000}) as house, house.connect() as client:
        first = await client.says("hi", store=False)
        recorded = await client.turn([user("x" * 10_000)], previous_response_id=first.id, store=False)
        assert "10000" in recorded.error["message"]
        assert "limits.history_bytes" in recorded.error["message"]
        assert len(house.upstream.requests) == 1


@pytest.mark.parametrize("script", ["[[drop 3]]", "[[eof 3]]"])
async def test_case_14_an_end_after_partial_text_is_one_failure(script: str, client: WireClient) -> None:
    recorded = await client.turn(script)
    assert recorded.kind == "response.failed"
    assert "response.output_text.delta" in recorded.kinds


async def test_case_15_exactly_one_terminal_event_and_nothing_after_it(client: WireClient) -> None:
    for _ in range(3):
        await client.says("over", store=False)  # a stray event would be the next turn's first, and its check fail
    await client.send({"type": "nothing"})
    assert (await client.answer())["type"] == "error"


async def test_case_16_the_type_follows_the_status(client: WireClient) -> None:
    recorded = await client.turn("[[length 3]]")
    assert (recorded.kind, recorded.response["status"]) == ("response.incomplete", "incomplete")


async def test_case_18_lanes_interleave_and_errors_echo_their_name(client: WireClient) -> None:
    for name in ("A", "B"):
        await client.create([user("[[stall 2]]")], stream_id=name, store=False)
    started: set[str] = set()
    while started != {"A", "B"}:
        event = await client.event()
        if event["type"] == "response.output_text.delta":
            started.add(event["stream_id"])
    await client.create([user("x")], stream_id="C", previous_response_id="resp_unknown")
    while (event := await client.event()).get("stream_id") != "C":
        pass
    assert event["error"]["code"] == "previous_response_not_found"


async def test_case_19_one_record_a_turn_not_one_a_connection(house: House, client: WireClient) -> None:
    for _ in range(3):
        await client.works()
    await house.watcher.wait_for(lambda: len(house.watcher.turns) == 3)
    assert len({record.response for record in house.watcher.turns}) == 3


async def test_case_20_a_refused_upgrade_is_no_error_in_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    async with open_house("chat", {"server.websocket": False}) as house:
        async with house.http.get(f"{house.url}/responses", headers=UPGRADE) as answer:
            assert answer.status == 426
    said = "".join(capfd.readouterr())
    assert "error" not in said.replace("error=None", "").lower()


async def test_case_21_another_keys_response_is_not_found_on_any_frame(house: House) -> None:
    async with house.connect("one") as one, house.connect("other") as other:
        mine = await one.says("secret")
        await other.works()
        recorded = await other.turn([user("?")], previous_response_id=mine.id)
        assert recorded.error["code"] == "previous_response_not_found"
        assert "secret" not in json.dumps(recorded.events)


async def test_case_22_the_clients_beta_header_is_forwarded_and_none_is_added(house: House) -> None:
    async with house.connect(headers={"OpenAI-Beta": "mine=1"}) as client:
        await client.works()
    assert house.upstream.requests[-1].headers["openai-beta"] == "mine=1"
    async with house.connect() as client:
        await client.works()
    assert "openai-beta" not in house.upstream.requests[-1].headers


# --- State -----------------------------------------------------------------------------------------------------------


async def test_case_23_an_unstored_id_on_a_new_socket_is_not_found(house: House) -> None:
    async with house.connect() as client:
        first = await client.says("hi", store=False)
    async with house.connect() as client:
        recorded = await client.turn([user("?")], previous_response_id=first.id, store=False)
        assert (recorded.error["status"], recorded.error["code"]) == (400, "previous_response_not_found")
        await client.works()


@pytest.mark.parametrize("unknown", ["resp_unknown", "chatcmpl-1", "", "resp_lp10000" + "0" * 40])
async def test_cases_24_and_25_an_unknown_id_is_an_error_with_the_exact_code(
    unknown: str, house: House, client: WireClient
) -> None:
    recorded = await client.turn([user("?")], previous_response_id=unknown)
    assert recorded.error["error"] == {
        "type": "invalid_request_error",
        "code": "previous_response_not_found",
        "message": f"Previous response with id '{unknown}' not found.",
        "param": "previous_response_id",
    }
    assert not house.upstream.requests


async def test_cases_26_and_29_the_upstream_gets_every_turn_in_order(house: House, client: WireClient) -> None:
    parent: dict[str, str] = {}
    for number in range(40):
        recorded = await client.says(f"answer {number}", store=False, **parent)
        parent = {"previous_response_id": recorded.id}
    said = house.said()
    assert said == [text for number in range(40) for text in (f'[[say "answer {number}"]]', f"answer {number}")][:-1]
    await client.says("answer 0", store=False, **parent)  # the same input once more is no error


async def test_cases_27_and_28_a_call_is_found_by_its_id_in_the_history(house: House, client: WireClient) -> None:
    called = await client.turn([user('[[call get_weather {"city": "Oslo"}]]')], tools=[function()], store=False)
    (call,) = called.calls
    output = [tool_output(call["call_id"], "sunny")]
    answered = await client.turn(output, tools=[function()], previous_response_id=called.id, store=False)
    assert answered.kind == "response.completed"
    await client.turn([user("thanks")], tools=[function()], previous_response_id=answered.id, store=False)
    said = "\n".join(house.said())
    assert said.index("Oslo") < said.index("sunny") < said.index("thanks")


async def test_case_30_an_id_is_known_when_its_terminal_event_is_read(house: House) -> None:
    async with house.connect() as one, house.connect() as other:
        for _ in range(20):
            recorded = await one.says("hi")
            await other.says("there", previous_response_id=recorded.id)


async def test_case_31_the_store_is_bounded_and_ours() -> None:
    limits = {"store.memory_bytes": 200_000, "limits.history_bytes": 100_000}
    async with open_house("chat", limits) as house, house.connect() as client:
        for _ in range(50):
            await client.turn([user("x" * 10_000 + "[[say 1]]")])
        services: Services = house.server.services
        assert 0 < services.store.used_bytes() <= 200_000
        assert "store" not in house.upstream.requests[-1].body


async def test_case_32_old_instructions_do_not_leak_into_the_next_turn(house: House, client: WireClient) -> None:
    first = await client.turn([user("[[say 1]]")], instructions="Be old.", store=False)
    await client.turn([user("[[say 1]]")], previous_response_id=first.id, store=False)
    assert "Be old." not in house.said()


async def test_case_34_a_turn_that_was_sent_is_not_sent_again(dialect: str) -> None:
    async with open_house(dialect) as house, house.connect() as client:
        await client.works()
        recorded = await client.turn("[[drop 2]]")
        assert recorded.kind == "response.failed"
        assert len(house.upstream.requests) == 2


@pytest.mark.parametrize("lane", ["same", "fork"])
async def test_case_38_a_failed_turn_evicts_its_parent_and_a_failed_fork_does_not(
    lane: str, client: WireClient
) -> None:
    first = await client.says("hi", store=False)
    named: dict[str, Any] = {"stream_id": "other"} if lane == "fork" else {}
    await client.create([tool_output("call_unknown", "?")], previous_response_id=first.id, store=False, **named)
    assert (await client.event())["type"] == "error"
    recorded = await client.turn([user("[[say 1]]")], previous_response_id=first.id, store=False)
    assert recorded.kind == ("response.completed" if lane == "fork" else "error")


async def test_case_39_a_warm_up_is_seen_once_and_costs_no_call(house: House, client: WireClient) -> None:
    tools = [function()]
    warm = await client.turn([user("context")], generate=False, instructions="Be.", tools=tools, store=False)
    assert not house.upstream.requests
    await client.turn([user("[[say 1]]")], previous_response_id=warm.id, instructions="Be.", tools=tools, store=False)
    assert house.said() == ["Be.", "context", "[[say 1]]"]
    assert len(house.upstream.requests[-1].body["tools"]) == 1


# --- Cancellation, leaks, speed --------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before the first token", "in mid-stream", "without a stream"])
async def test_case_64_a_client_that_leaves_ends_the_upstream_call(when: str, house: House) -> None:
    if when == "without a stream":
        asking = asyncio.ensure_future(_post(house, "[[stall 2]]"))
        await house.upstream.wait_for(lambda u: u.open_requests == 1)
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asking
    else:
        async with house.connect() as client:
            await client.create("[[stall 0]]" if when == "before the first token" else "[[stall 2]]")
            await house.upstream.wait_for(lambda u: u.open_requests == 1)
            client.vanish(reset=False)
    await house.aborted()
    await house.empty()


async def test_case_65_a_cancel_ends_the_upstream_call_with_one_terminal_event(
    house: House, client: WireClient
) -> None:
    await client.create("[[stall 2]]")
    begun = await client.until("response.output_text.delta")
    await client.send({"type": "response.cancel", "response_id": begun.events[0]["response"]["id"]})
    recorded = await client.collect(recorded=begun)
    assert (recorded.kind, recorded.response["status"]) == ("response.failed", "cancelled")
    await house.aborted()
    await client.works()


async def test_case_70_a_kept_connection_that_was_closed_costs_no_turn(dialect: str) -> None:
    async with open_house(dialect) as house, house.connect() as client:
        for _ in range(3):
            await client.works()
        assert house.upstream.connections == 1


async def test_case_72_turn_40_costs_the_store_what_turn_2_costs(house: House, client: WireClient) -> None:
    store = house.server.services.store
    reads: list[str] = []
    original = store.get

    async def get(tenant: str, response: str, now: float) -> Any:
        reads.append(response)
        return await original(tenant, response, now)

    store.get = get  # type: ignore[method-assign]
    parent: dict[str, str] = {}
    for _ in range(40):
        recorded = await client.says("hi", **parent)
        parent = {"previous_response_id": recorded.id}
    assert len(reads) == 0  # the lane holds its latest; by HTTP or on another socket it is one read a turn


async def test_case_74_http_still_takes_previous_response_id_after_a_fallback(house: House, client: WireClient) -> None:
    first = await client.says("by socket")
    async with house.post({"input": '[[say "by http"]]', "previous_response_id": first.id}) as answer:
        assert answer.status == 200
    assert "by socket" in house.said()


async def _post(house: House, script: str) -> None:
    async with house.post({"input": script}) as answer:
        await answer.read()


class _Pings:
    def __init__(self) -> None:
        self.count = 0
        self._more = asyncio.Event()

    def seen(self) -> None:
        self.count += 1
        self._more.set()

    async def reached(self, count: int) -> None:
        async with asyncio.timeout(5):
            while self.count < count:
                self._more.clear()
                await self._more.wait()


def _count_pings(client: WireClient) -> _Pings:
    pings = _Pings()
    original = client.connection.process_event

    def process(event: Any) -> Any:
        if isinstance(event, websockets.frames.Frame) and event.opcode is websockets.frames.Opcode.PING:
            pings.seen()
        return original(event)

    client.connection.process_event = process  # type: ignore[method-assign]
    return pings
