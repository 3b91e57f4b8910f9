"""`item_reference`: what a client names instead of sending it again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.house import House, open_house
from tests.integration.test_stored import OTHER, ask, make
from tests.wire_client import WireClient, function, tool_output, user

CAPTURED = Path(__file__).parents[1] / "golden" / "captured" / "requests" / "vercel-item-reference.json"
CALL = '[[think "Hm."]] [[say "I look."]] [[call get_weather {"city": "Oslo"}]] [[then]] [[say "Sunny."]]'


def refer(item: dict[str, Any] | str) -> dict[str, str]:
    """A reference to an item."""
    return {"type": "item_reference", "id": item if isinstance(item, str) else item["id"]}


async def test_a_history_of_references_is_the_history(house: House) -> None:
    made = await make(house, CALL, tools=[function()])
    items = made["output"]
    call = items[-1]
    assert call["type"] == "function_call"
    history = [user(CALL), *map(refer, items), tool_output(call["call_id"], "sunny")]
    done = await make(house, history, tools=[function()])  # type: ignore[arg-type]
    by_reference = house.asked()
    await make(house, [user(CALL), *items, tool_output(call["call_id"], "sunny")], tools=[function()])  # type: ignore[arg-type]
    assert house.asked() == by_reference
    assert done["output"][0]["content"][0]["text"] == "Sunny."
    _, listed = await ask(house, "GET", f"{done['id']}/input_items?order=asc")
    assert [item["id"] for item in listed["data"][1:-1]] == [item["id"] for item in items]


async def test_a_reference_works_on_a_websocket(house: House, client: WireClient) -> None:
    stored = await client.turn(input='[[say "Kept."]]', store=True)
    await client.turn(input=[refer(stored.output[0]), user("[[say 1]]")], store=False)
    assert house.said()[0] == "Kept."


async def test_what_the_conversation_holds_already_stands_there_once(house: House) -> None:
    first = await make(house, '[[say "Once."]]')
    await make(house, [refer(first["output"][0]), user("[[say 1]]")], previous_response_id=first["id"])  # type: ignore[arg-type]
    assert house.said().count("Once.") == 1
    mine = {**user("[[say 1]]"), "id": "msg_mine"}
    second = await make(house, [mine])  # type: ignore[arg-type]
    await make(house, [refer("msg_mine"), user("two")], previous_response_id=second["id"])  # type: ignore[arg-type]
    assert house.said().count("[[say 1]]") == 1


async def test_an_item_that_was_listed_can_be_referred_to(house: House) -> None:
    made = await make(house, 'listed [[say "x"]]')
    _, listed = await ask(house, "GET", f"{made['id']}/input_items")
    await make(house, [refer(listed["data"][0])])  # type: ignore[arg-type]
    assert house.said() == ['listed [[say "x"]]']


async def test_what_is_not_there_is_named_with_its_place(house: House, client: WireClient) -> None:
    unstored = (await client.turn(input="[[say 1]]", store=False)).output[0]["id"]
    deleted = await make(house)
    await ask(house, "DELETE", deleted["id"])
    before = len(house.upstream.requests)
    for name in (unstored, deleted["output"][0]["id"], "rs_000000000000000000000002", "msg_" + "0" * 36):
        async with house.post({"input": [user("x"), refer(name)]}) as response:
            error = (await response.json())["error"]
            assert response.status == 400
            assert error["message"].startswith(f"Item with id '{name}' not found.")
            assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", "input[1]", None)
        turn = await client.turn(input=[refer(name)])
        assert turn.error["param"] == "input[0]"
    made = await make(house)
    async with house.post({"input": [refer(made["output"][0])]}, headers=OTHER) as response:
        assert response.status == 400
    assert len(house.upstream.requests) == before + 1


@pytest.mark.parametrize("dialect", ["chat"])
async def test_many_references_to_much_are_too_much(dialect: str) -> None:
    async with open_house(dialect, {"limits.history_bytes": 1_000_000}) as house:
        made = await make(house, f'[[say "{"x" * 50_000}"]]')
        async with house.post({"input": [refer(made["output"][0])] * 100}) as response:
            error = (await response.json())["error"]
            assert error["code"] == "context_length_exceeded"


async def test_what_vercels_sdk_sends_is_resolved(house: House) -> None:
    thought = await make(house, '[[think "Paris first."]] [[say "x"]]')
    assert thought["output"][0]["type"] == "reasoning"
    sent = json.loads(CAPTURED.read_text())
    for item in sent["input"]:
        if item.get("type") == "item_reference":
            item["id"] = thought["output"][0]["id"]
    async with house.post({**sent, "stream": False, "model": "simulated"}) as response:
        assert response.status == 200
    assert "Paris first." in json.dumps(house.asked())


async def test_ids_of_an_upstream_are_found_too() -> None:
    async with open_house("responses") as house:
        made = await make(house, '[[say "Theirs."]]')
        item = made["output"][0]
        await make(house, [refer(item), user("[[say 1]]")])  # type: ignore[arg-type]
        assert house.said()[0] == "Theirs."
        await ask(house, "DELETE", made["id"])
        async with house.post({"input": [refer(item)]}) as response:
            assert response.status == 400
