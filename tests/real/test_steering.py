"""A real model in mid-sentence is steered: it stops, and its successor follows from what it had said."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from proxy.app import Loopline
from proxy.tools import embedded
from tests.session.steered import STEERED, Heard, finish, read, steer
from tests.wire_client import WireClient, open_socket, user

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
]

LONG = "Write a very long story about a lighthouse keeper, at least two thousand words."
DELTA = "response.output_text.delta"


async def tell_a_story(client: WireClient, **members: Any) -> Heard:
    """A long answer, some way into it."""
    await client.create([user(LONG)], model="any", max_output_tokens=300, temperature=0, **members)
    heard = Heard()
    while heard.order.count(DELTA) < 12:
        heard.add(await client.event())
    return heard


async def busy_slots(llama: embedded.Embedded) -> int:
    """What llama.cpp works on now."""
    async with aiohttp.ClientSession() as session, session.get(llama.url.removesuffix("/v1") + "/slots") as answer:
        return sum(slot["is_processing"] for slot in await answer.json())


@pytest.mark.parametrize("store", [True, False])
async def test_a_long_answer_is_steered_and_its_successor_follows(
    store: bool, server: Loopline, llama: embedded.Embedded
) -> None:
    async with open_socket(server.url) as client:
        heard = await tell_a_story(client, store=store)
        await steer(client, heard.id, "Stop the story. Answer with one word: which colour has grass?")
        heard = await finish(client, heard)
        assert [event["type"] for event in heard.told] == ["response.steer.accepted"]
        assert heard.turn.response["incomplete_details"] == STEERED
        assert heard.turn.text == heard.deltas
        assert 12 <= heard.order.count(DELTA) < 100, "it was not stopped in mid-sentence"

        successor = await finish(client)
        assert successor.turn.kind in ("response.completed", "response.incomplete")
        assert successor.turn.response["previous_response_id"] == heard.id
        assert successor.turn.text
        assert successor.turn.text == successor.deltas
    async with asyncio.timeout(5):
        while await busy_slots(llama):
            await asyncio.sleep(0.05)


async def test_the_successor_reads_what_was_said_and_the_conversation_goes_on(server: Loopline) -> None:
    async with open_socket(server.url) as client:
        heard = await tell_a_story(client, store=False)
        # The successor inherits the settings of the first, and is steered once more.
        await steer(client, heard.id, "Continue with the second chapter, and make it very long.")
        heard = await finish(client, heard)
        second = Heard()
        while second.order.count(DELTA) < 5:
            second.add(await client.event())
        assert second.turn.events[0]["response"]["previous_response_id"] == heard.id
        await steer(client, second.id, "Enough.")
        second = await finish(client, second)
        assert second.turn.response["incomplete_details"] == STEERED
        third = await read(client, until="response.in_progress")
        await client.send({"type": "response.cancel", "response_id": third.id})
        third = await finish(client, third)
        assert third.turn.response["status"] == "cancelled"

        # A cancelled continuation evicts nothing.
        await client.create(
            [user("Say hello.")], model="any", previous_response_id=second.id, max_output_tokens=8, store=False
        )
        last = await finish(client)
        assert last.turn.kind in ("response.completed", "response.incomplete")
        read_tokens = last.turn.response["usage"]["input_tokens"]
        assert read_tokens > heard.order.count(DELTA) + second.order.count(DELTA), "what was said is not in the prompt"
