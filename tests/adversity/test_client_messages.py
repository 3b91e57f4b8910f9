"""Messages that no good client sends, and large ones that good clients do: each is answered, and the socket goes on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory

from proxy.tools.simulate import Options
from tests.house import House, open_house
from tests.wire_client import WireClient, user

MB = 1_000_000


def create(**members: Any) -> str:
    return json.dumps({"type": "response.create", "model": "simulated", **members})


DEEP = '{"type":"response.create","input":' + "[" * 100_000 + "]" * 100_000 + "}"
DEEP_OBJECT = '{"type":"response.create","input":[{"role":"user","content":' + '{"a":' * 100_000 + "1"

# What is sent → code, param.
BAD: dict[str, tuple[str | bytes, str | None, str | None]] = {
    "not JSON": ("{not json", "invalid_json", None),
    "empty": ("", "invalid_json", None),
    "an array": ("[1,2]", None, None),
    "a number": ("42", None, None),
    "null": ("null", None, None),
    "trailing data": ('{"type":"response.create"} x', "invalid_json", None),
    "a duplicate of nothing": ("{}", "missing_required_parameter", "type"),
    "type null": ('{"type":null}', None, "type"),
    "type a number": ('{"type":1}', None, "type"),
    "unknown type": ('{"type":"response.append"}', "unsupported_event_type", "type"),
    "unknown type in another case": ('{"type":"Response.Create"}', "unsupported_event_type", "type"),
    "very long unknown type": (json.dumps({"type": "x" * 100_000}), "unsupported_event_type", "type"),
    "binary": (b'{"type":"response.create"}', "unsupported_binary_frame", None),
    "nested deep": (DEEP, "json_too_deep", None),
    "nested deep and cut": (DEEP_OBJECT, None, None),
    "a lone surrogate in the text": (
        '{"type":"response.create","model":"simulated","input":"\\ud800"}',
        "invalid_unicode",
        None,
    ),
    "a lone surrogate in an item": (
        '{"type":"response.create","model":"simulated","input":[{"role":"user","content":"\\udfff"}]}',
        "invalid_unicode",
        None,
    ),
    "no input": (create(), "missing_required_parameter", "input"),
    "input null": (create(input=None), "missing_required_parameter", "input"),
    "input a number": (create(input=1), None, "input"),
    "input an object": (create(input={"role": "user"}), None, "input"),
    "an item that is a string": (create(input=["x"]), None, "input[0]"),
    "an item that is nothing": (create(input=[user("x"), {}]), None, "input[1]"),
    "model a number": (create(input="x", model=1), None, "model"),
    "store a string": (create(input="x", store="yes"), None, "store"),
    "tools an object": (create(input="x", tools={}), None, "tools"),
    "tool a string": (create(input="x", tools=["x"]), None, None),
    "temperature a string": (create(input="x", temperature="hot"), None, "temperature"),
    "previous_response_id a number": (create(input="x", previous_response_id=1), None, "previous_response_id"),
    "metadata of numbers": (create(input="x", metadata={"a": 1}), None, "metadata"),
    "background": (create(input="x", background=True), "unsupported_parameter", "background"),
    "conversation": (create(input="x", conversation="conv_1"), "unsupported_parameter", "conversation"),
}


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_message_gets_a_typed_error_and_the_socket_goes_on(name: str, client: WireClient) -> None:
    message, code, param = BAD[name]
    await client.send(message)
    recorded = await client.collect()
    assert recorded.kinds == ["error"]
    assert recorded.error["status"] == 400
    assert recorded.error["error"]["type"] == "invalid_request_error"
    if code is not None:
        assert recorded.error["code"] == code
    if param is not None:
        assert recorded.error["param"] == param
    assert len(recorded.error["message"]) < 500
    await client.works()


async def test_a_message_that_is_not_utf8(client: WireClient) -> None:
    # `websockets` sends bytes as text when told so; it does not look at them.
    await client.connection.send(b'{"type":"response.create","input":"\xff\xfe"}', text=True)
    error = await client.answer()
    assert (error["status"], error["code"]) == (400, "invalid_unicode")
    await client.works()


async def test_a_fragmented_message_is_one_message(client: WireClient) -> None:
    text = create(input=[user('[[say "whole"]]')])
    await client.connection.send([text[:10], text[10:40], text[40:]])
    assert (await client.collect()).text == "whole"


async def test_characters_of_every_plane_arrive_and_return(house: House, client: WireClient) -> None:
    text = 'é ß 漢字 🎉 \u2028 \x00 \\ " \t'
    recorded = await client.turn([user(f"{text} [[say 1]]")])
    assert recorded.kind == "response.completed"
    assert house.said() == [f"{text} [[say 1]]"]


async def test_a_null_lane_is_the_default_lane(client: WireClient) -> None:
    await client.send({"type": "response.create", "model": "simulated", "input": "[[say 1]]", "stream_id": None})
    assert (await client.collect()).kind == "response.completed"


async def test_an_unknown_type_is_named_and_so_are_the_known_ones(client: WireClient) -> None:
    await client.send({"type": "session.update"})
    message = (await client.answer())["message"]
    assert "'session.update'" in message
    assert all(known in message for known in ("response.create", "response.steer", "response.cancel"))


async def test_a_steer_of_what_does_not_run_is_answered_with_its_input(client: WireClient) -> None:
    steer = {"type": "response.steer", "previous_response_id": "resp_1", "input": [user("stop")]}
    await client.send(steer)
    event = await client.answer()
    assert event["type"] == "response.steer.failed"
    assert event["error"]["code"] == "response_not_found"
    assert event["steer"] == {"previous_response_id": "resp_1", "input": [user("stop")]}
    await client.works()


async def test_a_steer_that_cannot_be_read_leaves_the_turn_alone(house: House, client: WireClient) -> None:
    await client.create([user("[[stall 1]]")])
    recorded = await client.until("response.output_text.delta")
    running = recorded.events[0]["response"]["id"]
    await client.send({"type": "response.steer", "previous_response_id": running, "input": 5})
    event = await client.event()
    while event["type"].startswith("response.output_text"):
        event = await client.event()
    assert event["type"] == "response.steer.failed"
    assert event["error"]["code"] == "invalid_input"
    assert not house.upstream.requests[-1].aborted


async def test_a_cancel_of_nothing_is_an_error_and_the_socket_goes_on(client: WireClient) -> None:
    await client.send({"type": "response.cancel", "response_id": "resp_1"})
    error = await client.answer()
    assert (error["status"], error["code"], error["param"]) == (404, "response_not_found", "response_id")
    await client.works()


async def test_response_processed_gets_no_answer(client: WireClient) -> None:
    await client.send({"type": "response.processed", "response_id": "resp_1"})
    # The next thing that comes belongs to the next turn.
    await client.works()


async def test_a_hundred_bad_messages_then_a_good_one(client: WireClient) -> None:
    for _ in range(100):
        await client.send("{")
    for _ in range(100):
        assert (await client.answer())["code"] == "invalid_json"
    await client.works()


async def test_unknown_members_of_a_create_never_reach_a_chat_upstream() -> None:
    async with open_house("chat") as house, house.connect() as client:
        await client.says("hello", client_metadata={"a": "b"}, surprise=[1])
        assert not {"client_metadata", "surprise"} & set(house.upstream.requests[-1].body)


# --- Size ------------------------------------------------------------------------------------------------------------


async def test_twenty_megabytes_of_text_in_one_frame(dialect: str) -> None:
    async with open_house(dialect, options=Options(context_tokens=10_000_000)) as house, house.connect() as client:
        recorded = await client.turn([user("x" * (20 * MB)), user('[[say "read"]]')])
        assert recorded.text == "read"
        assert house.upstream.requests[-1].body_bytes > 20 * MB
        await client.works()


async def test_an_image_of_twenty_megabytes_arrives_whole(house: House, client: WireClient) -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64," + "A" * (20 * MB)}
    item = {"role": "user", "content": [{"type": "input_text", "text": '[[say "seen"]]'}, image]}
    recorded = await client.turn([item])
    assert recorded.text == "seen"
    assert house.upstream.requests[-1].body_bytes > 20 * MB
    # The next turn carries it again without the client having to.
    second = await client.says("again", previous_response_id=recorded.id)
    assert second.kind == "response.completed"
    assert house.upstream.requests[-1].body_bytes > 20 * MB


SMALL = {"limits.frame_bytes": 100_000, "limits.frame_hard_bytes": 200_000}


async def test_a_frame_above_the_soft_limit_is_an_error_and_the_socket_goes_on() -> None:
    async with open_house("chat", SMALL) as house, house.connect() as client:
        await client.create([user("x" * 150_000)])
        error = await client.answer()
        assert (error["status"], error["code"]) == (400, "message_too_large")
        assert "limits.frame_bytes" in error["message"]
        await client.works()


@pytest.mark.parametrize("compression", [None, "deflate"])
async def test_a_frame_above_the_hard_limit_closes_with_1009(compression: str | None) -> None:
    async with open_house("chat", SMALL) as house:
        async with house.connect(compression=compression) as client:
            await client.create([user("x" * 300_000)])
            assert await client.closed() == 1009
        async with house.connect() as client:
            await client.works()


async def test_a_body_above_the_limit_over_http() -> None:
    async with open_house("chat", SMALL) as house:
        async with house.post({"input": "x" * 150_000}) as response:
            assert response.status == 413
            assert (await response.json())["error"]["code"] == "message_too_large"
        async with house.post({"input": "[[say 1]]"}) as response:
            assert response.status == 200


async def test_limits_of_items_tools_and_history() -> None:
    limits = {"limits.input_items": 3, "limits.tools": 1, "limits.history_bytes": 20_000}
    async with open_house("chat", limits) as house, house.connect() as client:
        many = await client.turn([user("a")] * 4)
        assert "limits.input_items" in many.error["message"]
        tools = await client.turn("a", tools=[{"type": "function", "name": "a"}, {"type": "function", "name": "b"}])
        assert "limits.tools" in tools.error["message"]
        first = await client.says("x" * 8_000)
        large = await client.turn("y" * 8_000, previous_response_id=first.id)
        assert large.error["code"] == "context_length_exceeded"
        assert "limits.history_bytes" in large.error["message"]
        await client.works()


async def test_compression_is_negotiated_and_what_the_client_compresses_is_read(house: House) -> None:
    async with house.connect(compression="deflate") as client:
        assert client.connection.protocol.extensions
        recorded = await client.turn([user("word " * 20_000 + '[[say "read"]]')])
        assert recorded.text == "read"
        await client.works()


@pytest.mark.parametrize("takeover", [True, False])
async def test_compression_with_and_without_context_takeover(takeover: bool, house: House) -> None:
    factory = ClientPerMessageDeflateFactory(client_no_context_takeover=not takeover, server_no_context_takeover=True)
    async with house.connect(extensions=[factory]) as client:
        for number in range(5):
            await client.says(f"the same words again and again {number}")


async def test_no_compression_is_forced_on_a_client_that_does_not_offer_it(client: WireClient) -> None:
    assert not client.connection.protocol.extensions
    await client.works()
