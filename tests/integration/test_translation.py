"""What a chat upstream is sent for what only a Responses client knows, over real sockets: images, sealed reasoning,
tools that nobody here can run."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
import structlog
from prometheus_client.parser import text_string_to_metric_families

from tests.house import House, open_house
from tests.wire_client import Event, Recorded, function, tool_output, user

PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAEUlEQVR4nGP4z8AARAxg8j8AG/ID/ePnS7EAAAAASUVO"
    "RK5CYII="
)
IMAGE: Event = {"type": "input_image", "image_url": PIXEL, "detail": "high"}
THOUGHT = "First I look, then I leap; it's 2 < 3 & true."
SEALED = {"store": False, "include": ["reasoning.encrypted_content"]}
LEFT_OUT = "loopline.left_out"


def parts_of(message: Event) -> list[Event]:
    """The parts of an upstream message; none where its content is a string."""
    return message["content"] if isinstance(message.get("content"), list) else []


def images(house: House) -> list[tuple[str, Event]]:
    """The role and the image of each image part in the last upstream request."""
    return [
        (message["role"], part["image_url"])
        for message in house.asked()
        for part in parts_of(message)
        if part["type"] == "image_url"
    ]


def never_text(house: House) -> None:
    """No text in the last upstream request holds the image."""
    assert not [text for text in house.said() if "base64" in text]


# --- Images ----------------------------------------------------------------------------------------------------------


async def test_an_image_in_a_message_arrives_as_an_image() -> None:
    question = {"type": "input_text", "text": '[[say "A dot."]]'}
    async with open_house("chat") as house, house.connect() as client:
        first = await client.turn([{"role": "user", "content": [question, IMAGE]}], store=False)
        assert first.text == "A dot."
        assert images(house) == [("user", {"url": PIXEL, "detail": "high"})]
        assert [part["type"] for part in parts_of(house.asked()[-1])] == ["text", "image_url"]
        never_text(house)
        await client.says("And again.", previous_response_id=first.id, store=False)
        assert images(house) == [("user", {"url": PIXEL, "detail": "high"})], "the next turn lost it"
        never_text(house)


async def test_an_image_in_a_tools_output_arrives_as_an_image() -> None:
    tools = [function("get_weather"), function("look")]
    script = '[[call look {"city": "a"}]] [[call get_weather {"city": "b"}]]'
    async with open_house("chat") as house, house.connect() as client:
        first = await client.turn(script, tools=tools, store=False)
        look, weather = first.calls
        shown = [{"type": "input_text", "text": "here it is"}, IMAGE]
        outputs = [
            {"type": "function_call_output", "call_id": look["call_id"], "output": shown},
            tool_output(weather["call_id"], "sunny"),
        ]
        second = await client.turn(
            [*outputs, user('[[say "Seen."]]')], tools=tools, previous_response_id=first.id, store=False
        )
        assert second.text == "Seen."
        assert [image for _, image in images(house)] == [{"url": PIXEL, "detail": "high"}]
        never_text(house)
        # Nothing stands between the calls and their outputs, which servers refuse.
        roles = [message["role"] for message in house.asked()]
        at = roles.index("assistant")
        assert roles[at + 1 : at + 3] == ["tool", "tool"]
        results = {message["tool_call_id"]: message["content"] for message in house.asked()[at + 1 : at + 3]}
        assert "here it is" in str(results[look["call_id"]])
        assert results[weather["call_id"]] == "sunny"


async def test_an_output_that_is_an_image_alone_still_answers_its_call() -> None:
    async with open_house("chat") as house, house.connect() as client:
        first = await client.turn('[[call look {"city": "a"}]]', tools=[function("look")], store=False)
        (call,) = first.calls
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": [IMAGE]}
        second = await client.turn(
            [output], tools=[function("look")], tool_choice="none", previous_response_id=first.id, store=False
        )
        assert second.kind == "response.completed"
        assert [image["url"] for _, image in images(house)] == [PIXEL]
        assert [message["tool_call_id"] for message in house.asked() if message["role"] == "tool"] == [call["call_id"]]
        never_text(house)


async def test_an_image_by_an_id_that_only_openai_knows_is_refused_or_said() -> None:
    foreign = {"type": "input_image", "file_id": "file-123"}
    async with open_house("chat") as house, house.connect() as client:
        turn = await client.turn([{"role": "user", "content": [foreign]}], store=False)
        assert turn.kind == "error"
        assert turn.events[-1]["status"] == 400
        assert turn.events[-1]["error"]["param"] == "input[0]"
        assert "file_id" in turn.events[-1]["error"]["message"] or "by id" in turn.events[-1]["error"]["message"]
        await client.works()


# --- Sealed reasoning ------------------------------------------------------------------------------------------------


def resent(turn: Recorded) -> list[Event]:
    """An answer's items as clients send them back: without ids and status, reasoning without its text."""
    items = []
    for item in turn.output:
        kept = {name: value for name, value in item.items() if name not in ("id", "status")}
        items.append({**kept, "content": None} if item["type"] == "reasoning" else kept)
    return items


def thoughts(house: House, member: str = "reasoning_content") -> list[str]:
    """The reasoning in the last upstream request."""
    return [message[member] for message in house.asked() if message.get(member)]


async def think_and_call(house: House) -> tuple[list[Event], Recorded]:
    """A first turn that thinks and calls, on a socket that is closed again → what was asked, and the turn."""
    asked = [user(f'[[think "{THOUGHT}"]] [[call get_weather {{"city": "Oslo"}}]] [[then]] [[say "Sunny."]]')]
    async with house.connect() as client:
        turn = await client.turn(asked, tools=[function()], **SEALED)
    assert turn.kind == "response.completed"
    return asked, turn


async def go_on(house: House, asked: list[Event], first: Recorded, token: str = "test") -> Recorded:
    """The whole conversation on another socket, with the call's output."""
    whole = [*asked, *resent(first), tool_output(first.calls[0]["call_id"], "sunny")]
    async with house.connect(token) as client:
        turn = await client.turn(whole, tools=[function()], **SEALED)
    assert turn.text == "Sunny."
    return turn


async def test_reasoning_comes_sealed_and_is_opened_when_it_comes_back() -> None:
    async with open_house("chat") as house:
        asked, first = await think_and_call(house)
        (reasoning,) = [item for item in first.output if item["type"] == "reasoning"]
        assert reasoning["encrypted_content"]
        assert THOUGHT not in reasoning["encrypted_content"]
        done = [event["item"] for event in first.events if event["type"] == "response.output_item.done"]
        assert done[0]["encrypted_content"] == reasoning["encrypted_content"]

        second = await go_on(house, asked, first)
        assert thoughts(house) == [THOUGHT]
        (assistant,) = [message for message in house.asked() if message["role"] == "assistant"]
        assert assistant["reasoning_content"] == THOUGHT, "it belongs to the message with the call"
        assert assistant["tool_calls"][0]["function"]["name"] == "get_weather"
        assert LEFT_OUT not in (second.response["metadata"] or {})
        assert "encrypted_content" not in json.dumps(house.upstream.requests[-1].body)


async def test_reasoning_that_was_not_asked_for_is_not_sealed() -> None:
    async with open_house("chat") as house, house.connect() as client:
        turn = await client.turn([user(f'[[think "{THOUGHT}"]] [[say "So."]]')], store=False)
        (reasoning,) = [item for item in turn.output if item["type"] == "reasoning"]
        assert reasoning.get("encrypted_content") is None


async def test_a_restart_opens_what_was_sealed_before() -> None:
    async with open_house("chat") as before:
        asked, first = await think_and_call(before)
    async with open_house("chat") as after:
        await go_on(after, asked, first)
        assert thoughts(after) == [THOUGHT]


async def test_another_credential_cannot_open_it_and_is_told_so(log: io.BytesIO) -> None:
    async with open_house("chat") as house:
        asked, first = await think_and_call(house)
        second = await go_on(house, asked, first, token="another")
        assert thoughts(house) == []
        assert "lpr1." not in json.dumps(house.upstream.requests[-1].body), "the seal went upstream"
        assert "reasoning" in second.response["metadata"][LEFT_OUT]
        assert [what for what, _ in house.watcher.turns[-1].left_out] == ["reasoning"]
        assert [what.split()[0] for what in lines(log)[-1]["left_out"]] == ["reasoning"]


@pytest.mark.parametrize("harm", ["altered", "foreign"])
async def test_what_cannot_be_opened_is_left_out_and_the_turn_goes_on(harm: str) -> None:
    async with open_house("chat") as house:
        asked, first = await think_and_call(house)
        (reasoning,) = [item for item in first.output if item["type"] == "reasoning"]
        sealed = reasoning["encrypted_content"]
        swapped = "A" if sealed[-10] != "A" else "B"
        reasoning["encrypted_content"] = {
            "altered": sealed[:-10] + swapped + sealed[-9:],
            "foreign": "gAAAAABpFOREIGN" * 8,
        }[harm]
        second = await go_on(house, asked, first)
        assert thoughts(house) == []
        assert "reasoning" in second.response["metadata"][LEFT_OUT]


# --- What is left out ------------------------------------------------------------------------------------------------


def lines(log: io.BytesIO) -> list[dict[str, Any]]:
    """The lines about turns so far, which are written in a thread of their own."""
    structlog.get_config()["logger_factory"].flush()
    written = [json.loads(line) for line in log.getvalue().splitlines()]
    return [line for line in written if line["event"] == "turn"]


async def counted(house: House) -> dict[str, float]:
    """`loopline_translate_left_out_total` by `what`."""
    async with house.http.get(f"{house.root}/metrics") as response:
        text = await response.text()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    name = "loopline_translate_left_out_total"
    return {sample.labels["what"]: sample.value for sample in samples if sample.name == name and sample.value}


@pytest.mark.parametrize("transport", ["websocket", "http"])
async def test_a_tool_that_nobody_here_can_run_is_left_out_and_said(transport: str, log: io.BytesIO) -> None:
    create: dict[str, Any] = {"tools": [{"type": "web_search"}, function()], "metadata": {"mine": "kept"}}
    async with open_house("chat") as house:
        if transport == "http":
            async with house.post({"input": '[[say "Done."]]', **create}) as answer:
                response = await answer.json()
        else:
            async with house.connect() as client:
                turn = await client.turn('[[say "Done."]]', **create)
            response = turn.response
            created = turn.events[0]["response"]
            assert created["metadata"] == response["metadata"], "it is said from the first event on"
        assert response["status"] == "completed"
        assert response["metadata"] == {"mine": "kept", LEFT_OUT: "tool web_search"}
        # The client is shown the tools that it sent; the model, those that can be called.
        assert [tool["type"] for tool in response["tools"]] == ["web_search", "function"]
        assert [tool["function"]["name"] for tool in house.upstream.requests[-1].body["tools"]] == ["get_weather"]
        assert await counted(house) == {"tool": 1.0}
        (line,) = lines(log)
        assert (line["left_out"], line["level"]) == (["tool web_search"], "warning")


async def test_a_warm_up_says_what_is_left_out_too(log: io.BytesIO) -> None:
    foreign = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAAABopaque"}
    async with open_house("chat") as house, house.connect() as client:
        warm = await client.turn([user("hi"), foreign], tools=[{"type": "web_search"}], generate=False, store=False)
        said = "tool web_search, reasoning encrypted_content"
        assert warm.response["metadata"] == {LEFT_OUT: said}
        assert lines(log)[0]["left_out"] == said.split(", ")
        assert await counted(house) == {"tool": 1.0, "reasoning": 1.0}


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}}, "tool_choice"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
    ],
)
async def test_a_warm_up_is_refused_for_what_its_turns_would_be_refused_for(wrong: dict[str, Any], param: str) -> None:
    async with open_house("chat") as house, house.connect() as client:
        refused = await client.turn([user("hi")], generate=False, **wrong)
        assert (refused.kind, refused.error["param"]) == ("error", param)


async def test_metadata_that_is_full_is_not_displaced() -> None:
    given = {f"key{number}": "v" for number in range(16)}
    async with open_house("chat") as house, house.connect() as client:
        full = await client.turn("[[say 1]]", tools=[{"type": "web_search"}], metadata=given)
        assert full.response["metadata"] == given
        own = await client.turn("[[say 1]]", tools=[{"type": "web_search"}], metadata={LEFT_OUT: "mine"})
        assert own.response["metadata"] == {LEFT_OUT: "mine"}


async def test_nothing_left_out_is_not_mentioned(log: io.BytesIO) -> None:
    async with open_house("chat") as house, house.connect() as client:
        turn = await client.turn('[[say "Done."]]', tools=[function()], metadata={"mine": "kept"})
        assert turn.response["metadata"] == {"mine": "kept"}
        assert await counted(house) == {}
        assert "left_out" not in lines(log)[0]


@pytest.mark.parametrize(
    ("choice", "named"), [({"type": "web_search"}, "web_search"), ("required", "'tools'")], ids=["named", "required"]
)
async def test_a_tool_that_was_demanded_is_not_left_out_in_silence(choice: Any, named: str) -> None:
    async with open_house("chat") as house, house.connect() as client:
        turn = await client.turn("Search.", tools=[{"type": "web_search"}], tool_choice=choice)
        assert turn.kind == "error"
        assert turn.events[-1]["status"] == 400
        assert turn.events[-1]["error"]["param"] == "tool_choice"
        assert named in turn.events[-1]["error"]["message"]
        assert not house.upstream.requests
        await client.works()


async def test_a_responses_upstream_gets_everything_and_nothing_is_said() -> None:
    tools = [{"type": "web_search"}, function()]
    async with open_house("responses") as house, house.connect() as client:
        turn = await client.turn('[[say "Done."]]', tools=tools)
        assert LEFT_OUT not in (turn.response["metadata"] or {})
        assert [tool["type"] for tool in house.upstream.requests[-1].body["tools"]] == ["web_search", "function"]


# --- Tools that a client runs ----------------------------------------------------------------------------------------

CUSTOM: Event = {"type": "custom", "name": "note", "description": "Takes a note.", "format": {"type": "text"}}
NOTE = 'Say "hi"\n\\ and\tüñ☃'


async def test_a_custom_tool_is_called_with_raw_text_and_answered() -> None:
    script = f'[[call note {json.dumps({"input": NOTE})}]] [[then]] [[say "Noted."]]'
    async with open_house("chat") as house, house.connect() as client:
        first = await client.turn([user(script)], tools=[CUSTOM], store=False)
        (call,) = first.output
        assert (call["type"], call["name"], call["input"]) == ("custom_tool_call", "note", NOTE)
        deltas = [event for event in first.events if event["type"] == "response.custom_tool_call_input.delta"]
        assert "".join(event["delta"] for event in deltas) == NOTE
        output = {"type": "custom_tool_call_output", "call_id": call["call_id"], "output": "kept"}
        second = await client.turn([output], tools=[CUSTOM], previous_response_id=first.id, store=False)
        assert second.text == "Noted."
        assistant, result = house.asked()[-2:]
        assert json.loads(assistant["tool_calls"][0]["function"]["arguments"]) == {"input": NOTE}
        assert (result["role"], result["content"]) == ("tool", "kept")


async def test_a_namespaced_call_comes_back_with_its_namespace() -> None:
    space = {"type": "namespace", "name": "files", "description": "Files.", "tools": [function("read"), CUSTOM]}
    script = f'[[call files__read {{"city": "a"}}]] [[call files__note {json.dumps({"input": NOTE})}]]'
    async with open_house("chat") as house, house.connect() as client:
        turn = await client.turn(script, tools=[space, function("read")], store=False)
        assert [(item["type"], item["namespace"], item["name"]) for item in turn.output] == [
            ("function_call", "files", "read"),
            ("custom_tool_call", "files", "note"),
        ]
        outputs = [tool_output(turn.output[0]["call_id"], "one")]
        outputs.append({"type": "custom_tool_call_output", "call_id": turn.output[1]["call_id"], "output": "two"})
        again = await client.turn(
            [*outputs, user('[[say "Both."]]')], tools=[space], previous_response_id=turn.id, store=False
        )
        assert again.text == "Both."
        said = [call["function"]["name"] for each in house.asked() for call in each.get("tool_calls") or ()]
        assert said == ["files__read", "files__note"]
