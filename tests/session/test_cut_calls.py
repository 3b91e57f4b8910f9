"""A call that was cut by length: clients that answer it all the same are understood, and others can go on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.house import BEARER, House, open_house
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


@pytest.mark.parametrize("sent_again", [False, True], ids=["answered", "sent again and answered"])
async def test_a_cut_call_is_listed_once_where_it_was_made(sent_again: bool) -> None:
    async with open_house("chat") as house, house.connect() as client:
        first = await client.turn(CUT, tools=TOOLS, max_output_tokens=3)
        call = first.output[-1]
        again = [call] if sent_again else []
        delta = [user("Well?"), *again, tool_output(call["call_id"], "no such city")]
        second = await client.turn(delta, tools=TOOLS, previous_response_id=first.id)
        third = await client.says("More.", tools=TOOLS, previous_response_id=second.id)
        assert (second.kind, third.kind) == ("response.completed", "response.completed")
        last = second.output[-1]["id"]
        for response, tail in ((second, []), (third, [last, '[[say "More."]]'])):
            whole = [CUT, call["id"], "Well?", call["call_id"], *tail]
            assert await listed(house, response.id, "order=asc") == whole
            assert await listed(house, response.id, "order=desc") == whole[::-1]
            paged = []
            after = ""
            for _ in whole:
                page = await show(house, response.id, f"order=asc&limit=1{after}")
                paged += [told(item) for item in page["data"]]
                after = f"&after={page['last_id']}"
            assert (paged, page["has_more"]) == (whole, False)


async def show(house: House, response: str, query: str) -> dict[str, Any]:
    """A page of a response's input items."""
    url = f"{house.url}/responses/{response}/input_items?{query}"
    async with house.http.get(url, headers=BEARER) as answer:
        page: dict[str, Any] = await answer.json()
        return page


async def listed(house: House, response: str, query: str) -> list[str]:
    """What each of the items is known by."""
    return [told(item) for item in (await show(house, response, query))["data"]]


def told(item: dict[str, Any]) -> str:
    """A user's text, the call that an output answers, the id of anything else."""
    if item["type"] == "function_call_output":
        return str(item["call_id"])
    return str(item["content"][0]["text"] if item.get("role") == "user" else item["id"])
