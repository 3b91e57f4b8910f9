"""`background: true`: begun by one request, polled by others, cancelled by a third."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from proxy.tools.simulate import Options
from tests.conformance.schema import check_turn
from tests.house import BEARER, House, open_house
from tests.integration.test_stored import OTHER, ask, make
from tests.wire_client import WireClient

SLOW = Options(tokens_per_s=20.0)


async def poll(
    house: House, response: str, until: str, timeout_s: float = 10.0, headers: dict[str, str] | None = None
) -> dict[str, Any]:
    """Ask until the response has a status."""
    async with asyncio.timeout(timeout_s):
        while True:
            status, shown = await ask(house, "GET", response, headers)
            assert status == 200
            if shown["status"] == until:
                found: dict[str, Any] = shown
                return found
            assert shown["status"] in ("queued", "in_progress")
            await asyncio.sleep(0.01)


async def test_it_is_begun_polled_and_continued(house: House) -> None:
    begun = await make(house, '[[say "Here."]]', background=True)
    assert begun["status"] == "queued"
    assert begun["background"] is True
    assert begun["output"] == []
    whole = await poll(house, begun["id"], "completed")
    assert whole["output"][0]["content"][0]["text"] == "Here."
    assert whole["usage"]["output_tokens"] > 0
    assert {**whole, **{name: begun[name] for name in ("status", "output", "usage", "completed_at")}} == begun
    await make(house, "next [[say 1]]", previous_response_id=begun["id"])
    assert house.said()[1] == "Here."


@pytest.mark.parametrize("dialect", ["chat"])
async def test_it_is_in_progress_once_the_upstream_answers_and_lists_its_input(dialect: str) -> None:
    async with open_house(dialect, None, SLOW) as house:
        begun = await make(house, "[[say 100]]", background=True)
        await poll(house, begun["id"], "in_progress")
        _, listed = await ask(house, "GET", f"{begun['id']}/input_items")
        assert listed["data"][0]["content"] == [{"type": "input_text", "text": "[[say 100]]"}]
        for method, path in (("GET", ""), ("GET", "/input_items"), ("POST", "/cancel"), ("DELETE", "")):
            assert (await ask(house, method, begun["id"] + path, OTHER))[0] == 404
        status, cancelled = await ask(house, "POST", f"{begun['id']}/cancel")
        assert (status, cancelled["status"], cancelled["error"]) == (200, "cancelled", None)
        assert await ask(house, "POST", f"{begun['id']}/cancel") == (200, cancelled)
        assert await ask(house, "GET", begun["id"]) == (200, cancelled)
        await house.aborted()
        async with house.post({"input": "x", "previous_response_id": begun["id"]}) as response:
            assert (await response.json())["error"]["code"] == "previous_response_not_found"


async def test_what_was_not_begun_in_the_background_cannot_be_cancelled(house: House) -> None:
    made = await make(house)
    status, body = await ask(house, "POST", f"{made['id']}/cancel")
    assert (status, body["error"]["type"]) == (400, "invalid_request_error")
    assert "synchronous" in body["error"]["message"]
    done = await make(house, background=True)
    whole = await poll(house, done["id"], "completed")
    assert await ask(house, "POST", f"{done['id']}/cancel") == (200, whole)


@pytest.mark.parametrize("dialect", ["chat"])
async def test_one_that_is_deleted_while_it_runs_is_ended_and_hidden(dialect: str) -> None:
    async with open_house(dialect, None, SLOW) as house:
        begun = await make(house, "[[say 100]]", background=True)
        await poll(house, begun["id"], "in_progress")
        assert (await ask(house, "DELETE", begun["id"]))[0] == 200
        assert (await ask(house, "GET", begun["id"]))[0] == 404
        await house.aborted()
        await house.empty()


async def test_what_fails_is_found_failed(house: House) -> None:
    begun = await make(house, '[[fail 500 "It broke."]]', background=True)
    failed = await poll(house, begun["id"], "failed")
    assert failed["error"]["code"] == "server_error"
    assert "It broke." in failed["error"]["message"]
    _, listed = await ask(house, "GET", f"{begun['id']}/input_items")
    assert len(listed["data"]) == 1


async def test_an_answer_cut_by_length_is_found_incomplete(house: House) -> None:
    begun = await make(house, "[[say 9]]", background=True, max_output_tokens=3)
    cut = await poll(house, begun["id"], "incomplete")
    assert cut["incomplete_details"] == {"reason": "max_output_tokens"}


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"store": False}, "background"),
        ({"previous_response_id": "resp_none"}, "previous_response_id"),
        ({"temperature": "hot"}, "temperature"),
    ],
)
async def test_what_is_wrong_with_the_request_is_said_at_once(
    members: dict[str, Any], param: str, house: House
) -> None:
    async with house.post({"input": "x", "background": True, **members}) as response:
        assert (response.status, (await response.json())["error"]["param"]) == (400, param)


async def test_on_a_websocket_it_is_refused(client: WireClient) -> None:
    await client.create("x", background=True)
    error = (await client.answer())["error"]
    assert (error["code"], error["param"]) == ("unsupported_parameter", "background")
    assert "POST" in error["message"]


@pytest.mark.parametrize("dialect", ["chat"])
async def test_it_can_be_streamed_and_outlives_the_stream(dialect: str) -> None:
    async with open_house(dialect, None, Options(tokens_per_s=50.0)) as house:
        async with house.post({"input": "[[say 30]]", "background": True, "stream": True}) as response:
            line = (await response.content.readline()).decode()
            assert line == "event: response.created\n"
            begun = json.loads((await response.content.readline()).removeprefix(b"data: "))["response"]
            assert response.connection is not None
            response.connection.close()
        whole = await poll(house, begun["id"], "completed")
        assert len(whole["output"][0]["content"][0]["text"].split()) == 30


async def test_a_stream_read_to_its_end_holds_what_is_found(house: House) -> None:
    async with house.post({"input": "[[say 5]]", "background": True, "stream": True}) as response:
        lines = (await response.text()).splitlines()
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    check_turn(events)
    assert (await ask(house, "GET", events[-1]["response"]["id"]))[1] == events[-1]["response"]


async def replay(house: House, response: str, query: str = "") -> list[dict[str, Any]]:
    """The events of a response that was begun already, from a stream with its end."""
    url = f"{house.url}/responses/{response}?stream=true{query}"
    async with house.http.get(url, headers=BEARER) as answer:
        assert (answer.status, answer.content_type) == (200, "text/event-stream")
        *frames, done, rest = (await answer.text()).split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    return [json.loads(frame.partition("\ndata: ")[2]) for frame in frames]


@pytest.mark.parametrize(("dialect", "faithful"), [("chat", False), ("responses", False), ("responses", True)])
async def test_a_client_that_lost_its_stream_comes_back_for_the_rest(dialect: str, faithful: bool) -> None:
    async with open_house(dialect, {"endpoints[0].faithful": faithful}, SLOW) as house:
        seen = []
        async with house.post({"input": "[[say 12]]", "background": True, "stream": True}) as response:
            async for line in response.content:
                if line.startswith(b"data: "):
                    seen.append(json.loads(line.removeprefix(b"data: ")))
                if len(seen) == 6:
                    break
        begun, last = seen[0]["response"]["id"], seen[-1]["sequence_number"]
        while_it_runs = await replay(house, begun, f"&starting_after={last}")
        assert len(house.watcher.turns) == 1
        check_turn(seen + while_it_runs)
        whole = await replay(house, begun)
        assert whole == seen + while_it_runs
        assert [event["sequence_number"] for event in whole] == list(range(len(whole)))
        assert (await ask(house, "GET", begun))[1] == whole[-1]["response"]
        assert await replay(house, begun, f"&starting_after={len(whole) - 1}") == []
        assert (await ask(house, "GET", f"{begun}?stream=true", OTHER))[0] == 404
        for query, param in (
            ("stream=true&starting_after=-1", "starting_after"),
            ("starting_after=1", "starting_after"),
        ):
            status, body = await ask(house, "GET", f"{begun}?{query}")
            assert (status, body["error"]["param"]) == (400, param)
        assert (await ask(house, "DELETE", begun))[0] == 200
        assert (await ask(house, "GET", f"{begun}?stream=true"))[0] == 404
        assert house.server.gate.accounts.whole.budget.used == 0


@pytest.mark.parametrize("dialect", ["chat"])
async def test_several_follow_one_and_one_that_leaves_ends_nothing(dialect: str) -> None:
    async with open_house(dialect, None, SLOW) as house:
        async with house.post({"input": "[[say 12]]", "background": True, "stream": True}) as response:
            line = await response.content.readline()
            assert line == b"event: response.created\n"
            begun = json.loads((await response.content.readline()).removeprefix(b"data: "))["response"]["id"]
        url = f"{house.url}/responses/{begun}?stream=true"
        async with house.http.get(url, headers=BEARER) as left:
            assert await left.content.readline() == b"event: response.created\n"
        one, other = await asyncio.gather(replay(house, begun), replay(house, begun, "&starting_after=2"))
        assert one[-1]["type"] == "response.completed"
        assert one[3:] == other


@pytest.mark.parametrize("dialect", ["chat"])
async def test_the_end_of_one_that_is_cancelled_is_told_to_who_follows(dialect: str) -> None:
    async with open_house(dialect, None, SLOW) as house:
        async with house.post({"input": "[[say 1000]]", "background": True, "stream": True}) as response:
            await response.content.readline()
            begun = json.loads((await response.content.readline()).removeprefix(b"data: "))["response"]["id"]
        async with house.http.get(f"{house.url}/responses/{begun}?stream=true", headers=BEARER) as followed:
            await followed.content.readline()
            await ask(house, "POST", f"{begun}/cancel")
            assert (await followed.text()).count("event: response.failed\n") == 1
        assert (await replay(house, begun))[-1]["response"]["status"] == "cancelled"


async def test_what_was_begun_without_a_stream_has_none(house: House) -> None:
    made = await make(house, background=True)
    await poll(house, made["id"], "completed")
    status, body = await ask(house, "GET", f"{made['id']}?stream=true")
    assert (status, body["error"]["param"]) == (400, "stream")


@pytest.mark.parametrize("dialect", ["chat"])
async def test_no_more_run_at_once_than_the_limit_says(dialect: str) -> None:
    async with open_house(dialect, {"limits.background_turns": 2}, SLOW) as house:
        begun = [await make(house, "[[say 100]]", background=True) for _ in range(2)]
        async with house.post({"input": "x", "background": True}) as response:
            body = await response.json()
            assert (response.status, body["error"]["code"]) == (429, "rate_limit_exceeded")
            assert "limits.background_turns" in body["error"]["message"]
            assert response.headers["retry-after"] == "5"
        await make(house, "[[say 1]]")
        await ask(house, "POST", f"{begun[0]['id']}/cancel")
        again = await make(house, "[[say 100]]", background=True)
        for each in (begun[1], again):
            await ask(house, "POST", f"{each['id']}/cancel")


@pytest.mark.parametrize("dialect", ["chat"])
async def test_a_drain_ends_them_as_failed_and_can_still_be_asked(dialect: str) -> None:
    async with open_house(dialect, {"server.drain_grace_s": 1.0}, SLOW) as house:
        begun = await make(house, "[[say 1000]]", background=True)
        await poll(house, begun["id"], "in_progress")
        draining = asyncio.create_task(house.server.drain())
        await house.watcher.wait_for(lambda: bool(house.watcher.turns))
        failed = await poll(house, begun["id"], "failed")
        assert failed["error"]["code"] == "server_error"
        assert "shut down" in failed["error"]["message"]
        async with house.http.post(f"{house.url}/responses", json={"input": "x"}, headers=BEARER) as response:
            assert response.status == 503
        await draining
