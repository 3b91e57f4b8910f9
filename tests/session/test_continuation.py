"""`previous_response_id`: what is found where, what the upstream is sent, and what a failure evicts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.house import BEARER, House
from tests.wire_client import Recorded, WireClient, function, tool_output, user

CALL = '[[call get_weather {"city": "Paris"}]] [[then]] [[say "Sunny."]]'


def assert_not_found(recorded: Recorded, response: str) -> None:
    """The exact error that clients recover from."""
    assert recorded.kinds == ["error"]
    error = recorded.events[0]
    assert error["status"] == 400
    assert error["error"] == {
        "type": "invalid_request_error",
        "code": "previous_response_not_found",
        "message": f"Previous response with id '{response}' not found.",
        "param": "previous_response_id",
    }


async def post(house: House, body: dict[str, Any], token: str = "test") -> tuple[int, dict[str, Any]]:
    """A turn by HTTP: status and document."""
    async with house.post(body, headers={"Authorization": f"Bearer {token}"}) as response:
        return response.status, await response.json()


@pytest.mark.parametrize("store", [True, False])
async def test_a_continuation_sends_the_upstream_the_whole_conversation(store: bool, house: House) -> None:
    async with house.connect() as client:
        first = await client.says("one", store=store)
        second = await client.says("two", store=store, previous_response_id=first.id)
        await client.says("three", store=store, previous_response_id=second.id)
    assert house.said() == ['[[say "one"]]', "one", '[[say "two"]]', "two", '[[say "three"]]']


async def test_a_stored_response_is_found_on_another_socket_and_over_http(house: House) -> None:
    async with house.connect() as client:
        first = await client.says("one")
    async with house.connect() as client:
        await client.says("two", previous_response_id=first.id)
    assert house.said()[:2] == ['[[say "one"]]', "one"]
    status, document = await post(house, {"input": "[[say 2]]", "previous_response_id": first.id})
    assert status == 200
    assert house.said()[:2] == ['[[say "one"]]', "one"]
    async with house.connect() as client:
        await client.says("four", previous_response_id=document["id"])
    assert len(house.said()) == 5


async def test_an_unstored_response_is_found_on_its_own_socket_alone(house: House) -> None:
    async with house.connect() as client, house.connect() as other:
        first = await client.says("one", store=False)
        assert_not_found(await other.turn("two", previous_response_id=first.id), first.id)
        await other.works()
        status, document = await post(house, {"input": "two", "previous_response_id": first.id})
        assert (status, document["error"]["code"]) == (400, "previous_response_not_found")
        await client.says("two", store=False, previous_response_id=first.id)


async def test_an_unstored_response_by_http_is_found_nowhere(house: House, client: WireClient) -> None:
    status, document = await post(house, {"input": "[[say 2]]", "store": False})
    assert status == 200
    assert_not_found(await client.turn("two", previous_response_id=document["id"]), document["id"])


@pytest.mark.parametrize("response", ["resp_unknown", "", "x" * 5000, "chatcmpl-1", "résp_ü"])
async def test_an_unknown_id_is_not_found_and_the_socket_goes_on(response: str, client: WireClient) -> None:
    assert_not_found(await client.turn("hello", previous_response_id=response), response)
    await client.works()


async def test_an_unknown_id_over_http(house: House) -> None:
    for stream in (True, False):
        status, document = await post(house, {"input": "x", "previous_response_id": "resp_no", "stream": stream})
        assert status == 400
        assert document["error"]["code"] == "previous_response_not_found"
        assert document["error"]["param"] == "previous_response_id"
    assert not house.upstream.requests


async def test_another_tenants_id_is_as_unknown_as_any(house: House) -> None:
    async with house.connect("alice") as alice, house.connect("mallory") as mallory:
        first = await alice.says("my secret")
        assert_not_found(await mallory.turn("hello", previous_response_id=first.id), first.id)
        await mallory.works()
        status, document = await post(house, {"input": "x", "previous_response_id": first.id}, token="mallory")
        assert (status, document["error"]["code"]) == (400, "previous_response_not_found")
        # The attempt has changed nothing for its owner.
        await alice.says("two", previous_response_id=first.id)


@pytest.mark.parametrize("header", ["OpenAI-Organization", "OpenAI-Project"])
async def test_another_organization_or_project_is_another_tenant(header: str, house: House) -> None:
    async with house.connect(headers={header: "a"}) as a, house.connect(headers={header: "b"}) as b:
        first = await a.says("one")
        assert_not_found(await b.turn("two", previous_response_id=first.id), first.id)


async def test_an_older_unstored_response_misses_once_the_lane_has_advanced(client: WireClient) -> None:
    first = await client.says("one", store=False)
    second = await client.says("two", store=False, previous_response_id=first.id)
    assert_not_found(await client.turn("again", store=False, previous_response_id=first.id), first.id)
    # The miss was about another response: the latest stays.
    await client.says("three", store=False, previous_response_id=second.id)


async def test_an_older_stored_response_can_be_continued_again(house: House, client: WireClient) -> None:
    first = await client.says("one")
    await client.says("two", previous_response_id=first.id)
    await client.says("other", previous_response_id=first.id)
    assert house.said() == ['[[say "one"]]', "one", '[[say "other"]]']


@pytest.mark.parametrize("failure", ["unknown call", "upstream 500", "upstream 400", "cut off", "connection lost"])
async def test_a_failed_continuation_evicts_an_unstored_parent(failure: str, client: WireClient) -> None:
    first = await client.says("one", store=False)
    failed = await client.turn(_failing(failure), store=False, previous_response_id=first.id)
    assert failed.kind in ("error", "response.failed")
    assert_not_found(await client.turn("again", store=False, previous_response_id=first.id), first.id)
    await client.works()


@pytest.mark.parametrize("failure", ["unknown call", "upstream 500"])
async def test_a_failed_continuation_leaves_a_stored_parent_in_the_store(failure: str, client: WireClient) -> None:
    first = await client.says("one")
    await client.turn(_failing(failure), previous_response_id=first.id)
    await client.says("again", previous_response_id=first.id)


async def test_a_failed_fresh_turn_evicts_nothing(client: WireClient) -> None:
    first = await client.says("one", store=False)
    failed = await client.turn("[[fail 500]]", store=False)
    assert failed.kind == "error"
    await client.says("two", store=False, previous_response_id=first.id)


async def test_a_cut_by_length_evicts_nothing_and_can_be_continued(client: WireClient) -> None:
    first = await client.says("one", store=False)
    cut = await client.turn("[[length 3]]", store=False, previous_response_id=first.id)
    assert cut.kind == "response.incomplete"
    await client.says("two", store=False, previous_response_id=cut.id)


def _failing(failure: str) -> list[dict[str, Any]]:
    scripts = {
        "upstream 500": "[[fail 500]]",
        "upstream 400": "[[fail 400]]",
        "cut off": "[[eof 3]]",
        "connection lost": "[[drop 3]]",
    }
    return [tool_output("call_unknown", "x")] if failure == "unknown call" else [user(scripts[failure])]


# --- Warm-up ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", [True, False])
async def test_a_warm_up_asks_no_upstream_and_can_be_continued(store: bool, house: House) -> None:
    async with house.connect() as client:
        warm = await client.turn(
            [{"type": "message", "role": "developer", "content": "Work well."}],
            generate=False,
            store=store,
            tools=[function()],
        )
        assert warm.kinds == ["response.created", "response.in_progress", "response.completed"]
        assert warm.output == []
        assert not house.upstream.requests
        await client.says("one", store=store, previous_response_id=warm.id)
    assert house.said() == ["Work well.", '[[say "one"]]']


async def test_a_warm_up_without_input_can_be_continued(house: House, client: WireClient) -> None:
    warm = await client.turn(generate=False, store=False, instructions="Only for the warm-up.")
    assert warm.kind == "response.completed"
    await client.says("one", store=False, previous_response_id=warm.id)
    assert house.said() == ['[[say "one"]]']


async def test_a_prewarm_option_is_a_warm_up(house: House, client: WireClient) -> None:
    warm = await client.turn("hello", prompt_cache_options={"prewarm": True}, store=False)
    assert warm.output == []
    assert not house.upstream.requests


async def test_a_warm_up_may_continue_a_conversation(house: House, client: WireClient) -> None:
    first = await client.says("one", store=False)
    warm = await client.turn([user("ready?")], generate=False, store=False, previous_response_id=first.id)
    await client.says("two", store=False, previous_response_id=warm.id)
    assert house.said() == ['[[say "one"]]', "one", "ready?", '[[say "two"]]']


# --- What a chain holds, and what it does not ------------------------------------------------------------------------


@pytest.mark.parametrize("store", [True, False])
async def test_forty_turns_deep_the_upstream_gets_everything_in_order(store: bool, house: House) -> None:
    expected: list[str] = []
    parent: str | None = None
    async with house.connect() as client:
        for number in range(40):
            recorded = await client.says(f"answer {number}", store=store, previous_response_id=parent)
            parent = recorded.id
            assert house.said() == [*expected, f'[[say "answer {number}"]]']
            expected += [f'[[say "answer {number}"]]', f"answer {number}"]


async def test_calls_and_their_outputs_stay_in_the_history(house: House, client: WireClient) -> None:
    tools = [function()]
    first = await client.turn([user(CALL)], tools=tools)
    second = await client.turn(
        [tool_output(first.calls[0]["call_id"], "18 degrees")], tools=tools, previous_response_id=first.id
    )
    assert second.text == "Sunny."
    await client.says("Thanks.", tools=tools, previous_response_id=second.id)
    assert house.said() == [CALL, '{"city": "Paris"}', "18 degrees", "Sunny.", '[[say "Thanks."]]']


async def test_instructions_belong_to_their_own_turn(house: House, client: WireClient) -> None:
    first = await client.says("one", instructions="First rule.")
    assert house.said()[0] == "First rule."
    second = await client.says("two", instructions="Second rule.", previous_response_id=first.id)
    assert house.said() == ["Second rule.", '[[say "one"]]', "one", '[[say "two"]]']
    await client.says("three", previous_response_id=second.id)
    assert not any("rule" in text for text in house.said())


async def test_tools_and_sampling_come_from_the_present_turn(house: House, client: WireClient) -> None:
    first = await client.says("one", tools=[function("first")], temperature=0.25, tool_choice="auto")
    assert house.upstream.requests[-1].body["temperature"] == 0.25
    assert "first" in json.dumps(house.upstream.requests[-1].body["tools"])
    second = await client.says("two", tools=[function("second")], previous_response_id=first.id)
    body = house.upstream.requests[-1].body
    assert "second" in json.dumps(body["tools"])
    assert "first" not in json.dumps(body["tools"])
    assert "temperature" not in body
    await client.says("three", previous_response_id=second.id)
    assert not house.upstream.requests[-1].body.get("tools")


async def test_another_conversation_on_the_socket_starts_empty(house: House, client: WireClient) -> None:
    await client.says("one")
    await client.says("two")
    assert house.said() == ['[[say "two"]]']


# --- Pairing of calls and outputs, before the upstream is asked ------------------------------------------------------


async def test_an_output_for_an_unknown_call_is_refused_before_the_upstream(house: House, client: WireClient) -> None:
    recorded = await client.turn([user("hello"), tool_output("call_unknown", "x")])
    assert recorded.error["error"] == {
        "type": "invalid_request_error",
        "code": None,
        "message": "No tool call found for function call output with call_id call_unknown.",
        "param": "input",
    }
    assert recorded.error["status"] == 400
    assert not house.upstream.requests
    await client.works()


async def test_a_call_without_its_output_is_refused_before_the_upstream(house: House, client: WireClient) -> None:
    first = await client.turn([user(CALL)], tools=[function()])
    call_id = first.calls[0]["call_id"]
    asked = len(house.upstream.requests)
    recorded = await client.turn([user("never mind")], previous_response_id=first.id)
    assert recorded.error["message"] == f"No tool output found for function call {call_id}."
    assert (recorded.error["status"], recorded.error["param"]) == (400, "input")
    assert len(house.upstream.requests) == asked


async def test_one_of_two_parallel_outputs_is_not_enough_and_both_are(house: House) -> None:
    script = '[[call get_weather {"city": "Oslo"}]] [[call get_weather {"city": "Rome"}]] [[then]] [[say "Both."]]'
    async with house.connect() as client:
        first = await client.turn([user(script)], tools=[function()])
        oslo, rome = (call["call_id"] for call in first.calls)
        missing = await client.turn([tool_output(oslo, "cold")], tools=[function()], previous_response_id=first.id)
        assert missing.error["message"] == f"No tool output found for function call {rome}."
        both = await client.turn(
            [tool_output(rome, "warm"), tool_output(oslo, "cold")], tools=[function()], previous_response_id=first.id
        )
        assert both.text == "Both."


async def test_a_full_history_with_its_calls_pairs_within_itself(client: WireClient) -> None:
    call = {"type": "function_call", "call_id": "call_1", "name": "get_weather", "arguments": "{}"}
    recorded = await client.turn(
        [user('[[call get_weather {}]] [[then]] [[say "Fine."]]'), call, tool_output("call_1", "ok")],
        tools=[function()],
    )
    assert recorded.text == "Fine."


async def test_pairing_is_checked_over_http_too(house: House) -> None:
    body = json.dumps({"model": "simulated", "input": [tool_output("call_no", "x")]})
    headers = {**BEARER, "Content-Type": "application/json"}
    async with house.http.post(f"{house.url}/responses", data=body, headers=headers) as response:
        assert response.status == 400
        document = await response.json()
    assert document["error"]["message"] == "No tool call found for function call output with call_id call_no."
