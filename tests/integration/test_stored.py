"""A response known by its id: shown, listed, deleted, and unknown to everybody else."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import pytest

from proxy.conversation import listing
from proxy.wire.items import Item, item_id
from tests.house import BEARER, House, open_house
from tests.wire_client import WireClient, function, tool_output, user

OTHER = {"Authorization": "Bearer another"}
NEVER = "resp_lp10000" + "ab12cd34" + "0" * 32


async def ask(
    house: House, method: str, path: str, headers: dict[str, str] | None = None, **options: Any
) -> tuple[int, Any]:
    """One request under `/responses`: its status and body."""
    url = f"{house.url}/responses/{path}"
    async with house.http.request(method, url, headers=headers or BEARER, **options) as response:
        return response.status, json.loads(await response.read())


async def make(house: House, text: str = '[[say "Hello."]]', **members: Any) -> dict[str, Any]:
    """A response by HTTP."""
    async with house.post({"input": text, **members}) as response:
        assert response.status == 200, await response.text()
        made: dict[str, Any] = await response.json()
        return made


async def test_a_response_is_shown_as_its_terminal_event_held_it(client: WireClient, house: House) -> None:
    turn = await client.turn(
        input='x [[think "Hm."]] [[say "It is."]] [[call get_weather {"city": "Oslo"}]]',
        instructions="Be brief.",
        tools=[function()],
        metadata={"a": "b"},
        temperature=0.5,
        text={"format": {"type": "json_object"}},
        include=["reasoning.encrypted_content"],
        store=True,
    )
    assert [item["type"] for item in turn.output][-1] == "function_call"
    assert await ask(house, "GET", turn.id) == (200, turn.response)
    answered = await client.turn(
        input=[tool_output(turn.calls[0]["call_id"], "sunny"), user('[[say "Done."]]')], previous_response_id=turn.id
    )
    for each in (answered, turn):
        assert (await ask(house, "GET", each.id))[1] == each.response


@pytest.mark.parametrize("members", [{"generate": False}, {"max_output_tokens": 3}])
async def test_a_warm_up_and_a_cut_answer_are_shown_too(members: dict[str, Any], house: House) -> None:
    made = await make(house, "[[say 9]]", **members)
    status, shown = await ask(house, "GET", made["id"])
    assert status == 200
    assert shown == made


async def test_what_is_not_the_callers_was_not_stored_or_never_was_is_unknown_alike(
    house: House, client: WireClient
) -> None:
    unstored = (await client.says("[[say 1]]", store=False)).id
    deleted, theirs = (await make(house))["id"], (await make(house))["id"]
    assert (await ask(house, "DELETE", deleted))[0] == 200
    answers = []
    for name, headers in (
        (unstored, BEARER), (deleted, BEARER), (theirs, OTHER), (NEVER, BEARER), ("resp_foreign", BEARER)
    ):  # fmt: skip
        for method, path in (("GET", ""), ("GET", "/input_items"), ("POST", "/cancel"), ("DELETE", "")):
            status, body = await ask(house, method, name + path, headers)
            assert status == 404
            assert body["error"].keys() == {"message", "type", "param", "code"}
            answers.append(json.dumps(body).replace(name, "ID"))
    assert len(set(answers)) == 1
    assert (await ask(house, "GET", theirs))[0] == 200


@pytest.mark.parametrize("query", ["stream=true", "starting_after=3"])
async def test_a_stream_of_what_was_begun_is_refused_by_name(query: str, house: House) -> None:
    made = await make(house)
    status, body = await ask(house, "GET", f"{made['id']}?{query}")
    assert status == 400
    assert body["error"]["param"] == query.split("=")[0]
    assert (await ask(house, "GET", f"{made['id']}?include=reasoning.encrypted_content&stream=false"))[0] == 200


async def test_a_deleted_response_is_hidden_at_once_and_what_continues_it_goes_on(house: House) -> None:
    first = await make(house, 'remember this [[say "I do."]]')
    second = await make(house, "and more [[say 1]]", previous_response_id=first["id"])
    assert await ask(house, "DELETE", first["id"]) == (
        200, {"id": first["id"], "object": "response.deleted", "deleted": True}
    )  # fmt: skip
    assert (await ask(house, "DELETE", first["id"]))[0] == 404
    async with house.post({"input": "x", "previous_response_id": first["id"]}) as response:
        assert (response.status, (await response.json())["error"]["code"]) == (400, "previous_response_not_found")
    await make(house, "third [[say 1]]", previous_response_id=second["id"])
    assert house.said()[:2] == ['remember this [[say "I do."]]', "I do."]
    listed = (await ask(house, "GET", f"{second['id']}/input_items?order=asc"))[1]
    assert [item["content"][0]["text"] for item in listed["data"]][:2] == ['remember this [[say "I do."]]', "I do."]


async def test_input_items_are_the_whole_context_and_their_ids_stay(house: House) -> None:
    first = await make(house, 'one [[say "two"]]')
    named = {"id": "msg_mine", "type": "message", "role": "user", "content": "[[say 1]]"}
    second = await make(house, [user("three"), named], previous_response_id=first["id"])  # type: ignore[arg-type]
    path = f"{second['id']}/input_items"
    _, asc = await ask(house, "GET", f"{path}?order=asc")
    assert [item["content"][0]["text"] for item in asc["data"]] == ['one [[say "two"]]', "two", "three", "[[say 1]]"]
    assert asc["object"] == "list"
    assert asc["has_more"] is False
    ids = [item["id"] for item in asc["data"]]
    assert ids[3] == "msg_mine"
    assert ids[1] == first["output"][0]["id"]
    assert len(set(ids)) == 4
    assert (asc["first_id"], asc["last_id"]) == (ids[0], ids[-1])
    assert all(item["status"] == "completed" for item in asc["data"])
    _, desc = await ask(house, "GET", path)
    assert [item["id"] for item in desc["data"]] == ids[::-1]
    _, again = await ask(house, "GET", f"{first['id']}/input_items")
    assert [item["id"] for item in again["data"]] == ids[:1]


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_pages_follow_each_other_without_gap_or_overlap(order: str, house: House) -> None:
    made = await make(house, [user(f"item {number}") for number in range(45)])  # type: ignore[arg-type]
    seen: list[str] = []
    after, sizes = "", []
    while True:
        _, page = await ask(house, "GET", f"{made['id']}/input_items?order={order}{after}")
        seen += [item["content"][0]["text"] for item in page["data"]]
        sizes.append(len(page["data"]))
        if not page["has_more"]:
            break
        after = f"&after={page['last_id']}"
    assert sizes == [20, 20, 5]
    numbers = range(45) if order == "asc" else range(44, -1, -1)
    assert seen == [f"item {number}" for number in numbers]
    _, exact = await ask(house, "GET", f"{made['id']}/input_items?limit=45")
    assert (len(exact["data"]), exact["has_more"]) == (45, False)
    _, beyond = await ask(house, "GET", f"{made['id']}/input_items?after={exact['last_id']}")
    assert beyond == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "limit=-1", "order=up", "after=msg_nobody"])
async def test_what_no_page_can_be_is_refused_by_name(query: str, house: House) -> None:
    made = await make(house)
    status, body = await ask(house, "GET", f"{made['id']}/input_items?{query}")
    assert (status, body["error"]["param"]) == (400, query.split("=")[0])


@pytest.mark.parametrize("dialect", ["chat"])
async def test_a_long_conversation_holds_its_tools_and_instructions_once(dialect: str) -> None:
    tools = [function(f"tool_{number}", description={"text": "x" * 500}) for number in range(100)]
    async with open_house(dialect) as house:
        members: dict[str, Any] = {"tools": tools, "instructions": "y" * 50_000}
        made = await make(house, "[[say 1]]", **members)
        first_bytes = house.server.services.store.used_bytes()
        assert first_bytes > 100_000
        for _ in range(10):
            made = await make(house, "[[say 1]]", previous_response_id=made["id"], **members)
        assert house.server.services.store.used_bytes() - first_bytes < 10 * 6_000
        _, shown = await ask(house, "GET", made["id"])
        assert shown == made
        assert len(shown["tools"]) == 100


async def test_others_have_their_turn_while_an_item_is_looked_for(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A conversation may have hundreds of thousands of items, and reading costs no key anything."""
    many = [user(str(number)) for number in range(1200)]
    made = await make(house, [*many, user("[[say 1]]")])  # type: ignore[arg-type]
    looked = 0

    def counted(item: Item) -> str | None:
        nonlocal looked
        looked += 1
        return item_id(item)

    monkeypatch.setattr(listing, "item_id", counted)
    loop, seen = asyncio.get_running_loop(), [0]

    def look() -> None:
        seen.append(looked)
        looking[0] = loop.call_soon(look)

    looking = [loop.call_soon(look)]
    for order in ("asc", "desc"):
        status, told = await ask(house, "GET", f"{made['id']}/input_items?order={order}&after=nope")
        assert (status, told["error"]["param"]) == (400, "after")
    looking[0].cancel()
    assert looked == 2 * 1201
    assert max(after - before for before, after in itertools.pairwise(seen)) <= 501
