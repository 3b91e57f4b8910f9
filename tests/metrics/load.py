"""A little of everything that is counted: turns that end in every way, over both transports, limits, odd requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.house import BEARER, House, open_house
from tests.session.steered import CALL, begin, finish, steer
from tests.wire_client import WireClient, function, tool_output, user

TURNS = 3  # of one client at once
SEARCH = {"type": "web_search"}  # what a chat server cannot be told


@asynccontextmanager
async def loaded_house() -> AsyncIterator[House]:
    """A server before a simulated chat upstream, with a limit that is easy to hit."""
    async with open_house("chat", {"access.turns": TURNS}) as house:
        yield house


async def everything(house: House) -> None:
    """One round of all of it; every client is gone at the end."""
    async with house.connect("agent") as client:
        await _agent_loop(client)
        await _other_ends(client)
    async with house.connect("steerer") as client:
        heard = await begin(client, "[[stall 3]]")
        await steer(client, heard.id, '[[say "Shorter."]]')
        await finish(client, heard)
        await finish(client)
    async with house.connect("leaver") as client:
        await begin(client, "[[stall 2]]")
    await _too_many(house)
    await _http(house)
    await _unreadable(house)
    await house.empty()


async def _agent_loop(client: WireClient) -> None:
    await client.turn([user("hello")], generate=False)
    tools = [function(), SEARCH]
    turn = first = await client.turn([user(f"{CALL}[[then]]{CALL}[[then]][[say 20]]")], tools=tools)
    while turn.calls:
        outputs = [tool_output(call["call_id"], "sunny") for call in turn.calls]
        turn = await client.turn(outputs, previous_response_id=turn.id, tools=tools)
    assert turn.kind == "response.completed"
    turn = await client.says("more", previous_response_id=turn.id)
    outputs = [tool_output(call["call_id"], "rain") for call in first.calls]
    fork = await client.turn(outputs, previous_response_id=first.id, tools=tools, instructions="Be brief.")
    assert fork.kind == "response.completed"


async def _other_ends(client: WireClient) -> None:
    ends = {
        "[[length 3]]": "response.incomplete",
        "[[drop 3]]": "response.failed",
        "[[fail 500]]": "error",
        "[[fail 429]]": "error",
    }
    for script, kind in ends.items():
        assert (await client.turn([user(script)])).kind == kind
    assert (await client.turn([user("x")], previous_response_id="resp_unknown")).kind == "error"
    await begin(client, "[[stall 2]]")
    await client.send({"type": "response.cancel"})
    await client.until_ended()


async def _too_many(house: House) -> None:
    async with house.connect("many") as client, house.connect("many") as second:
        for lane in range(TURNS):
            await client.create([user("[[stall 1]]")], stream_id=f"lane-{lane}")
        async with asyncio.timeout(5):
            while len(house.server.registry) < TURNS:
                await client.event()
        assert (await second.turn([user("x")])).error["code"] == "rate_limit_exceeded"


async def _http(house: House) -> None:
    for stream in (True, False):
        async with house.post({"input": "[[say 10]]", "stream": stream}) as response:
            assert response.status == 200
            await response.read()
    async with house.http.get(f"{house.url}/files", headers=BEARER) as response:
        assert response.status == 404, "passed on, and nothing there"


async def _unreadable(house: House) -> None:
    host, port = house.root.removeprefix("http://").rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"\x16\x03\x01 no HTTP\r\n\r\n")
    assert b"400" in await reader.read()
    writer.close()
    await writer.wait_closed()
