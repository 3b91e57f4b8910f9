"""Limits as clients meet them: codes, headers, what goes on beside a refusal, and what is given back afterwards."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.frames import Frame, Opcode

from proxy.server.client_socket import ClientSocket
from proxy.tools.simulate import Options
from tests.house import BEARER, House, open_house
from tests.raw_socket import PROBE, TEXT, connection, frame, raw_socket
from tests.wire_client import WireClient, user


async def refused(house: House, token: str = "test") -> tuple[int, Mapping[str, str], dict[str, Any]]:
    with pytest.raises(InvalidStatus) as caught:
        async with house.connect(token):
            pass
    response = caught.value.response
    return response.status_code, response.headers, json.loads(response.body or b"")["error"]


def used(house: House) -> int:
    """Bytes that the server counts."""
    return house.server.gate.accounts.whole.budget.used


async def nothing_held(house: House) -> None:
    await house.empty()
    async with asyncio.timeout(5):
        while used(house):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("setting", ["access.connections", "limits.connections"])
async def test_a_connection_too_many_gets_a_plain_503_before_101(setting: str) -> None:
    async with open_house("chat", {setting: 1}) as house:
        async with house.connect() as client:
            status, headers, error = await refused(house)
            assert (status, error["code"], error["type"]) == (503, "server_error", "server_error")
            assert headers["Retry-After"] == "1"
            await client.works()
            async with house.post({"input": "x"}) as response:
                assert response.status == 200, "HTTP is where a client goes then"
        await house.empty()
        async with house.connect() as client:
            await client.works()


async def test_one_clients_connections_are_not_anothers() -> None:
    async with open_house("chat", {"access.connections": 1}) as house:
        async with house.connect("one"), house.connect("other") as other:
            await other.works()


async def test_turns_at_once_are_bounded_over_sockets_and_http() -> None:
    async with open_house("chat", {"access.turns": 1}) as house:
        async with house.connect() as client, house.connect() as second, house.connect("other") as other:
            await client.create("[[stall 1]]")
            await client.until("response.in_progress")
            await second.create([user("x")])
            error = await second.answer()
            assert (error["status"], error["code"]) == (429, "rate_limit_exceeded")
            assert error["headers"]["retry-after"] == "1"
            async with house.post({"input": "x"}) as response:
                assert response.status == 429
                assert response.headers["Retry-After"] == "1"
            await other.works()
            await client.send({"type": "response.cancel"})
            await client.until_ended()
            await second.works()
            await client.works()


async def test_creates_that_wait_on_a_lane_are_no_turns_at_once() -> None:
    async with open_house("chat", {"access.turns": 1}) as house, house.connect() as client:
        for word in ("a", "b", "c"):
            await client.create(f'[[say "{word}"]]')
        assert [(await client.collect()).text for _ in range(3)] == ["a", "b", "c"]


async def test_requests_a_minute_are_told_by_headers_and_refused_with_a_time() -> None:
    async with open_house("chat", {"access.requests_per_minute": 2}) as house:
        left = []
        for _ in range(2):
            async with house.post({"input": "x"}) as response:
                assert response.status == 200
                assert response.headers["x-ratelimit-limit-requests"] == "2"
                left.append(response.headers["x-ratelimit-remaining-requests"])
        assert left == ["1", "0"]
        async with house.post({"input": "x"}) as response:
            assert response.status == 429
            assert (await response.json())["error"]["code"] == "rate_limit_exceeded"
            assert 1 <= int(response.headers["Retry-After"]) <= 30
            assert response.headers["x-ratelimit-reset-requests"].endswith("s")
        async with house.connect() as client:
            await client.create([user("x")])
            error = await client.answer()
            assert (error["status"], error["error"]["code"]) == (429, "rate_limit_exceeded")
            assert error["headers"] == error["error"]["headers"]
            assert error["headers"]["x-ratelimit-remaining-requests"] == "0"
        async with house.connect("other") as client:
            await client.works()


async def test_tokens_are_counted_from_usage_and_refuse_the_next_turn() -> None:
    async with open_house("chat", {"access.tokens_per_minute": 30}) as house:
        async with house.post({"input": "[[say 40]]"}) as response:
            assert response.status == 200
        async with house.post({"input": "x"}) as response:
            assert response.status == 429
            assert response.headers["x-ratelimit-remaining-tokens"] == "0"
            assert "tokens a minute" in (await response.json())["error"]["message"]
        async with house.post({"input": "x"}, headers={"Authorization": "Bearer other"}) as response:
            assert response.status == 200


async def test_a_turn_that_is_cancelled_costs_tokens_too() -> None:
    async with open_house("chat", {"access.tokens_per_minute": 30}) as house, house.connect() as client:
        await client.create('[[say "' + "word " * 200 + '"]][[stall 1]]')
        await client.until("response.output_text.delta")
        await client.send({"type": "response.cancel"})
        await client.until_ended()
        await client.create([user("x")])
        assert (await client.answer())["status"] == 429


async def test_a_refusal_keeps_the_conversation() -> None:
    async with open_house("chat", {"access.turns": 1}) as house, house.connect() as client, house.connect() as second:
        first = await client.says("first", store=False)
        await second.create("[[stall 1]]")
        await second.until("response.in_progress")
        await client.create([user("x")], previous_response_id=first.id, store=False)
        assert (await client.answer())["status"] == 429
        await second.send({"type": "response.cancel"})
        await second.until_ended()
        await client.says("second", previous_response_id=first.id, store=False)


async def test_above_the_memory_budget_new_work_gets_503_and_what_runs_ends() -> None:
    extra = {
        "limits.memory_bytes": 60_000,
        "limits.frame_hard_bytes": 60_000,
        "limits.frame_bytes": 50_000,
        "access.memory_bytes": 0,
    }
    async with open_house("chat", extra) as house:
        async with house.connect() as client, house.connect("other") as other:
            kept = await client.turn([user("x" * 12_000)], store=False)
            await client.create([user("y" * 12_000 + '[[say "still"]][[stall 1]]')], store=False, stream_id="a")
            assert (await client.event())["type"] == "response.created"
            assert used(house) > 35_000
            await other.create([user("z" * 25_000)])
            error = await other.answer()
            assert (error["status"], error["code"]) == (503, "server_error")
            async with house.post({"input": "z" * 25_000}) as response:
                assert response.status == 503
                assert response.headers["Retry-After"] == "1"
            await client.send({"type": "response.cancel", "stream_id": "a"})
            while (await client.event())["type"] != "response.failed":
                pass
            assert kept.kind == "response.completed"
            await other.works()
        await nothing_held(house)


async def test_what_lanes_hold_is_counted_and_given_back_with_the_socket() -> None:
    async with open_house("chat") as house:
        async with house.connect() as client:
            parent = None
            for number in range(5):
                parent = await client.turn([user("x" * 10_000)], store=False, previous_response_id=parent and parent.id)
                await house.watcher.wait_for(lambda: len(house.server.registry) == 0)
                assert (number + 1) * 20_000 < used(house) < (number + 1) * 45_000
        await nothing_held(house)


async def test_a_message_that_is_not_whole_counts_and_has_a_deadline() -> None:
    async with open_house("chat", {"server.receive_s": 0.4}) as house:
        async with house.connect() as client, house.connect() as other:
            before = used(house)
            await begin(client, b'{"type":"response.create","input":"' + b"x" * 100_000)
            async with asyncio.timeout(5):
                while used(house) - before < 100_000:
                    await asyncio.sleep(0.01)
            await other.works()
            error = await client.answer()
            assert (error["status"], error["code"]) == (408, "request_timeout")
            assert await client.closed() == 1008
            await other.works()
        await nothing_held(house)


async def begin(client: WireClient, data: bytes) -> None:
    """Send the first frame of a message that has more."""
    frame = Frame(Opcode.TEXT, data, fin=False)
    client.connection.transport.write(frame.serialize(mask=True))


async def test_a_message_in_pieces_within_the_deadline_is_whole() -> None:
    async with open_house("chat", {"server.receive_s": 5}) as house, house.connect() as client:
        whole = json.dumps({"type": "response.create", "model": "simulated", "input": '[[say "whole"]]'}).encode()
        frames = Frame(Opcode.TEXT, whole[:20], fin=False).serialize(mask=True)
        frames += Frame(Opcode.CONT, whole[20:], fin=True).serialize(mask=True)
        for at in range(len(frames)):
            client.connection.transport.write(frames[at : at + 1])
            await asyncio.sleep(0)
        assert (await client.collect()).text == "whole"
        await client.works()


async def test_each_message_of_a_client_that_always_has_one_under_way_has_a_deadline_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted, deadlines = ClientSocket._count, []

    def count(self: ClientSocket) -> None:
        counted(self)
        deadlines.append(self._timer)

    monkeypatch.setattr(ClientSocket, "_count", count)
    async with open_house("chat") as house:
        async with raw_socket(house.url) as client:
            probe = frame(TEXT, PROBE)
            for turn in range(3):
                # From then on something has begun that is not whole, at any time.
                await client.send((probe[9:] if turn else probe) + probe[:9])
                assert await client.outcome() == "lives"
            assert len(set(deadlines)) == len(deadlines) == 3
            for number in range(9, len(probe) - 1):
                await client.send(probe[number : number + 1])
                async with asyncio.timeout(5):
                    while len(deadlines) < number - 5:
                        await asyncio.sleep(0)
            assert set(deadlines[2:]) == {deadlines[2]}, "what comes of a message does not put its deadline off"
        await nothing_held(house)


async def test_a_body_that_trickles_has_a_deadline() -> None:
    async with open_house("chat", {"server.receive_s": 0.3}) as house:

        async def trickle() -> Any:
            yield b'{"model":"simulated",'
            await asyncio.sleep(30)

        headers = {**BEARER, "Content-Type": "application/json"}
        async with house.http.post(f"{house.url}/responses", data=trickle(), headers=headers) as response:
            assert response.status == 408
            assert (await response.json())["error"]["code"] == "request_timeout"
        await nothing_held(house)


async def test_a_body_counts_while_it_comes_and_stops_at_the_budget() -> None:
    extra = {"limits.memory_bytes": 300_000, "limits.frame_hard_bytes": 250_000, "limits.frame_bytes": 200_000}
    async with open_house("chat", {**extra, "access.memory_bytes": 60_000}) as house:
        seen: list[int] = []

        async def slowly() -> Any:
            yield b'{"model":"simulated","input":"'
            for _ in range(10):
                yield b"x" * 10_000
                for _ in range(20):
                    await asyncio.sleep(0)
                seen.append(used(house))

        headers = {**BEARER, "Content-Type": "application/json"}
        async with house.http.post(f"{house.url}/responses", data=slowly(), headers=headers) as response:
            assert response.status == 503
        assert max(seen) >= 40_000
        await nothing_held(house)


async def test_too_many_header_fields_are_refused() -> None:
    async with open_house("chat", {"limits.headers": 20}) as house:
        many = {**BEARER, **{f"x-{number}": "1" for number in range(30)}}
        async with house.http.get(f"{house.url}/models", headers=many) as response:
            assert response.status == 431
        async with house.http.get(f"{house.url}/models", headers=BEARER) as response:
            assert response.status == 200


MB = 1_000_000
UNREAD = ["/responses/{}", "/responses/{}/input_items", "/responses/{}?stream=true"]


async def unread_is_memory(house: House, path: str) -> None:
    request = f"GET /v1{path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer test\r\n\r\n"
    async with AsyncExitStack() as stack:
        for _ in range(8):
            raw = await stack.enter_async_context(connection(house.url))
            raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await raw.send(request.encode())
        async with asyncio.timeout(5):
            while used(house) < 24 * MB:
                await asyncio.sleep(0.01)
        async with house.http.get(house.url + path, headers=BEARER) as response:
            assert (response.status, response.headers["Retry-After"]) == (503, "1")
    await nothing_held(house)
    async with house.http.get(house.url + path, headers=BEARER) as response:
        assert response.status == 200
        assert len(await response.read()) > 6 * MB
    await nothing_held(house)


async def test_answers_that_nobody_reads_are_memory() -> None:
    """Each is larger than what a connection takes that nobody reads from."""
    extra = {
        "limits.memory_bytes": 30 * MB,
        "limits.frame_hard_bytes": 14 * MB,
        "limits.frame_bytes": 13 * MB,
        "upstream.first_byte_timeout_s": 60,
    }
    big = {"model": "simulated", "input": "x" * 6 * MB + "[[say 1]]", "instructions": "y" * 6 * MB}
    async with open_house("chat", extra, Options(context_tokens=10 * MB)) as house:
        body = io.BytesIO(json.dumps({**big, "background": True, "stream": True}).encode())
        headers = {**BEARER, "Content-Type": "application/json"}
        async with house.http.post(f"{house.url}/responses", data=body, headers=headers) as response:
            assert response.status == 200, await response.text()
            made = json.loads((await response.text()).split("data: ")[1].split("\n")[0])["response"]["id"]
        await nothing_held(house)
        for path in UNREAD:
            await unread_is_memory(house, path.format(made))
