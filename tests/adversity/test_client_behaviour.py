"""Clients that leave, hang, crowd or dawdle: nothing stays behind, and others go on."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.house import House, open_house
from tests.wire_client import WireClient, user

BEFORE_FIRST_TOKEN = "[[stall 0]]"
IN_MID_STREAM = "[[stall 5]]"


async def asked(house: House) -> None:
    """Wait until the upstream has the request."""
    await house.upstream.wait_for(lambda u: bool(u.requests) and u.requests[-1].body is not None)


@pytest.mark.parametrize("reset", [False, True], ids=["FIN", "RST"])
@pytest.mark.parametrize("script", [BEFORE_FIRST_TOKEN, IN_MID_STREAM], ids=["before the first token", "mid-stream"])
async def test_a_client_that_vanishes_ends_its_upstream_call(script: str, reset: bool, house: House) -> None:
    async with house.connect() as client:
        await client.create([user(script)])
        await asked(house)
        if script == IN_MID_STREAM:
            await client.until("response.output_text.delta")
        client.vanish(reset=reset)
        await house.aborted()
        await house.empty()
    assert house.watcher.turns[-1].outcome == "cancelled"


async def test_a_client_that_closes_properly_ends_its_upstream_call(house: House) -> None:
    async with house.connect() as client:
        await client.create([user(IN_MID_STREAM)])
        await client.until("response.output_text.delta")
    await house.aborted()
    await house.empty()
    assert house.watcher.sessions[-1].close_code == 1000


@asynccontextmanager
async def raw_post(
    house: House, script: str, *, stream: bool
) -> AsyncIterator[tuple[asyncio.StreamReader, socket.socket]]:
    """A POST on a bare TCP connection, sent and not yet answered."""
    body = json.dumps({"model": "simulated", "input": script, "stream": stream}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", house.server.port)
    head = b"POST /v1/responses HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    writer.write(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    try:
        yield reader, writer.get_extra_info("socket")
    finally:
        writer.transport.abort()


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "document"])
@pytest.mark.parametrize("script", [BEFORE_FIRST_TOKEN, IN_MID_STREAM], ids=["before the first token", "mid-stream"])
async def test_an_http_client_that_vanishes_ends_its_upstream_call(script: str, stream: bool, house: House) -> None:
    async with raw_post(house, script, stream=stream) as (reader, _):
        await asked(house)
        if script == IN_MID_STREAM:
            await house.upstream.wait_for(lambda u: u.requests[-1].tokens_sent == 5)
            if stream:
                await reader.readuntil(b"response.output_text.delta")
    await house.aborted()
    await house.empty()
    assert house.watcher.turns[-1].outcome == "cancelled"


async def test_a_vanished_client_evicts_nothing_and_its_stored_chain_goes_on(house: House) -> None:
    async with house.connect() as client:
        first = await client.says("one")
        await client.create([user(IN_MID_STREAM)], previous_response_id=first.id)
        await client.until("response.output_text.delta")
        client.vanish(reset=True)
        await house.aborted()
    async with house.connect() as client:
        await client.says("two", previous_response_id=first.id)


async def test_a_hundred_turns_on_one_socket(house: House, client: WireClient) -> None:
    previous = None
    for number in range(100):
        previous = (await client.says(str(number), store=False, previous_response_id=previous)).id
    assert len(house.said()) == 199
    # One connection for the list of models and all the turns.
    assert house.upstream.connections <= 2


async def test_fifty_sockets_at_once(house: House) -> None:
    async def one(number: int) -> None:
        async with house.connect(f"client-{number % 5}") as client:
            first = await client.says(f"hello {number}", store=False)
            second = await client.says(f"bye {number}", store=False, previous_response_id=first.id)
            assert second.kind == "response.completed"

    async with asyncio.TaskGroup() as group:
        for number in range(50):
            group.create_task(one(number))
    assert len(house.watcher.turns) == 100
    assert {turn.outcome for turn in house.watcher.turns} == {"completed"}


async def test_a_ping_is_answered_while_a_turn_runs(client: WireClient) -> None:
    await client.create([user(IN_MID_STREAM)])
    await client.until("response.output_text.delta")
    for _ in range(3):
        async with asyncio.timeout(1):
            await (await client.connection.ping())


async def test_a_ping_is_answered_while_the_upstream_is_silent(house: House, client: WireClient) -> None:
    await client.create([user(BEFORE_FIRST_TOKEN)])
    await asked(house)
    async with asyncio.timeout(1):
        await (await client.connection.ping())


async def test_pings_keep_coming_from_the_server() -> None:
    async with open_house("chat", {"server.ping_interval_s": 0.05}) as house, house.connect() as client:
        # The client's library answers them; a server whose pings go unanswered would close.
        await client.create([user("[[stall 1]]")])
        await client.until("response.output_text.delta")
        started = time.monotonic()
        async with asyncio.timeout(2):
            while time.monotonic() - started < 0.3:
                await (await client.connection.ping())
        assert house.left() == (1, 1, 1)
