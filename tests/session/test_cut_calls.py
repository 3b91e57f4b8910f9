"""A call that was cut by length: clients that answer it all the same are understood, and others can go on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.house import House, open_house
from tests.wire_client import Recorded, WireClient, function, tool_output, user

CUT = '[[call get_weather {"city": "Paris on the Seine"}]]'
TOOLS = [function("get_weather")]


async def cut_call(client: WireClient) -> tuple[Recorded, dict[str, Any]]:
    """A turn that ends by length inside its call, and the call."""
    first = await client.turn(CUT, tools=TOOLS, store=False, max_output_tokens=3)
    assert (first.kind, first.output[-1]["status"]) == ("response.incomplete", "incomplete")
    return first, dict(first.output[-1])


def last_calls(house: House) -> list[tuple[str, str]]:
    """What role or type the entries of the last request have, and which call they are of."""
    found = []
    for entry in house.asked():
        for call in entry.get("tool_calls", ()):
            found.append(("call", call["id"]))
        if "tool_call_id" in entry:
            found.append(("output", entry["tool_call_id"]))
        if entry.get("type") in ("function_call", "function_call_output"):
            found.append((entry["type"].replace("function_call_", "").replace("function_", ""), entry["call_id"]))
    return found


@pytest.mark.parametrize("dialect", ["chat", "responses"])
async def test_an_output_of_a_cut_call_pairs_with_it_in_a_chain(dialect: str) -> None:
    async with open_house(dialect) as house, house.connect() as client:
        first, call = await cut_call(client)
        answered = await client.turn(
            [tool_output(call["call_id"], "no such city"), user('[[say "Sorry."]]')],
            tools=TOOLS,
            previous_response_id=first.id,
            store=False,
        )
        assert answered.text == "Sorry."
        assert last_calls(house) == [("call", call["call_id"]), ("output", call["call_id"])]
        again = await client.says("More.", tools=TOOLS, previous_response_id=answered.id, store=False)
        assert again.kind == "response.completed"
        assert last_calls(house) == [("call", call["call_id"]), ("output", call["call_id"])]


@pytest.mark.parametrize("dialect", ["chat", "responses"])
async def test_an_output_of_a_cut_call_pairs_with_it_in_a_full_resend(dialect: str) -> None:
    async with open_house(dialect) as house, house.connect() as client:
        _, call = await cut_call(client)
        resent = [user("go"), call, tool_output(call["call_id"], "no such city"), user('[[say "Sorry."]]')]
        answered = await client.turn(resent, tools=TOOLS, store=False)
        assert answered.text == "Sorry."
        assert last_calls(house) == [("call", call["call_id"]), ("output", call["call_id"])]


@pytest.mark.parametrize("dialect", ["chat", "responses"])
async def test_a_cut_call_that_nobody_answers_is_not_sent_again_and_that_is_said(dialect: str) -> None:
    async with open_house(dialect) as house, house.connect() as client:
        first, _ = await cut_call(client)
        second = await client.says("On we go.", tools=TOOLS, previous_response_id=first.id, store=False)
        assert second.text == "On we go."
        assert last_calls(house) == []
        assert ("item", "function_call") in {*house.watcher.turns[0].left_out, *house.watcher.turns[1].left_out}


async def test_an_output_of_a_call_that_never_was_is_still_refused() -> None:
    async with open_house("chat") as house, house.connect() as client:
        first, _ = await cut_call(client)
        refused = await client.turn([tool_output("call_unknown", "x")], previous_response_id=first.id, store=False)
        assert refused.kind == "error"
