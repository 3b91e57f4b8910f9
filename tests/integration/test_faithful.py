"""A faithful Responses upstream over sockets: a Loopline, of whose events all but deltas begin with type and number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from unittest.mock import patch

import pytest

from proxy.translate.responses.events import Event
from proxy.translate.responses.passing import Passed
from tests.house import house_before, open_house
from tests.lane_client import LaneClient
from tests.wire_client import WireClient, function, tool_output, user

FAITHFUL = {"endpoints[0].faithful": True}
OF_ITEMS = (".added", ".done")


async def conversation(client: WireClient) -> None:
    """Turns of every kind of item, each held to the contract by the client."""
    seal = {"include": ["reasoning.encrypted_content"]}
    first = await client.turn([user('[[think 5]] [[say "é } \\"stream_id\\" "]] [[say 20]]')], **seal)
    asked = await client.turn(
        [user('[[call get_weather {"city": "Paris"}]]')], previous_response_id=first.id, tools=[function()]
    )
    outputs = [tool_output(call["call_id"], "sunny") for call in asked.calls]
    said = await client.turn([*outputs, user("[[say 150]]")], previous_response_id=asked.id)
    assert [turn.kind for turn in (first, asked, said)] == ["response.completed"] * 3
    assert (len(asked.calls), '"stream_id"' in first.text) == (1, True)
    refused = await client.turn([user("[[refuse 5]]")])
    assert refused.output[0]["content"][0]["type"] == "refusal"
    assert (await client.turn([user("[[say 9]] [[drop 5]]")])).kind == "response.failed"
    assert (await client.turn([user("[[say 99]]")], max_output_tokens=20)).kind == "response.incomplete"


async def lanes(client: WireClient) -> None:
    both = LaneClient(client)
    for lane in ("a", "b"):
        await both.say(lane, f"{lane} said }} and more")
    assert [(await both.result(lane)).text for lane in ("a", "b")] == ["a said } and more", "b said } and more"]


@pytest.mark.parametrize("talk", [conversation, lanes])
async def test_items_and_parts_of_a_faithful_server_are_not_decoded_and_arrive_whole(
    talk: Callable[[WireClient], Awaitable[None]],
) -> None:
    decoded: Counter[str] = Counter()
    take = Passed.take

    def counted(passed: Passed, event: Event, payload: bytes) -> None:
        decoded[event.type] += event.type.endswith(OF_ITEMS)
        take(passed, event, payload)

    async with open_house("chat") as behind, house_before(behind.url, "responses", FAITHFUL, None) as house:
        with patch.object(Passed, "take", counted):
            async with house.connect() as client:
                await talk(client)
    assert +decoded == Counter()
